"""Answering a one-shot query at one time."""
