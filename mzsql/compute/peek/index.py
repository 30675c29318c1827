"""Reads of indexes: the arrangement of an index, on its shard, by key.

Promise: `IndexReads.rows` gives exactly the rows of the indexed object at a time that have one of the keys, whoever maintains the index and
in which process; or None where the index is of no use: it is not filled, is not complete at the time, holds errors (which errors a query
meets depends on what it reads, so it is then answered from what the index is on), or its key has no order to look it up by. A lookup in
a large index reads, of the workers' files, only the row groups that may have the key. A small index is kept in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.catalog.objects import Index
from mzsql.catalog.state import CatalogState
from mzsql.compute.peek.outflow import Limits
from mzsql.compute.peek.row_reads import PLAIN
from mzsql.compute.peek.rows import decoder
from mzsql.compute.peek.snapshots import SnapshotCache, StoredContents
from mzsql.compute.replica.dataflow import index_desc
from mzsql.compute.replica.ranges import rangeable
from mzsql.expr.scalar import Scalar
from mzsql.lir.forms import arrangement_form
from mzsql.lir.plan import IndexImport
from mzsql.lir.sealed import SealedDataflow
from mzsql.persist import ExpiredHandle, KeyRange, ShardFinalized, SinceViolation
from mzsql.render.dataflow import render
from mzsql.render.naming import arrangement_name
from mzsql.render.rendered import Outline
from mzsql.repr.datum import Row
from mzsql.repr.errors import UndefinedTable
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, arrow_type
from mzsql.storage import Collection, Collections
from mzsql.storage.collection import ARRANGEMENT
from mzsql.transform.fast_path import PeekIndexPlan

#: So many keys are looked up at a time; more are answered without the index.
MAX_KEYS = 64


class Layout(msgspec.Struct, frozen=True):
    """How an index's rows are stored.

    Attributes:
        suffix: what its name in the catalog ends with, behind the replica.
        columns: key columns, then the others.
        key_arity: how many are the key.
        permutation: for each column of the indexed object its place.
    """

    suffix: str
    columns: tuple[ColumnType, ...]
    key_arity: int
    permutation: tuple[int, ...]


class IndexReads:
    """Reads the indexes of an environment in one process. Thread-safe.

    Args:
        collections: what is stored.
        state: gives the catalog as last seen.
        plan: of an index, as it runs, with what is known of it as rendered: it names the arrangement.
        kept: keeps small ones in memory.
        limits: how much a lookup may bring into this process.
    """

    def __init__(
        self,
        collections: Collections,
        state: Callable[[], CatalogState],
        plan: Callable[[Index], tuple[SealedDataflow, Outline | None]],
        kept: SnapshotCache,
        limits: Limits,
    ) -> None:
        self._collections = collections
        self._state = state
        self._plan = plan
        self._kept = kept
        self._limits = limits
        self._lock = threading.Lock()
        self._layouts: dict[tuple[GlobalId, int, int], Layout] = {}
        self._registered: dict[GlobalId, Collection] = {}

    def rows(self, plan: PeekIndexPlan, as_of: Timestamp) -> pa.Table | None:
        """The indexed object's rows with the plan's keys (all rows where it has none): c0 …, mz_diff; None where the index is of no use.

        Args:
            plan: which index, which keys.
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
        """The rows of indexes as they are arranged: c0 … of the key, then the other columns, mz_diff; None where one is of no use.

        Args:
            imports: the indexes, as a plan imports them.
            lookups: the keys that are wanted of some of them; of the others all rows are.
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
        """The rows of an index with some keys, or all of them, as they are stored; None where it is of no use."""
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
            # It was dropped, or is being filled anew.
            self._forget(collection)
            return None
        except SinceViolation:
            # Nothing holds it at the query's time, which its history has just passed; what it is on is held.
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
        sealed, outline = self._plan(item)
        arranged = index_desc(item.id, sealed, render(sealed, outline=outline))
        form = arrangement_form(key_exprs, arity)
        suffix = arrangement_name(arranged.fingerprint, workers)
        made = Layout(suffix, arranged.columns, arranged.key_arity, form.permutation)
        with self._lock:
            self._layouts[key] = made
        return made

    def _collection(self, item: Index, layout: Layout) -> Collection | None:
        """The arrangement as a readable collection; None where no replica has filled it."""
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
        with self._lock:
            self._collections.register(made)
            self._registered[item.id] = made
        return made

    def _forget(self, gone: Collection) -> None:
        """Let go of an arrangement, unless another one of the index has taken its place."""
        # In one with what `_collection` does: what it has just registered is not forgotten.
        with self._lock:
            if self._registered.get(gone.id) is not gone:
                return
            del self._registered[gone.id]
            self._kept.forget((gone.id, gone.shard))
            self._collections.forget(gone.id)

    def forget_dropped(self) -> None:
        """Let go of indexes that the catalog has no longer."""
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
        """The stored rows with the keys, and all errors; None where the index is not complete yet, or too large to be read whole."""
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
        # Error rows have no key: they are found under NULL. Arrow's values, as Python has no date after the year 9999.
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
