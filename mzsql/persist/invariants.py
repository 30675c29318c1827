"""Invariants of every state of a shard and of every change of it, checked for each change in every process.

Promise: a change that would break one of these is never committed, and one found in a log is never applied:
`InternalError` says which, and the state stays as it is. The cost is proportional to the number of live batches,
which compaction keeps logarithmic. Source: Materialize's persist design, its state machine; the checks stay on in
production, as TigerBeetle's do.
"""

from __future__ import annotations

import itertools

from mzsql.persist.state import ShardState, StateDiff
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import less_equal


def check_step(old: ShardState, diff: StateDiff, new: ShardState) -> None:
    """Check that ``diff`` may lead from ``old`` to ``new``.

    Raises:
        InternalError: it may not.
    """
    _hold(old, diff.seqno == old.seqno + 1, "changes follow each other")
    _hold(old, diff.walltime_ms > old.walltime_ms, "the shard's clock only advances")
    _hold(old, not old.finalized or _keeps_tombstone(new), "a tombstone stays one")
    _hold(old, less_equal(old.since, new.since), "since never regresses")
    _hold(old, less_equal(old.upper, new.upper), "upper never regresses")
    known = {batch.id for batch in old.trace}
    _hold(old, known.issuperset(diff.removed), "what is removed was there")
    _hold(old, all(b.id >= old.next_batch for b in diff.added), "batches are never named anew")
    if old.latest_rollup != new.latest_rollup and not new.finalized:
        _hold(old, old.latest_rollup < new.latest_rollup <= old.seqno, "the newest rollup stays")
    if diff.added or diff.removed or diff.since is None:
        check_trace(new)


def check_trace(state: ShardState) -> None:
    """Check that the batches are sorted, disjoint, below the upper, and gone once nothing can be read.

    Raises:
        InternalError: they are not.
    """
    for one, next_ in itertools.pairwise(state.trace):
        apart = one.upper is not None and one.upper <= next_.lower
        _hold(state, apart, "batches are sorted and do not overlap")
    for batch in state.trace:
        proper = batch.upper is None or batch.lower < batch.upper
        _hold(state, proper, "a batch covers some time")
        _hold(state, less_equal(batch.upper, state.upper), "no batch is beyond upper")
        _hold(state, less_equal(batch.since, state.since), "no batch is compacted beyond since")


def _keeps_tombstone(new: ShardState) -> bool:
    left = new.trace or new.readers or new.writers or new.critical or new.expired or new.ending
    return new.finalized and not left


def _hold(state: ShardState, holds: bool, what: str) -> None:
    if not holds:
        raise InternalError(
            f"shard {state.shard_id}: at {state.seqno} a change breaks the rule that {what}",
            detail="The shard was left as it was.",
        )
