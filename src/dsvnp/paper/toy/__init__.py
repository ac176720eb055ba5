"""The toy function: twelve points, a gap, eight points (Fig. 2, first row)."""
