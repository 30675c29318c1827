"""The MIR optimizer: one module for each transform, `pipeline` with the list of them, `dataflow` from a query to an
optimized dataflow.

Source: Materialize's crate `mz_transform`, after whose transforms most modules are named. docs/architecture.md, "The
way of a SELECT", says where planning happens.
"""

from mzsql.transform.context import IndexDesc, OptimizerContext
from mzsql.transform.dataflow import build_dataflow, optimize_dataflow, optimize_local
from mzsql.transform.features import OptimizerFeatures

__all__ = [
    "IndexDesc",
    "OptimizerContext",
    "OptimizerFeatures",
    "build_dataflow",
    "optimize_dataflow",
    "optimize_local",
]
