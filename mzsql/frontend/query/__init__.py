"""Queries to HIR: FROM, grouping, select lists, set operations, limits. Expressions in them are planned by `scalar`."""
