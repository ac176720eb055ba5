"""The field's table: GP regression as in BNP, TNP and LBANP (PROTOCOLS §6)."""
