"""Committing writes of many sessions and tables by one compare-and-append, and the locks of those that read before they write."""
