"""What a process knows of a shard beyond the durable state: updates its writer has not appended yet, or that a log
holds.

Promise: each item is a `Batch`: the definite updates of ``[lower, upper)``, carried inline, or none. Only those that
follow the state's upper without a gap count; where batches overlap, each time is taken from one of them, as definite
updates are the same in all. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mzsql.persist.batch import Batch
from mzsql.repr.frontier import Frontier, Timestamp

#: Sorted by `Batch.lower`.
Ahead = tuple[Batch, ...]


def beyond(ahead: Ahead, upper: Frontier) -> Iterator[tuple[Timestamp, Timestamp, Batch]]:
    """Yield the batches that follow ``upper`` without a gap, each with the times ``[from, to)`` that no earlier one
    covers.
    """
    if upper is None:
        return
    at = upper
    for batch in ahead:
        if batch.lower > at:
            return
        to = batch.upper
        assert to is not None
        if to > at:
            yield at, to, batch
            at = to


def reach(ahead: Ahead, upper: Frontier) -> Frontier:
    """Return how far a shard is complete whose durable upper is ``upper``."""
    for _, to, _ in beyond(ahead, upper):
        upper = to
    return upper


def learned(ahead: Ahead, batch: Batch, upper: Frontier) -> Ahead:
    """Return ``ahead`` with ``batch`` added, and without what is in the shard itself, whose durable upper is ``upper``."""
    if upper is None:
        return ()
    kept = [one for one in ahead if one.upper is None or one.upper > upper]
    assert batch.upper is not None
    reached = reach(tuple(kept), max(batch.lower, upper))
    if batch.upper <= upper or (reached is not None and reached >= batch.upper):
        return tuple(kept)
    kept.append(batch)
    kept.sort(key=lambda one: one.lower)
    joined: list[Batch] = []
    for one in kept:
        last = joined[-1] if joined else None
        if last is not None and not last.parts and not one.parts and _touch(last, one):
            joined[-1] = msgspec.structs.replace(last, upper=_later(last.upper, one.upper))
        else:
            joined.append(one)
    return tuple(joined)


def _touch(first: Batch, second: Batch) -> bool:
    return first.upper is not None and second.lower <= first.upper


def _later(one: Frontier, other: Frontier) -> Frontier:
    assert one is not None
    assert other is not None
    return max(one, other)
