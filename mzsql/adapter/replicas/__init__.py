"""Replicas in processes of their own: how they are found, and what such a process does."""
