"""One collection: what must be known to read it, what holds it, and its handles in a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from mzsql.persist import CriticalReader, KeyRange, ReadHandle, consolidate
from mzsql.repr.frontier import Frontier, Timestamp, join, less_than
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, arrow_schema
from mzsql.storage.tables import TableShard

TABLE = "table"
SHARD = "shard"
ARRANGEMENT = "arrangement"


class Collection(msgspec.Struct, frozen=True):
    """What must be known to read a collection.

    Attributes:
        id: its global id.
        name: how a person calls it, for messages.
        shard: the shard of its contents.
        columns: the types of its columns c0 ….
        kind: ``table`` (behind the write-ahead log), ``shard`` (its shard's own upper counts), or ``arrangement`` (a shard with a key,
            which is its replica's: only leased readers hold it).
        has_errors: whether its shard has the column ``mz_error``.
        begins: when it was made: before that it cannot be read.
        exported: whether a dataflow makes it, so that its shard is behind what the log of exports has.
    """

    id: GlobalId
    name: str
    shard: str
    columns: tuple[ColumnType, ...]
    kind: str = TABLE
    has_errors: bool = False
    begins: Timestamp = 0
    exported: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The shard's schema, without time and diff."""
        schema = arrow_schema(self.columns)
        return schema.append(pa.field("mz_error", pa.string())) if self.has_errors else schema


class HoldOwner(Protocol):
    """Whoever keeps account of holds."""

    def drop_hold(self, gid: GlobalId, hold: Hold) -> None:
        """End a hold."""

    def settle_hold(self, gid: GlobalId) -> None:
        """Open the collection, which settles the holds that were asked for before."""


class Hold:
    """Keeps one collection readable at and beyond ``since`` until it is released.

    One that was asked for before its collection is open is *settled* when it is opened: until then it is what was asked for.
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
        """The time that is held; opens the collection where that is not known yet."""
        if not self._settled and not self._released:
            self._owner.settle_hold(self._gid)
        return self._since

    def settle(self, earliest: Frontier) -> None:
        """The collection is open, and can be read from ``earliest`` on."""
        self._settled = True
        self._since = join(self._since, earliest)

    def downgrade(self, since: Frontier) -> None:
        """Let go of the times before ``since``; an earlier one changes nothing."""
        if since is None:
            self.release()
        elif self._since is None or since > self._since:
            self._since = since

    def release(self) -> None:
        """Let go of everything. Idempotent."""
        if not self._released:
            self._released = True
            self._owner.drop_hold(self._gid, self)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class HoldPlace(Protocol):
    """Where a durable hold finds what it holds."""

    def open_durable_hold(self, gid: GlobalId, name: str, purpose: str) -> CriticalReader:
        """The hold of a name on a collection's shard, made at its since or shared."""

    def kept(self, gid: GlobalId, until: Timestamp) -> Timestamp:
        """``until``, or the last time that the collection's own shard has complete where that is earlier."""


class DurableHold:
    """Keeps one collection readable at and beyond ``since`` whatever becomes of this process, until somebody releases it by its name.

    Whoever gives the same name has the same hold. Its shard tells who inspects it what it is for.
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
        """Let go of the times before ``until``; an earlier one changes nothing. The present contents are never given up."""
        to = self._place.kept(self._gid, until)
        if self.since is not None and self.since < to:
            self._hold.downgrade_since(to)

    def release(self) -> None:
        """Remove the hold for good. Idempotent."""
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
        """The reader of this process."""
        if self.table is not None:
            return self.table.reader
        assert self._own is not None
        return self._own

    def replace_reader(self, reader: ReadHandle) -> None:
        """Read by another one from now on."""
        self._own = reader

    def kept(self, target: Frontier) -> Timestamp:
        """``target``, or the last complete time where that is earlier: the present contents are never given up."""
        upper = self.reader.durable_upper
        assert target is not None
        return target if upper is None else min(target, max(upper - 1, 0))

    def look(self, target: Timestamp) -> None:
        """See how far an export's shard has come that another process brings forward, where this one knows more from the log: what was
        seen of the shard last is what would be held.
        """
        seen = self.reader.durable_upper
        lags = seen is not None and seen <= target and less_than(seen, self.reader.upper)
        if lags and self.meta.exported:
            self.reader.fetch_upper()

    def give_up(self, target: Timestamp) -> None:
        """Let go of the history before ``target``, of what survives processes too."""
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
    """An arrangement's contents at ``as_of`` in ranges of its first key column, consolidated; None where they are too large.

    Args:
        reader: of the arrangement.
        as_of: the time, complete already.
        ranges: as `mzsql.persist.KeyRange` says.
        rows: the most rows wanted.
        size: the most bytes wanted.
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
