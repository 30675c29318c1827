"""LIR: the physical plan of a dataflow, its lowering from MIR, and refinements.

Source: Materialize's crate `mz_compute_types`, its module `plan`. docs/architecture.md, "The way of a SELECT", says
where it is made.
"""

from mzsql.lir.lowering import Planned, lower

__all__ = ["Planned", "lower"]
