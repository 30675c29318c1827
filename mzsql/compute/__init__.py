"""Dataflows in motion: the controller that brings views forward, the Spark side of a step, arrangements, hydration.

`ComputeController` runs the rendered dataflows of one replica; what it needs from storage and catalog, and
what it reports, are the protocols and structs of `mzsql.compute.protocols`.
"""

from __future__ import annotations

from mzsql.compute.peek.spark import Peeks
from mzsql.compute.protocols import (
    ArrangementRegistry,
    ComputeSettings,
    DataflowStatus,
    ObjectHydrationStatus,
    OperatorHydrationStatus,
    ReadHold,
    RefreshStats,
    StatusRow,
    StatusSink,
    StorageReader,
)
from mzsql.compute.replica.controller import ComputeController
from mzsql.compute.replica.dataflow import rendered_over

__all__ = [
    "ArrangementRegistry",
    "ComputeController",
    "ComputeSettings",
    "DataflowStatus",
    "ObjectHydrationStatus",
    "OperatorHydrationStatus",
    "Peeks",
    "ReadHold",
    "RefreshStats",
    "StatusRow",
    "StatusSink",
    "StorageReader",
    "rendered_over",
]
