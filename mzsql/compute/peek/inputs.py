"""Reads what peeks need: the contents of collections and builtin relations at a time, with a transaction's own writes.

Promise: contents are those at the time, consolidated, whoever wrote them. Contents beyond the limits are never
brought into this process whole. Small contents that do not change are cached, so reading them again calls no
backend. A wait for an input ends at its timeout, with an error that says what was waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Protocol, TypeAlias

import pyarrow as pa

from mzsql.catalog.builtin import Builtin, builtins
from mzsql.compute.peek.files import Source
from mzsql.compute.peek.outflow import Limits
from mzsql.compute.peek.row_reads import filters_of
from mzsql.compute.peek.snapshots import ENTRY_BYTES, SnapshotCache, StoredContents, merged
from mzsql.compute.replica.dataflows.inputs import input_schema
from mzsql.expr.scalar import support
from mzsql.lir.plan import SourceImport
from mzsql.location import Determinate
from mzsql.persist import Filters, PartRef
from mzsql.render.rendered import InputSpec
from mzsql.repr.errors import NotReadable
from mzsql.repr.frontier import Timestamp, show
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import current
from mzsql.repr.types import arrow_schema
from mzsql.storage import CollectionManager, Collections, empty_updates
from mzsql.transform.row_wise import Condition, RowRead, over

#: Uncommitted updates of a transaction, which its own reads see, by table: columns c0 …, mz_time, mz_diff.
Overlay: TypeAlias = Mapping[GlobalId, Sequence[pa.Table]]
#: Ranges that every error row is in.
_ERRORS: Filters = {"mz_error": [("", None)]}

#: How often a query that waits for its inputs checks whether it was canceled, in seconds.
_LOOK_SECONDS = 0.25


class SystemRows(Protocol):
    """The rows of builtin relations that are computed when they are read."""

    def is_derived(self, builtin: Builtin) -> bool:
        """Whether the rows of a builtin relation are computed when it is read."""

    def derived(
        self,
        builtin: Builtin,
        columns: Set[int] | None = None,
        conditions: Sequence[Condition] = (),
    ) -> pa.Table:
        """Its present rows: c0 …. If `columns` is given, other columns may contain anything; rows for which a condition
        does not hold may be left out.
        """


class Inputs:
    """Reads the inputs of peeks. Thread-safe.

    Args:
        collections: reads shards.
        manager: writes the collections that the system fills.
        system: computes derived relations.
        replicas: describes the replicas that maintain a view, for messages.
        limits: how much of its inputs a query may hold in memory.

    Attributes:
        kept: caches contents.
    """

    def __init__(
        self,
        collections: Collections,
        manager: CollectionManager,
        system: SystemRows,
        replicas: Callable[[GlobalId], str],
        limits: Limits,
    ) -> None:
        self._collections = collections
        self._manager = manager
        self._system = system
        self._replicas = replicas
        self.limits = limits
        self.kept = SnapshotCache(
            entry_bytes=min(ENTRY_BYTES, limits.bytes), entry_rows=limits.rows
        )

    # --- waiting ------------------------------------------------------------------------------

    def stored(self, gids: Sequence[GlobalId]) -> list[GlobalId]:
        """The inputs whose contents depend on the time: tables and materialized views, not builtin relations."""
        return [gid for gid in gids if gid not in builtins()]

    def wait(self, gids: Sequence[GlobalId], as_of: Timestamp, timeout: float) -> None:
        """Wait until every stored input is complete at ``as_of``.

        Raises:
            NotReadable: one is not within ``timeout`` seconds; names it, its frontier, the time and the replicas.
            QueryCanceled: this thread's statement was canceled, or its deadline passed.
        """
        interrupt = current()
        end = time.monotonic() + min(timeout, interrupt.left())
        collections = self._collections
        for gid in self.stored(gids):
            while True:
                known = collections.known_upper(gid)
                if known is None or known > as_of:
                    break
                if interrupt.cancelled:
                    interrupt.check()
                left = max(0.0, end - time.monotonic())
                try:
                    collections.wait_for_upper(gid, as_of, min(left, _LOOK_SECONDS))
                except NotReadable:
                    if left <= _LOOK_SECONDS:
                        raise self._late(gid, as_of, timeout) from None
                except Determinate:
                    # Each look has a short timeout: what failed in it (a busy Consensus, another thread's turn) may
                    # succeed in the next.
                    if left <= _LOOK_SECONDS:
                        raise

    def _late(self, gid: GlobalId, as_of: Timestamp, timeout: float) -> NotReadable:
        meta, upper = self._collections.meta(gid), self._collections.upper(gid)
        return NotReadable(
            f'relation "{meta.name}" is not readable at {as_of}: within {timeout:g} s its write '
            f"frontier has only reached {show(upper)}",
            detail=self._replicas(gid) if meta.kind != "table" else None,
            hint="Wait for it to hydrate and ask again, or raise statement_timeout.",
        )

    # --- contents -----------------------------------------------------------------------------

    def rows_of(self, read: RowRead, as_of: Timestamp) -> pa.Table | None:
        """Rows of a collection for a row-wise read: the cached contents, else the stored rows that its conditions do
        not exclude.

        None if even these are too many for this process.
        """
        kept = self.kept.read(StoredContents(self._collections, read.id), as_of)
        if kept is not None:
            return kept
        collections, gid = self._collections, read.id
        filters = filters_of(read.conditions)
        if self._too_much(collections.parts(gid, as_of, filters=filters)):
            return None
        columns = None if read.rest else _wanted(read)
        found = collections.snapshot(gid, as_of, columns, filters=filters)
        if filters and collections.has_errors(gid):
            errors = collections.snapshot(gid, as_of, columns, filters=_ERRORS)
            found = pa.concat_tables([found, errors])
        return found.drop_columns(["mz_time"])

    def pushed_parts(
        self, source: SourceImport, as_of: Timestamp
    ) -> tuple[Sequence[PartRef], Sequence[PartRef]]:
        """The parts of a stored collection's contents at a time, and those whose statistics do not exclude every row by
        the import's MFP.
        """
        parts = self._collections.parts(source.id, as_of)
        if source.mfp is None:
            return parts, parts
        filters = filters_of(over(source.id, source.typ.columns, source.mfp).conditions)
        return parts, self._collections.parts(source.id, as_of, filters=filters or None)

    def _too_much(self, parts: Iterable[PartRef]) -> bool:
        found = list(parts)
        return self.limits.exceeded(sum(p.rows for p in found), sum(p.bytes for p in found))

    def whole(
        self,
        gids: Sequence[GlobalId],
        as_of: Timestamp,
        overlay: Overlay,
        looked_at: Mapping[GlobalId, Set[int]] | None = None,
        conditions: Mapping[GlobalId, Sequence[Condition]] | None = None,
    ) -> Mapping[GlobalId, pa.Table] | None:
        """The inputs' contents; None if one of them, or all together, are too large to be held here.

        Args:
            gids: the inputs.
            as_of: the time.
            overlay: the transaction's own writes.
            looked_at: for some inputs the columns that matter; derived relations may have anything in the others.
            conditions: for some inputs the conditions on the rows that matter; derived relations may lack the others.
        """
        if self._too_much(part for gid in gids for part in self._parts(gid, as_of)):
            return None
        tables: dict[GlobalId, pa.Table] = {}
        for gid in self.stored(gids):
            kept = self.kept.read(StoredContents(self._collections, gid), as_of)
            if kept is None:
                return None
            tables[gid] = kept
        for gid in gids:
            if gid not in tables:
                current().check()
                tables[gid] = self.snapshot(
                    gid,
                    as_of,
                    columns=(looked_at or {}).get(gid),
                    conditions=(conditions or {}).get(gid, ()),
                )
        return {gid: merged(rows, overlay.get(gid, ()), as_of) for gid, rows in tables.items()}

    def _parts(self, gid: GlobalId, as_of: Timestamp) -> Sequence[PartRef]:
        """The parts of an input's contents; none for a relation that is derived from the catalog."""
        builtin = builtins().get(gid)
        if builtin is not None and self._system.is_derived(builtin):
            return ()
        at = as_of if builtin is None else self._managed_at(gid)
        return () if at is None else self._collections.parts(gid, at)

    def source(self, spec: InputSpec, as_of: Timestamp, overlay: Sequence[pa.Table]) -> Source:
        """An input's contents with a transaction's own writes, not consolidated."""
        gid, schema = spec.id, input_schema(spec).append(pa.field("mz_diff", pa.int64()))
        builtin = builtins().get(gid)
        derived = builtin is not None and self._system.is_derived(builtin)
        at = as_of if builtin is None else None if derived else self._managed_at(gid)
        if at is None:
            return Source(schema, as_of, (), [self.snapshot(gid, as_of).select(schema.names)], None)
        collections = self._collections

        def read(columns: Sequence[str]) -> pa.RecordBatchReader:
            names = [name for name in columns if name != "mz_diff"]
            stored = collections.snapshot_reader(gid, at, columns=names, consolidate=False)
            wanted = pa.schema([stored.schema.field(name) for name in columns])
            batches = (batch.select(columns) for batch in stored)
            return pa.RecordBatchReader.from_batches(wanted, batches)

        more = [one.select(schema.names).cast(schema) for one in overlay]
        return Source(schema, at, collections.parts(gid, at), more, read)

    def has_errors(self, gid: GlobalId) -> bool:
        """Whether an input has the column mz_error."""
        if gid in builtins():
            return False
        return self._collections.has_errors(gid)

    def snapshot(
        self,
        gid: GlobalId,
        as_of: Timestamp,
        overlay: Sequence[pa.Table] = (),
        *,
        columns: Set[int] | None = None,
        conditions: Sequence[Condition] = (),
    ) -> pa.Table:
        """An input's contents: c0 …, [mz_error], mz_diff, consolidated. Builtin relations are read as they are now; for
        `columns` and `conditions` see `SystemRows.derived`.
        """
        builtin = builtins().get(gid)
        if builtin is None:
            table = self._collections.snapshot(gid, as_of).drop_columns(["mz_time"])
            return merged(table, overlay, as_of)
        if self._system.is_derived(builtin):
            rows = self._system.derived(builtin, columns, conditions)
            return rows.append_column("mz_diff", pa.array([1] * rows.num_rows, pa.int64()))
        return self._managed(gid)

    def _managed(self, gid: GlobalId) -> pa.Table:
        at = self._managed_at(gid)
        collections = self._collections
        if at is None:
            desc = builtins()[gid].desc
            schema = arrow_schema(() if desc is None else desc.typ.columns)
            return empty_updates(schema).drop_columns(["mz_time"])
        kept = self.kept.read(StoredContents(collections, gid), at)
        return collections.snapshot(gid, at).drop_columns(["mz_time"]) if kept is None else kept

    def _managed_at(self, gid: GlobalId) -> Timestamp | None:
        """The time of the present contents of a collection that the system fills; None if nothing was ever written."""
        if self._manager.is_registered(gid):
            self._manager.flush(gid)
        if gid not in self._collections.ids():
            return (
                None  # an older release has made the environment, and nothing of this one leads it
            )
        upper = self._collections.upper(gid)
        return upper - 1 if upper else None


def _wanted(read: RowRead) -> list[int]:
    """The columns that a row-wise read uses."""
    found = {c for c in read.mfp.projection if c < read.mfp.input_arity}
    found |= {condition.column for condition in read.conditions}
    for expr in read.mfp.expressions:
        found |= {c for c in support(expr) if c < read.mfp.input_arity}
    return sorted(found)
