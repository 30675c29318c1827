"""Dataflows in motion: a controller that says what runs where, replicas that run it, and one-shot queries.

`compute.protocol` is all that the two tell each other; what compute needs of its neighbours is in `compute.protocols`.
"""

from __future__ import annotations

from mzsql.compute.peek.spark import Peeks
from mzsql.compute.protocol import (
    ObjectHydrationStatus,
    OperatorHydrationStatus,
    RefreshStats,
    Status,
    StatusRow,
)
from mzsql.compute.protocols import (
    ArrangementRegistry,
    ComputeSettings,
    ReadHold,
    StorageReader,
)

__all__ = [
    "ArrangementRegistry",
    "ComputeSettings",
    "ObjectHydrationStatus",
    "OperatorHydrationStatus",
    "Peeks",
    "ReadHold",
    "RefreshStats",
    "Status",
    "StatusRow",
    "StorageReader",
]
