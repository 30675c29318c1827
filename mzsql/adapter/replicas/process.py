"""A process that is one replica, from start to end: ``mzsql replica``.

Promise: the process changes nothing before it has taken the replica's entry in the catalog, by one compare_and_append.
It is refused where the replica is unknown or run by another process, and where a process of another version leads or
wrote last: a replica upgrades nothing. From then on it carries out leaders' commands, one leader after the other, and
waits where there is none. It ends when the replica is dropped or taken by another process, when a higher deploy
generation was promoted, when its replica failed for good, or on request; then it gives its entry back, so that nobody
looks for it. A killed process is found to be gone, and the next one takes its place.

The trade-off: where a replica's process on another machine hangs or is unreachable, another one may take its entry
while it still writes (`mzsql.adapter.replicas.places.is_free`). Both write the same updates, and the first one ends
when it notices.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from functools import partial

import msgspec
from pyspark.sql import SparkSession

from mzsql.adapter.environment.arrangement_registry import CatalogArrangements
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import seems_alive, this_process
from mzsql.adapter.environment.locations import Locations
from mzsql.adapter.replicas.places import hello_of, is_free
from mzsql.catalog.change import Change
from mzsql.catalog.commands.clusters import replica_named
from mzsql.catalog.commands.replicas import leave_replica, take_replica
from mzsql.catalog.objects import Replica as Entry
from mzsql.catalog.objects import ReplicaProcess
from mzsql.catalog.state import CatalogState
from mzsql.compute.protocol import Command, CreateDataflow, CreateInstance, Respond
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

#: Seconds between two looks at the catalog where Consensus cannot notify.
_LOOK_SECONDS = 5.0
#: Seconds between two releases of history while something is written …
_RELEASE_SECONDS = 15.0
#: … and how many milliseconds of history are kept.
_RETAIN_MS = 60_000


class Listening(msgspec.Struct, frozen=True):
    """Where a replica listens: a local interface's address, a port (0: any free one), and the host name under which
    others reach it.
    """

    host: str = "127.0.0.1"
    port: int = 0
    advertised: str | None = None

    def bound(self) -> socket.socket:
        """A listening socket.

        Raises:
            InvalidParameter: the address is not this machine's, or is in use.
        """
        try:
            return socket.create_server((self.host, self.port))
        except OSError as failure:
            # Python adds the address to the text of the system's errors; a host that nobody knows has a number below 0.
            number = failure.errno or 0
            why = os.strerror(number) if number > 0 else failure.strerror or str(failure)
            raise InvalidParameter(
                f"a replica cannot listen at {self.host}:{self.port}: {why}",
                hint="Give another --listen; port 0 takes a free one.",
            ) from failure


class _SyncedReplica(Replica):
    """A replica that reads the catalog before a dataflow over objects that it does not know yet."""

    def __init__(
        self,
        first: CreateInstance,
        respond: Respond,
        *,
        env: Environment,
        spark: Callable[[], SparkSession],
        process: ReplicaProcess,
    ) -> None:
        self._env = env

        def runs(state: CatalogState, replica: str) -> bool:
            entry = state.replicas.get(replica)
            return entry is not None and entry.process == process

        # No session reads in this process, so nobody here waits for what another replica writes.
        settings = msgspec.structs.replace(first.settings, stands_by=True)
        super().__init__(
            msgspec.structs.replace(first, settings=settings),
            respond,
            persist=env.persist,
            spark=spark,
            storage=env.collections,
            registry=CatalogArrangements(env.catalog, runs),
            clock=env.clock,
            exports=env.exports,
            kept=env.local.kept(first.replica_id),
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


class _Failures:
    """The failure for good of what runs a replica's dataflows, of which `wakeup` tells."""

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self.last: ThreadFailed | None = None

    def note(self, failure: ThreadFailed) -> None:
        """Keep a failure, and wake whoever waits."""
        self.last = failure
        self._wakeup.wake()


class ReplicaOf:
    """One run of a replica in this process.

    Args:
        env: the open environment; the caller closes it.
        cluster: the replica's cluster.
        name: its name there.
        listening: where to listen.
        spark: creates the Spark session at first use.
        wakeup: makes `run` look whether to stop.

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
        self.full_name = f"{cluster}.{name}"
        self._changed = wakeup
        self._failures = _Failures(wakeup)
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
            partial(_SyncedReplica, env=env, spark=spark, process=self._process),
            env.supervisor.start,
            self._failures.note,
            env.local.kept(found.id),
        )

    # --- becoming it --------------------------------------------------------------------------

    def _take(self, found: Entry) -> None:
        process = self._process

        def command(state: CatalogState) -> tuple[Change, None]:
            return take_replica(state, found, process, self.full_name), None

        self._env.catalog.transact(command)

    def too_large(self) -> str | None:
        """A warning where its SIZE has more workers than this machine has processors; None otherwise."""
        have = os.cpu_count() or 1
        if self.entry.workers <= have:
            return None
        return (
            f"size {self.entry.size} has {self.entry.workers} workers, and this machine {have} processors: "
            "the work is cut into more parts than can be done at once here"
        )

    @property
    def address(self) -> str:
        """``host:port`` of where it listens."""
        return f"{self._process.host}:{self._process.port}"

    # --- being it -----------------------------------------------------------------------------

    def run(self, stopped: Callable[[], bool]) -> str:
        """Run the replica until something ends it, or until ``stopped`` returns True after a wakeup.

        Returns:
            Why it ended, for people.

        Raises:
            DuplicateObject: another process has taken its entry.
            Fenced: a higher deploy generation was promoted.
            ThreadFailed: what runs its dataflows failed for good.
        """
        notified = self._env.follow_catalog(self._changed.wake)
        look = True
        while not stopped():
            woken = self._changed.wait(_LOOK_SECONDS) or look
            if self._failures.last is not None:
                raise self._failures.last
            try:
                state = self._env.sync() if woken or not notified else self._env.seen()
                self._release_history()
            except LocationError as error:
                # The dataflows wait for the stores as well, so this is no reason to end.
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
        """Release this process's holds on history that its dataflows do not need any more."""
        now, (at, seen) = self._env.clock.monotonic(), self._released
        upper = self._env.wal.state.upper
        if now < at or upper == seen:
            return
        self._env.collections.release_history(max(0, upper - 1 - _RETAIN_MS))
        self._env.exports.keep_up()
        self._released = now + _RELEASE_SECONDS, upper

    def close(self) -> None:
        """Stop the replica, and give its entry back where the stores allow. Idempotent."""
        self._server.close()
        process, replica_id = self._process, self.entry.id

        def command(state: CatalogState) -> tuple[Change, None]:
            return leave_replica(state, replica_id, process), None

        self._env.catalog.transact(command)


def open_for_replica(locations: Locations, cluster: str, name: str) -> Environment:
    """Open an existing environment for a process that maintains dataflows and never leads. Nothing is written where it
    is refused.

    Raises:
        UndefinedObject: there is no such cluster, or no such replica.
        DuplicateObject: another process runs it.
        EnvironmentRefused: there is no environment, a process of another version leads it, or an older version wrote it
            last.
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
