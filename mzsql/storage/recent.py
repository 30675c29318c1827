"""Caches updates that were read lately: every dataflow over a table asks for the updates of the same transaction.

Promise: entries never become stale, since the updates of a complete span of times do not change. The cache is
bounded in number and bytes; the most recently used entries stay. Trade-off: later compaction, which advances times,
is not visible in an entry; but the times asked for here are those that the reader still holds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

#: Most spans that are kept; and, below, most bytes in all.
SPANS = 256
BYTES = 64 << 20

Span = tuple[GlobalId, Timestamp, Timestamp]


class RecentUpdates:
    """The updates of spans of times, by collection. Thread-safe."""

    def __init__(self, *, spans: int = SPANS, size: int = BYTES) -> None:
        self._most, self._limit = spans, size
        self._lock = threading.Lock()
        self._kept: OrderedDict[Span, tuple[pa.Table, int]] = OrderedDict()
        self._bytes = 0

    def get(self, gid: GlobalId, lower: Timestamp, upper: Timestamp) -> pa.Table | None:
        """The updates with ``lower <= mz_time < upper``; None if they are not cached."""
        with self._lock:
            known = self._kept.get((gid, lower, upper))
            if known is None:
                return None
            self._kept.move_to_end((gid, lower, upper))
            return known[0]

    def keep(self, gid: GlobalId, lower: Timestamp, upper: Timestamp, updates: pa.Table) -> None:
        """Cache the updates of a complete span."""
        size = int(updates.nbytes) if updates.num_rows else 0
        with self._lock:
            _, old = self._kept.pop((gid, lower, upper), (None, 0))
            self._kept[gid, lower, upper] = updates, size
            self._bytes += size - old
            while self._kept and (len(self._kept) > self._most or self._bytes > self._limit):
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone

    def forget(self, gid: GlobalId) -> None:
        """Remove the entries of a dropped collection."""
        with self._lock:
            for span in [span for span in self._kept if span[0] == gid]:
                _, size = self._kept.pop(span)
                self._bytes -= size
