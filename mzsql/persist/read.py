"""The readers of a shard.

Promise: a snapshot at ``as_of`` plus all later updates of a listen are exactly the collection; a read below ``since`` is refused. A
`ReadHandle` has a lease in the shard's state: while it lives, its since is held back, and objects it may be reading are kept. Trade-off:
objects are held by the lifetime of the `PartRef` and `SnapshotSplit` values handed out, so keep those until the read is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from threading import TIMEOUT_MAX

import pyarrow as pa

from mzsql.persist.arguments import check_frontier, check_time, refuse
from mzsql.persist.batch import Batch, KeySpec, ReadStats, first_time, last_time
from mzsql.persist.building import BatchBuilder
from mzsql.persist.checked import checked
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import all_at, encode_schema, joined
from mzsql.persist.consolidate import consolidate as consolidated
from mzsql.persist.consolidate import sort_by_key
from mzsql.persist.errors import (
    InvalidBounds,
    MissingPart,
    ReadTimeout,
    SchemaMismatch,
)
from mzsql.persist.leased_parts import Lease, PartRef, SnapshotSplit, SplitData, splits_of, sums_up
from mzsql.persist.leases import ReaderLease, exact_from
from mzsql.persist.metrics import metered
from mzsql.persist.opened import Opened
from mzsql.persist.pushdown import (
    Filters,
    Pushdown,
    checked_columns,
    encode_filters,
    pushdown_of,
)
from mzsql.persist.state import LeasedReader
from mzsql.persist.stats import KeyRange
from mzsql.persist.streams import consolidated_pieces, reader_of
from mzsql.repr.frontier import (
    Frontier,
    Timestamp,
    less_than,
    show,
)


@checked
class ReadHandle:
    """Reads one shard and holds its since back; made by `PersistClient.open_reader` or `open_shard`. Safe for threads."""

    def __init__(
        self, opened: Opened, reader_id: str, registered: LeasedReader, asked_at: float
    ) -> None:
        self._opened = opened
        self._context = opened.context
        self._lease = ReaderLease(opened, reader_id, registered, asked_at)
        self.reader_id = reader_id
        opened.add_reader(self)

    @property
    def shard_id(self) -> str:
        """The shard."""
        return self._opened.shard_id

    @property
    def lease(self) -> ReaderLease:
        """What holds since back."""
        return self._lease

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
        return self._lease.since

    @property
    def upper(self) -> Frontier:
        """The shard's upper as last seen by this process, or as a writer of it has passed quietly; asks nobody."""
        shard = self._opened.shard
        return shard.upper_in(shard.state)

    @property
    def durable_upper(self) -> Frontier:
        """The upper that the shard itself was last seen to have."""
        return self._opened.shard.state.upper

    @metered("fetch_upper")
    def fetch_upper(self, *, timeout: float | None = None) -> Frontier:
        """The shard's current upper, from Consensus, or as a writer of this process has passed quietly beyond that."""
        shard = self._opened.shard
        state = shard.fetch(self._opened.deadline(timeout))
        assert state is not None
        return shard.upper_in(state)

    @metered("wait_for_upper")
    def wait_for_upper(self, past: Timestamp, *, timeout: float | None = None) -> Frontier:
        """Wait until ``past`` is complete, that is until the upper is beyond it; the upper then.

        Raises:
            ReadTimeout: it did not happen within ``timeout`` seconds.
        """
        check_time(past, f"shard {self.shard_id}")
        state = self._lease.await_complete(past, self._opened.deadline(timeout))
        return self._opened.shard.upper_in(state)

    def _refs(
        self, pushdown: Pushdown, deadline: Deadline, *, earliest: Timestamp
    ) -> tuple[list[PartRef], Lease]:
        """The parts that may hold updates at the times of ``pushdown``, which are complete."""
        self._lease.renew_if_due(deadline)
        ahead = self._opened.shard.ahead  # first: what is forgotten of it is in the state
        state, lease = self._lease.take(self, earliest)
        lower, upper = pushdown.lower, pushdown.upper
        refs = [
            PartRef(part, batch, self._opened.parts, lease)
            for batch in (
                *state.trace,
                *BatchBuilder(self._opened).ahead_of(state, ahead, deadline),
            )
            for part in batch.parts
            if last_time(part) >= lower and less_than(first_time(part), upper)
        ]
        return refs, lease

    def learn(self, batch: Batch) -> None:
        """Take it from whoever keeps a log of the shard's definite updates that ``batch`` has those of its times: this process's readers of
        the shard see them at once, where they follow what is known of it. Nothing durable changes, and no other process sees it.

        Raises:
            ForeignBlob: the batch is of another shard.
            InvalidBounds: it has no upper, or stands on objects, which nothing would hold back.
        """
        self._opened.learn(batch)

    @property
    def told_here(self) -> bool:
        """Whether a writer of this process tells its readers of the shard's progress, so that whoever waits needs to ask for nothing."""
        return self._opened.shard.told_here

    def _pushdown(
        self, filters: Filters | None, key_ranges: Sequence[KeyRange] | None = None
    ) -> Pushdown:
        return pushdown_of(self.schema, self.key, filters, f"shard {self.shard_id}", key_ranges)

    def _pushdown_until(
        self,
        as_of: Timestamp,
        filters: Filters | None,
        key_ranges: Sequence[KeyRange] | None = None,
    ) -> Pushdown:
        check_time(as_of, f"shard {self.shard_id}")
        return self._pushdown(filters, key_ranges).within(0, as_of + 1)

    def _pushdown_between(
        self,
        lower: Timestamp,
        upper: Timestamp,
        filters: Filters | None,
        key_ranges: Sequence[KeyRange] | None = None,
    ) -> Pushdown:
        for time in (lower, upper):
            check_time(time, f"shard {self.shard_id}")
        return self._pushdown(filters, key_ranges).within(lower, upper)

    def _columns(self, columns: Sequence[str] | None) -> list[str] | None:
        return checked_columns(self.schema, columns, f"shard {self.shard_id}")

    @metered("parts")
    def parts(
        self, as_of: Timestamp, *, filters: Filters | None = None, timeout: float | None = None
    ) -> list[PartRef]:
        """The parts a snapshot at ``as_of`` consists of; waits until it is complete.

        Args:
            as_of: the time.
            filters: parts whose statistics tell that they hold no such row are left out; the others may hold other rows too.
            timeout: seconds the call may take.

        Raises:
            SinceViolation: ``as_of`` is below since.
            ReadTimeout: it was not complete within ``timeout`` seconds.
            ExpiredHandle: the reader's lease ran out, or its client was closed.
            SchemaMismatch: a filter does not fit.
        """
        deadline = self._opened.deadline(timeout)
        pushdown = self._pushdown_until(as_of, filters)
        self._lease.check_since(as_of)
        self._lease.await_complete(as_of, deadline)
        refs, _ = self._refs(pushdown, deadline, earliest=as_of)
        return [ref for ref in refs if pushdown.may_hold_part(ref.part)]

    @metered("parts_between")
    def parts_between(
        self,
        lower: Timestamp,
        upper: Timestamp,
        *,
        filters: Filters | None = None,
        timeout: float | None = None,
    ) -> list[PartRef]:
        """The parts that may hold updates with ``lower <= time < upper``, at their exact times; filters as `parts`, raises as `updates`."""
        deadline = self._opened.deadline(timeout)
        pushdown = self._pushdown_between(lower, upper, filters)
        earliest = exact_from(lower, upper)
        self._lease.check_since(earliest)
        if upper <= lower:
            return []
        self._lease.await_complete(upper - 1, deadline)
        refs, _ = self._refs(pushdown, deadline, earliest=earliest)
        return [ref for ref in refs if pushdown.may_hold_part(ref.part)]

    @metered("snapshot")
    def snapshot(
        self,
        as_of: Timestamp,
        num_splits: int = 1,
        *,
        columns: Sequence[str] | None = None,
        filters: Filters | None = None,
        timeout: float | None = None,
    ) -> list[SnapshotSplit]:
        """The contents at ``as_of`` in ``num_splits`` splits of about equal size; waits until it is complete.

        Splits partition updates, not rows: sum the diffs over all of them. Keep them (and the reader) until their reading is over.

        Args:
            as_of: the time.
            num_splits: how many.
            columns: what the splits return, in this order; all by default.
            filters: the rows that they return, see `Filters`; parts without any are left out.
            timeout: seconds the call may take.

        Raises:
            InvalidBounds: there is to be no split.
            SinceViolation, ReadTimeout, ExpiredHandle, SchemaMismatch: as `parts`.
        """
        names = self._columns(columns)
        refs = self.parts(as_of, filters=filters, timeout=timeout)
        data = SplitData(
            self.shard_id,
            as_of,
            encode_schema(self.schema),
            self.key,
            (),
            self._context.blob_url,
            None if names is None else tuple(names),
            encode_filters(self.schema, filters),
        )
        return splits_of(refs, num_splits, data, self._context)

    @metered("snapshot_arrow")
    def snapshot_arrow(
        self,
        as_of: Timestamp,
        *,
        columns: Sequence[str] | None = None,
        key_ranges: Sequence[KeyRange] | None = None,
        filters: Filters | None = None,
        workers: Sequence[int] | None = None,
        consolidate: bool = True,
        stats: ReadStats | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """The contents at ``as_of``, times advanced to it: ``columns`` (all by default), ``mz_time``, ``mz_diff``. All in memory.

        Large columns come in several chunks, as joining them would copy everything; `pyarrow.Table.combine_chunks` does it.

        Args:
            as_of: the time; waits until it is complete.
            columns: the columns, in this order; others are not read.
            key_ranges: inclusive ``(lo, hi)`` of the first key column. One `None` leaves that side open, two ask for NULL keys. Row
                groups outside of them are not read, rows outside of them are not returned.
            filters: the same for any columns, see `Filters`: a row is returned when it is in a range of each column named.
            workers: of a keyed shard, only these workers' parts.
            consolidate: whether equal rows are summed up, and gone where the sum is zero.
            stats: gets what was read added.
            timeout: seconds the call may take.

        Raises:
            SinceViolation, ReadTimeout, ExpiredHandle: as `parts`.
            SchemaMismatch: a column the shard lacks, a filter that does not fit, or key ranges without a key.
            MissingPart, CorruptPart: an object is gone, or not what was written.
            LocationError: a backend did not answer within ``timeout``.
        """
        deadline = self._opened.deadline(timeout)
        names = self._columns(columns)
        pushdown = self._pushdown_until(as_of, filters, key_ranges)
        refs, lease = self._snapshot_refs(as_of, pushdown, workers, deadline)
        pieces = self._pieces(refs, lambda: deadline, names, pushdown, stats, at_once=True)
        table = self._joined((all_at(piece, as_of) for piece in pieces), names)
        del lease
        if consolidate:
            if names is not None or not sums_up(refs, as_of):
                table = consolidated(table, self.key)
            table = sort_by_key(table, _sortable(self.key, table))
        return table

    @metered("snapshot_reader")
    def snapshot_reader(
        self,
        as_of: Timestamp,
        *,
        columns: Sequence[str] | None = None,
        filters: Filters | None = None,
        workers: Sequence[int] | None = None,
        consolidate: bool = False,
        stats: ReadStats | None = None,
        timeout: float | None = None,
    ) -> pa.RecordBatchReader:
        """As `snapshot_arrow`, in pieces: however large the shard, about one row group of one part is in memory at a time.

        Not consolidated across parts by default: sum the diffs of equal rows, or have it done by way of a copy on disk in bounded
        memory (`mzsql.persist.streams`). The parts stay in Blob until the reader is dropped or at its end.

        Args:
            as_of: the time; waits until it is complete.
            columns: the columns, in this order; others are not read.
            filters: the rows that are returned, see `Filters`.
            workers: of a keyed shard, only these workers' parts.
            consolidate: whether equal rows are summed up, in the order of the key where there is one.
            stats: gets what was read added, as it is read.
            timeout: seconds the call may take, and then that reading one piece may take.

        Raises:
            SinceViolation, ReadTimeout, ExpiredHandle, SchemaMismatch: as `snapshot_arrow`, at once.
            MissingPart, CorruptPart, LocationError: from the reader.
        """
        deadline = self._opened.deadline(timeout)
        names = self._columns(columns)
        pushdown = self._pushdown_until(as_of, filters)
        refs, _ = self._snapshot_refs(as_of, pushdown, workers, deadline)
        each = partial(self._opened.deadline, timeout)
        schema = self._opened.parts.read_schema(names)
        pieces: Iterator[pa.Table] = (
            all_at(piece, as_of) for piece in self._pieces(refs, each, names, pushdown, stats)
        )
        settled = self.key is None and names is None and sums_up(refs, as_of)
        if consolidate and not settled:
            pieces = consolidated_pieces(schema, pieces, self.key)
        return reader_of(schema, pieces)

    def _snapshot_refs(
        self,
        as_of: Timestamp,
        pushdown: Pushdown,
        workers: Sequence[int] | None,
        deadline: Deadline,
    ) -> tuple[list[PartRef], Lease]:
        self._lease.check_since(as_of)
        self._lease.await_complete(as_of, deadline)
        refs, lease = self._refs(pushdown, deadline, earliest=as_of)
        if workers is not None:
            wanted = self._workers(workers)
            refs = [ref for ref in refs if ref.worker in wanted]
        return refs, lease

    def _workers(self, workers: Sequence[int]) -> set[int]:
        """The workers asked for, which the shard must have: no rows would else pass for an answer."""
        if self.key is None:
            raise SchemaMismatch(f"shard {self.shard_id} has no key, so no workers either")
        for worker in workers:
            if worker not in range(self.key.workers):
                raise SchemaMismatch(
                    f"shard {self.shard_id}: worker {worker!r} is not in [0, {self.key.workers})"
                )
        return set(workers)

    @metered("updates")
    def updates(
        self,
        lower: Timestamp,
        upper: Timestamp,
        *,
        columns: Sequence[str] | None = None,
        key_ranges: Sequence[KeyRange] | None = None,
        filters: Filters | None = None,
        stats: ReadStats | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """All updates with ``lower <= time < upper`` at their exact times, not consolidated; waits until they are complete.

        Columns, key ranges and filters as `snapshot_arrow`. Parts and row groups at other times only are not read.

        Raises:
            SinceViolation: since is at or beyond ``lower``, so times may have been advanced. From ``lower`` 0 on, since may be
                as late as the last time asked for: the times up to it may then stand at it.
            ReadTimeout, ExpiredHandle, SchemaMismatch, MissingPart, CorruptPart, LocationError: as `snapshot_arrow`.
        """
        deadline = self._opened.deadline(timeout)
        names = self._columns(columns)
        pushdown = self._pushdown_between(lower, upper, filters, key_ranges)
        self._lease.check_since(exact_from(lower, upper))
        if upper <= lower:
            return self._joined([], names)
        self._lease.await_complete(upper - 1, deadline)
        return self._between(pushdown, names, stats=stats, deadline=deadline)

    def _between(
        self,
        pushdown: Pushdown,
        names: Sequence[str] | None,
        *,
        stats: ReadStats | None,
        deadline: Deadline,
    ) -> pa.Table:
        """The updates at the times of ``pushdown``, which are complete; the lease on their objects ends with the call."""
        earliest = exact_from(pushdown.lower, pushdown.upper)
        refs, lease = self._refs(pushdown, deadline, earliest=earliest)
        found = self._pieces(refs, lambda: deadline, names, pushdown, stats, at_once=True)
        table = self._joined(found, names)
        del lease
        return table

    def _pieces(
        self,
        refs: Sequence[PartRef],
        deadline: Callable[[], Deadline],
        names: Sequence[str] | None,
        pushdown: Pushdown,
        stats: ReadStats | None,
        *,
        at_once: bool = False,
    ) -> Iterator[pa.Table]:
        for ref in refs:
            found = self._opened.parts.pieces(
                ref.part,
                deadline,
                columns=names,
                pushdown=pushdown,
                stats=stats,
                at_once=at_once,
            )
            try:
                for piece in found:
                    if not at_once:  # the consumer takes its time between pieces
                        self._lease.renew_if_due(deadline())
                    yield piece
            except MissingPart:
                state = self._opened.shard.fetch(deadline())
                assert state is not None
                self._lease.check_live(state)  # a lease that ran out explains it
                raise

    def _joined(self, found: Iterable[pa.Table], names: Sequence[str] | None) -> pa.Table:
        return joined(self._opened.parts.read_schema(names), found)

    def listen(
        self,
        as_of: Timestamp,
        *,
        columns: Sequence[str] | None = None,
        filters: Filters | None = None,
        stats: ReadStats | None = None,
        timeout: float | None = None,
    ) -> Iterator[tuple[pa.Table, Frontier]]:
        """All updates after ``as_of`` as they become complete: pairs of updates and the frontier they are complete up to.

        Ends after the empty frontier. Downgrade since to just below what has been taken in, so that compaction gets on; a pair once
        yielded keeps nothing in Blob. The lease is renewed while the listen waits.

        Args:
            as_of: the time of the snapshot that the listen continues.
            columns: the columns, in this order.
            filters: the rows that are returned, see `Filters`; a pair may have none.
            stats: gets what was read added.
            timeout: seconds to wait for the next pair; `None` waits on.

        Raises:
            SinceViolation: at once when ``as_of`` is below since, later when since has passed the listen.
            ReadTimeout: nothing came within ``timeout``; the listen may be continued with another call.
            ExpiredHandle: the reader was expired, its lease ran out, or its client was closed.
            SchemaMismatch, MissingPart, CorruptPart, LocationError: as `snapshot_arrow`.
        """
        check_time(as_of, f"shard {self.shard_id}")
        pushdown, names = self._pushdown(filters), self._columns(columns)
        self._lease.check_since(as_of)
        return self._listen(as_of + 1, names, pushdown, stats, timeout)

    def _listen(
        self,
        frontier: Timestamp,
        names: Sequence[str] | None,
        pushdown: Pushdown,
        stats: ReadStats | None,
        timeout: float | None,
    ) -> Iterator[tuple[pa.Table, Frontier]]:
        lower: Frontier = frontier
        while lower is not None:
            deadline = self._opened.deadline(timeout)
            try:
                state = self._lease.await_complete(lower, deadline)
            except ReadTimeout:
                if timeout is None:
                    continue
                raise
            upper = self._opened.shard.upper_in(state)
            with self._context.meter.timed("listen_item"):
                wanted = pushdown.within(lower, upper)
                table = self._between(wanted, names, stats=stats, deadline=deadline)
            yield table, upper
            lower = upper

    def await_change(self, timeout: float, after: int | None = None) -> bool | None:
        """Block until the shard has changed since the state number ``after``, or for ``timeout`` seconds: for followers.

        Args:
            timeout: in seconds.
            after: a `seqno`; by default the last one seen here. Whoever gives none may miss what another thread of this process sees
                between its own look and this call.

        Returns:
            Whether it may have; `None` at once where the Consensus store cannot notify.

        Raises:
            LocationError: the store failed, or was closed.
        """
        if timeout is None:
            refuse("timeout", "a number of seconds", timeout)
        return self._opened.shard.await_change(min(timeout, TIMEOUT_MAX), after)

    @property
    def seqno(self) -> int:
        """The number of the last state of the shard seen here."""
        return self._opened.shard.state.seqno

    @property
    def seen_upper(self) -> Frontier:
        """The upper as last seen here, by any call of this process, its upkeep's too; asks nobody."""
        return self.upper

    @metered("downgrade_since")
    def downgrade_since(self, new_since: Frontier, *, timeout: float | None = None) -> None:
        """Give up reading below ``new_since``; with the present since, a heartbeat. `None` gives up all reading.

        Raises:
            InvalidBounds: ``new_since`` is below the present since.
            ExpiredHandle: the reader's lease ran out.
        """
        check_frontier(new_since, f"shard {self.shard_id}")
        if less_than(new_since, self.since):
            raise InvalidBounds(
                f"shard {self.shard_id}: since cannot go back from {show(self.since)} to {show(new_since)}"
            )
        deadline = self._opened.deadline(timeout)
        self._lease.renew(new_since, deadline)
        self._opened.changed(self._opened, deadline)

    @metered("heartbeat")
    def heartbeat(self, *, timeout: float | None = None) -> None:
        """Renew the lease, and let go of objects nobody here reads any more."""
        self._lease.renew(self.since, self._opened.deadline(timeout))

    def heartbeat_due(self) -> bool:
        """Whether a quarter of the lease has passed since it was renewed."""
        return self._lease.due()

    def let_go(self, deadline: Deadline) -> None:
        """Move the hold on objects forward when it is behind; nothing when the handle is expired."""
        self._lease.let_go(deadline)

    @metered("expire_reader")
    def expire(self, *, timeout: float | None = None) -> None:
        """Give the handle up. Idempotent."""
        self._opened.discard_reader(self)
        deadline = self._opened.deadline(timeout)
        self._lease.expire(deadline)
        if self._opened.shard.state.finalized:
            self._opened.changed(self._opened, deadline)


def _sortable(key: KeySpec | None, table: pa.Table) -> KeySpec | None:
    return key if key is not None and set(key.columns) <= set(table.column_names) else None
