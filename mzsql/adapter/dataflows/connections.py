"""The ways from a controller of this process to its replicas.

Promise: what the catalog says decides at the moment of connecting: a replica that a process of its own runs is talked to there, any other
begins in this process, with its arrangements where the registry has them. A way knows nothing of what its commands are about.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.replicas.places import address_of, hello_of
from mzsql.compute.dependencies import ArrangementRegistry, ExportLog
from mzsql.compute.protocol import CreateInstance, ReplicaLink, Respond
from mzsql.compute.replica.dataflows.dataflow import Renderings
from mzsql.compute.replica.replica import Replica
from mzsql.compute.transport.frames import Address
from mzsql.compute.transport.link import RemoteLink


class InProcess:
    """Begins replicas in this process: a `compute.protocol.Connect`.

    Args:
        env: the environment.
        spark: makes the Spark session; None: no replica is begun here.
        renderings: what was rendered already of the plans that are to run.
        registry: knows which shard holds which arrangement.
        exports: where views are committed together; None: they are written by another deployment.
    """

    def __init__(
        self,
        env: Environment,
        spark: Callable[[], SparkSession] | None,
        renderings: Renderings,
        registry: ArrangementRegistry,
        exports: ExportLog | None,
    ) -> None:
        self._env = env
        self._spark = spark
        self._renderings = renderings
        self._registry = registry
        self._exports = exports

    def __call__(self, first: CreateInstance, respond: Respond) -> ReplicaLink:
        """Begin a replica."""
        assert self._spark is not None
        return Replica(
            first,
            respond,
            persist=self._env.persist,
            spark=self._spark,
            storage=self._env.collections,
            registry=self._registry,
            renderings=self._renderings,
            clock=self._env.clock,
            exports=self._exports,
            kept=self._env.local.kept(first.replica_id),
        )


class Connections:
    """Connects to replicas wherever they run: a `compute.protocol.Connect`.

    Args:
        env: the environment, whose catalog says where.
        here: begins those that no other process runs.

    Attributes:
        epoch: of this leader; a replica takes commands from the highest one alone.
    """

    def __init__(self, env: Environment, here: InProcess) -> None:
        self._env = env
        self._here = here
        self.epoch = 0

    def __call__(self, first: CreateInstance, respond: Respond) -> ReplicaLink:
        """Connect to a replica."""
        env, gid = self._env, first.replica_id
        if _address(env, gid) is None:
            return self._here(first, respond)
        return RemoteLink(
            first,
            respond,
            address=lambda: _address(env, gid),
            hello=hello_of(env, gid, self.epoch),
            start=env.supervisor.start,
            monotonic=env.clock.monotonic,
            timeout=first.settings.timeout,
        )


def _address(env: Environment, replica_id: str) -> Address | None:
    """Where a replica of its own process is, as the catalog was seen last."""
    replica = env.catalog.state.replicas.get(replica_id)
    return None if replica is None or replica.process is None else address_of(replica.process)
