"""Reports on a shard: frontiers, batches, handles, rollups, log, garbage and its holders, unreferenced objects, and the
cost.

Promise: `report_of` is a pure function of a state, a listing and a summary of the log. The functions that gather
those (`inspect_shard`, `inspect_location`, `peek`) write nothing and register no handle, so they may be used on a
location in use; if other processes delete something meanwhile, they look again. Trade-off: without a lease, a read
may have to start over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec
import pyarrow as pa

from mzsql.location import Versioned
from mzsql.location.keys import shard_keys
from mzsql.persist.batch import BlobPart, KeySpec
from mzsql.persist.clock import Deadline, drawn_at
from mzsql.persist.codec import Entry, decode_entry
from mzsql.persist.columns import all_at, decode_schema, physical
from mzsql.persist.consolidate import consolidate
from mzsql.persist.context import Context
from mzsql.persist.cost import Activity, Cost, Prices, monthly_cost
from mzsql.persist.deciding import known_keys
from mzsql.persist.errors import MissingPart
from mzsql.persist.fetch import PartReader, until
from mzsql.persist.machine import Shard
from mzsql.persist.retry import Backoff
from mzsql.persist.state import ShardState, TraceBatch
from mzsql.repr.frontier import Frontier, Timestamp

_SCAN_LIMIT = 256
_UUID_LENGTH = 36


class BatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """A live batch with times in ``[lower, upper)``; times below ``since`` were advanced to it."""

    id: int
    lower: Timestamp
    upper: Frontier
    since: Timestamp
    updates: int
    bytes: int
    parts: int
    inline_bytes: int
    objects: int
    workers: tuple[int, ...]


class HandleReport(msgspec.Struct, frozen=True, kw_only=True):
    """A reader (with its since) or a writer (with its last upper); critical holds have no lease."""

    id: str
    frontier: Frontier
    purpose: str
    lease_left_ms: int | None = None
    seqno_hold: int | None = None


class RollupReport(msgspec.Struct, frozen=True, kw_only=True):
    """A state that was written whole; ``bytes`` is `None` if the object is missing."""

    seqno: int
    key: str
    bytes: int | None


class LogReport(msgspec.Struct, frozen=True, kw_only=True):
    """The shard's entries in Consensus."""

    first_seqno: int
    last_seqno: int
    entries: int
    bytes: int
    activity: Activity


class GarbageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that left the state at ``seqno``; they are deleted once no reader of ``held_by`` may read them."""

    seqno: int
    objects: int
    bytes: int
    held_by: tuple[str, ...]


class UnreferencedReport(msgspec.Struct, frozen=True, kw_only=True):
    """An object under the shard's prefix that its state does not name: an upload in progress, a batch yet to be
    appended, or a leak.
    """

    key: str
    bytes: int
    age_ms: int | None


class ExpiredReport(msgspec.Struct, frozen=True, kw_only=True):
    """A reader or writer whose lease ran out: the change ``seqno`` expired it, after no renewal was seen for
    ``unseen_ms``.
    """

    id: str
    kind: Literal["reader", "writer"]
    seqno: int
    unseen_ms: int
    purpose: str


class ShardReport(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to see of a shard.

    Attributes:
        ending: it was retired: it takes no new readers, and ends with its last one.
        expired: the latest of the readers and writers that were expired and may not know it yet.
        missing: objects its state names that are not in Blob: damage.
    """

    shard_id: str
    finalized: bool
    ending: bool
    since: Frontier
    upper: Frontier
    seqno: int
    seqno_since: int
    walltime_ms: int
    applier_version: str
    columns: dict[str, str]
    key: KeySpec | None
    batches: tuple[BatchReport, ...]
    readers: tuple[HandleReport, ...]
    writers: tuple[HandleReport, ...]
    critical: tuple[HandleReport, ...]
    expired: tuple[ExpiredReport, ...]
    rollups: tuple[RollupReport, ...]
    log: LogReport
    garbage: tuple[GarbageReport, ...]
    unreferenced: tuple[UnreferencedReport, ...]
    missing: tuple[str, ...]
    live_bytes: int
    inline_bytes: int
    garbage_bytes: int
    rollup_bytes: int
    unreferenced_bytes: int
    cost: Cost

    @property
    def updates(self) -> int:
        """The number of updates in the live batches."""
        return sum(batch.updates for batch in self.batches)

    @property
    def purpose(self) -> str:
        """The purposes of its handles."""
        handles = (*self.writers, *self.readers, *self.critical)
        return "; ".join(dict.fromkeys(h.purpose for h in handles if h.purpose))


class OrphansReport(msgspec.Struct, frozen=True, kw_only=True):
    """Objects under a prefix that is not a shard of this Consensus."""

    prefix: str
    objects: int
    bytes: int


def object_time(key: str) -> int | None:
    """Return when the object got its name, in milliseconds since the epoch, or `None` if its key does not tell.

    Keys are ``shard/id.parquet``, ``shard/rollup-seqno-id``, or ``shard/id/…`` of another writer.
    """
    return drawn_at(object_id(key))


def object_id(key: str) -> str:
    """Return the identifier in the object's key, as `Context.new_object_id` made it; for other keys, some text that it
    never makes.
    """
    name = key.partition("/")[2].partition("/")[0].partition(".")[0]
    return name[-_UUID_LENGTH:] if name.startswith("rollup-") else name


def rollup_keys(state: ShardState) -> set[str]:
    """Return the keys of the state's rollups."""
    return set(state.rollups.values())


def report_of(
    state: ShardState,
    *,
    now_ms: int,
    listing: Mapping[str, int],
    log: LogReport,
    prices: Prices | None = None,
) -> ShardReport:
    """Return the report on ``state``, given ``listing`` (keys with sizes in bytes) as what Blob has under the shard's
    prefix.
    """
    garbage = tuple(_garbage(state, seqno, listing) for seqno in sorted(state.garbage))
    named = known_keys(state) | rollup_keys(state)
    unreferenced = tuple(
        UnreferencedReport(key=key, bytes=size, age_ms=_age(key, now_ms))
        for key, size in sorted(listing.items())
        if key not in named
    )
    dead = {key for keys in state.garbage.values() for key in keys}
    live_bytes = sum(b.size - b.inline_size for b in state.trace)
    garbage_bytes = sum(report.bytes for report in garbage)
    rollup_bytes = sum(listing.get(key, 0) for key in rollup_keys(state))
    unreferenced_bytes = sum(report.bytes for report in unreferenced)
    stored = live_bytes + garbage_bytes + rollup_bytes + unreferenced_bytes
    columns = {field.name: str(field.type) for field in decode_schema(state.schema)}
    return ShardReport(
        shard_id=state.shard_id,
        finalized=state.finalized,
        ending=state.ending and not state.finalized,
        since=state.since,
        upper=state.upper,
        seqno=state.seqno,
        seqno_since=state.seqno_since,
        walltime_ms=state.walltime_ms,
        applier_version=state.applier_version,
        columns=columns,
        key=state.key,
        batches=tuple(_batch(batch) for batch in state.trace),
        **_handles(state, now_ms),
        expired=tuple(
            ExpiredReport(
                id=handle_id,
                kind="reader" if handle_id.startswith("r") else "writer",
                seqno=expired.seqno,
                unseen_ms=expired.unseen_ms,
                purpose=expired.purpose,
            )
            for handle_id, expired in sorted(state.expired.items(), key=lambda one: one[1].seqno)
        ),
        rollups=tuple(
            RollupReport(seqno=seqno, key=key, bytes=listing.get(key))
            for seqno, key in sorted(state.rollups.items())
        ),
        log=log,
        garbage=garbage,
        unreferenced=unreferenced,
        # Garbage does not count: a collection that was interrupted may have deleted it before the state was updated.
        missing=tuple(sorted(named - dead - listing.keys())),
        live_bytes=live_bytes,
        inline_bytes=state.inline_size,
        garbage_bytes=garbage_bytes,
        rollup_bytes=rollup_bytes,
        unreferenced_bytes=unreferenced_bytes,
        cost=monthly_cost(stored, log.activity, len(state.readers), prices),
    )


def _age(key: str, now_ms: int) -> int | None:
    written = object_time(key)
    return None if written is None else max(0, now_ms - written)


def _garbage(state: ShardState, seqno: int, listing: Mapping[str, int]) -> GarbageReport:
    keys = state.garbage[seqno]
    return GarbageReport(
        seqno=seqno,
        objects=len(keys),
        bytes=sum(listing.get(key, 0) for key in keys),
        held_by=tuple(i for i, r in sorted(state.readers.items()) if r.seqno_hold < seqno),
    )


def _batch(batch: TraceBatch) -> BatchReport:
    return BatchReport(
        id=batch.id,
        lower=batch.lower,
        upper=batch.upper,
        since=batch.since,
        updates=batch.rows,
        bytes=batch.size,
        parts=len(batch.parts),
        inline_bytes=batch.inline_size,
        objects=sum(isinstance(part, BlobPart) for part in batch.parts),
        workers=tuple(sorted({part.worker for part in batch.parts if part.worker is not None})),
    )


def _handles(state: ShardState, now_ms: int) -> dict[str, tuple[HandleReport, ...]]:
    return {
        "readers": tuple(
            HandleReport(
                id=reader_id,
                frontier=reader.since,
                purpose=reader.purpose,
                lease_left_ms=reader.heartbeat_ms + reader.lease_ms - now_ms,
                seqno_hold=reader.seqno_hold,
            )
            for reader_id, reader in sorted(state.readers.items())
        ),
        "writers": tuple(
            HandleReport(
                id=writer_id,
                frontier=writer.upper,
                purpose=writer.purpose,
                lease_left_ms=writer.heartbeat_ms + writer.lease_ms - now_ms,
            )
            for writer_id, writer in sorted(state.writers.items())
        ),
        # Without the token, which would let anybody take the hold over.
        "critical": tuple(
            HandleReport(id=reader_id, frontier=hold.since, purpose=hold.purpose)
            for reader_id, hold in sorted(state.critical.items())
        ),
    }


class _LogSummary:
    """Sums up a log entry by entry."""

    def __init__(self) -> None:
        self.first: tuple[int, int] | None = None
        self.last_seqno = 0
        self.entries = 0
        self.bytes = 0
        self._counts: dict[str, int] = {}

    def add(self, versioned: Versioned, entry: Entry) -> None:
        """Take the next entry."""
        self.entries += 1
        self.bytes += len(versioned.data)
        self.last_seqno = versioned.seqno
        change = entry.diff if entry.state is None else entry.state
        assert change is not None
        if self.first is None:
            self.first = (versioned.seqno, change.walltime_ms)
            return
        self._more(changes=1)
        diff = entry.diff
        if diff is None:
            return
        written = [p for batch in diff.added for p in batch.parts if isinstance(p, BlobPart)]
        rollups = sum(key is not None for key in diff.rollups.values())
        self._more(
            rollups=rollups,
            objects_written=len(written) + rollups,
            objects_dropped=len(diff.garbage) + len(diff.rollups) - rollups,
        )
        if diff.removed:
            self._more(merges=1, objects_compacted=len(diff.garbage))
        elif diff.added:
            self._more(
                appends=1,
                updates_appended=sum(batch.rows for batch in diff.added),
                inline_bytes_appended=sum(batch.inline_size for batch in diff.added),
                objects_appended=len(written),
            )

    def _more(self, **counts: int) -> None:
        for name, count in counts.items():
            self._counts[name] = self._counts.get(name, 0) + count

    def report(self, now_ms: int) -> LogReport:
        """Return the summary so far, with the activity up to ``now_ms``."""
        seqno, walltime_ms = self.first or (0, now_ms)
        seconds = max(0, now_ms - walltime_ms) / 1000
        return LogReport(
            first_seqno=seqno,
            last_seqno=self.last_seqno,
            entries=self.entries,
            bytes=self.bytes,
            activity=Activity(seconds=seconds, **self._counts),
        )


def _log_of(context: Context, shard_id: str, deadline: Deadline) -> LogReport:
    summary, start = _LogSummary(), 0
    while True:
        found = context.retrying(
            lambda: context.consensus.scan(shard_id, start, _SCAN_LIMIT),  # noqa: B023
            deadline,
        )
        for versioned in found:
            summary.add(versioned, decode_entry(versioned.data, shard_id, versioned.seqno))
        if len(found) < _SCAN_LIMIT:
            return summary.report(context.clock.now_ms())
        start = found[-1].seqno + 1


def inspect_shard(context: Context, shard_id: str, deadline: Deadline) -> ShardReport | None:
    """Return the report on a shard; `None` if it does not exist.

    Raises:
        NewerVersion, CorruptPart: its state cannot be read.
        MissingPart: its rollup is missing.
    """
    shard = Shard(shard_id, context)
    prefix = f"{shard_id}/"
    found: ShardReport | None = None
    for _ in range(2):
        # List before fetching the state: an object written and named in between looks missing, which a second look
        # corrects.
        listing = dict(
            context.retrying(
                lambda: list(context.blob.list_keys_and_metadata(prefix)),
                deadline,
            )
        )
        log = _log_of(context, shard_id, deadline)
        state = shard.fetch(deadline)
        if state is None:
            return None
        now = context.clock.now_ms()
        found = report_of(state, now_ms=now, listing=listing, log=log)
        if not found.missing:
            break
    return found


def inspect_location(
    context: Context, deadline: Callable[[], Deadline]
) -> Iterator[tuple[str, ShardReport | Exception]]:
    """Yield every shard of the location with its report, or with the error that kept it from being read."""
    for shard_id in shard_keys(context.consensus.list_keys()):
        try:
            report = inspect_shard(context, shard_id, deadline())
        except Exception as failure:  # one shard must not hide the others; the caller shows it
            yield shard_id, failure
        else:
            if report is not None:
                yield shard_id, report


def find_orphans(context: Context, shards: frozenset[str]) -> list[OrphansReport]:
    """Return the objects of the location under prefixes other than ``shards``, summed up by prefix."""
    sums: dict[str, tuple[int, int]] = {}
    for key, size in context.blob.list_keys_and_metadata(""):
        prefix = key.partition("/")[0]
        if prefix not in shards:
            objects, total = sums.get(prefix, (0, 0))
            sums[prefix] = (objects + 1, total + size)
    return [
        OrphansReport(prefix=prefix, objects=objects, bytes=total)
        for prefix, (objects, total) in sorted(sums.items())
    ]


def peek(context: Context, shard_id: str, deadline: Deadline) -> tuple[ShardState, pa.Table] | None:
    """Return a state of the shard and its contents at its latest complete time, consolidated; `None` if it does not
    exist. Takes no lease.

    Raises:
        MissingPart: until the deadline, collection deleted parts faster than they could be read; or the shard is
            damaged.
    """
    shard = Shard(shard_id, context)
    backoff = Backoff(context.clock, context.rng, deadline)
    while True:
        state = shard.fetch(deadline)
        if state is None:
            return None
        reader = PartReader(context, shard_id, decode_schema(state.schema))
        try:
            found = [reader.read(part, deadline) for batch in state.trace for part in batch.parts]
        except MissingPart:
            now = shard.fetch(deadline)
            if (now is not None and now.trace == state.trace) or not backoff.pause():
                raise
            continue
        table = pa.concat_tables([physical(reader.schema).empty_table(), *found])
        if state.upper is not None and state.upper > 0:
            table = all_at(until(table, state.upper - 1), state.upper - 1)
        return state, consolidate(table, state.key).combine_chunks()
