"""The reproduction of the paper, and experiments beyond it."""
