"""A dataflow at the level of MIR: what it reads, what it builds, what it exports.

Promise: plain data, equal by value and serializable; the optimizer maps one to another, lowering makes the physical
`DataflowDescription` of it. The structs that mean the same at both levels (imports of indexes, exports) are defined here once.
"""

from __future__ import annotations

import msgspec

from mzsql.expr.relation import Relation
from mzsql.expr.scalar import Scalar
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationType


class IndexImport(msgspec.Struct, frozen=True, cache_hash=True):
    """An index that is read instead of the collection it is on; `usages` as EXPLAIN prints them (``lookup``, …)."""

    id: GlobalId
    on_id: GlobalId
    key: tuple[Scalar, ...]
    typ: RelationType
    usages: tuple[str, ...] = ()


class IndexExport(msgspec.Struct, frozen=True, tag="index", cache_hash=True):
    """The dataflow maintains index `id` on `on_id` by `key`."""

    id: GlobalId
    on_id: GlobalId
    key: tuple[Scalar, ...]


class MaterializedViewExport(msgspec.Struct, frozen=True, tag="materialized_view", cache_hash=True):
    """The dataflow writes materialized view `id`."""

    id: GlobalId


class PeekExport(msgspec.Struct, frozen=True, tag="peek", cache_hash=True):
    """The dataflow answers a one-shot query."""

    id: GlobalId


Export = IndexExport | MaterializedViewExport | PeekExport


class MirSource(msgspec.Struct, frozen=True, cache_hash=True):
    """A collection that can be read from its shard; `monotonic`: it only ever grows."""

    id: GlobalId
    typ: RelationType
    monotonic: bool = False


class MirObject(msgspec.Struct, frozen=True, cache_hash=True):
    """An object that the dataflow builds."""

    id: GlobalId
    plan: Relation
    typ: RelationType


class MirDataflow(msgspec.Struct, frozen=True, cache_hash=True):
    """A dataflow; objects stand after those they read, the last one is what is exported."""

    source_imports: tuple[MirSource, ...]
    index_imports: tuple[IndexImport, ...]
    objects: tuple[MirObject, ...]
    export: Export

    @property
    def is_single_time(self) -> bool:
        """Whether it is computed for one time only (a one-shot query)."""
        return isinstance(self.export, PeekExport)
