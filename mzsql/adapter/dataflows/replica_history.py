"""The history of replicas' statuses: the rows of ``mz_cluster_replica_status_history``.

Promise: while this process leads, each change of a replica between online and offline that a look meets gets a row, and
so does another reason for being offline. Nothing is written while nothing changes. A look asks no replica and no store:
it tells what the controller knows from the replicas' connections. One thread calls.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterable

from mzsql.adapter.environment.environment import Environment
from mzsql.catalog.builtin import own_builtin
from mzsql.catalog.objects import Replica

#: Seconds of leading after which replicas are looked at first: by then those that are there have been connected to.
SETTLED_SECONDS = 2.0
#: Reasons that differ in their numbers only are one: most count the seconds that it lasts.
_NUMBER = re.compile(r"\d+(\.\d+)?")
NOBODY = "no process runs it"


class ReplicaHistory:
    """Writes the history while this process leads.

    Args:
        env: the environment.
        offline: gives why a replica that is commanded cannot be used; None where it can.
    """

    def __init__(self, env: Environment, offline: Callable[[str], str | None]) -> None:
        self._env = env
        self._offline = offline
        self._relation = own_builtin("mz_internal", "mz_cluster_replica_status_history").id
        self._begun = 0.0
        # The reason, without its numbers, of each replica at the last look; None: online.
        self._known: dict[str, str | None] = {}

    def begin(self) -> None:
        """Start anew: this process leads from now on."""
        self._begun, self._known = self._env.clock.monotonic(), {}

    def look(self, replicas: Iterable[Replica], commanded: Collection[str]) -> None:
        """Record what has changed since the last look.

        Args:
            replicas: all replicas.
            commanded: the ids of those that this process commands; no process runs the others.
        """
        if self._env.clock.monotonic() < self._begun + SETTLED_SECONDS:
            return
        at = datetime.datetime.fromtimestamp(self._env.oracle.present_ms() / 1000, datetime.UTC)
        before, self._known = self._known, {}
        rows = []
        for one in replicas:
            reason = self._offline(one.id) if one.id in commanded else NOBODY
            words = None if reason is None else _NUMBER.sub("", reason)
            self._known[one.id] = words
            if one.id not in before or before[one.id] != words:
                status = "online" if reason is None else "offline"
                rows.append(((one.id, 0, status, reason, at), 1))
        if rows:
            self._env.manager.append(self._relation, rows)
