"""Compaction: which batches to merge, and the merge itself.

Promise: adjacent batches of a size tier become one of the next tier, so a shard of n updates keeps O(log n) batches
and rewrites each update O(log n) times. A batch that has most of the shard is rewritten alone once since has passed
most of its times, O(log) times however since moves. A merge has its times advanced to since, is consolidated, and is
sorted: by key, or without a key by the columns in order, so that the minima and maxima of row groups select well,
and equal rows are adjacent. Small merges are done in pyarrow, large ones in DuckDB, which gets
`Settings.compaction_memory_bytes` and spills the rest to a directory of its own. Trade-off: a batch whose sum of
diffs says that little would vanish is not rewritten for its times alone. Source: Materialize's persist design,
"compaction"; differential dataflow's spine.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.location import Determinate
from mzsql.persist import duck
from mzsql.persist.batch import DIFF_COLUMN, BlobPart, KeySpec, Part, first_time, last_time
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import advance_times, conform, physical
from mzsql.persist.commands import ApplyMerge
from mzsql.persist.consolidate import (
    cast_sums,
    consolidate,
    consolidation_sql,
    positional,
    quote,
    renamed,
    sort_by_key,
)
from mzsql.persist.errors import CorruptPart, MissingPart
from mzsql.persist.machine import surely_not_committed
from mzsql.persist.opened import Opened
from mzsql.persist.parts import PartWriter, delete_objects
from mzsql.persist.settings import Settings
from mzsql.persist.sorted_consolidation import consolidate_sorted, has_comparable_rows
from mzsql.persist.spill import spill_directory
from mzsql.persist.state import ShardState, TraceBatch
from mzsql.repr.errors import DataError

_IN_ARROW = 16
"""A merge of at most this fraction (1/n) of a part's size is done in memory, by pyarrow."""
_LEFT_BEHIND = 8
"""A batch is rewritten alone once at most this fraction (1/n) of its times is beyond since."""
_TAKE_OVER_CHANGES = 32
"""After how many changes a process does a merge that it has seen due and that another process should have done."""


class Merge(NamedTuple):
    """Adjacent batches that are due to be merged; adding the batch ``completed_by`` made them due."""

    run: tuple[TraceBatch, ...]
    completed_by: int


class Unmergeable(Exception):
    """Batches that cannot be merged because something in them is broken; ``cause`` says what."""

    def __init__(
        self, batches: Sequence[TraceBatch], cause: CorruptPart | MissingPart | DataError
    ) -> None:
        super().__init__(str(cause))
        self.batches = tuple(batches)
        self.cause = cause


def _tier(batch: TraceBatch, fanout: int) -> int:
    # By powers of the fanout, so that a row is rewritten about once a tier: log(rows) times in all.
    return int(math.log(max(batch.rows, 1), fanout))


def choose(state: ShardState, settings: Settings, broken: Set[int] = frozenset()) -> Merge | None:
    """Return what to merge next, or `None`.

    In this order: adjacent batches with ``compaction_fanout`` of the lowest tier possible (smaller ones may be among
    them); if there are more than ``max_batches``, the cheapest adjacent ones; else the batch that since has left
    behind. Never a batch of ``broken``.
    """
    if state.since is None:
        return None
    stretches = _stretches(state.trace, broken)
    fanout = settings.compaction_fanout
    tiers = {batch.id: _tier(batch, fanout) for batch in state.trace}
    counts = Counter(tiers.values())
    # The lowest tier first: its merge is the cheapest, and may complete a run of the next tier.
    for tier in sorted(tier for tier, count in counts.items() if count >= fanout):
        for stretch in stretches:
            merge = _of_tier(stretch, tier, fanout, tiers)
            if merge is not None:
                return merge
    if len(state.trace) > settings.max_batches:
        runs = [run for stretch in stretches for run in _neighbours(stretch, fanout)]
        if runs:
            cheapest = min(runs, key=lambda run: sum(batch.rows for batch in run))
            return Merge(cheapest, max(batch.id for batch in state.trace))
    for batch in state.trace:
        if batch.id not in broken and _left_behind(batch, state, settings):
            return Merge((batch,), batch.id)
    return None


def _stretches(trace: Sequence[TraceBatch], broken: Set[int]) -> list[tuple[TraceBatch, ...]]:
    """Return the runs of the trace between broken batches."""
    # Only neighbours are merged, as what replaces them has one lower and one upper; a batch that cannot be read divides the trace.
    found: list[list[TraceBatch]] = [[]]
    for batch in trace:
        if batch.id in broken:
            found.append([])
        else:
            found[-1].append(batch)
    return [tuple(stretch) for stretch in found if stretch]


def _of_tier(
    stretch: tuple[TraceBatch, ...], tier: int, fanout: int, tiers: Mapping[int, int]
) -> Merge | None:
    start = 0
    for end in range(len(stretch) + 1):
        if end < len(stretch) and tiers[stretch[end].id] <= tier:
            continue
        run = stretch[start:end]
        ids = sorted(batch.id for batch in run if tiers[batch.id] == tier)
        if len(ids) >= fanout:
            return Merge(run, ids[fanout - 1])
        start = end + 1
    return None


def _neighbours(stretch: tuple[TraceBatch, ...], fanout: int) -> list[tuple[TraceBatch, ...]]:
    width = min(max(fanout, 2), len(stretch))
    return [stretch[i : i + width] for i in range(len(stretch) - width + 1) if width > 1]


def _left_behind(batch: TraceBatch, state: ShardState, settings: Settings) -> bool:
    """Whether ``batch`` has most of the shard's updates, since has passed most of its times, and much of it may vanish."""
    since = state.since
    if since is None or batch.size <= settings.inline_bytes:
        return False
    first = min((first_time(part) for part in batch.parts), default=0)
    last = max((last_time(part) for part in batch.parts), default=0)
    if first >= last or last - since > (last - first) // _LEFT_BEHIND:
        return False
    # `diffs` is about the number of rows that remain: rewrite only if at least half of the updates would vanish.
    if batch.diffs is not None and batch.rows < 2 * abs(batch.diffs):
        return False
    return 2 * batch.rows > sum(other.rows for other in state.trace)


def everything(state: ShardState, broken: Set[int] = frozenset()) -> Merge | None:
    """Return a merge of all batches, or of the longest run between ``broken`` ones; `None` if it is one batch that
    cannot be more compact.
    """
    since = state.since
    stretches = _stretches(state.trace, broken)
    if since is None or not stretches:
        return None
    longest = max(stretches, key=len)
    settled = len(longest) == 1 and longest[0].since >= since and longest[0].consolidated
    return None if settled else Merge(longest, max(batch.id for batch in longest))


def is_ours(opened: Opened, state: ShardState, merge: Merge) -> bool:
    """Whether this process should do the merge: it made it due, or the process that did seems gone, judged by later
    batches or changes.

    One process per merge saves work only; two that do the same merge do no harm, as one of them loses the race.
    """
    if opened.shard.added(merge.completed_by):
        return True
    if state.next_batch - merge.completed_by > 2 * opened.context.settings.compaction_fanout:
        return True
    return opened.changes_since_seen(merge.completed_by, state.seqno) >= _TAKE_OVER_CHANGES


def apply_merge(
    opened: Opened, state: ShardState, run: Sequence[TraceBatch], deadline: Deadline
) -> bool:
    """Replace ``run`` by its merge; return `False` if another process changed it meanwhile. Objects written in vain are
    deleted.

    Raises:
        Unmergeable: a part of the run is missing or corrupt, or sums overflow.
        Determinate: it was given up, because time or memory ran out, a backend failed, or the client closes.
    """
    assert state.since is not None
    merged: list[Part] = []
    total: list[int] = []
    workers = sorted({part.worker for batch in run for part in batch.parts}, key=_first_none)
    # Each worker's part may be inline, and the bound is on the batch, which the state carries.
    inline_bytes = opened.context.settings.inline_bytes // max(1, len(workers))
    try:
        for worker in workers:
            work = _Work(opened, run, worker, state.since, deadline)
            merged += work.merged(inline_bytes)
            total.append(work.diffs)
    except Unmergeable as failure:
        _delete(opened, merged)
        # A batch that is gone from the trace was merged by another process, and its objects collected under our hands: that is no damage.
        now = opened.shard.fetch(deadline)
        assert now is not None
        if {batch.id for batch in failure.batches} <= {batch.id for batch in now.trace}:
            raise
        return False
    except BaseException:
        _delete(opened, merged)
        raise
    command = ApplyMerge(
        inputs=tuple(batch.id for batch in run),
        lower=run[0].lower,
        upper=run[-1].upper,
        since=state.since,
        parts=tuple(merged),
        diffs=sum(total),
    )
    try:
        # After an indeterminate error the state may name the objects: they may not be deleted until a later state
        # decides (`Opened.doubt`).
        applied: bool = opened.shard.apply(command, deadline)
    except BaseException as failure:
        if surely_not_committed(failure):
            _delete(opened, merged)
        else:
            opened.doubt([part.key for part in merged if isinstance(part, BlobPart)])
        raise
    if not applied:
        _delete(opened, merged)
    return applied


def _first_none(worker: int | None) -> int:
    return -1 if worker is None else worker


def _delete(opened: Opened, parts: Sequence[Part]) -> None:
    delete_objects(opened.context, [p.key for p in parts if isinstance(p, BlobPart)])


class _Work:
    """The merge of one worker's parts of a run."""

    def __init__(
        self,
        opened: Opened,
        run: Sequence[TraceBatch],
        worker: int | None,
        since: int,
        deadline: Deadline,
    ) -> None:
        self._opened = opened
        self._run = run
        self._parts = [(b, part) for b in run for part in b.parts if part.worker == worker]
        self._worker = worker
        self._since = since
        self._deadline = deadline
        self.diffs = 0

    def merged(self, inline_bytes: int) -> tuple[Part, ...]:
        """Merge, write the parts, and return them."""
        opened = self._opened
        settings = opened.context.settings
        size = sum(part.size for _, part in self._parts)
        writer = PartWriter(opened.parts, opened.key, worker=self._worker, deadline=self._deadline)
        try:
            small = size <= settings.part_bytes // _IN_ARROW
            with contextlib.closing(self._in_arrow() if small else self._in_duckdb()) as found:
                for table in found:
                    self._step()
                    self.diffs += pc.sum(table[DIFF_COLUMN]).as_py() or 0
                    writer.add(table)
            return writer.finish(inline_bytes=inline_bytes)
        except BaseException:
            writer.abandon()
            raise

    def _step(self) -> None:
        """Note progress for the deadline; give up if the time is over or the client closes."""
        self._deadline.progress()
        if self._opened.context.closing.is_set():
            raise Determinate(f"shard {self._opened.shard_id}: a merge was given up for the close")
        if self._deadline.passed():
            raise Determinate(
                f"shard {self._opened.shard_id}: a merge was not over within {self._deadline.timeout:g} s"
            )

    def _tables(self) -> Iterator[pa.Table]:
        """Yield the updates piece by piece, times advanced to since."""
        for batch, part in self._parts:
            try:
                for table in self._opened.parts.pieces(part, lambda: self._deadline):
                    self._step()
                    yield advance_times(table, self._since)
            except (MissingPart, CorruptPart) as failure:
                raise Unmergeable([batch], failure) from failure

    def _in_arrow(self) -> Generator[pa.Table]:
        key = self._opened.key
        table = pa.concat_tables(list(self._tables())).combine_chunks()
        try:
            if key is None and _is_sorted_wholly(table.schema):
                yield from consolidate_sorted([sort_by_columns(table)])
                return
            table = consolidate(table, key)
        except DataError as failure:
            raise Unmergeable(self._run, failure) from failure
        yield sort_by_key(table, key) if key is not None else sort_by_columns(table)

    def _in_duckdb(self) -> Generator[pa.Table]:
        """Yield the merge in pieces, made by DuckDB, which spills to disk what exceeds its memory."""
        opened = self._opened
        schema = physical(opened.schema)
        columns = positional(schema)
        failed: list[Exception] = []
        with (
            spill_directory() as directory,
            duck.opened(settings=_config(opened.context.settings, directory)) as connection,
            opened.interrupting(connection.interrupt),
        ):
            # DuckDB pulls the batches while the query runs; `failed` keeps an error of theirs, of which it would keep
            # only the text.
            batches = _noted(self._batches(columns), failed)
            connection.register("updates", pa.RecordBatchReader.from_batches(columns, batches))
            by_neighbours = opened.key is None and has_comparable_rows(schema)
            sql = _ordered(columns) if by_neighbours else _sql(schema, columns, opened.key)
            try:
                reader = connection.sql(sql).to_arrow_reader(1 << 16)
                tables = (pa.Table.from_batches([batch]) for batch in reader)
                for table in consolidate_sorted(tables) if by_neighbours else tables:
                    summed = cast_sums(table, columns)
                    yield conform(summed.rename_columns(schema.names), schema)
            except DataError as failure:
                raise Unmergeable(self._run, failure) from failure
            except (duckdb.Error, pa.ArrowException, OSError) as failure:
                raise self._reason(failure, failed) from failure

    def _batches(self, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        for table in self._tables():
            yield from conform(renamed(table, columns), columns).to_batches()

    def _reason(self, failure: Exception, failed: Sequence[Exception]) -> Exception:
        """Return why DuckDB failed: an error of ours in its input, the client's close, too little memory or disk, or
        values that do not fit.
        """
        shard = f"shard {self._opened.shard_id}"
        if failed:
            return failed[0]
        if self._opened.context.closing.is_set():
            return Determinate(f"{shard}: a merge was given up for the close")
        if isinstance(failure, (duckdb.OutOfMemoryException, duckdb.IOException, OSError)):
            return Determinate(
                f"{shard}: a merge ran out of memory or disk: {failure}",
                hint="Raise compaction_memory_bytes, or free the disk of the temporary directory.",
            )
        misfits = (duckdb.OutOfRangeException, duckdb.ConversionException, pa.ArrowInvalid)
        what = "sums do not fit" if isinstance(failure, misfits) else "a merge failed"
        return Unmergeable(self._run, DataError(f"{shard}: {what}: {failure}"))


def _config(settings: Settings, directory: str) -> dict[str, duck.Setting]:
    return {
        "temp_directory": directory,
        "memory_limit": f"{settings.compaction_memory_bytes}B",
        "threads": settings.compaction_threads,
        # The statement sorts or sums up anyway; to keep the order of what comes in would only cost memory.
        "preserve_insertion_order": False,
    }


def _sql(schema: pa.Schema, columns: pa.Schema, key: KeySpec | None) -> str:
    renamed = dict(zip(schema.names, columns.names, strict=True))
    additive = [] if key is None else [renamed[name] for name in key.additive]
    order = columns.names[:-1] if key is None else [renamed[name] for name in key.columns]
    return consolidation_sql("updates", columns.names, additive, order)


def _ordered(columns: pa.Schema) -> str:
    """Return the SELECT with which DuckDB makes equal rows adjacent."""
    names = [quote(name) for name in columns.names]
    order = ", ".join(f"{name} NULLS LAST" for name in names[:-1])
    return f"SELECT {', '.join(names)} FROM updates ORDER BY {order}"


def _noted(batches: Iterator[pa.RecordBatch], failed: list[Exception]) -> Iterator[pa.RecordBatch]:
    """Yield ``batches``; an error is put into ``failed``, because DuckDB would keep only its text."""
    try:
        yield from batches
    except Exception as failure:
        failed.append(failure)
        raise


def sort_by_columns(table: pa.Table) -> pa.Table:
    """Return ``table`` sorted by all columns that can be ordered, then by time; NULLs last."""
    names = [field.name for field in table.schema if _orders(field.type)]
    order = [(name, "ascending") for name in names if name != DIFF_COLUMN]
    return table.take(pc.sort_indices(table, sort_keys=order)) if table.num_rows > 1 else table


def _is_sorted_wholly(schema: pa.Schema) -> bool:
    """Whether `sort_by_columns` makes equal rows adjacent, and adjacent rows can be compared."""
    return has_comparable_rows(schema) and all(_orders(field.type) for field in schema)


@functools.cache
def _orders(type_: pa.DataType) -> bool:
    """Whether pyarrow sorts by the type."""
    with contextlib.suppress(pa.ArrowException):
        one = pa.table([pa.nulls(2, type_), pa.nulls(2, type_)], names=["a", "b"])
        pc.sort_indices(one, sort_keys=[("a", "ascending"), ("b", "ascending")])
        return True
    return False
