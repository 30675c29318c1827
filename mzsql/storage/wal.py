"""The write-ahead log of tables: a shard in which the writes of many tables are committed at once.

Promise: one ``compare_and_append`` commits everything of one timestamp. An entry is a table shard's name, its
timestamp and a `Batch` (a small one inline, a large one by reference to parts already in Blob, so rows are written
once). Each `WriteAheadLog` mirrors the log's live entries in memory, so that a commit knows, at the upper that it
expects, which tables exist in the log, when each was last written, and which entries have been applied meanwhile:
these are retracted by the same append. Trade-offs: a small batch is written a second time, as its retraction; and
history is given up only every `_KEPT_MOVES` commits, so that a commit costs little more than one write to Consensus.
Pure functions compute the next state; `WriteAheadLog` does the IO. If a backend leaves the outcome of an append
open, `settle` determines it: either the log contains it, or the log is advanced so that it never can. The design is
that of Materialize's txn-wal.
docs/architecture.md, "The way of a write", steps 2 and 3.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from mzsql.location import ConsensusWait, Indeterminate
from mzsql.persist import (
    Batch,
    Clock,
    ExpiredHandle,
    PersistClient,
    ReadHandle,
    SystemClock,
    UpperMismatch,
    WriteHandle,
)
from mzsql.repr.errors import EnvironmentRefused, InternalError, SqlError, UndefinedTable
from mzsql.repr.frontier import Timestamp
from mzsql.repr.version import VERSION

_log = logging.getLogger(__name__)

_KEPT_MOVES = 16
"""History is given up after so many changes seen, because each time costs a write to Consensus."""
_FORGET_MS = 3_600_000
"""For how long, in milliseconds, the last write of a dropped table is remembered: transactions that still read it
conflict with it.
"""

POLL_SECONDS = 0.5
"""How often a follower polls if Consensus cannot notify, in seconds."""

WRITE = "write"
REGISTER = "register"

WAL_SCHEMA = pa.schema(
    [
        pa.field("shard", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("batch", pa.binary()),
    ]
)


class WalEntry(msgspec.Struct, frozen=True, order=True):
    """A write to one table shard at ``ts`` (``batch`` is an encoded `Batch`), or the shard's registration."""

    shard: str
    ts: Timestamp
    kind: str
    batch: bytes = b""


class WalState(msgspec.Struct, frozen=True):
    """What the log says below ``upper``.

    Attributes:
        upper: times below it are complete.
        live: for each table shard its entries that were not retracted yet, oldest first.
        registered: the table shards that may be written.
        last_write: for each table shard the time of the last write seen; for dropped tables kept for an hour.
        floor: writes not in ``last_write`` happened at or before this time.
        tidied: for each registered table shard the time of the last write whose retraction was seen, which its shard
            therefore contains.
        opened: writes that are neither in ``tidied`` nor live were retracted before the log had this upper.
    """

    upper: Timestamp = 0
    live: dict[str, tuple[WalEntry, ...]] = {}
    registered: frozenset[str] = frozenset()
    last_write: dict[str, Timestamp] = {}
    floor: Timestamp = 0
    tidied: dict[str, Timestamp] = {}
    opened: Timestamp = 0

    def tidied_until(self, shard: str) -> Timestamp:
        """No write after this time has been retracted, so later writes that the table's shard lacks are live. Up to it
        the shard may have more than is known here.
        """
        if shard not in self.registered:
            return self.upper - 1  # of what was dropped no more is kept
        return max(self.tidied.get(shard, 0), self.opened - 1)

    def written_after(self, shard: str, ts: Timestamp) -> bool:
        """Whether ``shard`` may have been written after ``ts``."""
        return self.last_write.get(shard, self.floor) > ts

    def blob_keys(self) -> frozenset[str]:
        """The objects of committed batches that the tables' shards may not contain yet."""
        return frozenset(
            key
            for entries in self.live.values()
            for entry in entries
            if entry.kind == WRITE
            for key in Batch.from_bytes(entry.batch).blob_keys()
        )


def advance(state: WalState, changes: Iterable[tuple[WalEntry, int]], upper: Timestamp) -> WalState:
    """The state after ``changes`` (entries with their diffs) were appended and ``upper`` reached."""
    net: dict[WalEntry, int] = {}
    for entry, diff in changes:
        net[entry] = net.get(entry, 0) + diff
    live = dict(state.live)
    last = dict(state.last_write)
    registered = set(state.registered)
    tidied = dict(state.tidied)
    for entry, diff in sorted(net.items()):
        if entry.kind == WRITE and diff >= 0:
            # An entry that was written and retracted between two looks leaves only the facts that it was written and
            # that it was retracted.
            last[entry.shard] = max(last.get(entry.shard, 0), entry.ts)
        if entry.kind == WRITE and diff <= 0:
            tidied[entry.shard] = max(tidied.get(entry.shard, 0), entry.ts)
        if diff == 0:
            continue
        if entry.kind == REGISTER:
            (registered.add if diff > 0 else registered.discard)(entry.shard)
            continue
        mine = [e for e in live.get(entry.shard, ()) if e != entry]
        if diff > 0:
            mine.append(entry)
        live[entry.shard] = tuple(sorted(mine, key=lambda e: e.ts))
        if not mine:
            del live[entry.shard]
    floor = _forgotten(last, registered, upper, state.floor)
    tidied = {shard: ts for shard, ts in tidied.items() if shard in registered}
    return WalState(upper, live, frozenset(registered), last, floor, tidied, state.opened)


def _forgotten(
    last: dict[str, Timestamp], registered: set[str], upper: Timestamp, floor: Timestamp
) -> Timestamp:
    """Remove old writes to dropped tables from ``last``; return the floor that then covers them."""
    if len(last) > len(registered):
        for shard, ts in list(last.items()):
            if shard not in registered and ts < upper - _FORGET_MS:
                floor = max(floor, ts)
                del last[shard]
    return floor


def entries_of(table: pa.Table) -> list[tuple[WalEntry, int]]:
    """The rows of the log's shard as entries with diffs. They are a few metadata rows, never data rows.

    Raises:
        EnvironmentRefused: an entry is of a kind that this version does not know.
    """
    columns = (table.column(i).to_pylist() for i in range(len(WAL_SCHEMA)))
    diffs = table.column("mz_diff").to_pylist()
    unknown = set(table.column("kind").unique().to_pylist()) - {WRITE, REGISTER}
    if unknown:
        raise EnvironmentRefused(
            f"the log has entries of a kind that mzsql {VERSION} does not know: {', '.join(sorted(map(str, unknown)))}",
            hint="Where a newer mzsql has written them, upgrade to that.",
        )
    return [
        (WalEntry(shard, ts, kind, batch or b""), diff)
        for shard, ts, kind, batch, diff in zip(*columns, diffs, strict=True)
    ]


def rows_of(changes: Sequence[tuple[WalEntry, int]], time: Timestamp) -> pa.Table:
    """Changes as updates of the log's shard at ``time``."""
    return pa.table(
        {
            "shard": pa.array([e.shard for e, _ in changes], pa.string()),
            "ts": pa.array([e.ts for e, _ in changes], pa.int64()),
            "kind": pa.array([e.kind for e, _ in changes], pa.string()),
            "batch": pa.array([e.batch for e, _ in changes], pa.binary()),
            "mz_time": pa.array([time] * len(changes), pa.int64()),
            "mz_diff": pa.array([d for _, d in changes], pa.int64()),
        }
    )


class HoldsTime(Protocol):
    """A table's shard, as the log asks it."""

    def holds(self, ts: Timestamp) -> bool:
        """Whether the shard is known to contain what was written at ``ts``; no backend is called."""


class AppliedEntries:
    """Which entries of the log have reached their table's shard, as far as this process knows. Thread-safe."""

    def __init__(self) -> None:
        self._shards: dict[str, HoldsTime] = {}

    def opened(self, shard_id: str, shard: HoldsTime) -> None:
        """From now on the entries of ``shard_id`` are judged by ``shard``."""
        self._shards[shard_id] = shard

    def closed(self, shard_id: str) -> None:
        """Nothing is known of the entries of ``shard_id`` any more."""
        self._shards.pop(shard_id, None)

    def __contains__(self, entry: WalEntry) -> bool:
        shard = self._shards.get(entry.shard)
        return shard is not None and shard.holds(entry.ts)


class WriteAheadLog:
    """One process's handle of the write-ahead log. Thread-safe.

    Args:
        persist: the client of the environment's shards.
        shard_id: the log's shard, created if it does not exist.
        clock: for timeouts and pauses.

    Attributes:
        applied: the entries that have reached their table's shard; commits retract them.
    """

    def __init__(
        self,
        persist: PersistClient,
        shard_id: str,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._persist = persist
        self._shard_id = shard_id
        self.applied = AppliedEntries()
        self._clock = clock or SystemClock()
        self._changed = threading.Condition(threading.RLock())
        self._writer: WriteHandle
        self._reader: ReadHandle
        self._kept_moves: int
        self._state = WalState()
        self._seen = (self._state, 0.0)
        self._lapsed = False
        # Appends under way: by timestamp the upper that each expects; and the outcomes of those that ended without an
        # answer.
        self._doubts: dict[Timestamp, Timestamp] = {}
        self._outcomes: dict[Timestamp, bool | None] = {}
        self._open()

    def _open(self) -> None:
        self._writer, self._reader = self._persist.open_shard(
            self._shard_id, WAL_SCHEMA, purpose="write-ahead log of tables"
        )
        self._lapsed = False
        # Opening begins at the shard's since, however old that is, and gives it up with the first change.
        self._kept_moves = _KEPT_MOVES - 1
        upper = self._reader.fetch_upper()
        assert upper is not None, "the write-ahead shard is never sealed"
        if upper == 0:
            self._set(WalState())
            return
        snapshot = self._reader.snapshot_arrow(upper - 1)
        # What was retracted before is in no snapshot, so any table may have been written as late as just before. A transaction that read
        # earlier than that conflicts, rather than overlooking a write.
        state = WalState(floor=upper - 1, opened=upper)
        entries = entries_of(snapshot)
        state = advance(state, entries, upper)
        # What was retracted meanwhile is in no snapshot, so for an append that is not found nothing can be said any
        # more.
        self._decide(entries, upper, missing=None)
        self._set(state)

    def _set(self, state: WalState) -> None:
        self._state = state
        self._seen = (state, self._clock.monotonic())

    def _decide(
        self, changes: Iterable[tuple[WalEntry, int]], upper: Timestamp, *, missing: bool | None
    ) -> None:
        """Determine for each append under way whether it is among ``changes``, now that the log has moved from the
        upper that it expected.
        """
        moved = [ts for ts, at in self._doubts.items() if at < upper and ts not in self._outcomes]
        if not moved:
            return
        there = {entry.ts for entry, diff in changes if entry.kind == WRITE and diff > 0}
        for ts in moved:
            self._outcomes[ts] = True if ts in there else missing

    @property
    def state(self) -> WalState:
        """The log as last seen; no backend is called and nobody waited for."""
        return self._state

    @property
    def seen(self) -> tuple[WalState, float]:
        """The log as last seen, and the monotonic time at which it was known to be current; no backend is called."""
        return self._seen

    def follow(self) -> WalState:
        """Fetch the log's present state, with writes of other processes."""
        with self._changed:
            try:
                if self._lapsed:
                    # The process slept longer than its lease, so updates may have been compacted; a fresh snapshot has
                    # them.
                    self._open()
                upper = self._reader.fetch_upper()
                if upper is not None and upper > self._state.upper:
                    rows = entries_of(self._reader.updates(self._state.upper, upper))
                    self._decide(rows, upper, missing=False)
                    self._move(advance(self._state, rows, upper))
            except ExpiredHandle:
                # The process slept longer than its lease: what was compacted meanwhile is in a fresh snapshot.
                self._open()
                self._changed.notify_all()
            return self._state

    def _move(self, state: WalState) -> None:
        self._set(state)
        self._changed.notify_all()
        self._kept_moves += 1
        if self._kept_moves < _KEPT_MOVES and not self._reader.heartbeat_due():
            return
        # What moved the log is durable: no failure to let go of the times before it may make it look undone.
        try:
            self._reader.downgrade_since(max(0, state.upper - 1))
            self._kept_moves = 0
        except ExpiredHandle:
            self._lapsed = True
        except SqlError as failure:
            self._kept_moves = 0
            _log.warning("the write-ahead log keeps history a little longer: %s", failure)

    def commit(
        self,
        ts: Timestamp,
        writes: Mapping[str, Batch],
        *,
        expected: WalState,
        forget: Iterable[str] = (),
        register: Iterable[str] = (),
    ) -> WalState:
        """Commit ``writes`` (by table shard) at ``ts`` if the log is still as ``expected``.

        Args:
            ts: the timestamp, at or beyond ``expected.upper``.
            writes: for each table shard its batch; times are replaced by ``ts`` when it is applied.
            expected: the state on which the caller's checks were made.
            forget: table shards that will never be written again (dropped tables).
            register: table shards that are new to the log.

        Raises:
            UpperMismatch: somebody else committed; follow, check and try again.
            UndefinedTable: a table was dropped.
            Indeterminate: it may have been committed; `settle` finds out.
            LocationError: any other failure: it was not committed and never will be.
        """
        registered = expected.registered | set(register)
        for shard in writes:
            if shard not in registered:
                raise UndefinedTable("a table that this transaction writes was dropped meanwhile")
        changes = [(WalEntry(s, 0, REGISTER), 1) for s in set(register) - expected.registered]
        changes += [
            (WalEntry(shard, ts, WRITE, batch.to_bytes()), 1) for shard, batch in writes.items()
        ]
        # Nobody will read a dropped table's shard, so its entries go without having been applied.
        for shard in set(forget):
            changes += [(entry, -1) for entry in expected.live.get(shard, ())]
            if shard in expected.registered:
                changes.append((WalEntry(shard, 0, REGISTER), -1))
        # Tidying rides on a commit, so it costs no write of its own. Until a table's shard has an entry's rows they stand nowhere else,
        # so only applied entries may go.
        for shard, entries in expected.live.items():
            if shard not in set(forget):
                changes += [(entry, -1) for entry in entries if entry in self.applied]
        if expected.upper > ts:
            raise UpperMismatch(self._shard_id, ts, expected.upper)
        with self._changed:
            writer = self._writer
            # Recorded before the append: a thread that follows the log meanwhile, and reads past it, notes the
            # outcome.
            if writes:
                self._doubts[ts] = expected.upper
        settled = True
        try:
            # Without the lock, so that threads that only look at the log do not wait for an append.
            writer.compare_and_append(
                rows_of(changes, ts) if changes else None,
                expected_upper=expected.upper,
                new_upper=ts + 1,
            )
        except ExpiredHandle:
            with self._changed:
                self._open()
                self._changed.notify_all()
                raise UpperMismatch(self._shard_id, expected.upper, self._state.upper) from None
        except Indeterminate:
            settled = False
            raise
        finally:
            if settled and writes:
                with self._changed:
                    self._doubts.pop(ts, None)
                    self._outcomes.pop(ts, None)
        with self._changed:
            if self._state.upper == expected.upper:
                self._decide(changes, ts + 1, missing=False)
                self._move(advance(self._state, changes, ts + 1))
            elif self._state.upper <= ts:
                raise InternalError("the write-ahead log moved to where it cannot be")
            return self._state

    def settle(self, ts: Timestamp) -> bool | None:
        """Determine whether an append of writes at ``ts`` that ended as Indeterminate is in the log.

        If nothing has come after it, an empty append takes its place in the log, or finds it there; so False is
        final. None: this process has slept so long that the outcome cannot be determined any more.

        Raises:
            LocationError: the log cannot be read now; ask again.
        """
        with self._changed:
            if ts not in self._doubts:
                raise InternalError(f"there is no doubt about the write-ahead log at {ts}")
        # Once the log is complete beyond `ts`, an append that expects an older upper can never come in: its absence is final.
        self.advance_past(ts)
        with self._changed:
            del self._doubts[ts]
            return self._outcomes.pop(ts)

    def advance_past(self, ts: Timestamp) -> WalState:
        """Make ``ts`` complete; other writers may do so at the same time."""
        while True:
            state = self.follow()
            if state.upper > ts:
                return state
            try:
                return self.commit(ts, {}, expected=state)
            except UpperMismatch:
                continue

    def wait_past(self, ts: Timestamp, timeout: float) -> WalState:
        """Wait until ``ts`` is complete or ``timeout`` seconds have passed; return the state then."""
        end = self._clock.monotonic() + timeout
        pause = 0.002
        state = self.follow()
        while state.upper <= ts:
            left = end - self._clock.monotonic()
            if left <= 0:
                return state
            with self._changed:
                # Commits of this process notify; those of others are polled for, ever less often.
                if self._state.upper <= ts:
                    self._changed.wait(min(left, pause))
            pause = min(pause * 1.5, 0.1)
            state = self.follow()
        return state

    def next_move(self, seen: Timestamp, timeout: float) -> WalState:
        """Wait up to ``timeout`` seconds, or less, for the upper to move beyond ``seen``; return the state then.

        If Consensus can notify, it is not called while nothing happens, nor for what this process has committed.
        Otherwise this is `wait_past`, for at most `POLL_SECONDS`. It ends early when Consensus is closed.

        Raises:
            LocationError: Consensus fails, or was closed.
        """
        with self._changed:
            reader = self._reader
            if self._state.upper > seen:
                return self._state
            if self._behind():
                return self.follow()
            before = reader.seqno
        changed = reader.await_change(timeout, before)
        if changed is None:
            return self.wait_past(seen, min(timeout, POLL_SECONDS))
        with self._changed:
            # What this process committed itself is in the state already. Its other writes to the shard may have met
            # another process's change without following it, which shows as a sequence number that did not move.
            if self._behind() or (changed and reader.seqno == before):
                return self.follow()
            return self._state

    def _behind(self) -> bool:
        """Whether this process has seen a longer log than it has read. The caller holds the lock."""
        upper = self._reader.seen_upper
        return upper is None or upper > self._state.upper

    @property
    def notified(self) -> bool:
        """Whether Consensus notifies of changes, so that `next_move` does not poll."""
        return isinstance(self._persist.consensus, ConsensusWait)

    def close(self) -> None:
        """Close the handles. Idempotent."""
        self._reader.expire()
        self._writer.expire()


def unapplied_keys(persist: PersistClient, shard_id: str) -> frozenset[str]:
    """The objects that the log of ``shard_id`` refers to and the tables' shards may not: they are not garbage.
    Read-only.

    Whoever looks for unreferenced objects must read this first and the tables' states afterwards, because a batch
    leaves the log only after its table's shard contains it.

    Raises:
        MissingPart: compaction removed parts of the log faster than they could be read.
    """
    contents = persist.peek(shard_id)
    if contents is None:
        return frozenset()
    return advance(WalState(), entries_of(contents), 0).blob_keys()
