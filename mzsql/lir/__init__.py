"""LIR: the physical plan of a dataflow; lowering from MIR, and refinements."""

from mzsql.lir.lowering import lower

__all__ = ["lower"]
