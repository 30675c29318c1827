"""What the log of a shard adds up to.

Promise: entries are applied in their order, each once. What was truncated meanwhile is noticed, never skipped. `states_of`
answers as a look at each shard by itself would, with one request for many of them where the Consensus can.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mzsql.location import ManyScannable, Versioned
from mzsql.persist.clock import Deadline
from mzsql.persist.codec import Entry, decode_entry, decode_state
from mzsql.persist.context import Context
from mzsql.persist.errors import CorruptPart, NewerVersion
from mzsql.persist.state import ShardState
from mzsql.persist.transitions import apply_diff

#: So many entries of a log are read by one request.
SCAN_LIMIT = 256
#: The logs of so many shards are read by one request.
_SHARDS_AT_ONCE = 256
#: So many entries of each: a log that is longer is read by itself.
_SHORT_LOG = 64


def decoded(version: str, shard_id: str, versioned: Versioned) -> Entry:
    """Decode an entry of a shard's log, for a program of ``version``.

    Raises:
        NewerVersion, CorruptPart: as `decode_entry`.
    """
    return decode_entry(versioned.data, shard_id, versioned.seqno, version=version)


def followed(
    version: str, state: ShardState, entries: Iterable[Versioned]
) -> tuple[ShardState, bool]:
    """Return the state after the ``entries`` beyond it, and whether none was missing between them.

    Raises:
        NewerVersion, CorruptPart: as `decode_entry`.
        InternalError: an entry breaks an invariant.
    """
    for versioned in entries:
        entry = decoded(version, state.shard_id, versioned)
        if entry.state is not None:
            state = entry.state
        elif versioned.seqno != state.seqno + 1:
            return state, False
        elif entry.diff is not None:
            state = apply_diff(state, entry.diff)
    return state, True


def rollup(context: Context, shard_id: str, entry: Entry, deadline: Deadline) -> ShardState | None:
    """Return the whole state in Blob that an entry names; `None` if it is gone.

    Raises:
        NewerVersion, CorruptPart: as `decode_state`.
        LocationError: Blob did not answer by the deadline.
    """
    key = entry.rollup_key
    data = context.retrying(lambda: context.blob.get(key), deadline)
    if data is None:
        return None
    return decode_state(data, shard_id, entry.rollup_seqno, key, version=context.version)


def states_of(
    context: Context,
    known: Mapping[str, ShardState],
    shard_ids: Sequence[str],
    fetch: Callable[[str], ShardState | None],
    deadline: Deadline,
) -> Iterator[tuple[str, ShardState]]:
    """Yield the current state of each shard that exists.

    Args:
        context: the backends.
        known: states of some of the shards, as this process has seen them last.
        shard_ids: the shards.
        fetch: looks at one shard by itself; for long logs, and for what was truncated meanwhile.
        deadline: the end of all requests.

    Raises:
        NewerVersion, CorruptPart, MissingPart: a state cannot be read.
        LocationError: a store did not answer by the deadline.
    """
    consensus = context.consensus
    if not isinstance(consensus, ManyScannable):
        for one in shard_ids:
            if (state := fetch(one)) is not None:
                yield one, state
        return
    waiting = iter(dict.fromkeys(shard_ids))
    while some := list(itertools.islice(waiting, _SHARDS_AT_ONCE)):
        starts = {one: known[one].seqno + 1 if one in known else 0 for one in some}
        logs = _scanned(context, consensus, starts, deadline)
        for one in some:
            log = logs.get(one, [])
            if one not in known and not log:
                continue
            state = _of_log(context, known.get(one), one, log, deadline) or fetch(one)
            if state is not None:
                yield one, state


def _scanned(
    context: Context, consensus: ManyScannable, starts: Mapping[str, int], deadline: Deadline
) -> dict[str, list[Versioned]]:
    return context.retrying(lambda: consensus.scan_many(starts, _SHORT_LOG), deadline)


def _of_log(
    context: Context,
    state: ShardState | None,
    shard_id: str,
    log: Sequence[Versioned],
    deadline: Deadline,
) -> ShardState | None:
    """The state after a shard's log, which goes on from ``state``, or is all there is of it; `None` if that cannot be told so."""
    if len(log) >= _SHORT_LOG:
        return None
    if state is None:
        try:
            state = _begun(context, shard_id, log, deadline)
        except (CorruptPart, NewerVersion):
            return None  # a copy of it in a cache may be damaged: a look at the shard by itself asks the store again
        if state is None:
            return None
    found, complete = followed(context.version, state, _beyond(log, state.seqno))
    return found if complete else None


def _begun(
    context: Context, shard_id: str, log: Sequence[Versioned], deadline: Deadline
) -> ShardState | None:
    """The whole state that the newest entry of a log refers to; `None` if it is gone."""
    newest = decoded(context.version, shard_id, log[-1])
    if newest.state is not None:
        return newest.state
    if newest.rollup_key:
        return rollup(context, shard_id, newest, deadline)
    first = log[0]
    if first.seqno != newest.rollup_seqno:
        return None
    return decoded(context.version, shard_id, first).state


def _beyond(log: Iterable[Versioned], seqno: int) -> Iterator[Versioned]:
    return (one for one in log if one.seqno > seqno)
