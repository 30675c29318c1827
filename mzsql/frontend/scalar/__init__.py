"""Expressions to typed HIR scalars: `expressions` has the table of handlers, `context` what a handler may ask of the query around it.

Upward: values with their types and casts (`typed`, `casting`, `coerce`), what handlers share (`nodes`, `context`), handlers by kind.
"""
