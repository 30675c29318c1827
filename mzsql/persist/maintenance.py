"""Keeping shards tidy: compaction, rollups, garbage collection.

Promise: safe at any moment, in any number of processes at once. Compaction merges neighbouring batches of a size tier into one of the
next, so a shard of n updates keeps O(log n) batches and rewrites each update O(log n) times; the merge has its times advanced to since
and is consolidated. Collection goes rollup, objects, rollups, truncation, so that whatever the state names is there until the state no
longer names it; an object of a replaced batch is deleted once no reader's hold needs it. Source: the persist design, "compaction",
"garbage collection".
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from mzsql.location import Determinate, UsageError
from mzsql.persist.batch import BlobPart, Part
from mzsql.persist.clock import Deadline
from mzsql.persist.codec import encode_state
from mzsql.persist.columns import advance_times, conform, physical
from mzsql.persist.commands import AddRollup, ApplyMerge, Collect
from mzsql.persist.consolidate import (
    cast_sums,
    consolidate,
    consolidation_sql,
    positional,
    quote,
    sort_by_key,
)
from mzsql.persist.errors import MissingPart
from mzsql.persist.opened import Opened
from mzsql.persist.parts import PartWriter, delete_objects
from mzsql.persist.settings import Settings
from mzsql.persist.state import ShardState, TraceBatch

_GARBAGE_ENTRIES = 16
"""Collection is due once so many changes have left garbage."""


class Report(msgspec.Struct):
    """What a round of maintenance did."""

    merges: int = 0
    batches_merged: int = 0
    rollups: int = 0
    objects_deleted: int = 0
    entries_truncated: int = 0


def due(state: ShardState, settings: Settings) -> bool:
    """Whether maintenance has something to do."""
    return (
        state.finalized
        or choose(state, settings) is not None
        or state.seqno - state.latest_rollup >= settings.rollup_interval
        or _collectable(state) >= _GARBAGE_ENTRIES
    )


def maintain(opened: Opened, deadline: Deadline, *, full: bool = False, all_due: bool) -> Report:
    """Compact, roll up and collect.

    Args:
        opened: the shard.
        deadline: the end of the work.
        full: merge all batches into one.
        all_due: collect whatever can be collected, however little.
    """
    report = Report()
    settings, meter = opened.context.settings, opened.context.meter
    metrics = meter.metrics
    with opened.maintenance_lock:
        state = _fetched(opened, deadline)
        while not state.finalized and state.since is not None:
            run = _everything(state) if full else choose(state, settings)
            if run is None:
                break
            with meter.timed("merge"):
                merged = _merge(opened, state, run, deadline)
            if not merged:
                report_state = _fetched(opened, deadline)
                if report_state.seqno == state.seqno:
                    break
                state = report_state
                continue
            report.merges += 1
            report.batches_merged += len(run)
            metrics.merges.inc()
            metrics.batches_merged.inc(len(run))
            state = _fetched(opened, deadline)
            full = False
        try:
            with meter.timed("collect"):
                _collect(opened, report, deadline, all_due=all_due)
        finally:
            metrics.rollups.inc(report.rollups)
            metrics.objects_deleted.inc(report.objects_deleted)
            metrics.entries_truncated.inc(report.entries_truncated)
    return report


def _fetched(opened: Opened, deadline: Deadline) -> ShardState:
    state = opened.shard.fetch(deadline)
    assert state is not None
    return state


def _tier(batch: TraceBatch, fanout: int) -> int:
    return int(math.log(max(batch.rows, 1), fanout))


def choose(state: ShardState, settings: Settings) -> tuple[TraceBatch, ...] | None:
    """The neighbouring batches to merge next, or `None`.

    Those of the lowest tier of which ``compaction_fanout`` stand side by side (smaller ones may stand between them); beyond
    ``max_batches``, the cheapest neighbours.
    """
    fanout, trace = settings.compaction_fanout, state.trace
    if state.since is None or len(trace) < 2:
        return None
    tiers = [_tier(batch, fanout) for batch in trace]
    for tier in sorted(set(tiers)):
        start = 0
        for end in range(len(trace) + 1):
            if end < len(trace) and tiers[end] <= tier:
                continue
            if tiers[start:end].count(tier) >= fanout:
                return trace[start:end]
            start = end + 1
    if len(trace) > settings.max_batches:
        width = min(fanout, len(trace))
        costs = [
            sum(batch.rows for batch in trace[i : i + width]) for i in range(len(trace) - width + 1)
        ]
        cheapest = costs.index(min(costs))
        return trace[cheapest : cheapest + width]
    return None


def _everything(state: ShardState) -> tuple[TraceBatch, ...] | None:
    trace = state.trace
    since = state.since
    if not trace or since is None:
        return None
    settled = len(trace) == 1 and trace[0].since >= since
    return None if settled else trace


def _merge(
    opened: Opened, state: ShardState, run: Sequence[TraceBatch], deadline: Deadline
) -> bool:
    """Replace ``run`` by its merge; `False` when another process changed it meanwhile."""
    assert state.since is not None
    since = state.since
    by_worker: dict[int | None, list[Part]] = {}
    for batch in run:
        for part in batch.parts:
            by_worker.setdefault(part.worker, []).append(part)
    merged: list[Part] = []
    inline_bytes = opened.context.settings.inline_bytes // max(1, len(by_worker))
    try:
        for worker in sorted(by_worker, key=lambda w: -1 if w is None else w):
            merged += _merge_worker(
                opened,
                by_worker[worker],
                since,
                worker=worker,
                inline_bytes=inline_bytes,
                deadline=deadline,
            )
    except MissingPart:
        _delete(opened, merged)
        now = _fetched(opened, deadline)
        if {batch.id for batch in run} <= {batch.id for batch in now.trace}:
            raise
        return False
    except BaseException:
        _delete(opened, merged)
        raise
    command = ApplyMerge(
        inputs=tuple(batch.id for batch in run),
        lower=run[0].lower,
        upper=run[-1].upper,
        since=since,
        parts=tuple(merged),
    )
    # Only what surely was not committed may be deleted.
    try:
        applied: bool = opened.shard.apply(command, deadline)
    except (UsageError, Determinate):
        _delete(opened, merged)
        raise
    if not applied:
        _delete(opened, merged)
    return applied


def _delete(opened: Opened, parts: Sequence[Part]) -> None:
    delete_objects(opened.context, [p.key for p in parts if isinstance(p, BlobPart)])


def _merge_worker(
    opened: Opened,
    parts: Sequence[Part],
    since: int,
    *,
    worker: int | None,
    inline_bytes: int,
    deadline: Deadline,
) -> tuple[Part, ...]:
    writer = PartWriter(opened.parts, opened.key, worker=worker, deadline=deadline)
    size = sum(part.size for part in parts)
    try:
        if size <= opened.context.settings.part_bytes // 4:
            tables = [opened.parts.read(part, deadline) for part in parts]
            table = advance_times(pa.concat_tables(tables).combine_chunks(), since)
            writer.add(sort_by_key(consolidate(table, opened.key), opened.key))
        else:
            for table in _merge_large(opened, parts, since, deadline):
                writer.add(table)
        return writer.finish(inline_bytes=inline_bytes)
    except BaseException:
        writer.abandon()
        raise


def _merge_large(
    opened: Opened, parts: Sequence[Part], since: int, deadline: Deadline
) -> Iterator[pa.Table]:
    """The merge in pieces, by DuckDB, which spills to disk what exceeds memory."""
    schema = physical(opened.schema)
    columns = positional(schema)
    renamed = dict(zip(schema.names, columns.names, strict=True))
    key = opened.key
    with (
        tempfile.TemporaryDirectory(prefix="mzsql-compaction-") as directory,
        duckdb.connect(config={"temp_directory": directory}) as connection,
    ):
        sources = []
        names = ", ".join(quote(name) for name in columns.names[:-2])
        for number, part in enumerate(parts):
            path = Path(directory) / f"{number}.parquet"
            table = opened.parts.read(part, deadline).rename_columns(columns.names)
            pq.write_table(table, path, compression="lz4")
            file = "'" + str(path).replace("'", "''") + "'"
            sources.append(
                f"SELECT {names}{', ' if names else ''}"
                f"greatest(mz_time, {since}) AS mz_time, mz_diff FROM read_parquet({file})"
            )
        additive = [] if key is None else [renamed[name] for name in key.additive]
        order = [] if key is None else [renamed[name] for name in key.columns]
        source = "(" + " UNION ALL ".join(sources) + ")"
        sql = consolidation_sql(source, columns.names, additive, order)
        reader = connection.sql(sql).to_arrow_reader(1 << 17)
        for batch in reader:
            summed = cast_sums(pa.Table.from_batches([batch]), columns)
            yield conform(summed.rename_columns(schema.names), schema)


def _collectable(state: ShardState) -> int:
    hold = state.seqno_since
    return sum(1 for seqno in state.garbage if seqno <= hold)


def _collect(opened: Opened, report: Report, deadline: Deadline, *, all_due: bool) -> None:
    context, settings = opened.context, opened.context.settings
    if opened.shard.state.garbage:
        for reader in list(opened.readers):
            reader.let_go(deadline)
    state = _fetched(opened, deadline)
    grown = state.seqno - state.latest_rollup
    if not state.finalized and (
        grown >= settings.rollup_interval or (all_due and grown > 1 and state.garbage)
    ):
        report.rollups += _roll_up(opened, state, deadline)
        state = _fetched(opened, deadline)
    hold = state.seqno_since
    garbage = tuple(seqno for seqno in state.garbage if seqno <= hold)
    newest = state.latest_rollup
    rollups = tuple(seqno for seqno in state.rollups if state.finalized or seqno != newest)
    if not state.finalized:
        if not garbage and not rollups:
            return
        if not all_due and not rollups and len(garbage) < _GARBAGE_ENTRIES:
            return
    keys = [key for seqno in garbage for key in state.garbage[seqno]]
    if state.finalized:
        # Batches that were never appended, and what Spark leaves beside its files.
        keys += _listed(opened, deadline, besides={*keys, *state.rollups.values()})
    delete_objects(context, keys)
    delete_objects(context, [state.rollups[seqno] for seqno in rollups])
    report.objects_deleted += len(keys) + len(rollups)
    opened.shard.apply(Collect(garbage, rollups), deadline)
    state = _fetched(opened, deadline)
    keep = state.seqno if state.finalized else state.latest_rollup
    report.entries_truncated += context.retrying(
        lambda: context.consensus.truncate(opened.shard_id, keep), deadline
    )


def _listed(opened: Opened, deadline: Deadline, *, besides: set[str]) -> list[str]:
    """The objects under the shard's prefix."""
    blob, prefix = opened.context.blob, f"{opened.shard_id}/"
    found = opened.context.retrying(lambda: list(blob.list_keys_and_metadata(prefix)), deadline)
    return [key for key, _ in found if key not in besides]


def _roll_up(opened: Opened, state: ShardState, deadline: Deadline) -> int:
    """Write the whole state to Blob and name it in the log; how many rollups that made."""
    context = opened.context
    key = f"{opened.shard_id}/rollup-{state.seqno:020d}-{context.new_object_id()}"
    data = encode_state(state)
    context.retrying(lambda: context.blob.set(key, data), deadline)
    try:
        added: bool = opened.shard.apply(AddRollup(state.seqno, key), deadline)
    except (UsageError, Determinate):
        delete_objects(context, [key])
        raise
    if not added:
        delete_objects(context, [key])
    return int(added)
