"""Queries to HIR: FROM, grouping, select lists, set operations, limits. What stands in their clauses is planned in `scalar`."""
