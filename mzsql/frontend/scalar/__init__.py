"""Expressions to typed HIR scalars: `expressions` has the table of handlers, `context` what a handler may ask of the
query around it.

Imports go upward in this order: values with types and casts (`typed`, `casting`, `coerce`), what handlers share
(`nodes`, `context`), the handlers.
"""
