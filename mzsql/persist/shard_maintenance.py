"""Maintenance of a shard: compaction, rollups, garbage collection.

Promise: safe at any moment, in any number of processes, concurrently, repeatedly, and if interrupted anywhere. As a
rule each piece of work is done once: by the process whose change made it due, or by another one that sees it left
undone for a number of changes (clocks are not used); the output of work done twice is deleted by the process that
comes second. Collection works in this order: rollup, objects, old rollups, truncation, so that whatever the state
names exists until the state no longer names it; an object of a replaced batch is deleted once no reader's hold needs
it. A batch with something missing or corrupt in it stays as it is, is logged once, and does not keep others from
being merged. The remains of a shard that has ended are deleted by its next maintenance, however often that was
interrupted. Source: Materialize's persist design, "garbage collection".
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

import msgspec

from mzsql.location import Determinate, LocationError
from mzsql.persist.clock import Deadline
from mzsql.persist.codec import encode_state
from mzsql.persist.commands import AddRollup, ApplyMerge, Collect, Sweep
from mzsql.persist.compaction import Merge, Unmergeable, apply_merge, choose, everything, is_ours
from mzsql.persist.deciding import holders, known_keys
from mzsql.persist.machine import surely_not_committed
from mzsql.persist.opened import Opened
from mzsql.persist.parts import delete_objects, discard_objects
from mzsql.persist.settings import Settings
from mzsql.persist.state import ShardState

_log = logging.getLogger(__name__)

_GARBAGE_ENTRIES = 16
"""Collection is due once this many changes have left garbage."""
_LONGEST_SECONDS = threading.TIMEOUT_MAX
_REST_CHANGES = 64
"""For how many changes no merge is tried after one that ran out of memory, disk or time."""


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
        _is_over(state)
        or (state.since is None and bool(state.trace))
        or choose(state, settings) is not None
        or state.seqno - state.latest_rollup >= settings.rollup_interval
        or len(_collectable(state)) >= _GARBAGE_ENTRIES
    )


def _is_over(state: ShardState) -> bool:
    """Whether the shard has ended, or an ending shard is held by nobody and a command must record its end."""
    return state.finalized or (state.ending and not holders(state))


def due_here(opened: Opened) -> bool:
    """Whether maintenance has something to do that this process should do."""
    state = opened.shard.state
    return (
        _is_over(state)
        or (state.since is None and bool(state.trace))
        or _rollup_is_ours(opened, state)
        or _garbage_is_ours(opened, state)
        or _next_merge(opened, state, full=False, only_ours=True) is not None
    )


def _rollup_is_ours(opened: Opened, state: ShardState) -> bool:
    interval = opened.context.settings.rollup_interval
    grown = state.seqno - state.latest_rollup
    # The process whose change made it due does it; half an interval later any process does.
    made_due = opened.shard.committed(state.latest_rollup + interval)
    return grown >= interval and (made_due or grown >= interval + interval // 2)


def _garbage_is_ours(opened: Opened, state: ShardState) -> bool:
    garbage = _collectable(state)
    if len(garbage) < _GARBAGE_ENTRIES:
        return False
    # As with rollups: any process does it once half as many changes again have left garbage.
    made_due = opened.shard.committed(garbage[_GARBAGE_ENTRIES - 1])
    return made_due or len(garbage) >= _GARBAGE_ENTRIES + _GARBAGE_ENTRIES // 2


def _collectable(state: ShardState) -> list[int]:
    """Return the seqnos of changes whose garbage no reader needs any more, in order."""
    hold = state.seqno_since
    return sorted(seqno for seqno in state.garbage if seqno <= hold)


def _next_merge(opened: Opened, state: ShardState, *, full: bool, only_ours: bool) -> Merge | None:
    if state.finalized or (only_ours and state.seqno < opened.merge_from):
        return None
    if full:
        return everything(state, opened.broken)
    merge = choose(state, opened.context.settings, opened.broken)
    if merge is None or (only_ours and not is_ours(opened, state, merge)):
        return None
    return merge


def maintain(
    opened: Opened,
    deadline: Deadline,
    *,
    full: bool = False,
    all_due: bool,
    only_ours: bool = False,
) -> Report:
    """Compact, roll up and collect.

    Args:
        opened: the shard.
        deadline: the end of the work.
        full: merge all batches into one.
        all_due: collect all garbage that can be collected, even a little.
        only_ours: leave work to the processes that made it due, and do not try again batches known to be broken.

    Raises:
        MissingPart, CorruptPart, DataError: a batch cannot be merged; raised after everything else was done.
        LocationError: a backend failed, or the time is over. What was done stays done.
    """
    report = Report()
    with _alone(opened, deadline):
        if opened.shard.state.ending:
            opened.shard.apply(Sweep(), deadline)
        failure: Exception | None = None
        if not only_ours:
            # An object that was missing may have been restored.
            opened.broken.clear()
        try:
            failure = _compact(opened, report, deadline, full=full, only_ours=only_ours)
        finally:
            # Collect after a failed merge too: otherwise the log would grow as long as merges fail.
            if not opened.context.closing.is_set():
                _collect_counted(opened, report, deadline, all_due=all_due, only_ours=only_ours)
    if not only_ours and failure is not None:
        raise failure
    return report


@contextlib.contextmanager
def _alone(opened: Opened, deadline: Deadline) -> Iterator[None]:
    """Hold the shard's maintenance lock while the block runs.

    Raises:
        Determinate: another maintenance held it until the deadline.
    """
    if not opened.maintenance_lock.acquire(timeout=min(deadline.remaining(), _LONGEST_SECONDS)):
        raise Determinate(
            f"shard {opened.shard_id}: another maintenance of this process was not over within {deadline.timeout:g} s"
        )
    try:
        yield
    finally:
        opened.maintenance_lock.release()


def _compact(
    opened: Opened, report: Report, deadline: Deadline, *, full: bool, only_ours: bool
) -> Exception | None:
    """Do the merges that are due; return the error of batches that could not be merged, if any."""
    meter = opened.context.meter
    failure: Exception | None = None
    while True:
        state = _fetched(opened, deadline)
        if state.since is None and state.trace:
            # An older version has kept batches that nobody can read any more: replace them by nothing.
            ids = tuple(batch.id for batch in state.trace)
            lower, upper = state.trace[0].lower, state.trace[-1].upper
            opened.shard.apply(ApplyMerge(ids, lower, upper, 0, ()), deadline)
            continue
        merge = _next_merge(opened, state, full=full, only_ours=only_ours)
        if merge is None:
            return failure
        try:
            with meter.timed("merge"):
                merged = apply_merge(opened, state, merge.run, deadline)
        except Unmergeable as unmergeable:
            failure = unmergeable.cause
            opened.broken.update(batch.id for batch in unmergeable.batches)
            _log.error(
                "shard %s: batches are left unmerged from now on: %s", opened.shard_id, failure
            )
            continue
        except LocationError:
            opened.merge_from = opened.shard.state.seqno + _REST_CHANGES
            raise
        if merged:
            report.merges += 1
            report.batches_merged += len(merge.run)
            meter.metrics.merges.inc()
            meter.metrics.batches_merged.inc(len(merge.run))
            # The rest is one batch now; one that came meanwhile is no reason to rewrite all of it again.
            full = False
        deadline.progress()


def _fetched(opened: Opened, deadline: Deadline) -> ShardState:
    state = opened.shard.fetch(deadline)
    assert state is not None
    return state


def _collect_counted(
    opened: Opened, report: Report, deadline: Deadline, *, all_due: bool, only_ours: bool
) -> None:
    meter = opened.context.meter
    try:
        with meter.timed("collect"):
            _collect(opened, report, deadline, all_due=all_due, only_ours=only_ours)
    finally:
        meter.metrics.rollups.inc(report.rollups)
        meter.metrics.objects_deleted.inc(report.objects_deleted)
        meter.metrics.entries_truncated.inc(report.entries_truncated)


def _collect(
    opened: Opened, report: Report, deadline: Deadline, *, all_due: bool, only_ours: bool
) -> None:
    context, settings = opened.context, opened.context.settings
    if opened.shard.state.garbage:
        for reader in list(opened.readers):
            # Release what readers of this process no longer read, so that it can be collected in this round.
            reader.let_go(deadline)
    state = _fetched(opened, deadline)
    grown = state.seqno - state.latest_rollup
    if not state.finalized and (
        (grown >= settings.rollup_interval and (not only_ours or _rollup_is_ours(opened, state)))
        or (all_due and grown > 1 and state.garbage)
    ):
        report.rollups += _roll_up(opened, state, deadline)
        state = _fetched(opened, deadline)
    garbage = tuple(_collectable(state))
    newest = state.latest_rollup
    # The newest rollup stays: from it and the entries after it whoever opens the shard makes the state.
    rollups = tuple(seqno for seqno in state.rollups if state.finalized or seqno != newest)
    doubted = opened.resolve_doubts(state.seqno, lambda: _named(state))
    if not state.finalized:
        worth_it = rollups or report.rollups or len(garbage) >= _GARBAGE_ENTRIES
        if not (worth_it or doubted or (all_due and garbage)):
            if all_due and not only_ours:
                # The last collection may have been interrupted before its truncation.
                _truncate(opened, report, state, deadline)
            return
    keys = [key for seqno in garbage for key in state.garbage[seqno]] + doubted
    if state.finalized:
        # After the end of the shard, delete also batches that were never appended, and what Spark leaves beside its
        # files.
        keys += _listed(opened, deadline, besides={*keys, *state.rollups.values()})
    # Delete first and forget then: an interruption in between leaves names of deleted garbage, not objects without a
    # name.
    delete_objects(context, keys, deadline)
    delete_objects(context, [state.rollups[seqno] for seqno in rollups], deadline)
    report.objects_deleted += len(keys) + len(rollups)
    opened.shard.apply(Collect(garbage, rollups), deadline)
    _truncate(opened, report, _fetched(opened, deadline), deadline)


def _truncate(opened: Opened, report: Report, state: ShardState, deadline: Deadline) -> None:
    """Delete the log entries before the one from which a process that opens the shard starts."""
    context = opened.context
    # Of a shard that has ended only the entry that says so stays: without it, opening the shard would make it anew.
    keep = state.seqno if state.finalized else state.latest_rollup
    report.entries_truncated += context.retrying(
        lambda: context.consensus.truncate(opened.shard_id, keep), deadline
    )


def _named(state: ShardState) -> set[str]:
    """Return the keys of all objects the state names."""
    return known_keys(state) | set(state.rollups.values())


def _listed(opened: Opened, deadline: Deadline, *, besides: set[str]) -> list[str]:
    """Return the keys of the objects under the shard's prefix, except ``besides``."""
    blob, prefix = opened.context.blob, f"{opened.shard_id}/"
    found = opened.context.retrying(lambda: list(blob.list_keys_and_metadata(prefix)), deadline)
    return [key for key, _ in found if key not in besides]


def _roll_up(opened: Opened, state: ShardState, deadline: Deadline) -> int:
    """Write the whole state to Blob and record it in the state; return how many rollups that made (0 or 1)."""
    context = opened.context
    key = f"{opened.shard_id}/rollup-{state.seqno:020d}-{context.new_object_id()}"
    data = encode_state(state)
    try:
        context.retrying(lambda: context.blob.set(key, data), deadline)
    except LocationError:
        # The object may have been written in spite of the error.
        discard_objects(context, opened.shard_id, [key], deadline)
        raise
    try:
        added: bool = opened.shard.apply(AddRollup(state.seqno, key), deadline)
    except BaseException as failure:
        # If the command may have been committed, the state may name the object: then it must not be deleted yet.
        if surely_not_committed(failure):
            discard_objects(context, opened.shard_id, [key], deadline)
        else:
            opened.doubt([key])
        raise
    # Another process's rollup is as new or newer, so this one would never be read.
    if not added:
        delete_objects(context, [key])
    return int(added)
