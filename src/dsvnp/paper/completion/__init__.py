"""Image completion: pixels as a function of their place (PROTOCOLS §8)."""
