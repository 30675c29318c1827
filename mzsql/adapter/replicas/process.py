"""A process that is one replica, from its start to its end: ``mzsql replica``.

Promise: before it has taken the replica's entry in the catalog, in one compare_and_append, it has changed nothing, and is refused where the
replica is unknown or another process's, or where a process of another version leads, or wrote last: a replica upgrades nothing. From then
on it maintains what leaders command, one after the other, and waits for the next where there is none. It ends by itself when the replica
is dropped or another process has taken it, when a higher deploy generation was promoted, when its replica has failed for good, or when it
is asked to; then it gives its entry back, so that nobody looks for it. One that is killed is found to be gone, and whoever comes takes its
place.

Trade-off: where a replica's process on another machine hangs, or cannot be reached, another one may take its name while it still writes
(`mzsql.adapter.replicas.places.is_free`); what both write is the same, and the first one ends when it finds that out.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable

import msgspec
from pyspark.sql import SparkSession

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import seems_alive, this_process
from mzsql.adapter.environment.locations import Locations
from mzsql.adapter.environment.seams import CatalogArrangements
from mzsql.adapter.replicas.places import hello_of, is_free
from mzsql.catalog.change import Change
from mzsql.catalog.commands.clusters import replica_named
from mzsql.catalog.commands.replicas import leave_replica, take_replica
from mzsql.catalog.objects import Replica as Entry
from mzsql.catalog.objects import ReplicaProcess
from mzsql.catalog.state import CatalogState
from mzsql.compute.protocol import Command, CreateDataflow, CreateInstance, ReplicaLink, Respond
from mzsql.compute.replica.replica import Replica
from mzsql.compute.transport.frames import new_secret
from mzsql.compute.transport.server import ReplicaServer
from mzsql.location import LocationError
from mzsql.persist import SystemClock
from mzsql.persist.versions import newer
from mzsql.repr.errors import (
    DuplicateObject,
    EnvironmentRefused,
    InvalidParameter,
    ThreadFailed,
    UndefinedTable,
)
from mzsql.repr.frontier import Timestamp
from mzsql.repr.version import VERSION
from mzsql.threads import Wakeup

_log = logging.getLogger(__name__)

#: Where Consensus cannot notify, a replica looks so often whether it was dropped, in seconds.
_LOOK_SECONDS = 5.0
#: History that nobody needs is given up so often while something is written, in seconds …
_RELEASE_SECONDS = 15.0
#: … but for so many milliseconds of it.
_RETAIN_MS = 60_000


class Listening(msgspec.Struct, frozen=True):
    """Where a replica listens: the address of an interface of this machine (port 0: a free one), and the name that others call it by."""

    host: str = "127.0.0.1"
    port: int = 0
    advertised: str | None = None

    def bound(self) -> socket.socket:
        """A socket that listens there.

        Raises:
            InvalidParameter: the address is not this machine's, or is in use.
        """
        try:
            return socket.create_server((self.host, self.port))
        except OSError as failure:
            raise InvalidParameter(
                f"a replica cannot listen at {self.host}:{self.port}: {failure.strerror or failure}",
                hint="Give another --listen; port 0 takes a free one.",
            ) from failure


class _SyncedReplica(Replica):
    """A replica that has seen of the catalog what a dataflow is about that it is to maintain, before it is told of it."""

    def __init__(
        self,
        env: Environment,
        first: CreateInstance,
        respond: Respond,
        spark: Callable[[], SparkSession],
    ) -> None:
        self._env = env
        super().__init__(
            first,
            respond,
            persist=env.persist,
            spark=spark,
            storage=env.collections,
            registry=CatalogArrangements(env.catalog),
            clock=env.clock,
            exports=env.exports,
            kept=env.kept(first.replica_id),
        )

    def send(self, command: Command) -> None:
        """As `Replica.send`."""
        if isinstance(command, CreateDataflow):
            try:
                for source in command.dataflow.sources:
                    self._env.collections.meta(source)
            except UndefinedTable:
                self._env.sync()
        super().send(command)


class ReplicaOf:
    """One life of a replica in this process.

    Args:
        env: the environment, open; the caller's to close.
        cluster: the replica's cluster.
        name: its name there.
        listening: where.
        spark: makes the Spark session when it is first needed.
        wakeup: has `run` look whether it is to stop.

    Raises:
        UndefinedObject: there is no such cluster, or no such replica.
        DuplicateObject: another process runs it.
        InvalidParameter: it cannot listen there.
    """

    def __init__(
        self,
        env: Environment,
        cluster: str,
        name: str,
        *,
        listening: Listening,
        spark: Callable[[], SparkSession],
        wakeup: Wakeup,
    ) -> None:
        self._env = env
        self._spark = spark
        self.full_name = f"{cluster}.{name}"
        self._changed = wakeup
        self._failure: ThreadFailed | None = None
        self._released: tuple[float, Timestamp] = (0.0, -1)
        env.require_writable()
        self.entry = found = replica_named(env.catalog.state, cluster, name)
        sock = listening.bound()
        try:
            self._process = ReplicaProcess(
                this_process(),
                listening.advertised or listening.host,
                sock.getsockname()[1],
                new_secret(),
                env.build,
            )
            self._take(found)
        except BaseException:
            sock.close()
            raise
        self._server = ReplicaServer(
            sock,
            self._process.secret,
            hello_of(env, found.id, None),
            self._connect,
            env.supervisor.start,
            self._failed,
            env.kept(found.id),
        )

    # --- becoming it --------------------------------------------------------------------------

    def _take(self, found: Entry) -> None:
        process = self._process

        def command(state: CatalogState) -> tuple[Change, None]:
            return take_replica(state, found, process, self.full_name), None

        self._env.catalog.transact(command)

    def too_large(self) -> str | None:
        """What to tell of a SIZE that asks for more than this machine has; None where it does not."""
        have = os.cpu_count() or 1
        if self.entry.workers <= have:
            return None
        return (
            f"size {self.entry.size} has {self.entry.workers} workers, and this machine {have} processors: "
            "the work is cut into more parts than can be done at once here"
        )

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self._process.host}:{self._process.port}"

    # --- being it -----------------------------------------------------------------------------

    def _connect(self, first: CreateInstance, respond: Respond) -> ReplicaLink:
        return _SyncedReplica(self._env, first, respond, self._spark)

    def _failed(self, failure: ThreadFailed) -> None:
        self._failure = failure
        self._changed.wake()

    def run(self, stopped: Callable[[], bool]) -> str:
        """Be the replica until something ends it, or `stopped` says so and the wakeup was used: why it ended, for a person.

        Raises:
            DuplicateObject: another process has taken its name.
            Fenced: a higher deploy generation was promoted.
            ThreadFailed: what runs its dataflows has failed for good.
        """
        notified = self._env.follow_catalog(self._changed.wake)
        look = True
        while not stopped():
            woken = self._changed.wait(_LOOK_SECONDS) or look
            if self._failure is not None:
                raise self._failure
            try:
                state = self._env.sync() if woken or not notified else self._env.seen()
                self._release_history()
            except LocationError as error:
                # What it maintains waits for the stores as well; this is no reason to end.
                _log.warning("the stores do not answer: %s", error)
                look = True
                continue
            look = False
            own = state.replicas.get(self.entry.id)
            if own is None:
                return "it was dropped"
            if own.process != self._process and not stopped():
                by = "" if own.process is None else f": {own.process.who}"
                raise DuplicateObject(
                    f"another process has taken cluster replica {self.full_name}{by}"
                )
        return "it was asked to"

    def _release_history(self) -> None:
        """As every process does: what its readers need no more is let go of."""
        now, (at, seen) = self._env.clock.monotonic(), self._released
        upper = self._env.wal.state.upper
        if now < at or upper == seen:
            return
        self._env.collections.release_history(max(0, upper - 1 - _RETAIN_MS))
        self._env.exports.keep_up()
        self._released = now + _RELEASE_SECONDS, upper

    def close(self) -> None:
        """End the replica, and give its entry back where that can be. Idempotent."""
        self._server.close()
        process, replica_id = self._process, self.entry.id

        def command(state: CatalogState) -> tuple[Change, None]:
            return leave_replica(state, replica_id, process), None

        self._env.catalog.transact(command)


def open_for_replica(locations: Locations, cluster: str, name: str) -> Environment:
    """The environment, which is there already, for a process that maintains and never leads. Who cannot be the replica has written nothing.

    Raises:
        UndefinedObject: there is no such cluster, or no such replica.
        DuplicateObject: another process runs it.
        EnvironmentRefused: there is no environment, or it is led by a process of another version, or of an older version.
    """
    clock = SystemClock()

    def admit(state: CatalogState, wrote: str) -> None:
        _check_version(state, wrote, clock.now_ms())
        found = replica_named(state, cluster, name)
        assert state.meta is not None
        process = found.process
        if process is not None and not is_free(found, state.meta.environment_id, VERSION, clock):
            raise DuplicateObject(
                f"cluster replica {cluster}.{name} is run by another process: {process.who}"
            )

    return Environment.open(locations, create=False, clock=clock, admit=admit)


def _check_version(state: CatalogState, wrote: str, now_ms: int) -> None:
    lease = state.lease
    led = seems_alive(lease, now_ms)
    if lease is not None and led and lease.build not in ("", VERSION):
        raise EnvironmentRefused(
            f"this is mzsql {VERSION}, and the process that leads the environment, {lease.who}, runs {lease.build}"
        )
    if not led and newer(VERSION, wrote):
        raise EnvironmentRefused(
            f"this is mzsql {VERSION}, and the environment was written by {wrote or 'an older one'}: a replica does not upgrade it, "
            "whatever leads next does"
        )
