"""Follows shards: notices that a collection has moved, without polling.

Promise: while a collection is followed, its upper as known here is that of its shard, a moment after another process
has moved it. While nothing moves, Consensus gets one wait in a minute and a half. There is one thread for each followed
collection. Trade-off: a thread whose followers are gone ends only when its present wait does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from mzsql.persist import ReadHandle
from mzsql.repr.errors import UndefinedTable
from mzsql.repr.frontier import Frontier
from mzsql.repr.ids import GlobalId
from mzsql.storage.export_log import ExportLog
from mzsql.threads import Supervised, Supervisor, ThreadStatus

#: After how many seconds a follower that Consensus notifies asks by itself, in case a notification was lost.
FOLLOW_SECONDS = 90.0


class Followers:
    """The followers of collections in one process. Thread-safe.

    Args:
        reader: returns a collection's reader; raises UndefinedTable once it was dropped.
        moved: called after a collection has moved, or may have been dropped.
        supervisor: runs the threads.
        log: returns the export log if a collection's updates go through it.
    """

    def __init__(
        self,
        reader: Callable[[GlobalId], ReadHandle],
        moved: Callable[[], None],
        supervisor: Supervisor,
        log: Callable[[GlobalId], ExportLog | None] = lambda _: None,
    ) -> None:
        self._reader = reader
        self._log = log
        self._moved = moved
        self._supervisor = supervisor
        self._lock = threading.Lock()
        self._wanted: dict[GlobalId, int] = {}
        self._threads: dict[GlobalId, Supervised] = {}
        self._told: set[GlobalId] = set()
        # The uppers that were last reported.
        self._seen: dict[GlobalId, Frontier] = {}
        self._stop = threading.Event()

    def follow(self, gid: GlobalId) -> Callable[[], None]:
        """Follow a collection; returns a function that ends this, once."""
        with self._lock:
            self._wanted[gid] = self._wanted.get(gid, 0) + 1
            if gid not in self._threads and not self._stop.is_set():
                self._threads[gid] = self._supervisor.start(
                    "collection-follower",
                    partial(self._run, gid),
                    thread_name=f"mzsql-follow-{gid}",
                    object_id=gid,
                    changed=partial(self._thread_changed, gid),
                )
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

    def wanted(self, gid: GlobalId) -> bool:
        """Whether anybody follows the collection."""
        return gid in self._wanted

    def told(self, gid: GlobalId) -> bool:
        """Whether the upper that the collection's reader knows is current."""
        return gid in self._told

    def _thread_changed(self, gid: GlobalId, status: ThreadStatus) -> None:
        """A follower has failed or is running again. Until it runs, those who rely on it must fetch uppers themselves;
        they should look now.
        """
        if status.status != "running":
            self._told.discard(gid)
            self._seen.pop(gid, None)
        self._moved()

    def _run(self, gid: GlobalId, thread: Supervised) -> None:
        try:
            while self._goes_on(gid) and self._await(gid, thread):
                pass
        except UndefinedTable:
            pass  # it was dropped
        self._told.discard(gid)
        self._seen.pop(gid, None)
        with self._lock:
            if self._threads.get(gid) is thread:
                del self._threads[gid]
        self._moved()

    def _goes_on(self, gid: GlobalId) -> bool:
        with self._lock:
            goes_on = gid in self._wanted and not self._stop.is_set()
            if not goes_on:
                # A later `follow` then starts another thread.
                self._threads.pop(gid, None)
            return goes_on

    def _await(self, gid: GlobalId, thread: Supervised) -> bool:
        """Wait until the shard, or the log, has moved, and fetch; False if Consensus cannot notify."""
        reader, log = self._reader(gid), self._log(gid)
        if log is not None:
            log.look(reader)
        # Read these numbers before fetching: whatever this process sees of the shard or the log from now on has a
        # later number, so the wait below does not miss it.
        at = 0 if log is None else log.state.upper
        before, upper = reader.seqno, reader.upper
        if gid not in self._told:
            if log is not None:
                log.follow()
            upper = reader.fetch_upper()
            thread.well()
            self._told.add(gid)
        if upper != self._seen.get(gid):
            self._seen[gid] = upper
            self._moved()
        if log is not None and log.there:
            # The log also reports when the shard is written directly.
            log.next_move(at, FOLLOW_SECONDS)
            return True
        news = reader.await_change(FOLLOW_SECONDS, before)
        if news:
            reader.fetch_upper()
        return news is not None

    def close(self) -> None:
        """Stop; the threads end with their present waits. Idempotent."""
        self._stop.set()
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.stop()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the threads to end."""
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(timeout)
