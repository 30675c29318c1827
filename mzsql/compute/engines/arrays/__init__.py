"""Running the statements of steps over few rows with NumPy, without DuckDB, where the result is the same."""
