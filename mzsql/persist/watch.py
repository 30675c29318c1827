"""How long this process has seen no renewal of each handle: what leases are judged by.

Promise: a lease is judged by the time that passed here, on this process's own monotonic clock, since the handle's latest renewal was first
seen; no clock of another process enters into it, so that it may be wrong, jump or stand still. A renewal is told by its heartbeat, which
no other renewal of the shard has. Whoever expires a handle commits that against the very state in which the heartbeat still stood: a
renewal that was made meanwhile wins. Trade-off: a process expires nobody before it has itself been there for the length of a lease.
Source: the persist design, "our primary aim in the implementation of leasing is to avoid needing to reason about distributed clocks".
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping

import msgspec

from mzsql.persist.clock import Clock
from mzsql.persist.state import ShardState

_SHARDS = 100_000
"""Of so many shards, those looked at last, it is remembered what was seen."""


class Sighting(msgspec.Struct, frozen=True, array_like=True):
    """A handle whose renewal of ``heartbeat_ms`` has been its latest for ``unseen_ms``, as seen from here."""

    heartbeat_ms: int
    unseen_ms: int


class Watch:
    """What one process has seen of the handles of its shards. Safe for threads.

    Args:
        clock: of its two times the monotonic one is asked.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By shard and handle: the latest heartbeat that was seen, and when it was first seen; a shard's latest change, and when it was.
        self._seen: OrderedDict[str, dict[str, tuple[int, float]]] = OrderedDict()
        self._changes: dict[str, tuple[int, float]] = {}

    def see(self, state: ShardState) -> None:
        """Take note of a state that is current, or was a moment ago."""
        now = self._clock.monotonic()
        heartbeats = {i: reader.heartbeat_ms for i, reader in state.readers.items()}
        heartbeats |= {i: writer.heartbeat_ms for i, writer in state.writers.items()}
        with self._lock:
            known = self._seen.pop(state.shard_id, {})
            seqno, _ = self._changes.get(state.shard_id, (-1, now))
            if state.finalized:
                self._changes.pop(state.shard_id, None)
                return
            if state.seqno < seqno:
                # Another thread has seen a later one.
                self._seen[state.shard_id] = known
                return
            if state.seqno > seqno:
                self._changes[state.shard_id] = (state.seqno, now)
            self._seen[state.shard_id] = {
                i: known[i] if i in known and known[i][0] == heartbeat else (heartbeat, now)
                for i, heartbeat in heartbeats.items()
            }
            while len(self._seen) > _SHARDS:
                dropped, _ = self._seen.popitem(last=False)
                self._changes.pop(dropped, None)

    def sightings(self, state: ShardState, besides: Collection[str] = ()) -> Mapping[str, Sighting]:
        """The handles of the shard, but those ``besides``, and how long each was seen unrenewed."""
        now = self._clock.monotonic()
        with self._lock:
            seen = self._seen.get(state.shard_id, {})
            return {
                i: Sighting(heartbeat, int((now - since) * 1000))
                for i, (heartbeat, since) in seen.items()
                if i not in besides
            }

    def unchanged_ms(self, state: ShardState) -> int:
        """How long the state has been the shard's latest, as seen from here."""
        now = self._clock.monotonic()
        with self._lock:
            seqno, since = self._changes.get(state.shard_id, (-1, now))
        return int((now - since) * 1000) if seqno == state.seqno else 0


def lapsed(state: ShardState, sightings: Mapping[str, Sighting]) -> dict[str, Sighting]:
    """The handles of the state that were seen unrenewed for longer than their leases, as they stand in it."""
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
