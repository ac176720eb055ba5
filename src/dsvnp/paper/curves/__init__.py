"""Curves from a stochastic process (Tables 2 and A.1, Fig. 2)."""
