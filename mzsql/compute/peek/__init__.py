"""Peeks: answering a one-shot query at one time (docs/architecture.md, "The way of a SELECT")."""
