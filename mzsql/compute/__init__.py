"""Running dataflows: a controller decides which dataflow runs on which replica, replicas run them, and peeks answer
one-shot queries.

`compute.protocol` holds every message between controller and replica; `compute.dependencies` declares what this package
needs from the packages around it (storage, the adapter). docs/architecture.md, "The way of an update through a
dataflow", tells how the parts work together.
"""

from __future__ import annotations

from mzsql.compute.dependencies import (
    ArrangementRegistry,
    ComputeSettings,
    ReadHold,
    StorageReader,
)
from mzsql.compute.peek.spark import Peeks
from mzsql.compute.protocol import (
    ObjectHydrationStatus,
    OperatorHydrationStatus,
    RefreshStats,
    Status,
    StatusRow,
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
