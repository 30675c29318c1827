"""One collection: its description, the holds on it, and its handles in a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from mzsql.persist import CriticalReader, KeyRange, PartRef, ReadHandle, consolidate
from mzsql.repr.frontier import Frontier, Timestamp, join, less_than
from mzsql.repr.ids import GlobalId
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import ColumnType, updates_schema
from mzsql.storage.tables import TableShard, empty_updates

TABLE = "table"
SHARD = "shard"
ARRANGEMENT = "arrangement"


class Collection(msgspec.Struct, frozen=True, dict=True):
    """What must be known to read a collection.

    Attributes:
        id: its global id.
        name: its name, for messages.
        shard: the shard of its contents.
        columns: the types of its columns c0 ….
        kind: ``table`` (behind the write-ahead log), ``shard`` (its shard's own upper counts), or ``arrangement`` (a
            keyed shard that belongs to its replica; only leased readers hold it).
        has_errors: whether its shard has the column ``mz_error``.
        begins: the time of its creation, before which it cannot be read.
        exported: whether a dataflow writes it, so that its shard may be behind the export log.
    """

    id: GlobalId
    name: str
    shard: str
    columns: tuple[ColumnType, ...]
    kind: str = TABLE
    has_errors: bool = False
    begins: Timestamp = 0
    exported: bool = False

    @lazy_property
    def schema(self) -> pa.Schema:
        """The shard's schema, without time and diff."""
        return updates_schema(self.columns, errors=self.has_errors)


class HoldOwner(Protocol):
    """Keeps account of holds."""

    def drop_hold(self, gid: GlobalId, hold: Hold) -> None:
        """End a hold."""

    def settle_hold(self, gid: GlobalId) -> None:
        """Open the collection, which settles the holds that were asked for earlier."""


class Hold:
    """Keeps one collection readable at and beyond ``since`` until it is released.

    A hold that was asked for before its collection was open is *settled* when the collection is opened; until then
    it has the time asked for.
    """

    def __init__(
        self, owner: HoldOwner, gid: GlobalId, since: Frontier, *, settled: bool = True
    ) -> None:
        self._owner = owner
        self._gid = gid
        self._since = since
        self._settled = settled
        self._released = False

    @property
    def since(self) -> Frontier:
        """The time that is held; opens the collection if that is not settled yet."""
        if not self._settled and not self._released:
            self._owner.settle_hold(self._gid)
        return self._since

    def settle(self, earliest: Frontier) -> None:
        """The collection is open, and readable from ``earliest`` on."""
        self._settled = True
        self._since = join(self._since, earliest)

    def downgrade(self, since: Frontier) -> None:
        """Allow times before ``since`` to be compacted; an earlier one changes nothing."""
        if since is None:
            self.release()
        elif self._since is None or since > self._since:
            self._since = since

    def release(self) -> None:
        """Hold nothing any more. Idempotent."""
        if not self._released:
            self._released = True
            self._owner.drop_hold(self._gid, self)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class HoldPlace(Protocol):
    """Opens what a durable hold needs."""

    def open_durable_hold(self, gid: GlobalId, name: str, purpose: str) -> CriticalReader:
        """The hold of a name on a collection's shard, created at its since or shared."""

    def kept(self, gid: GlobalId, until: Timestamp) -> Timestamp:
        """``until``, or the last complete time of the collection's own shard if that is earlier."""


class DurableHold:
    """Keeps one collection readable at and beyond ``since``, even when this process is gone, until somebody releases it
    by its name.

    All who use the same name share one hold. Its purpose is shown when the shard is inspected.
    """

    def __init__(self, place: HoldPlace, gid: GlobalId, name: str, purpose: str) -> None:
        self._place = place
        self._gid = gid
        self._hold = place.open_durable_hold(gid, name, purpose)

    @property
    def since(self) -> Frontier:
        """The earliest time held."""
        return self._hold.since

    def downgrade(self, until: Timestamp) -> None:
        """Allow times before ``until`` to be compacted; an earlier one changes nothing. The present contents always
        stay readable.
        """
        to = self._place.kept(self._gid, until)
        if self.since is not None and self.since < to:
            self._hold.downgrade_since(to)

    def release(self) -> None:
        """Remove the hold permanently. Idempotent."""
        self._hold.release()


class OpenCollection:
    """A collection with its handles in this process."""

    def __init__(
        self, meta: Collection, table: TableShard | None, reader: ReadHandle | None
    ) -> None:
        self.meta = meta
        self.table = table
        self._own = reader
        self.holds: set[Hold] = set()
        self.given_up: Timestamp = (
            0  # no new hold begins before it, as it may be gone at any moment
        )
        self.critical: CriticalReader | None = None

    @property
    def reader(self) -> ReadHandle:
        """This process's reader."""
        if self.table is not None:
            return self.table.reader
        assert self._own is not None
        return self._own

    def _written(self, upper: Timestamp) -> Timestamp | None:
        """How far there may be updates below ``upper``; None if nothing was ever written."""
        return upper if self.table is None else self.table.written_until(upper)

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """All updates with ``lower <= mz_time < upper``, where what the log has of a table until then is known."""
        end = self._written(upper)
        if end is None or end <= lower:
            return empty_updates(self.meta.schema)
        return self.reader.updates(lower, end)

    def small_updates(
        self, lower: Timestamp, upper: Timestamp, rows: int, size: int
    ) -> tuple[pa.Table, int] | None:
        """As `updates`, with the bytes of their parts, if these hold at most ``rows`` rows and ``size`` bytes; None if they hold more."""
        end = self._written(upper)
        if end is None or end <= lower:
            return empty_updates(self.meta.schema), 0
        return self.reader.small_updates(lower, end, rows=rows, size=size)

    def parts_between(self, lower: Timestamp, upper: Timestamp) -> Sequence[PartRef]:
        """The parts that may hold such updates."""
        end = self._written(upper)
        return [] if end is None or end <= lower else self.reader.parts_between(lower, end)

    def replace_reader(self, reader: ReadHandle) -> None:
        """Use another reader from now on."""
        self._own = reader

    def kept(self, target: Frontier) -> Timestamp:
        """``target``, or the last complete time if that is earlier: the present contents always stay readable."""
        upper = self.reader.durable_upper
        assert target is not None
        return target if upper is None else min(target, max(upper - 1, 0))

    def look(self, target: Timestamp) -> None:
        """Fetch the upper of an output's shard that another process advances, if the log says more here: otherwise the
        last seen upper would limit what history can be given up.
        """
        seen = self.reader.durable_upper
        lags = seen is not None and seen <= target and less_than(seen, self.reader.upper)
        if lags and self.meta.exported:
            self.reader.fetch_upper()

    def give_up(self, target: Timestamp) -> None:
        """Allow history before ``target`` to be compacted, also in the hold that survives processes."""
        since = self.reader.since
        if self.reader.upper is not None and since is not None and since < target:
            self.reader.downgrade_since(target)
        since = self.reader.since
        if self.critical is not None and since is not None:
            held = self.critical.since
            if held is not None and held < since:
                self.critical.downgrade_since(since)


def looked_up(
    reader: ReadHandle, as_of: Timestamp, ranges: Sequence[KeyRange], *, rows: int, size: int
) -> pa.Table | None:
    """An arrangement's contents at ``as_of`` in ranges of its first key column, consolidated; None if they are too
    large.

    Args:
        reader: of the arrangement.
        as_of: the time, which must be complete.
        ranges: see `mzsql.persist.KeyRange`.
        rows: most rows wanted.
        size: most bytes wanted.
    """
    filters = {"c0": ranges}
    parts = reader.parts(as_of, filters=filters)
    if sum(p.rows for p in parts) <= rows and sum(p.bytes for p in parts) <= size:
        return reader.snapshot_arrow(as_of, key_ranges=ranges)
    # A few row groups of large parts may be all that it takes: that is seen as they come.
    found: list[pa.RecordBatch] = []
    pieces = reader.snapshot_reader(as_of, filters=filters)
    for piece in pieces:
        rows, size = rows - piece.num_rows, size - piece.nbytes
        if rows < 0 or size < 0:
            return None
        found.append(piece)
    return consolidate(pa.Table.from_batches(found, pieces.schema), reader.key)
