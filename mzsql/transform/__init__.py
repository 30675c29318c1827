"""The MIR optimizer: one module for each transform, `pipeline` with the list of them, `dataflow` from a query to an
optimized dataflow.
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
