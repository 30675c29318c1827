"""A session: its variables, its transaction and what that has staged, the catalog under its search path, what it holds readable."""
