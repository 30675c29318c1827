"""Scalar and relation expressions (MIR), `MapFilterProject`, and the table of functions with their signatures.

Expressions are immutable data; what a function means, and how each engine spells it, stands once in `mzsql.expr.functions`.
"""
