"""Timestamp bindings: the times of a source's messages, agreed on by every process that reads the source.

A source timestamp is a partition (text) and an offset (bigint), totally ordered within its partition. The bindings
of a source are a shard: at time ``t`` it holds, for each partition, the offset up to which messages are bound at or
before ``t``. So its update ``(partition, offset), ts, +1`` is the design's binding ``(source timestamp, ts)``: a
message of the partition at or below the offset that no lower binding covers gets ``ts``; the binding that it
supersedes is retracted by the same append.

Promise: bindings are minted by compare_and_append, so every process sees the same ones, each once and permanently;
times only grow. Below the shard's upper all bindings are known, so a collection of the source's data is complete up
to there once everything bound is in it. Compaction folds the bindings that no consumer needs any more into one
offset for each partition. Trade-off: each minting is one append, at the clock's time or later, so data becomes
visible no earlier than it was bound. Source: Materialize's persist design, timestamp bindings.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.persist import (
    CriticalReader,
    ExpiredHandle,
    InvalidBounds,
    PersistClient,
    ReadHandle,
    SchemaMismatch,
    SinceViolation,
    duck,
)
from mzsql.repr.errors import NotReadable
from mzsql.repr.frontier import MAX_TIMESTAMP, Frontier, Timestamp, less_than

PARTITION = "partition"
OFFSET = "offset"
TIME = "mz_time"

BINDINGS_SCHEMA = pa.schema([pa.field(PARTITION, pa.string()), pa.field(OFFSET, pa.int64())])

_EXACT_SCHEMA = BINDINGS_SCHEMA.append(pa.field("ts", pa.int64()))
_BEFORE = -1
"""Stands for an unknown time before those that are known exactly."""
_KEPT_MOVES = 16
_CHUNKS = 64


class BindingCompacted(NotReadable):
    """A source timestamp was bound so long ago that its time is no longer known."""


class Binding(msgspec.Struct, frozen=True, order=True):
    """Messages of ``partition`` at or below ``offset`` that no lower binding covers get the time ``ts``."""

    partition: str
    offset: int
    ts: Timestamp


class BindingState(msgspec.Struct, frozen=True):
    """The bindings below ``upper``, as a process knows them.

    Attributes:
        since: times beyond it are exact (from 0 on if it is 0).
        upper: all bindings of earlier times are known; `None` when the source has ended.
        base: for each partition the offset that was bound before the exact times.
        bound: for each partition the offset that is bound.
        exact: the bindings of exact times: partition, offset, ts.
    """

    since: Timestamp = 0
    upper: Frontier = 0
    base: dict[str, int] = {}
    bound: dict[str, int] = {}
    exact: pa.Table = msgspec.field(default_factory=_EXACT_SCHEMA.empty_table)

    def check_exact(self, shard_id: str, lower: Timestamp) -> None:
        """Check that the bindings of all times from ``lower`` on are exact.

        Raises:
            SinceViolation: they are not.
        """
        if self.since > max(lower - 1, 0):
            raise SinceViolation(shard_id, max(lower - 1, 0), self.since)

    def bound_at(self, ts: Timestamp) -> dict[str, int]:
        """For each partition the offset bound at or before ``ts``, which must be exact; partitions without a binding
        are absent.
        """
        return {**self.base, **_greatest(self.exact.filter(pc.field("ts") <= ts))}

    def find(self, partition: str, offset: int) -> Binding | None:
        """The binding that covers a source timestamp, or `None`.

        Raises:
            BindingCompacted: it is older than the exact ones.
        """
        if offset > self.bound.get(partition, -1):
            return None
        if offset <= self.base.get(partition, -1):
            raise BindingCompacted(
                f"offset {offset} of partition {partition!r} was bound at or before {self.since}: "
                "its time was given up",
                hint="A consumer that needs the times of old messages keeps a hold of its own: see BindingReader.",
            )
        wanted = (pc.field(PARTITION) == partition) & (pc.field(OFFSET) >= offset)
        found = self.exact.filter(wanted)
        ts = pc.min(found["ts"]).as_py()
        return Binding(partition, pc.min(found[OFFSET]).as_py(), ts)


def _greatest(table: pa.Table) -> dict[str, int]:
    """For each partition its greatest offset."""
    grouped = table.group_by(PARTITION).aggregate([(OFFSET, "max")])
    return dict(
        zip(grouped[PARTITION].to_pylist(), grouped[f"{OFFSET}_max"].to_pylist(), strict=True)
    )


def loaded(contents: pa.Table, since: Timestamp) -> BindingState:
    """The state at ``since`` from a consolidated snapshot there. At 0 nothing can be earlier, so its times are exact."""
    bound = _greatest(contents)
    if since > 0:
        return BindingState(since, since + 1, bound, bound)
    exact = contents.select([PARTITION, OFFSET, TIME]).rename_columns(_EXACT_SCHEMA.names)
    return BindingState(0, 1, {}, bound, exact.cast(_EXACT_SCHEMA))


def advanced(state: BindingState, changes: pa.Table, upper: Frontier) -> BindingState:
    """The state after the shard's updates ``changes``, up to ``upper``."""
    added = changes.filter(pc.field("mz_diff") > 0).select([PARTITION, OFFSET, TIME])
    added = added.rename_columns(_EXACT_SCHEMA.names).cast(_EXACT_SCHEMA)
    exact = pa.concat_tables([state.exact, added])
    # Each call adds a chunk; many small ones make every look-up slow, and joining them each time would copy all again
    # and again.
    if exact["ts"].num_chunks > _CHUNKS:
        exact = exact.combine_chunks()
    bound = {**state.bound, **_greatest(added)}
    return BindingState(state.since, upper, state.base, bound, exact)


def compacted(state: BindingState, since: Timestamp) -> BindingState:
    """The state with exact times only beyond ``since``."""
    if since <= state.since:
        return state
    exact = state.exact.filter(pc.field("ts") > since).combine_chunks()
    return BindingState(since, state.upper, state.bound_at(since), state.bound, exact)


def minted(state: BindingState, wanted: Mapping[str, int], ts: Timestamp) -> pa.Table:
    """The shard's updates that bind at ``ts`` what of ``wanted`` (partition: offset) ``state`` has not bound."""
    partitions: list[str] = []
    offsets: list[int] = []
    diffs: list[int] = []
    for partition, offset in sorted(wanted.items()):
        before = state.bound.get(partition)
        if before is not None and before >= offset:
            continue
        # The shard holds one offset a partition: the one before goes as the new one comes.
        if before is not None:
            partitions.append(partition)
            offsets.append(before)
            diffs.append(-1)
        partitions.append(partition)
        offsets.append(offset)
        diffs.append(1)
    return pa.table(
        {
            PARTITION: pa.array(partitions, pa.string()),
            OFFSET: pa.array(offsets, pa.int64()),
            TIME: pa.repeat(pa.scalar(ts, pa.int64()), len(diffs)),
            "mz_diff": pa.array(diffs, pa.int64()),
        }
    )


class Bound(NamedTuple):
    """Messages with their times.

    Attributes:
        updates: those that are bound, with ``mz_time``.
        unbound: those that no binding covers yet, unchanged.
        upper: all bindings of earlier times are known.
    """

    updates: pa.Table
    unbound: pa.Table
    upper: Frontier


class BindingReader:
    """Follows the bindings of a source and gives messages their times. Thread-safe.

    Args:
        persist: the client of the shards.
        shard_id: the shard of the bindings, created if it does not exist.
        consumer: whose bindings are kept until `compact` gives them up, even when this process is gone: the durable
            name of a hold that all instances of the consumer share, for instance the shard that they write. Without
            a consumer nothing is kept beyond what other consumers keep.
        purpose: shown when the shard is inspected.
    """

    def __init__(
        self,
        persist: PersistClient,
        shard_id: str,
        *,
        consumer: str | None = None,
        purpose: str = "timestamp bindings",
    ) -> None:
        self._persist = persist
        self.shard_id = shard_id
        self._consumer = consumer
        self._purpose = purpose
        self._lock = threading.RLock()
        self._hold: CriticalReader | None = None
        self._reader: ReadHandle
        self._state = BindingState()
        self._moves = 0
        self._open()

    def _open(self) -> None:
        # The hold is taken before the state is loaded, so that what is loaded stays readable. Its token is its name,
        # because instances share it.
        self._reader = self._persist.open_reader(
            self.shard_id, BINDINGS_SCHEMA, purpose=self._purpose
        )
        if self._consumer is not None and self._hold is None:
            self._hold = self._persist.open_critical_reader(
                self.shard_id, self._consumer, token=self._consumer, purpose=self._purpose
            )
        since = self._reader.since
        if since is None:
            raise ExpiredHandle(f"shard {self.shard_id}: all of its bindings were given up")
        upper = self._reader.fetch_upper()
        if upper is not None and upper <= since:
            self._state = BindingState(since, upper)
            return
        state = loaded(self._reader.snapshot_arrow(since), since)
        self._state = self._after(state, upper)

    def _after(self, state: BindingState, upper: Frontier) -> BindingState:
        assert state.upper is not None
        end = MAX_TIMESTAMP + 1 if upper is None else upper
        if end <= state.upper:
            return msgspec.structs.replace(state, upper=upper)
        return advanced(state, self._reader.updates(state.upper, end), upper)

    @property
    def state(self) -> BindingState:
        """The bindings as last seen; no backend is called."""
        return self._state

    @property
    def upper(self) -> Frontier:
        """All bindings of earlier times are known; no backend is called."""
        return self._state.upper

    def follow(self) -> BindingState:
        """Fetch the present bindings."""
        with self._lock:
            try:
                upper = self._reader.fetch_upper()
                if less_than(self._state.upper, upper):
                    self._state = self._after(self._state, upper)
                    self._moves += 1
                    if self._moves >= _KEPT_MOVES or self._reader.heartbeat_due():
                        self._let_go()
            except ExpiredHandle:
                self._reopen()
            return self._state

    def _reopen(self) -> None:
        """Open new handles: the process slept longer than its lease, and what it knows may have been compacted."""
        self._open()

    def _let_go(self) -> None:
        """Downgrade this process's lease to what the consumers keep; if there are none, everything is kept.

        Never beyond what is known here: instances share their consumer's hold, and one that is ahead moves it past
        bindings that this one has yet to read at their exact times.
        """
        self._moves = 0
        state = self._persist.inspect(self.shard_id)
        assert state is not None
        kept = [hold.since for hold in state.critical.values() if hold.since is not None]
        present = self._reader.since
        if present is None:
            return
        target = min(kept) if kept else present
        if self._state.upper is not None:
            target = min(target, self._state.upper - 1)
        self._reader.downgrade_since(max(present, target))
        self._state = compacted(self._state, max(present, target))

    def wait_past(self, ts: Timestamp, timeout: float | None = None) -> BindingState:
        """Wait until the bindings at ``ts`` are complete.

        Raises:
            ReadTimeout: they are not within ``timeout`` seconds.
        """
        try:
            self._reader.wait_for_upper(ts, timeout=timeout)
        except ExpiredHandle:
            with self._lock:
                self._reopen()
            self._reader.wait_for_upper(ts, timeout=timeout)
        return self.follow()

    def bind(self, messages: pa.Table, *, lower: Timestamp = 0) -> Bound:
        """Give messages their times, by the bindings known here (`follow`).

        Args:
            messages: any columns, among them ``partition`` (text, or integers, taken as text) and ``offset``
                (integers).
            lower: messages of earlier times are left out: the caller has them already.

        Raises:
            SchemaMismatch: a column is missing, of another type, or NULL somewhere; or there is an ``mz_time``
                already.
            SinceViolation: times from ``lower`` on are not exact any more.
        """
        state = self._state
        state.check_exact(self.shard_id, lower)
        return with_times(state, messages, lower)

    def compact(self, until: Timestamp) -> None:
        """Give up the times before ``until``: this consumer has durably taken in what was bound before it.

        Raises:
            InvalidBounds: bindings at ``until`` are not complete yet.
        """
        with self._lock:
            if until <= 0:
                return
            if less_than(self._state.upper, until) and less_than(self.follow().upper, until):
                raise InvalidBounds(
                    f"shard {self.shard_id}: cannot give up the bindings before {until}, they are complete only up to "
                    f"{self._state.upper}"
                )
            try:
                if self._hold is None:
                    since = self._reader.since
                    if since is not None and since < until - 1:
                        self._reader.downgrade_since(until - 1)
                        self._state = compacted(self._state, until - 1)
                    return
                held = self._hold.since
                if held is not None and held < until - 1:
                    self._hold.downgrade_since(until - 1)
                self._let_go()
            except ExpiredHandle:
                self._reopen()

    def release(self) -> None:
        """Give up the consumer's hold permanently, because its collection was dropped. Idempotent."""
        with self._lock:
            hold, self._hold = self._hold, None
            self._consumer = None
            if hold is not None:
                hold.release()

    def close(self) -> None:
        """Close the reader; a consumer's hold stays, see `release`. Idempotent."""
        self._reader.expire()


def with_times(state: BindingState, messages: pa.Table, lower: Timestamp) -> Bound:
    """Messages with their times by the bindings of ``state``, exact from ``lower`` on; see `BindingReader.bind`."""
    ts = _looked_up(_source_timestamps(messages), state)
    bound = pc.fill_null(pc.greater_equal(ts, lower), False)
    times = pa.chunked_array([ts.filter(bound)], pa.int64())
    updates = messages.filter(bound).append_column(
        pa.field(TIME, pa.int64(), nullable=False), times
    )
    return Bound(updates, messages.filter(pc.is_null(ts)), state.upper)


def _source_timestamps(messages: pa.Table) -> pa.Table:
    """The partitions and offsets of messages, in the types of bindings."""
    columns = []
    for field in BINDINGS_SCHEMA:
        if len(messages.schema.get_all_field_indices(field.name)) != 1:
            raise SchemaMismatch(f'messages of a source have one column "{field.name}"')
        column = messages[field.name]
        text = field.name == PARTITION and _is_text(column.type)
        if not (text or pa.types.is_integer(column.type)):
            raise SchemaMismatch(
                f'column "{field.name}" of messages cannot be of type {column.type}',
                hint="Partitions are text or integers, offsets are integers.",
            )
        if column.null_count:
            raise SchemaMismatch(f'column "{field.name}" of messages is NULL in some of them')
        columns.append(column.cast(field.type))
    if TIME in messages.column_names:
        raise SchemaMismatch(f'messages have a column "{TIME}", which bindings are to give')
    return pa.table(columns, schema=BINDINGS_SCHEMA)


def _is_text(type_: pa.DataType) -> bool:
    return str(type_) in ("string", "large_string", "string_view")


def _looked_up(keys: pa.Table, state: BindingState) -> pa.Array:
    """The time of each source timestamp: NULL if it is not bound, `_BEFORE` if it is not exact."""
    base = pa.table(
        [
            pa.array(list(state.base), pa.string()),
            pa.array(list(state.base.values()), pa.int64()),
            pa.repeat(pa.scalar(_BEFORE, pa.int64()), len(state.base)),
        ],
        schema=_EXACT_SCHEMA,
    )
    bindings = pa.concat_tables([base, state.exact])
    if keys.num_rows == 0 or bindings.num_rows == 0:
        return pa.nulls(keys.num_rows, pa.int64())
    ones = pa.repeat(pa.scalar(1, pa.int64()), keys.num_rows)
    places = keys.append_column("place", pc.cumulative_sum(ones))
    with duck.connection() as connection:
        connection.register("messages", places)
        connection.register("bindings", bindings)
        # The nearest binding at or above the offset: within a partition both grow together.
        found: pa.Table = connection.sql(
            'SELECT b.ts FROM messages m ASOF LEFT JOIN bindings b ON m."partition" = b."partition" '
            'AND m."offset" <= b."offset" ORDER BY m.place'
        ).to_arrow_table()
    return found["ts"].combine_chunks()
