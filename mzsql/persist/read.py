"""Readers of a shard.

Promise: a snapshot at ``as_of`` plus all later updates of a listen are exactly the collection; a read below ``since`` is refused. A
`ReadHandle` has a lease in the shard's state: while the lease lives, the shard's since does not pass the reader's, and objects the
reader may be reading are not deleted. Trade-off: objects are held by the lifetime of the `PartRef` and `SnapshotSplit` values handed
out, so that no call is needed to release them; callers must keep those values until their reading is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    ReadTimeout,
)
from mzsql.persist.leased_parts import Lease, PartRef, SnapshotSplit, SplitData, splits_of, sums_up
from mzsql.persist.leases import ReaderLease, exact_from
from mzsql.persist.metrics import metered
from mzsql.persist.opened import Opened
from mzsql.persist.pieces import pieces_of, sortable, workers_of
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
    """Reads one shard and holds its since back. Made by `PersistClient.open_reader` or `open_shard`. Thread-safe."""

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
        """The shard's id."""
        return self._opened.shard_id

    @property
    def lease(self) -> ReaderLease:
        """The lease in the shard's state that holds since back."""
        return self._lease

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row, without time and diff."""
        return self._opened.schema

    @property
    def key(self) -> KeySpec | None:
        """The layout of a keyed shard; `None` for a shard without key."""
        return self._opened.key

    @property
    def since(self) -> Frontier:
        """This reader's since: the earliest time at which it may read."""
        return self._lease.since

    @property
    def upper(self) -> Frontier:
        """The shard's upper as last seen by this process, or as passed quietly by a writer of this process; without a request."""
        shard = self._opened.shard
        return shard.upper_in(shard.state)

    @property
    def durable_upper(self) -> Frontier:
        """The upper in the shard's durable state, as last seen by this process; without a request."""
        return self._opened.shard.state.upper

    @metered("fetch_upper")
    def fetch_upper(self, *, timeout: float | None = None) -> Frontier:
        """Fetch the shard's current upper from Consensus; a later one if a writer of this process has passed it quietly."""
        shard = self._opened.shard
        state = shard.fetch(self._opened.deadline(timeout))
        assert state is not None
        return shard.upper_in(state)

    @metered("wait_for_upper")
    def wait_for_upper(self, past: Timestamp, *, timeout: float | None = None) -> Frontier:
        """Wait until the time ``past`` is complete, that is until the upper is beyond it; return the upper then.

        Raises:
            ReadTimeout: ``past`` was not complete within ``timeout`` seconds.
        """
        check_time(past, f"shard {self.shard_id}")
        state = self._lease.await_complete(past, self._opened.deadline(timeout))
        return self._opened.shard.upper_in(state)

    def _refs(
        self, pushdown: Pushdown, deadline: Deadline, *, earliest: Timestamp
    ) -> tuple[list[PartRef], Lease]:
        """Return the parts that may hold updates at the times of ``pushdown``, and the lease on them; the times must be complete."""
        self._lease.renew_if_due(deadline)
        # Read `ahead` before the state: what is dropped from it meanwhile is in the state then, so no update is missed.
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
        """Take over ``batch`` as the shard's updates of its times, from whoever keeps a log of the shard's definite updates.

        Readers of this process see them at once, if the batch begins where what is known ends. Nothing durable changes, and no other
        process sees it.

        Raises:
            ForeignBlob: the batch is of another shard.
            InvalidBounds: it has no upper, or it refers to objects in Blob, which nothing would protect from deletion.
        """
        self._opened.learn(batch)

    @property
    def told_here(self) -> bool:
        """Whether a writer of this process notifies its readers of the shard's progress, so that waiting readers need no requests."""
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
        """Return the parts that make up the snapshot at ``as_of``; wait until that time is complete.

        Args:
            as_of: the time.
            filters: parts whose statistics rule out any matching row are left out; the others may hold other rows too.
            timeout: seconds the call may take.

        Raises:
            SinceViolation: ``as_of`` is below since.
            ReadTimeout: ``as_of`` was not complete within ``timeout`` seconds.
            ExpiredHandle: the reader's lease ran out, or its client was closed.
            SchemaMismatch: a filter does not fit the schema.
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
        """Return the parts that may hold updates with ``lower <= time < upper``, at their exact times; filters as `parts`.

        Raises:
            SinceViolation, ReadTimeout, ExpiredHandle, SchemaMismatch: as `updates`.
        """
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
        """Return the contents at ``as_of`` in ``num_splits`` splits of about equal size; wait until that time is complete.

        Splits partition updates, not rows: sum the diffs over all splits. Keep the splits (and the reader) until they have been read.

        Args:
            as_of: the time.
            num_splits: the number of splits, at least 1.
            columns: the columns the splits return, in this order; all by default.
            filters: the rows the splits return, see `Filters`; parts without such rows are left out.
            timeout: seconds the call may take.

        Raises:
            InvalidBounds: ``num_splits`` is below 1.
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
        """Return the contents at ``as_of`` in memory: ``columns`` (all by default), ``mz_time`` advanced to ``as_of``, and ``mz_diff``.

        Large columns come in several chunks, because joining them would copy everything; `pyarrow.Table.combine_chunks` joins them.

        Args:
            as_of: the time; the call waits until it is complete.
            columns: the columns to return, in this order; others are not read.
            key_ranges: inclusive ``(lo, hi)`` of the first key column. One `None` leaves that side open, two ask for NULL keys. Row
                groups outside of the ranges are not read, rows outside of them are not returned.
            filters: the same for any columns, see `Filters`: a row is returned if it is within a range of each column named.
            workers: for a keyed shard: read only these workers' parts.
            consolidate: whether to sum the diffs of equal rows and drop rows whose sum is zero.
            stats: the statistics of the read are added to it.
            timeout: seconds the call may take.

        Raises:
            SinceViolation, ReadTimeout, ExpiredHandle: as `parts`.
            SchemaMismatch: a column the shard lacks, a filter that does not fit, or key ranges for a shard without key.
            MissingPart, CorruptPart: an object is missing, or its contents are not what was written.
            LocationError: a backend did not answer within ``timeout``.
        """
        deadline = self._opened.deadline(timeout)
        names = self._columns(columns)
        pushdown = self._pushdown_until(as_of, filters, key_ranges)
        refs, lease = self._snapshot_refs(as_of, pushdown, workers, deadline)
        pieces = pieces_of(
            self._opened, self._lease, refs, lambda: deadline, names, pushdown, stats, at_once=True
        )
        table = self._joined((all_at(piece, as_of) for piece in pieces), names)
        del lease  # everything is in memory: the objects may be deleted
        if consolidate:
            if names is not None or not sums_up(refs, as_of):
                table = consolidated(table, self.key)
            table = sort_by_key(table, sortable(self.key, table))
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
        """As `snapshot_arrow`, as a stream: however large the shard, about one row group of one part is in memory at a time.

        Not consolidated across parts by default: sum the diffs of equal rows, or pass ``consolidate``, which works in bounded memory
        with a copy on disk (`mzsql.persist.streams`). The parts stay in Blob until the reader is exhausted or dropped.

        Args:
            as_of: the time; the call waits until it is complete.
            columns: the columns to return, in this order; others are not read.
            filters: the rows to return, see `Filters`.
            workers: for a keyed shard: read only these workers' parts.
            consolidate: whether to sum the diffs of equal rows; the output is then sorted by the key if there is one.
            stats: the statistics of the read are added to it, while it is read.
            timeout: seconds the call may take, and afterwards the seconds that reading one batch may take.

        Raises:
            SinceViolation, ReadTimeout, ExpiredHandle, SchemaMismatch: as `snapshot_arrow`, from the call.
            MissingPart, CorruptPart, LocationError: from the reader it returns.
        """
        deadline = self._opened.deadline(timeout)
        names = self._columns(columns)
        pushdown = self._pushdown_until(as_of, filters)
        refs, _ = self._snapshot_refs(as_of, pushdown, workers, deadline)
        each = partial(self._opened.deadline, timeout)
        schema = self._opened.parts.read_schema(names)
        pieces: Iterator[pa.Table] = (
            all_at(piece, as_of)
            for piece in pieces_of(self._opened, self._lease, refs, each, names, pushdown, stats)
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
            wanted = workers_of(self.key, self.shard_id, workers)
            refs = [ref for ref in refs if ref.worker in wanted]
        return refs, lease

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
        """Return all updates with ``lower <= time < upper`` at their exact times, not consolidated; wait until those times are complete.

        Columns, key ranges and filters as in `snapshot_arrow`. Parts and row groups that hold no such times are not read.

        Raises:
            SinceViolation: since is beyond ``lower - 1``, so times may have been advanced. With ``lower`` 0, since may be as late as
                ``upper - 1``; times up to since may then have been advanced to it.
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

    @metered("small_updates")
    def small_updates(
        self,
        lower: Timestamp,
        upper: Timestamp,
        *,
        rows: int,
        size: int,
        timeout: float | None = None,
    ) -> tuple[pa.Table, int] | None:
        """As `updates`, if the parts that may hold such updates hold at most ``rows`` rows and ``size`` bytes; None if they hold more.
        For who reads few updates as a rule: parts are looked for once, not by `parts_between` first.

        Returns:
            The updates, and the parts' bytes.

        Raises:
            SinceViolation, ReadTimeout, ExpiredHandle, MissingPart, CorruptPart, LocationError: as `updates`.
        """
        deadline = self._opened.deadline(timeout)
        pushdown = self._pushdown_between(lower, upper, None)
        earliest = exact_from(lower, upper)
        self._lease.check_since(earliest)
        if upper <= lower:
            return self._joined([], None), 0
        self._lease.await_complete(upper - 1, deadline)
        refs, lease = self._refs(pushdown, deadline, earliest=earliest)
        held = [ref for ref in refs if pushdown.may_hold_part(ref.part)]
        read = sum(ref.bytes for ref in held)
        if read > size or sum(ref.rows for ref in held) > rows:
            return None
        found = pieces_of(
            self._opened, self._lease, held, lambda: deadline, None, pushdown, None, at_once=True
        )
        table = self._joined(found, None)
        del lease
        return table, read

    def _between(
        self,
        pushdown: Pushdown,
        names: Sequence[str] | None,
        *,
        stats: ReadStats | None,
        deadline: Deadline,
    ) -> pa.Table:
        """Return the updates at the times of ``pushdown``, which must be complete; the lease on their objects ends with the call."""
        earliest = exact_from(pushdown.lower, pushdown.upper)
        refs, lease = self._refs(pushdown, deadline, earliest=earliest)
        found = pieces_of(
            self._opened, self._lease, refs, lambda: deadline, names, pushdown, stats, at_once=True
        )
        table = self._joined(found, names)
        del lease
        return table

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
        """Yield all updates after ``as_of`` as they become complete: pairs of updates and the frontier they are complete up to.

        Ends after the empty frontier. Callers should downgrade since to just below what they have processed, so that compaction can
        advance; a pair once yielded holds nothing in Blob. The lease is renewed while the listen waits.

        Args:
            as_of: the time of the snapshot that the listen continues.
            columns: the columns to return, in this order.
            filters: the rows to return, see `Filters`; the updates of a pair may be empty.
            stats: the statistics of the reads are added to it.
            timeout: seconds to wait for the next pair; `None` waits forever.

        Raises:
            SinceViolation: at once if ``as_of`` is below since; later if since has passed the listen.
            ReadTimeout: nothing came within ``timeout``; another call may continue the listen.
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
        """Block until the shard's state is beyond the number ``after``, or for ``timeout`` seconds.

        Args:
            timeout: in seconds.
            after: a `seqno`; by default the last one seen here. Without it, a change that another thread of this process sees between
                the caller's own look and this call is missed.

        Returns:
            Whether the state may have changed; `None` at once if the Consensus store cannot notify.

        Raises:
            LocationError: the store failed, or was closed.
        """
        if timeout is None:
            refuse("timeout", "a number of seconds", timeout)
        return self._opened.shard.await_change(min(timeout, TIMEOUT_MAX), after)

    @property
    def seqno(self) -> int:
        """The number of the shard's latest state seen here."""
        return self._opened.shard.state.seqno

    @property
    def seen_upper(self) -> Frontier:
        """The upper as last seen here by any call of this process, including its background maintenance; without a request."""
        return self.upper

    @metered("downgrade_since")
    def downgrade_since(self, new_since: Frontier, *, timeout: float | None = None) -> None:
        """Give up reading below ``new_since``, and renew the lease. `None` gives up all reading; the present since only renews.

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
        """Renew the lease, and release objects that nobody here reads any more."""
        self._lease.renew(self.since, self._opened.deadline(timeout))

    def heartbeat_due(self) -> bool:
        """Whether a quarter of the lease has passed since it was renewed."""
        return self._lease.due()

    def let_go(self, deadline: Deadline) -> None:
        """Release objects that are held but no longer read; does nothing if the handle is expired."""
        self._lease.let_go(deadline)

    @metered("expire_reader")
    def expire(self, *, timeout: float | None = None) -> None:
        """Close the reader and give up its hold on the shard. Idempotent."""
        self._opened.discard_reader(self)
        deadline = self._opened.deadline(timeout)
        self._lease.expire(deadline)
        if self._opened.shard.state.finalized:
            self._opened.changed(self._opened, deadline)
