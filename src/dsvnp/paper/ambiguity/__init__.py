"""Ambiguity: problems where p(y | task, x) is outside the family of a Gaussian head (PROTOCOLS §7)."""
