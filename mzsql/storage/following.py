"""Following shards: hearing that a collection has moved, without asking for it in vain.

Promise: while a collection is followed, what is known here of its upper is what its shard says, a moment after another process has moved
it; where nothing moves, Consensus is asked for one wait a minute. There is one thread for each collection that anybody follows. The
trade-off: a thread whose followers have gone ends only with the wait that it is in.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from mzsql.persist import ReadHandle
from mzsql.repr.errors import SqlError, UndefinedTable
from mzsql.repr.frontier import Frontier
from mzsql.repr.ids import GlobalId

_log = logging.getLogger(__name__)

#: A follower that Consensus wakes asks again after so long, in case it was not woken.
FOLLOW_SECONDS = 60.0
#: So long a follower rests when Consensus fails.
_REST_SECONDS = 0.5


class Followers:
    """The followers of collections of one process. Thread-safe.

    Args:
        reader: a collection's reader; raises UndefinedTable once it was dropped.
        moved: called after a collection has moved, or may have been dropped.
    """

    def __init__(self, reader: Callable[[GlobalId], ReadHandle], moved: Callable[[], None]) -> None:
        self._reader = reader
        self._moved = moved
        self._lock = threading.Lock()
        self._wanted: dict[GlobalId, int] = {}
        self._threads: dict[GlobalId, threading.Thread] = {}
        self._told: set[GlobalId] = set()
        # The uppers that were told of.
        self._seen: dict[GlobalId, Frontier] = {}
        self._stop = threading.Event()

    def follow(self, gid: GlobalId) -> Callable[[], None]:
        """Follow a collection; the result ends that, once."""
        with self._lock:
            self._wanted[gid] = self._wanted.get(gid, 0) + 1
            if gid not in self._threads and not self._stop.is_set():
                thread = threading.Thread(
                    target=self._run, args=(gid,), name=f"mzsql-follow-{gid}", daemon=True
                )
                self._threads[gid] = thread
                thread.start()
        ended = False

        def end() -> None:
            nonlocal ended
            with self._lock:
                if not ended:
                    ended = True
                    self._wanted[gid] -= 1
                    if not self._wanted[gid]:
                        del self._wanted[gid]

        return end

    def told(self, gid: GlobalId) -> bool:
        """Whether what the collection's reader knows of its upper is all there is to know."""
        return gid in self._told

    def _run(self, gid: GlobalId) -> None:
        try:
            while self._goes_on(gid):
                try:
                    if not self._await(gid):
                        return
                except UndefinedTable:
                    return
                except SqlError as failure:
                    self._told.discard(gid)
                    if not self._stop.wait(_REST_SECONDS):
                        _log.warning("%s cannot be followed for now: %s", gid, failure)
        finally:
            self._told.discard(gid)
            self._seen.pop(gid, None)
            with self._lock:
                if self._threads.get(gid) is threading.current_thread():
                    del self._threads[gid]
            self._moved()

    def _goes_on(self, gid: GlobalId) -> bool:
        with self._lock:
            goes_on = gid in self._wanted and not self._stop.is_set()
            if not goes_on:
                # Whoever follows it from now on starts another thread.
                self._threads.pop(gid, None)
            return goes_on

    def _await(self, gid: GlobalId) -> bool:
        """Wait until the shard has moved, and look; False where Consensus cannot notify."""
        reader = self._reader(gid)
        # In this order: what this process sees of the shard from now on has a later number.
        before, upper = reader.seqno, reader.upper
        if gid not in self._told:
            upper = reader.fetch_upper()
            self._told.add(gid)
        if upper != self._seen.get(gid):
            self._seen[gid] = upper
            self._moved()
        news = reader.await_change(FOLLOW_SECONDS, before)
        if news:
            reader.fetch_upper()
        return news is not None

    def close(self) -> None:
        """Stop; the threads end with the waits that they are in. Idempotent."""
        self._stop.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the threads to end."""
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout)
