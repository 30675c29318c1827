"""Resolving names: objects of the catalog, types, columns in scope. Expressions and queries are planned elsewhere."""
