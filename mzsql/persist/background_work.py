"""Background work of a client: maintenance of shards that were changed, and renewal of leases before they run out.

Promise: in the background one thread compacts and collects, and another one renews leases; without threads,
maintenance happens inside the calls that make it due, and each handle's own calls renew its lease. A maintenance
failure is logged and tried again after the next change: it never fails a write that was committed.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from mzsql.location import LocationError
from mzsql.persist.clock import Deadline, Patience
from mzsql.persist.context import Context
from mzsql.persist.errors import ExpiredHandle, NewerVersion
from mzsql.persist.handles import Handle
from mzsql.persist.metrics import error_kind
from mzsql.persist.opened import Opened, OpenShards
from mzsql.persist.shard_maintenance import due_here, maintain
from mzsql.repr.errors import SqlError
from mzsql.threads import Supervised

_log = logging.getLogger(__name__)

_HEARTBEAT_CHECK_SECONDS = 10.0
_LEAST_MAINTENANCE_SECONDS = 1.0


class BackgroundWork:
    """Does the background work for the shards of one client. Thread-safe; ends when the client's ``closing`` is set.

    Args:
        context: the client's.
        shards: the shards it has open.
    """

    def __init__(self, context: Context, shards: OpenShards) -> None:
        self._context = context
        self._shards = shards
        self._queue: dict[str, Opened] = {}
        self._wake = threading.Condition()
        self._threads: list[Supervised] = []

    def start(self) -> None:
        """Start the threads."""
        # Two threads, because a long compaction must not let leases run out.
        for name, work in (("maintenance", self._work), ("leases", self._keep_leases)):
            thread = self._context.supervisor.start(name, work, thread_name=f"mzsql-persist-{name}")
            self._threads.append(thread)

    def stop(self, seconds: float) -> None:
        """Stop the threads of a client whose ``closing`` is set, and wait for each at most ``seconds``."""
        with self._wake:
            self._wake.notify_all()
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            # A thread ends with the backend call it is in; if the backend does not answer, it is left behind.
            thread.join(seconds)
            if thread.is_alive():
                _log.warning("%s is left in a call of a backend that does not answer", thread)

    def changed(self, opened: Opened, deadline: Deadline | None = None) -> None:
        """Do or queue maintenance of a shard that was changed here, if it is due and this process does it.

        Without threads it runs in this call, whose ``deadline`` then limits it.
        """
        if self._context.settings.maintenance == "elsewhere":
            return
        if due_here(opened):
            self._do(opened, deadline)

    def merge_all(self, opened: Opened, deadline: Deadline) -> None:
        """Merge all batches of a shard into one; otherwise as `changed`."""
        opened.merges_all = True
        self._do(opened, deadline)

    def _do(self, opened: Opened, deadline: Deadline | None) -> None:
        if not self._threads:
            self._maintain_quietly(opened, deadline)
            return
        with self._wake:
            self._queue[opened.shard_id] = opened
            self._wake.notify()

    def _maintain_quietly(
        self, opened: Opened, deadline: Deadline | None = None, *, raising: bool = False
    ) -> None:
        """Maintain a shard; a store's error is logged, and so is any other, unless ``raising``, for a supervised thread
        to report it.
        """
        seconds = self._context.settings.timeout
        if deadline is not None:
            # A call that maintains on its way must not wait much longer for a failing backend than for its own work.
            seconds = min(seconds, max(deadline.remaining(), _LEAST_MAINTENANCE_SECONDS))
        try:
            patience = Patience(self._context.clock, seconds)
            full, opened.merges_all = opened.merges_all, False
            maintain(opened, patience, full=full, all_due=False, only_ours=True)
        except LocationError as failure:
            self._count_failure(failure)
            level = logging.INFO if self._context.closing.is_set() else logging.WARNING
            _log.log(level, "shard %s: maintenance put off: %s", opened.shard_id, failure)
        except Exception as failure:
            self._count_failure(failure)
            if raising:
                failure.add_note(f"while shard {opened.shard_id} was maintained")
                raise
            _log.exception("shard %s: maintenance failed", opened.shard_id)

    def _count_failure(self, failure: Exception) -> None:
        self._context.meter.metrics.maintenance_failures.labels(error_kind(failure)).inc()

    def _work(self, thread: Supervised) -> None:
        """Maintain the queued shards, in a thread; a shard is in the queue at most once."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._context.closing.is_set() or bool(self._queue))
                if self._context.closing.is_set():
                    return
                queued = deque(self._queue.values())
                self._queue.clear()
            try:
                while queued and not self._context.closing.is_set():
                    # A shard that fails unexpectedly is queued again by its next change; the rest stays queued for
                    # when the thread is restarted.
                    self._maintain_quietly(queued.popleft(), raising=True)
                    thread.well()
            finally:
                with self._wake:
                    self._queue = {one.shard_id: one for one in queued} | self._queue

    def _keep_leases(self, thread: Supervised) -> None:
        """Renew leases in time, in a thread; after a restart it begins at once."""
        while not self._context.closing.is_set():
            self._renew_leases()
            thread.well()
            if self._context.closing.wait(_HEARTBEAT_CHECK_SECONDS):
                return

    def _renew_leases(self) -> None:
        open_shards = self._shards.all()
        for opened in open_shards:
            if opened.shard.state.finalized and not opened.readers:
                self._shards.forget(opened)
        # Readers first, because a reader's renewal renews its shard's other handles along with its own.
        readers = [(o, r) for o in open_shards for r in o.readers]
        handles: list[tuple[Opened, Handle]] = [*readers]
        handles += [(opened, writer) for opened in open_shards for writer in opened.writers]
        bug: Exception | None = None
        for opened, handle in handles:
            try:
                if self._context.closing.is_set() or not handle.heartbeat_due():
                    continue
                handle.heartbeat()
            except SqlError as failure:
                if isinstance(failure, ExpiredHandle | NewerVersion):
                    opened.discard(handle)  # there is nothing left to renew
                _log.warning("shard %s: a lease was not renewed: %s", handle.shard_id, failure)
            except Exception as failure:
                # A bug in one renewal must not keep the others from being done.
                failure.add_note(f"while a lease of shard {handle.shard_id} was renewed")
                bug = bug or failure
        if bug is not None:
            raise bug
