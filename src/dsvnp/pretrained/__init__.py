"""Networks trained once on synthetic functions, for use without training."""
