"""Reads an index from its arrangement's shard, by key.

Promise: `IndexReads.rows` returns exactly the rows of the indexed object at a time that have one of the keys,
whichever process maintains the index. It returns None if the index cannot be used: it is not hydrated, not complete
at the time, contains errors (which errors a query raises depends on what it reads, so it must read the indexed
object), or has a key type without an order. A lookup in a large index reads only the row groups that may contain the
key. A small index is kept in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.catalog.objects import Index
from mzsql.catalog.state import CatalogState
from mzsql.compute.peek.outflow import Limits
from mzsql.compute.peek.rows import decoder
from mzsql.compute.peek.snapshots import SnapshotCache, StoredContents
from mzsql.compute.replica.arrangements.ranges import rangeable
from mzsql.compute.replica.dataflows.dataflow import index_desc
from mzsql.expr.scalar import Scalar
from mzsql.lir.forms import arrangement_form
from mzsql.lir.plan import IndexImport
from mzsql.lir.sealed import SealedDataflow
from mzsql.persist import ExpiredHandle, KeyRange, ShardFinalized, SinceViolation
from mzsql.render.dataflow import render
from mzsql.render.nodes.naming import arrangement_name
from mzsql.render.rendered import Outline
from mzsql.repr.datum import Row
from mzsql.repr.errors import UndefinedTable
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, arrow_type
from mzsql.storage import Collection, Collections
from mzsql.storage.collection import ARRANGEMENT
from mzsql.transform.fast_path import PeekIndexPlan
from mzsql.transform.row_wise import PLAIN

#: Most keys of one lookup; for more the index is not used.
MAX_KEYS = 64


class Layout(msgspec.Struct, frozen=True):
    """How an index's rows are stored.

    Attributes:
        suffix: the part of its name in the catalog that follows the replica.
        columns: key columns, then the others.
        key_arity: number of key columns.
        permutation: for each column of the indexed object its position in `columns`.
    """

    suffix: str
    columns: tuple[ColumnType, ...]
    key_arity: int
    permutation: tuple[int, ...]


class DeployedIndexes(Protocol):
    """The plans of the indexes that run."""

    def taken_up(self, index: Index) -> tuple[SealedDataflow, Outline | None]:
        """An index's plan and outline."""


class IndexReads:
    """Reads the indexes of an environment in one process. Thread-safe.

    Args:
        collections: reads shards.
        state: returns the catalog as last seen.
        deployed: an index's plan and outline, which identify its arrangement.
        kept: keeps small indexes in memory.
        limits: how much a lookup may bring into this process.
    """

    def __init__(
        self,
        collections: Collections,
        state: Callable[[], CatalogState],
        deployed: DeployedIndexes,
        kept: SnapshotCache,
        limits: Limits,
    ) -> None:
        self._collections = collections
        self._state = state
        self._deployed = deployed
        self._kept = kept
        self._limits = limits
        self._lock = threading.Lock()
        self._layouts: dict[tuple[GlobalId, int, int], Layout] = {}
        self._registered: dict[GlobalId, Collection] = {}

    def rows(self, plan: PeekIndexPlan, as_of: Timestamp) -> pa.Table | None:
        """The indexed object's rows with the plan's keys (all rows if it has none): c0 …, mz_diff; None if the index
        cannot be used.

        Args:
            plan: the index and the keys.
            as_of: the time.
        """
        found = self._found(plan.index_id, plan.key, plan.typ.arity, plan.rows, as_of)
        if found is None:
            return None
        layout, rows = found
        names = [*(f"c{place}" for place in layout.permutation), "mz_diff"]
        raw = [f"c{i}" for i in range(len(layout.permutation))]
        return rows.select(names).rename_columns([*raw, "mz_diff"])

    def arranged(
        self,
        imports: Sequence[IndexImport],
        lookups: Mapping[GlobalId, Sequence[Row]],
        as_of: Timestamp,
    ) -> dict[GlobalId, pa.Table] | None:
        """The rows of indexes in the arrangement's column order: c0 … (key, then the other columns), mz_diff; None if
        an index cannot be used.

        Args:
            imports: the indexes, as a plan imports them.
            lookups: the wanted keys of some of them; of the others all rows are wanted.
            as_of: the time.
        """
        tables: dict[GlobalId, pa.Table] = {}
        for index in imports:
            arity = len(index.typ.columns)
            found = self._found(index.id, index.key, arity, lookups.get(index.id), as_of)
            if found is None:
                return None
            tables[index.id] = found[1].drop_columns(["mz_error"])
        return tables

    def _found(
        self,
        gid: GlobalId,
        key: tuple[Scalar, ...],
        arity: int,
        rows: Sequence[Row] | None,
        as_of: Timestamp,
    ) -> tuple[Layout, pa.Table] | None:
        """The rows of an index with some keys, or all of them, in stored form; None if the index cannot be used."""
        item = self._state().items.get(gid)
        if not isinstance(item, Index) or (rows is not None and len(rows) > MAX_KEYS):
            return None
        layout = self._layout(item, key, arity)
        collection = self._collection(item, layout)
        if collection is None:
            return None
        if rows is not None and any(
            column.type.kind not in PLAIN for column in layout.columns[: layout.key_arity]
        ):
            return None
        try:
            found = self._read(collection, layout, rows, as_of)
        except (ShardFinalized, ExpiredHandle, UndefinedTable):
            # It was dropped, or is being filled again.
            self._forget(collection)
            return None
        except SinceViolation:
            # Nothing holds the index at the query's time, and it was just compacted beyond it. The indexed object is
            # held, so read that.
            return None
        if found is None or found.column("mz_error").null_count < found.num_rows:
            return None
        return layout, found

    # --- where it is --------------------------------------------------------------------------

    def _layout(self, item: Index, key_exprs: tuple[Scalar, ...], arity: int) -> Layout:
        serving = self._state().serving(item.cluster)
        workers = 1 if serving is None else serving.workers
        key = (item.id, item.version, workers)
        with self._lock:
            known = self._layouts.get(key)
        if known is not None:
            return known
        sealed, outline = self._deployed.taken_up(item)
        arranged = index_desc(item.id, sealed, render(sealed, outline=outline))
        form = arrangement_form(key_exprs, arity)
        suffix = arrangement_name(arranged.fingerprint, workers)
        made = Layout(suffix, arranged.columns, arranged.key_arity, form.permutation)
        with self._lock:
            self._layouts[key] = made
        return made

    def _collection(self, item: Index, layout: Layout) -> Collection | None:
        """The arrangement, registered as a readable collection; None if no replica has filled it."""
        state = self._state()
        serving = state.serving(item.cluster)
        shard = None if serving is None else state.arrangements.get(f"{serving.id}/{layout.suffix}")
        with self._lock:
            known = self._registered.get(item.id)
        if known is not None and known.shard == shard:
            return known
        if known is not None:
            self._forget(known)
        if shard is None:
            return None
        made = Collection(
            id=item.id,
            name=item.full_name,
            shard=shard,
            columns=layout.columns,
            kind=ARRANGEMENT,
            has_errors=True,
            exported=True,
        )
        # As in `_collection`, so that an arrangement that was just registered there is not removed.
        with self._lock:
            self._collections.register(made)
            self._registered[item.id] = made
        return made

    def _forget(self, gone: Collection) -> None:
        """Unregister an arrangement, unless another one of the index has taken its place."""
        # Under the lock that `_collection` registers under, so that what it has just registered is never forgotten.
        with self._lock:
            if self._registered.get(gone.id) is not gone:
                return
            del self._registered[gone.id]
            self._kept.forget((gone.id, gone.shard))
            self._collections.forget(gone.id)

    def forget_dropped(self) -> None:
        """Unregister the indexes that are no longer in the catalog."""
        items = self._state().items
        with self._lock:
            gone = [one for gid, one in self._registered.items() if gid not in items]
            for key in [key for key in self._layouts if key[0] not in items]:
                del self._layouts[key]
        for one in gone:
            self._forget(one)

    # --- what it holds ------------------------------------------------------------------------

    def _read(
        self,
        collection: Collection,
        layout: Layout,
        keys: Sequence[Row] | None,
        as_of: Timestamp,
    ) -> pa.Table | None:
        """The stored rows with the keys, and all error rows; None if the index is not complete at the time, or too
        large to be read whole.
        """
        collections, gid = self._collections, collection.id
        upper = collections.known_upper(gid)
        if upper is not None and upper <= as_of:
            upper = collections.upper(gid)
        since = collections.since(gid)
        if since is None or since > as_of or (upper is not None and upper <= as_of):
            return None
        kept = self._kept.read(StoredContents(collections, gid), as_of)
        if kept is not None:
            return kept if keys is None else _with_keys(kept, layout, keys)
        if keys is None or not rangeable(arrow_type(layout.columns[0].type)):
            return None
        first = decoder(layout.columns[0].type)
        values = pa.array([first(key[0]) for key in keys], arrow_type(layout.columns[0].type))
        # Error rows have no key, so they are in the range of NULL. Arrow values, because Python has no dates after the
        # year 9999.
        ranges: list[KeyRange] = [(None, None), *((v, v) for v in values)]
        limits = self._limits
        found = collections.lookup(gid, as_of, ranges, rows=limits.rows, size=limits.bytes)
        return None if found is None else _with_keys(found.drop_columns(["mz_time"]), layout, keys)


def _with_keys(rows: pa.Table, layout: Layout, keys: Sequence[Row]) -> pa.Table:
    """The rows with one of the keys, and error rows."""
    mask = pc.is_valid(rows.column("mz_error"))
    for key in keys:
        one = None
        for place, datum in enumerate(key):
            typ = layout.columns[place].type
            if datum is None:
                same = pc.is_null(rows.column(f"c{place}"))
            else:
                value = pa.array([decoder(typ)(datum)], arrow_type(typ))[0]
                same = pc.fill_null(pc.equal(rows.column(f"c{place}"), value), fill_value=False)
            one = same if one is None else pc.and_(one, same)
        if one is not None:
            mask = pc.or_(mask, one)
    return rows.filter(mask)
