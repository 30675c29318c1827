"""Numbers: arithmetic, rounding, functions, the casts between them."""
