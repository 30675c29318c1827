"""The compute controller: reconciles the dataflows on an environment's replicas with the catalog.

Promise: `reconcile` drops dataflows that are not wanted, or not wanted where they are, and returns what is missing;
`install` sends a missing object to every replica that works for its cluster, indexes before their readers. An object
that cannot run keeps no other from running, and `failure` says why it cannot. Controller and replicas exchange only
messages of `compute.protocol`. Only `settle` and `close` wait for replicas. Which process may run a controller is
decided elsewhere (`adapter/dataflows`).

Trade-off: all replicas of a cluster do the same work, each from the inputs, so that any of them may fail. Their
outputs are the same, and the one that writes second drops its own (docs/architecture.md, decision 6).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from mzsql.catalog.objects import Maintained, MaterializedView, Replica
from mzsql.catalog.state import CatalogState
from mzsql.compute.controller.client import ReplicaClient
from mzsql.compute.controller.dataflow_state import Holder, StatusSink
from mzsql.compute.controller.introspection import Subscribed
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.protocol import Connect, CreateDataflow, RefreshStats, Status
from mzsql.lir.sealed import SealedDataflow
from mzsql.render.rendered import Outline
from mzsql.repr.errors import DuplicateObject, Fenced, ObjectInUse, SqlError, told
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

_log = logging.getLogger(__name__)

#: Errors of a replica that may take the command later: its queue is full, or it has not finished dropping the dataflow.
_FOR_NOW = (ObjectInUse, DuplicateObject)
#: For how many seconds inputs are held for a replica in another process that is away. They are held longer only for
#: views that no other replica maintains, or that read indexes, because what is compacted would be missing from them.
HISTORY_SECONDS = 24 * 3600.0
#: Most seconds that `settle` waits for a replica in another process.
_APART_SECONDS = 3.0


def indexes_first(
    items: Iterable[Maintained], plans: Mapping[GlobalId, SealedDataflow]
) -> list[Maintained]:
    """The items, each after the indexes that its plan reads. An index may be younger than its reader, so ids do not
    give this order.
    """
    by_id = {item.id: item for item in items}
    ordered: dict[GlobalId, Maintained] = {}

    def visit(item: Maintained, above: frozenset[GlobalId]) -> None:
        for gid in plans[item.id].indexes:
            if gid in by_id and gid not in ordered and gid not in above:
                visit(by_id[gid], above | {gid})
        ordered.setdefault(item.id, item)

    for item in by_id.values():
        visit(item, frozenset({item.id}))
    return list(ordered.values())


class ComputeController:
    """The dataflows of an environment on its replicas. One thread at a time changes it; any thread may ask.

    Args:
        connect: makes the link to a replica.
        storage: holds inputs.
        sink: takes statuses and refreshes.
        present: the latest time at which tables are complete; indexes stay readable at it, even if they are complete
            beyond it.
        monotonic: seconds.
        history_seconds: see `HISTORY_SECONDS`.
        transient_ids: returns an id for an introspection subscribe; None: replicas report no introspection.
        read_only: whether another deployment writes the views (see `ComputeSettings.read_only`).

    Attributes:
        replicas_gone: how many replicas were closed because they were dropped or resized.
        heard: whether replicas have taken everything since the last `reconcile`; if not, it must be sent again.
    """

    def __init__(
        self,
        connect: Connect,
        storage: Holder,
        sink: StatusSink,
        *,
        present: Callable[[], Timestamp],
        monotonic: Callable[[], float] = time.monotonic,
        history_seconds: float = HISTORY_SECONDS,
        transient_ids: Callable[[], GlobalId] | None = None,
        read_only: bool = False,
    ) -> None:
        self._connect = connect
        self._storage = storage
        self._sink = sink
        self._present = present
        self._monotonic, self._history_seconds = monotonic, history_seconds
        self._transient_ids = transient_ids
        # When each replica that is away was first found so.
        self._away: dict[str, float] = {}
        self._introspect = True
        # How often each replica checks for changes of its introspection, in seconds; replicas that report none are
        # absent.
        self._seconds: dict[str, float] = {}
        self._read_only = read_only
        # The working replicas of every cluster that has dataflows, and what each was told to maintain.
        self._replicas: dict[str, ReplicaClient] = {}
        self._on: dict[str, set[GlobalId]] = {}
        # Closed replicas, whose holds are released only after everything wanted is held by others.
        self._given_up: list[ReplicaClient] = []
        self._failures: dict[GlobalId, str] = {}
        # Statuses of objects that no replica could be given.
        self._unrun: dict[GlobalId, Status] = {}
        self._swept = False
        # The working replicas when objects were last found not to run; if others work, they are tried again.
        self._tried_on: set[str] = set()
        self._step_engine = "auto"
        self.replicas_gone = 0
        self.heard = True

    def _working(self, state: CatalogState) -> dict[str, list[Replica]]:
        """The working replicas of each cluster, by its name. Of a read-only deployment there is one for each, in this
        process.
        """
        if not self._read_only:
            return {one.name: state.working(one.id) for one in state.clusters.values()}
        serving = (
            (name, state.serving(name)) for name in (c.name for c in state.clusters.values())
        )
        return {
            name: [] if one is None else [msgspec.structs.replace(one, process=None)]
            for name, one in serving
        }

    # --- what is wanted -----------------------------------------------------------------------

    def reconcile(
        self, state: CatalogState, *, step_engine: str, introspect: bool = True
    ) -> list[Maintained]:
        """Drop what is not wanted where it is; return what is missing on some replica, to be given to `install`.

        Args:
            state: the catalog.
            step_engine: the engine setting of replicas.
            introspect: whether replicas report introspection.
        """
        self._step_engine, self.heard = step_engine, True
        self._introspect = introspect
        working = self._working(state)
        self._seconds = {
            one.id: one.introspection_ms / 1000
            for found in working.values()
            for one in found
            if introspect and one.introspection_ms
        }
        wanted = {item.id: item for item in state.maintained if working.get(item.cluster or "")}
        self._give_up_replicas(working, wanted)
        here = {one.id: one for found in working.values() for one in found}
        for replica_id, client in self._replicas.items():
            self._try(partial(client.configure, self._settings(here[replica_id])))
        tried_on = {one.id for found in working.values() for one in found}
        for gid in [g for g in self._failures if tried_on != self._tried_on or g not in wanted]:
            self._forget_failure(gid)
        self._tried_on = tried_on
        for replica_id, gids in self._on.items():
            client = self._replicas[replica_id]
            belongs = {g for g, item in wanted.items() if _has(working, item, replica_id)}
            for gid in sorted(gids - belongs):
                if self._try(partial(client.drop, gid)):
                    gids.discard(gid)
        return [item for item in wanted.values() if self._is_missing(item, working)]

    def _is_missing(self, item: Maintained, working: Mapping[str, Sequence[Replica]]) -> bool:
        """Whether the object can run and some replica of its cluster was not told of it."""
        return item.id not in self._failures and any(
            item.id not in self._on.get(one.id, ()) for one in working[item.cluster or ""]
        )

    def _forget_failure(self, gid: GlobalId) -> None:
        self._failures.pop(gid, None)
        status = self._unrun.pop(gid, None)
        if status is not None:
            self._sink.stands(msgspec.structs.replace(status, state="dropped"))

    def _try(self, command: Callable[[], object]) -> bool:
        """Send a replica something; return False if it did not take it and must be told again."""
        try:
            command()
        except SqlError as failure:
            self._told_again("a replica was not told", failure)
            return False
        return True

    def _told_again(self, what: str, failure: Exception) -> None:
        """Log that a replica was not told something, and note that it must be told again."""
        bug = None if isinstance(failure, SqlError) else failure
        _log.warning("%s: %s", what, told(failure), exc_info=bug)
        self.heard = False

    def _give_up_replicas(
        self,
        working: Mapping[str, Sequence[Replica]],
        wanted: Mapping[GlobalId, Maintained],
    ) -> None:
        """Close replicas that were dropped, moved or resized. What ran there is then missing where it now belongs."""
        here = {one.id: one for found in working.values() for one in found}
        for replica_id, client in list(self._replicas.items()):
            replica = here.get(replica_id)
            if (
                replica is not None
                and replica.workers == client.settings.workers
                and client.apart == (replica.process is not None)
            ):
                continue
            del self._replicas[replica_id]
            del self._on[replica_id]
            client.close()
            self._given_up.append(client)
            if replica is None or replica.workers != client.settings.workers:
                self.replicas_gone += 1
            if replica is None:
                self._sink.delete_replica(replica_id)
                continue
            # The closed replica will not report that these are dropped.
            for gid in client.dataflows:
                if gid not in wanted or not _has(working, wanted[gid], replica_id):
                    self._sink.stands(Status(gid, replica_id, "dropped", 0, 0, False))

    def cannot_run(self, item: Maintained, failure: Exception) -> None:
        """Record that an object cannot run, because of its plan or of a bug; reads of it say why.

        If it runs on another replica, or the replica may take it later, it is only tried again.
        """
        if self._runs(item.id) or isinstance(failure, _FOR_NOW):
            self._told_again(f"{item.full_name} cannot be run by a replica", failure)
            return
        self._failures[item.id] = told(failure)
        bug = None if isinstance(failure, SqlError) else failure
        _log.warning("%s cannot be run: %s", item.full_name, told(failure), exc_info=bug)
        self._unrun[item.id] = Status(
            item.id, "", "refused", 0, item.as_of, False, told(failure), 1, reason="cannot be run"
        )
        self._sink.stands(self._unrun[item.id])

    def install(
        self,
        items: Iterable[Maintained],
        plans: Mapping[GlobalId, SealedDataflow],
        state: CatalogState,
        outlines: Mapping[GlobalId, Outline] | None = None,
    ) -> None:
        """Have objects that `reconcile` found missing maintained by every replica of their clusters that was not told
        of them.

        Args:
            items: the objects; one without a plan is left out.
            plans: by object.
            state: the catalog, which says where they run.
            outlines: what is known of the rendered plans.
        """
        working = self._working(state)
        for item in indexes_first([one for one in items if one.id in plans], plans):
            command = CreateDataflow(
                item.id,
                f"{item.schema}.{item.name}",
                plans[item.id],
                item.shard if isinstance(item, MaterializedView) else None,
                item.as_of,
                (outlines or {}).get(item.id),
                item.refresh if isinstance(item, MaterializedView) else None,
            )
            # A cluster that has no replica any more was altered meanwhile; the next reconcile sees that.
            failures = [
                failure
                for replica in working.get(item.cluster or "", ())
                if item.id not in self._on.get(replica.id, ())
                and (failure := self._install_on(replica, command)) is not None
            ]
            if self._runs(item.id):
                self._forget_failure(item.id)
            if failures:
                self.cannot_run(item, failures[0])

    def _install_on(self, replica: Replica, command: CreateDataflow) -> Exception | None:
        """Send a dataflow to one replica; return the failure if it does not take it."""
        try:
            self._client_of(replica).create_dataflow(command)
        except Exception as failure:
            return failure
        self._on[replica.id].add(command.id)
        return None

    def _runs(self, gid: GlobalId) -> bool:
        """Whether some replica was told to maintain an object."""
        return any(gid in gids for gids in self._on.values())

    def _settings(self, replica: Replica) -> ComputeSettings:
        """The settings of a replica."""
        return ComputeSettings(
            workers=replica.workers,
            step_engine=self._step_engine,
            node_hydration=self._introspect and replica.introspection_ms > 0,
            read_only=self._read_only,
        )

    def _client_of(self, replica: Replica) -> ReplicaClient:
        found = self._replicas.get(replica.id)
        if found is None:
            settings = self._settings(replica)
            ids = self._transient_ids
            found = ReplicaClient(
                self._connect,
                replica.id,
                settings,
                self._storage,
                self._sink,
                None if ids is None else Subscribed(ids),
            )
            self._replicas[replica.id] = found
            self._on[replica.id] = set()
            if not found.apart:
                # Nothing runs there yet, so what it reports is of what it is told to run: before that, so that none of it is missed.
                self._try(partial(found.introspect, self._seconds.get(replica.id)))
        return found

    def maintain(self, confirmed: Callable[[], bool]) -> None:
        """Upkeep after everything wanted was installed, and now and then: release holds, and let replicas delete and
        compact what nobody reads.

        Args:
            confirmed: reads whether this process still leads, and every dataflow that is wanted is installed. Called only before
                indexes are allowed to compact more.
        """
        if self._limit_history():
            # Only now that others hold what a closed replica held may its holds be released.
            given_up, self._given_up = self._given_up, []
            for client in given_up:
                client.release()
        for client in self._replicas.values():
            self._try(client.let_go)
            self._try(client.initialization_complete)
            # Not before: a replica that another process commanded first reports everything that runs there, and rows
            # of dataflows that are not wanted, or not yet known to be, are not shown.
            self._try(partial(client.introspect, self._seconds.get(client.replica_id)))
            client.look_after()
        self._allow_compaction(confirmed)
        if not self._swept:
            # Delete what an earlier process left of dataflows and replicas that do not exist any more.
            self._swept = True
            on = {(gid, replica_id) for replica_id, gids in self._on.items() for gid in gids}
            self._sink.keep(frozenset([*on, *((gid, "") for gid in self._unrun)]))

    def _allow_compaction(self, confirmed: Callable[[], bool]) -> None:
        """Allow indexes to compact what nobody is to read.

        What is allowed is found first, and confirmed afterwards: another leader may have made dataflows that begin earlier on the same
        indexes. Those that it makes once this is confirmed begin at the present or later, where nothing that is allowed reaches.
        """
        present = self._present()
        found = [(client, client.compactions(present)) for client in self._replicas.values()]
        # Nothing to allow, nothing to ask: in an idle environment there never is.
        if any(commands for _, commands in found) and self._is_confirmed(confirmed):
            for client, commands in found:
                self._try(partial(client.allow, commands))

    def _is_confirmed(self, confirmed: Callable[[], bool]) -> bool:
        try:
            return confirmed()
        except Fenced:
            raise
        except SqlError as failure:
            # Indexes keep what they have for a while; this is asked again.
            self._told_again("indexes are not allowed to compact", failure)
            return False

    def _limit_history(self) -> bool:
        """Limit for how long inputs are held for replicas that are away; return whether everything that should be held
        is.
        """
        now = self._monotonic()
        there = {rid for rid, one in self._replicas.items() if one.offline is None}
        away = {rid: self._away.get(rid, now) for rid in self._replicas.keys() - there}
        self._away = away
        working = [self._replicas[replica_id] for replica_id in there]
        held = [self._holds_again(client) for client in working]
        forward = frozenset[GlobalId]().union(*(c.brought_forward for c in working if away))
        for replica_id, since in away.items():
            client = self._replicas[replica_id]
            held.append(self._holds_again(client, forward))
            if client.apart and now - since > self._history_seconds:
                client.forgo(forward)
        return all(held)

    def _holds_again(
        self, client: ReplicaClient, forward: Collection[GlobalId] | None = None
    ) -> bool:
        """Have a client hold what it has forgone; return whether it does. A failure keeps no other client from it."""
        try:
            client.hold_again(forward)
        except Fenced:
            raise
        except Exception as failure:
            self._told_again(f"what replica {client.replica_id} is to read is not held", failure)
            return False
        return True

    def settle(self, timeout: float) -> None:
        """Wait until the replicas have taken what they were told, up to `timeout` seconds for all of them together.

        A replica that is away or takes nothing is not waited for; one in another process for `_APART_SECONDS` at
        most; one that has let an earlier wait pass only after it has answered again.
        """
        pinged: list[tuple[ReplicaClient, int]] = []
        for client in self.replicas:
            with contextlib.suppress(
                SqlError
            ):  # if it takes no commands, they are sent again later
                pinged.append((client, client.ping()))
        until = time.monotonic() + timeout
        for client, nonce in pinged:
            left = until - time.monotonic()
            client.settled(nonce, min(left, _APART_SECONDS) if client.apart else left)

    # --- what is known ------------------------------------------------------------------------

    @property
    def installed(self) -> frozenset[GlobalId]:
        """The objects that some replica was told of, or that cannot run."""
        return frozenset(self._failures).union(*self._on.values())

    @property
    def replicas(self) -> tuple[ReplicaClient, ...]:
        """The replicas that run dataflows."""
        return tuple(self._replicas.values())

    @property
    def commanded(self) -> frozenset[str]:
        """The ids of the replicas that this process commands."""
        return frozenset(self._replicas)

    def offline(self, replica_id: str) -> str | None:
        """Why a replica cannot be used now; None if it can, or if it has nothing to do."""
        client = self._replicas.get(replica_id)
        why = None if client is None else client.offline
        if client is not None and why is not None and client.forgone:
            return f"{why}; history is kept for it no more, and it hydrates anew"
        return why

    @property
    def temporal(self) -> bool:
        """Whether some dataflow's rows appear and disappear as time passes, without updates."""
        return any(client.temporal for client in self.replicas)

    def status(self) -> list[Status]:
        """The statuses of all dataflows on all replicas."""
        return [status for client in self.replicas for status in client.status()]

    @property
    def waiting(self) -> bool:
        """Whether some dataflow waits to be opened. Replicas that are away are ignored, unless all are."""
        there = [client for client in self.replicas if client.offline is None]
        return any(client.waiting for client in there or self.replicas)

    def failure(self, gid: GlobalId) -> str | None:
        """Why an object could not be installed, or the last failure of its dataflow if it fails on every replica; else
        None.
        """
        if gid in self._failures:
            return self._failures[gid]
        on = [rid for rid, gids in list(self._on.items()) if gid in gids]
        clients = [client for rid in on if (client := self._replicas.get(rid)) is not None]
        failures = [client.failure(gid) for client in clients if client.offline is None]
        return next(iter(failures), None) if None not in failures else None

    def refreshes(self) -> list[RefreshStats]:
        """The latest refresh statistics of every replica."""
        return [one for client in self.replicas for one in client.refreshes()]

    def stop(self) -> None:
        """Close the replicas, for another process to take over. Idempotent."""
        replicas, self._replicas = self._replicas, {}
        given_up, self._given_up = self._given_up, []
        self._on.clear()
        self._failures.clear()
        self._unrun.clear()
        self._swept = False
        for client in replicas.values():
            client.close()
        for client in (*given_up, *replicas.values()):
            client.release()


def _has(working: Mapping[str, Sequence[Replica]], item: Maintained, replica_id: str) -> bool:
    """Whether a replica is to maintain an object."""
    return any(one.id == replica_id for one in working[item.cluster or ""])
