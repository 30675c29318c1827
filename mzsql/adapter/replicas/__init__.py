"""Replicas as processes of their own: where they are, and what such a process does."""
