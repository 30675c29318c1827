"""A session: its variables, its transaction with staged DDL, the catalog under its search path, its read holds."""
