"""LIR: the physical plan of a dataflow, its lowering from MIR, and refinements."""

from mzsql.lir.lowering import Planned, lower

__all__ = ["Planned", "lower"]
