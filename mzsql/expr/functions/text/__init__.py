"""Texts, patterns, encodings."""
