"""How long this process has seen no renewal of each handle, by which leases are judged.

Promise: a lease is judged by the time that has passed on this process's own monotonic clock since it first saw the
handle's latest renewal; the clocks of other processes do not matter, so they may be wrong, jump or stand still. A
renewal is recognised by its heartbeat, which no other renewal of the shard has. A process that expires a handle
commits that against the very state that still has the heartbeat: a renewal made meanwhile wins. Trade-off: a process
expires nobody before it has itself run for the length of a lease. Source: Materialize's persist design, "our primary
aim in the implementation of leasing is to avoid needing to reason about distributed clocks".
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping

import msgspec

from mzsql.persist.clock import Clock
from mzsql.persist.state import ShardState

_SHARDS = 100_000
"""For how many of the most recently seen shards the sightings are remembered."""


class Sighting(msgspec.Struct, frozen=True, array_like=True):
    """A handle whose latest renewal, as this process sees it, has been that of ``heartbeat_ms`` for ``unseen_ms``."""

    heartbeat_ms: int
    unseen_ms: int


class Watch:
    """What one process has seen of the handles of its shards. Thread-safe.

    Args:
        clock: its monotonic time is used.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # `_seen`: by shard and handle, the latest heartbeat and when it was first seen. `_changes`: by shard, the
        # latest seqno and when it was first seen.
        self._seen: OrderedDict[str, dict[str, tuple[int, float]]] = OrderedDict()
        self._changes: dict[str, tuple[int, float]] = {}

    def see(self, state: ShardState) -> None:
        """Note the handles of a state that is current, or was a moment ago."""
        now = self._clock.monotonic()
        with self._lock:
            seqno, _ = self._changes.get(state.shard_id, (-1, now))
            if state.seqno == seqno and state.shard_id in self._seen:
                # The very state that was seen last: all that there is to note is that it was looked at.
                self._seen.move_to_end(state.shard_id)
                return
            known = self._seen.pop(state.shard_id, {})
            if state.finalized:
                self._changes.pop(state.shard_id, None)
                return
            if state.seqno < seqno:
                # Another thread has seen a later state.
                self._seen[state.shard_id] = known
                return
            if state.seqno > seqno:
                self._changes[state.shard_id] = (state.seqno, now)
            heartbeats = {i: reader.heartbeat_ms for i, reader in state.readers.items()}
            heartbeats |= {i: writer.heartbeat_ms for i, writer in state.writers.items()}
            self._seen[state.shard_id] = {
                i: known[i] if i in known and known[i][0] == heartbeat else (heartbeat, now)
                for i, heartbeat in heartbeats.items()
            }
            while len(self._seen) > _SHARDS:
                dropped, _ = self._seen.popitem(last=False)
                self._changes.pop(dropped, None)

    def sightings(self, state: ShardState, besides: Collection[str] = ()) -> Mapping[str, Sighting]:
        """Return the handles of the shard, except ``besides``, with how long each was seen without a renewal."""
        now = self._clock.monotonic()
        with self._lock:
            seen = self._seen.get(state.shard_id, {})
            return {
                i: Sighting(heartbeat, int((now - since) * 1000))
                for i, (heartbeat, since) in seen.items()
                if i not in besides
            }

    def unchanged_ms(self, state: ShardState) -> int:
        """Return for how many milliseconds this process has seen ``state`` as the shard's latest."""
        now = self._clock.monotonic()
        with self._lock:
            seqno, since = self._changes.get(state.shard_id, (-1, now))
        return int((now - since) * 1000) if seqno == state.seqno else 0


def lapsed(state: ShardState, sightings: Mapping[str, Sighting]) -> dict[str, Sighting]:
    """Return the handles whose leases have run out: still the same heartbeat in ``state``, and unrenewed for longer
    than the lease.
    """
    found = {}
    for i, sighting in sightings.items():
        handle = state.readers.get(i) or state.writers.get(i)
        if (
            handle is not None
            and handle.heartbeat_ms == sighting.heartbeat_ms
            and sighting.unseen_ms > handle.lease_ms
        ):
            found[i] = sighting
    return found
