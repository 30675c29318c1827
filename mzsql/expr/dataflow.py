"""A dataflow in MIR: its imports, the objects it builds, its export.

Promise: plain data, equal by value, serializable. The optimizer rewrites it; lowering turns it into the physical
`DataflowDescription`. The structs common to both levels (imports of indexes, exports) are defined here.
"""

from __future__ import annotations

import msgspec

from mzsql.expr.relation import Relation
from mzsql.expr.scalar import Scalar
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationType


class IndexImport(msgspec.Struct, frozen=True, cache_hash=True):
    """An index read in place of the collection it is on; ``usages`` are EXPLAIN's words (``lookup``, …)."""

    id: GlobalId
    on_id: GlobalId
    key: tuple[Scalar, ...]
    typ: RelationType
    usages: tuple[str, ...] = ()


class IndexExport(msgspec.Struct, frozen=True, tag="index", cache_hash=True):
    """The dataflow maintains index ``id`` on ``on_id``, arranged by ``key``."""

    id: GlobalId
    on_id: GlobalId
    key: tuple[Scalar, ...]


class MaterializedViewExport(msgspec.Struct, frozen=True, tag="materialized_view", cache_hash=True):
    """The dataflow writes materialized view ``id``."""

    id: GlobalId


class PeekExport(msgspec.Struct, frozen=True, tag="peek", cache_hash=True):
    """The dataflow answers a one-shot query."""

    id: GlobalId


Export = IndexExport | MaterializedViewExport | PeekExport


class MirSource(msgspec.Struct, frozen=True, cache_hash=True):
    """A collection read from its shard; ``monotonic`` says that it is append-only."""

    id: GlobalId
    typ: RelationType
    monotonic: bool = False


class MirObject(msgspec.Struct, frozen=True, cache_hash=True):
    """An object that the dataflow builds."""

    id: GlobalId
    plan: Relation
    typ: RelationType


class MirDataflow(msgspec.Struct, frozen=True, cache_hash=True):
    """A dataflow. Each object comes after those it reads; the last one is exported."""

    source_imports: tuple[MirSource, ...]
    index_imports: tuple[IndexImport, ...]
    objects: tuple[MirObject, ...]
    export: Export

    @property
    def is_single_time(self) -> bool:
        """Whether the dataflow is computed at one time only, as for a one-shot query."""
        return isinstance(self.export, PeekExport)
