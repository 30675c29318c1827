"""Scripts people run: the quickstart, TPC-H, diagnostics."""
