"""The history of what replicas take of their machines: the rows of ``mz_cluster_replica_metrics_history``.

Promise: every `METRICS_INTERVAL`, each replica whose process answers gets a row, all of one collection with the same time; one
that does not has none. Processes are asked on a thread of its own, so that one that hangs delays nothing else: at most one
collection waits for another. Rows are kept for `METRICS_RETENTION` (`periodic`). The leading thread calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mzsql.adapter.dataflows.periodic import Periodic, moment
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.replicas.places import about_each
from mzsql.catalog.objects import Replica
from mzsql.catalog.settings import METRICS_INTERVAL, METRICS_RETENTION
from mzsql.catalog.state import CatalogState
from mzsql.compute.transport.usage import Usage
from mzsql.repr.frontier import Timestamp
from mzsql.threads import Supervised

#: Seconds that closing waits for a process that is being asked.
_JOIN_SECONDS = 5.0


class MetricsHistory:
    """Writes the history while this process leads.

    Args:
        env: the environment, whose supervisor runs the thread.
        usage: gives what a replica's process takes; None where it does not say.
    """

    def __init__(self, env: Environment, usage: Callable[[Replica], Usage | None]) -> None:
        self._env = env
        self._usage = usage
        self._periodic = Periodic(
            env, "mz_cluster_replica_metrics_history", METRICS_INTERVAL, METRICS_RETENTION
        )
        self._changed = threading.Condition()
        # Guarded by the condition: whether this process leads, and the next collection.
        self._leads = False
        self._next: tuple[Timestamp, tuple[Replica, ...]] | None = None
        self._thread: Supervised | None = None

    def begin(self) -> None:
        """Start anew: this process leads from now on."""
        self._periodic.begin()
        self._leads = True

    def end(self) -> None:
        """This process leads no more: what it has not written yet, another one does."""
        with self._changed:
            self._leads, self._next = False, None

    def look(self, state: CatalogState) -> None:
        """Have a collection made where it is time to. Returns at once."""
        at = self._periodic.due(state)
        if at is None or not state.replicas:
            return
        with self._changed:
            self._next = at, tuple(state.replicas.values())
            self._changed.notify_all()
        if self._thread is None:
            self._thread = self._env.supervisor.start(
                "replica-metrics", self._run, thread_name="mzsql-replica-metrics"
            )

    def close(self) -> None:
        """End the thread. Idempotent."""
        self.end()
        if self._thread is not None:
            self._thread.stop()
            with self._changed:
                self._changed.notify_all()
            self._thread.join(_JOIN_SECONDS)

    def _run(self, thread: Supervised) -> None:
        while (wanted := self._wanted(thread)) is not None:
            at, replicas = wanted
            taken = moment(at)
            rows = [
                (
                    *(one.id, 0, found.cpu, found.cpu_limit),
                    *(found.memory, found.memory_limit, found.disk, found.disk_limit, taken),
                )
                for one, found in about_each(replicas, self._usage)
                if found is not None
            ]
            if self._leads:
                self._periodic.append(rows)
            thread.well()

    def _wanted(self, thread: Supervised) -> tuple[Timestamp, tuple[Replica, ...]] | None:
        """The next collection, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or thread.stopping)
            found, self._next = self._next, None
            return found
