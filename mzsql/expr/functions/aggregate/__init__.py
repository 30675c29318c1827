"""Aggregates, and window functions, which are aggregates of a partition."""
