"""What is told of replicas, whoever runs them: whether they work, and what their processes take of their machines.

Promise: nothing here changes anything. Of replicas that this process commands it says what it knows; others are asked, which takes seconds
where their processes hang. Thread-safe.
"""

from __future__ import annotations

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.replicas.places import trouble, usage_of
from mzsql.catalog.objects import Replica
from mzsql.compute.controller.controller import ComputeController
from mzsql.compute.transport.usage import Meter, Usage, usage


class ReplicaReports:
    """Says how the replicas of an environment are.

    Args:
        env: the environment.
        controller: commands replicas while this process leads.

    Attributes:
        leads: whether it does.
    """

    def __init__(self, env: Environment, controller: ComputeController) -> None:
        self._env = env
        self._controller = controller
        self.leads = False
        self._meter = Meter(env.clock.monotonic)

    def trouble(self, replica: Replica) -> str | None:
        """Why a replica does not work, as far as this process can tell; None where it does, or has nothing to do."""
        if self.leads and replica.id in self._controller.commanded:
            return self._controller.offline(replica.id)
        return trouble(self._env, replica)

    def usage(self, replica: Replica) -> Usage | None:
        """The CPU, memory and disk used by the process that runs a replica; None where that is not known here."""
        if self.trouble(replica) is not None:
            return None
        if replica.process is not None:
            return usage_of(self._env, replica)
        if not self.leads:
            return None
        return usage(self._env.local.kept(replica.id), self._meter)
