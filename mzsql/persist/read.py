"""The readers of a shard.

Promise: a snapshot at ``as_of`` plus all later updates of a listen are exactly the collection; a read below ``since`` is refused. A
`ReadHandle` has a lease in the shard's state: while it lives, its since is held back, and objects it may be reading are kept. Trade-off:
objects are held by the lifetime of the `PartRef` and `SnapshotSplit` values handed out, so keep those until the read is over.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from mzsql.persist.batch import (
    DIFF_COLUMN,
    TIME_COLUMN,
    KeySpec,
    ReadStats,
    first_time,
    last_time,
)
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import all_at, encode_schema, physical
from mzsql.persist.commands import (
    DowngradeSince,
    ExpireReader,
)
from mzsql.persist.consolidate import consolidate as consolidated
from mzsql.persist.consolidate import sort_by_key
from mzsql.persist.errors import (
    ExpiredHandle,
    InvalidBounds,
    MissingPart,
    ReadTimeout,
    SchemaMismatch,
    ShardFinalized,
    SinceViolation,
)
from mzsql.persist.fetch import between, until
from mzsql.persist.metrics import metered
from mzsql.persist.opened import Opened
from mzsql.persist.refs import Lease, PartRef, SnapshotSplit, SplitData
from mzsql.persist.state import LeasedReader, ShardState
from mzsql.persist.stats import KeyRange, Lookup
from mzsql.repr.frontier import (
    Frontier,
    Timestamp,
    contains,
    join,
    less_equal,
    less_than,
    show,
)

_log = logging.getLogger(__name__)


class ReadHandle:
    """Reads one shard and holds its since back; made by `PersistClient.open_reader` or `open_shard`. Safe for threads."""

    def __init__(self, opened: Opened, reader_id: str, registered: LeasedReader) -> None:
        self._opened = opened
        self._context = opened.context
        self._since: Frontier = registered.since
        self._hold = registered.seqno_hold
        self._heartbeat_ms = registered.heartbeat_ms
        self._lease_ms = registered.lease_ms
        self._lock = threading.RLock()
        self._leases: dict[int, int] = {}
        self._released: deque[int] = deque()
        self._next_lease = 0
        self._expired = False
        self.reader_id = reader_id
        opened.add_reader(self)

    @property
    def shard_id(self) -> str:
        """The shard."""
        return self._opened.shard_id

    @property
    def schema(self) -> pa.Schema:
        """The row's columns."""
        return self._opened.schema

    @property
    def key(self) -> KeySpec | None:
        """The layout of a keyed shard."""
        return self._opened.key

    @property
    def since(self) -> Frontier:
        """This reader's since: it may read at times at or beyond it."""
        return self._since

    @property
    def upper(self) -> Frontier:
        """The shard's upper as last seen by this process; asks nobody."""
        return self._opened.shard.state.upper

    @metered("fetch_upper")
    def fetch_upper(self, *, timeout: float | None = None) -> Frontier:
        """The shard's current upper, from Consensus."""
        state = self._opened.shard.fetch(self._opened.deadline(timeout))
        assert state is not None
        return state.upper

    @metered("wait_for_upper")
    def wait_for_upper(self, past: Timestamp, *, timeout: float | None = None) -> Frontier:
        """Wait until ``past`` is complete, that is until the upper is beyond it; the upper then.

        Raises:
            ReadTimeout: it did not happen within ``timeout`` seconds.
        """
        return self._wait(past, self._opened.deadline(timeout)).upper

    def _wait(self, past: Timestamp, deadline: Deadline) -> ShardState:
        state = self._opened.shard.wait_until(lambda s: not contains(s.upper, past), deadline)
        if not less_equal(state.upper, past) or state.upper is None:
            return state
        raise ReadTimeout(self.shard_id, past, state.upper, deadline.timeout)

    def _take_lease(self, earliest: Timestamp) -> tuple[ShardState, Lease]:
        """The latest state seen, whose times from ``earliest`` on are exact, and a lease on the objects it names."""
        with self._lock:
            state = self._opened.shard.state
            self._check_live(state)
            # Another thread may have downgraded while this one waited for the upper.
            self._check_since(earliest)
            number = self._next_lease
            self._next_lease += 1
            self._leases[number] = state.seqno
            return state, Lease(self, self._released, number, state.seqno)

    def _outstanding(self) -> int:
        """The earliest state whose objects are being read here; the lock is held."""
        while self._released:
            self._leases.pop(self._released.popleft(), None)
        return min(self._leases.values(), default=self._opened.shard.state.seqno)

    def _check_live(self, state: ShardState) -> None:
        if state.finalized:
            raise ShardFinalized(f"shard {self.shard_id} was finalized: there is nothing to read")
        if self._expired or self.reader_id not in state.readers:
            raise ExpiredHandle(
                f"shard {self.shard_id}: the reader {self.reader_id} has expired",
                hint="Open a new reader; its since is the shard's.",
            )

    def _check_since(self, as_of: Timestamp) -> None:
        if not contains(self._since, as_of):
            raise SinceViolation(self.shard_id, as_of, self._since)

    def _refs(
        self, lower: Timestamp, upper: Frontier, deadline: Deadline, *, earliest: Timestamp
    ) -> tuple[list[PartRef], Lease]:
        """The parts that may hold updates with times in ``[lower, upper)``, which are complete."""
        self._heartbeat_if_due(deadline)
        state, lease = self._take_lease(earliest)
        refs = [
            PartRef(part, batch, self._opened.parts, lease)
            for batch in state.trace
            for part in batch.parts
            if last_time(part) >= lower and less_than(first_time(part), upper)
        ]
        return refs, lease

    @metered("parts")
    def parts(self, as_of: Timestamp, *, timeout: float | None = None) -> list[PartRef]:
        """The parts a snapshot at ``as_of`` consists of; waits until it is complete.

        Raises:
            SinceViolation: ``as_of`` is below since.
            ReadTimeout: it was not complete within ``timeout`` seconds.
            ExpiredHandle: the reader's lease ran out.
        """
        deadline = self._opened.deadline(timeout)
        self._check_since(as_of)
        self._wait(as_of, deadline)
        return self._refs(0, as_of + 1, deadline, earliest=as_of)[0]

    @metered("parts_between")
    def parts_between(
        self, lower: Timestamp, upper: Timestamp, *, timeout: float | None = None
    ) -> list[PartRef]:
        """The parts that may hold updates with ``lower <= time < upper``, at their exact times; raises as `updates`."""
        deadline = self._opened.deadline(timeout)
        earliest = _exact_from(lower, upper)
        self._check_since(earliest)
        if upper <= lower:
            return []
        self._wait(upper - 1, deadline)
        return self._refs(lower, upper, deadline, earliest=earliest)[0]

    @metered("snapshot")
    def snapshot(
        self, as_of: Timestamp, num_splits: int = 1, *, timeout: float | None = None
    ) -> list[SnapshotSplit]:
        """The contents at ``as_of`` in ``num_splits`` splits of about equal size; waits until it is complete.

        Splits partition updates, not rows: sum the diffs over all of them. Raises as `parts`.
        """
        if num_splits < 1:
            raise InvalidBounds(f"a snapshot has at least one split, not {num_splits}")
        refs = self.parts(as_of, timeout=timeout)
        shares: list[list[PartRef]] = [[] for _ in range(num_splits)]
        sizes = [0] * num_splits
        for ref in sorted(refs, key=lambda r: -r.bytes):
            smallest = sizes.index(min(sizes))
            shares[smallest].append(ref)
            sizes[smallest] += ref.bytes
        schema = encode_schema(self.schema)
        lease = refs[0].lease if refs else None
        return [
            SnapshotSplit(
                SplitData(
                    self.shard_id,
                    as_of,
                    schema,
                    self.key,
                    tuple(ref.part for ref in share),
                    self._context.blob_url,
                ),
                self._context,
                lease,
            )
            for share in shares
        ]

    @metered("snapshot_arrow")
    def snapshot_arrow(
        self,
        as_of: Timestamp,
        *,
        columns: Sequence[str] | None = None,
        key_ranges: Sequence[KeyRange] | None = None,
        workers: Sequence[int] | None = None,
        consolidate: bool = True,
        stats: ReadStats | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """The contents at ``as_of``, times advanced to it: ``columns`` (all by default), ``mz_time``, ``mz_diff``.

        Args:
            as_of: the time; waits until it is complete.
            columns: the columns, in this order.
            key_ranges: inclusive ``(lo, hi)`` of the first key column. One `None` leaves that side open, two ask for NULL keys. Row
                groups outside of them are not read, rows outside of them are not returned.
            workers: of a keyed shard, only these workers' parts.
            consolidate: whether equal rows are summed up, and gone where the sum is zero.
            stats: gets what was read added.
            timeout: seconds the call may take.

        Raises:
            SinceViolation, ReadTimeout, ExpiredHandle: as `parts`.
            SchemaMismatch: a column the shard lacks, or key ranges without a key.
        """
        deadline = self._opened.deadline(timeout)
        names = self._names(columns)
        lookup = self._lookup(key_ranges)
        self._check_since(as_of)
        self._wait(as_of, deadline)
        refs, lease = self._refs(0, as_of + 1, deadline, earliest=as_of)
        if workers is not None:
            wanted = set(workers)
            refs = [ref for ref in refs if ref.worker in wanted]
        found = [until(self._read(ref, deadline, names, lookup, stats), as_of) for ref in refs]
        del lease
        table = all_at(self._joined(found, names, lookup), as_of)
        if consolidate:
            table = sort_by_key(consolidated(table, self.key), _sortable(self.key, names))
        return table.combine_chunks()

    @metered("updates")
    def updates(
        self,
        lower: Timestamp,
        upper: Timestamp,
        *,
        columns: Sequence[str] | None = None,
        key_ranges: Sequence[KeyRange] | None = None,
        stats: ReadStats | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """All updates with ``lower <= time < upper`` at their exact times, not consolidated; waits until they are complete.

        Raises:
            SinceViolation: since is at or beyond ``lower``, so times may have been advanced. From ``lower`` 0 on, since may be
                as late as the last time asked for: the times up to it may then stand at it.
            ReadTimeout, ExpiredHandle: as `parts`.
        """
        deadline = self._opened.deadline(timeout)
        names = self._names(columns)
        lookup = self._lookup(key_ranges)
        self._check_since(_exact_from(lower, upper))
        if upper <= lower:
            return self._joined([], names, lookup)
        self._wait(upper - 1, deadline)
        return self._between(lower, upper, names, lookup, stats=stats, deadline=deadline)

    def _between(
        self,
        lower: Timestamp,
        upper: Frontier,
        names: Sequence[str],
        lookup: Lookup | None,
        *,
        stats: ReadStats | None,
        deadline: Deadline,
    ) -> pa.Table:
        earliest = _exact_from(lower, upper)
        refs, lease = self._refs(lower, upper, deadline, earliest=earliest)
        found = [
            between(self._read(ref, deadline, names, lookup, stats), lower, upper) for ref in refs
        ]
        del lease
        return self._joined(found, names, lookup).combine_chunks()

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        names = self.schema.names if columns is None else list(columns)
        for name in names:
            if name not in self.schema.names:
                raise SchemaMismatch(f'shard {self.shard_id} has no column "{name}"')
        return list(names)

    def _lookup(self, key_ranges: Sequence[KeyRange] | None) -> Lookup | None:
        if key_ranges is None:
            return None
        if self.key is None or not self.key.columns:
            raise SchemaMismatch(f"shard {self.shard_id} has no key to look up")
        column = self.key.columns[0]
        return Lookup(column, self.schema.field(column).type, key_ranges)

    def _read(
        self,
        ref: PartRef,
        deadline: Deadline,
        names: Sequence[str],
        lookup: Lookup | None,
        stats: ReadStats | None,
    ) -> pa.Table:
        columns = None if len(names) == len(self.schema) else names
        try:
            return self._opened.parts.read(
                ref.part, deadline, columns=columns, lookup=lookup, stats=stats
            )
        except MissingPart:
            state = self._opened.shard.fetch(deadline)
            assert state is not None
            self._check_live(state)  # a lease that ran out explains it
            raise

    def _joined(
        self, found: Sequence[pa.Table], names: Sequence[str], lookup: Lookup | None
    ) -> pa.Table:
        schema = physical(self.schema)
        kept = [*names, TIME_COLUMN, DIFF_COLUMN]
        extra = [lookup.column] if lookup is not None and lookup.column not in kept else []
        schema = pa.schema([schema.field(name) for name in [*kept, *extra]])
        table = pa.concat_tables([schema.empty_table(), *(t.select(schema.names) for t in found)])
        if lookup is not None:
            table = lookup.filter(table)
        return table.select(kept)

    def listen(
        self,
        as_of: Timestamp,
        *,
        columns: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Iterator[tuple[pa.Table, Frontier]]:
        """All updates after ``as_of`` as they become complete: pairs of updates and the frontier they are complete up to.

        Ends after the empty frontier. Downgrade since to just below what has been taken in, so that compaction gets on.

        Args:
            as_of: the time of the snapshot that the listen continues.
            columns: the columns, in this order.
            timeout: seconds to wait for the next pair; `None` waits on.

        Raises:
            SinceViolation: at once when ``as_of`` is below since, later when since has passed the listen.
            ReadTimeout: nothing came within ``timeout``; the listen may be continued with another call.
        """
        self._check_since(as_of)
        return self._listen(as_of + 1, self._names(columns), timeout)

    def _listen(
        self, frontier: Timestamp, names: Sequence[str], timeout: float | None
    ) -> Iterator[tuple[pa.Table, Frontier]]:
        lower: Frontier = frontier
        while lower is not None:
            deadline = self._opened.deadline(timeout)
            try:
                state = self._wait(lower, deadline)
            except ReadTimeout:
                if timeout is None:
                    self._heartbeat_if_due(self._opened.deadline(None))
                    continue
                raise
            upper = state.upper
            with self._context.meter.timed("listen_item"):
                table = self._between(lower, upper, names, None, stats=None, deadline=deadline)
            yield table, upper
            lower = upper

    @metered("downgrade_since")
    def downgrade_since(self, new_since: Frontier, *, timeout: float | None = None) -> None:
        """Give up reading below ``new_since``; with the present since, a heartbeat. `None` gives up all reading.

        Raises:
            InvalidBounds: ``new_since`` is below the present since.
            ExpiredHandle: the reader's lease ran out.
        """
        if less_than(new_since, self._since):
            raise InvalidBounds(
                f"shard {self.shard_id}: since cannot go back from {show(self._since)} to {show(new_since)}"
            )
        self._renew(new_since, self._opened.deadline(timeout))
        self._opened.changed(self._opened)

    @metered("heartbeat")
    def heartbeat(self, *, timeout: float | None = None) -> None:
        """Renew the lease, and let go of objects nobody here reads any more."""
        self._renew(self._since, self._opened.deadline(timeout))

    def _renew(self, since: Frontier, deadline: Deadline) -> None:
        with self._lock:
            if self._expired:
                self._check_live(self._opened.shard.state)
            hold = self._outstanding()
            # Never back: a heartbeat may have been given a since that another thread has moved on from.
            since = join(self._since, since)
            command = DowngradeSince(self.reader_id, since, hold)
            self._opened.shard.apply(command, deadline)
            self._since = since
            self._hold = max(hold, self._hold)
            self._heartbeat_ms = self._context.clock.now_ms()

    def heartbeat_due(self) -> bool:
        """Whether a quarter of the lease has passed since it was renewed."""
        elapsed = self._context.clock.now_ms() - self._heartbeat_ms
        return not self._expired and elapsed * 4 >= self._lease_ms

    def _heartbeat_if_due(self, deadline: Deadline) -> None:
        if self.heartbeat_due():
            self._renew(self._since, deadline)

    def let_go(self, deadline: Deadline) -> None:
        """Move the hold on objects forward when it is behind; nothing when the handle is expired."""
        with self._lock:
            state = self._opened.shard.state
            if self._expired or self.reader_id not in state.readers:
                return
            if self._hold < self._outstanding():
                try:
                    self._renew(self._since, deadline)
                except ExpiredHandle as expired:
                    # An expired reader holds nothing; its own next call says so to whom it concerns.
                    _log.info("%s", expired)

    @metered("expire_reader")
    def expire(self, *, timeout: float | None = None) -> None:
        """Give the handle up. Idempotent."""
        with self._lock:
            if self._expired:
                return
            self._expired = True
            self._opened.discard_reader(self)
            if self.reader_id in self._opened.shard.state.readers:
                self._opened.shard.apply(
                    ExpireReader(self.reader_id), self._opened.deadline(timeout)
                )


def _exact_from(lower: Timestamp, upper: Frontier) -> Timestamp:
    """The time that since must not be beyond for a read of ``[lower, upper)`` to be exact.

    Times below since may have been advanced to it, so since itself is exact only where nothing lies below.
    """
    if lower > 0:
        return lower - 1
    return 0 if upper is None else max(upper - 1, 0)


def _sortable(key: KeySpec | None, names: Sequence[str]) -> KeySpec | None:
    return key if key is not None and set(key.columns) <= set(names) else None
