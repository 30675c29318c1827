"""Applying a diff to a shard's state.

Promise: pure. All processes that apply the same changes arrive at the same state, and none of them applies a change
that would break an invariant (`mzsql.persist.invariants`).
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import UNSET

from mzsql.persist.invariants import check_step
from mzsql.persist.state import ShardState, StateDiff

K = TypeVar("K")
V = TypeVar("V")


def _patched(old: dict[K, V], patch: dict[K, V | None]) -> dict[K, V]:
    if not patch:
        return old
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = value
    return new


def apply_diff(state: ShardState, diff: StateDiff) -> ShardState:
    """Return the state after ``diff``.

    Raises:
        InternalError: it breaks an invariant (`mzsql.persist.invariants`).
    """
    trace = state.trace
    if diff.added or diff.removed:
        gone = set(diff.removed)
        kept = [batch for batch in trace if batch.id not in gone]
        trace = tuple(sorted([*kept, *diff.added], key=lambda batch: (batch.lower, batch.id)))
    garbage = state.garbage
    if diff.garbage or diff.collected:
        dropped = set(diff.collected)
        garbage = {seqno: keys for seqno, keys in garbage.items() if seqno not in dropped}
        if diff.garbage:
            garbage[diff.seqno] = diff.garbage
    new = ShardState(
        shard_id=state.shard_id,
        seqno=diff.seqno,
        walltime_ms=diff.walltime_ms,
        schema=state.schema,
        key=state.key,
        since=state.since if diff.since is UNSET else diff.since,
        upper=state.upper if diff.upper is UNSET else diff.upper,
        next_batch=max([state.next_batch, *(batch.id + 1 for batch in diff.added)]),
        trace=trace,
        readers=_patched(state.readers, diff.readers),
        critical=_patched(state.critical, diff.critical),
        writers=_patched(state.writers, diff.writers),
        rollups=_patched(state.rollups, diff.rollups),
        garbage=garbage,
        applier_version=(
            state.applier_version if diff.applier_version is UNSET else diff.applier_version
        ),
        expired=_patched(state.expired, diff.expired),
        forgotten=max(
            [
                state.forgotten,
                *(state.expired[i].seqno for i, e in diff.expired.items() if e is None),
            ]
        ),
        ending=state.ending if diff.ending is UNSET else diff.ending,
    )
    check_step(state, diff, new)
    return new
