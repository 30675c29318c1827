"""Updates that were read lately, for whoever reads the same: every dataflow over a table asks for the updates of the same transaction.

Promise: nothing kept here goes stale, since the updates of a span of times that is complete never change; and it is bounded in number and
bytes, the ones that were read last staying. Trade-off: what a compaction has made of them since (times brought forward) is not seen; the
times asked for here are those that the reader still holds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

#: So many spans are kept, of so many bytes in all.
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
        """The updates with ``lower <= mz_time < upper``, where they are known."""
        with self._lock:
            known = self._kept.get((gid, lower, upper))
            if known is None:
                return None
            self._kept.move_to_end((gid, lower, upper))
            return known[0]

    def keep(self, gid: GlobalId, lower: Timestamp, upper: Timestamp, updates: pa.Table) -> None:
        """Remember the updates of a span that is complete."""
        size = int(updates.nbytes)
        with self._lock:
            _, old = self._kept.pop((gid, lower, upper), (None, 0))
            self._kept[gid, lower, upper] = updates, size
            self._bytes += size - old
            while self._kept and (len(self._kept) > self._most or self._bytes > self._limit):
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone

    def forget(self, gid: GlobalId) -> None:
        """A collection that was dropped: nobody asks for its updates any more."""
        with self._lock:
            for span in [span for span in self._kept if span[0] == gid]:
                _, size = self._kept.pop(span)
                self._bytes -= size
