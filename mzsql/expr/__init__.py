"""Scalar and relation expressions (MIR), `MapFilterProject`, and the table of functions with their signatures.

Expressions are immutable data. What a function means, and how each engine spells it, is written once, in
`mzsql.expr.functions`.
"""
