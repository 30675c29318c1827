"""A replica: it runs the dataflows that commands install, advances them as their inputs advance, and reports by
responses.

Promise: a replica knows nothing of the layers above it. Commands (`compute.protocol`) are taken in order by a thread
of their own, and everything it reports is a response. Storage reports when an upper may have moved; the scheduler
(`compute.replica.scheduling.scheduler`) then finds the dataflows whose inputs are ahead of them (`compute.replica.scheduling.installed`),
and worker threads advance these (`compute.replica.scheduling.work`). Every wait ends at a timeout or at `close`, which joins
all threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from mzsql.compute.dependencies import (
    ArrangementRegistry,
    ComputeSettings,
    ExportLog,
    ReadHold,
    StorageReader,
)
from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.spark_start import SparkStart
from mzsql.compute.protocol import (
    AllowCompaction,
    CancelIntrospection,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateIntrospection,
    DropDataflow,
    InitializationComplete,
    Peek,
    PeekResponse,
    Ping,
    Pong,
    Respond,
    Response,
    Status,
    UpdateConfiguration,
)
from mzsql.compute.replica.arrangements.arrangement_shards import ArrangementShards
from mzsql.compute.replica.dataflows.dataflow import (
    DataflowSpec,
    Renderings,
    arrangement_desc,
    index_desc,
)
from mzsql.compute.replica.dataflows.inputs import CollectionInput
from mzsql.compute.replica.endings import each_by_itself
from mzsql.compute.replica.hydration.databases import HydrationDatabases
from mzsql.compute.replica.hydration.report import HydrationReport
from mzsql.compute.replica.indexes import Indexes
from mzsql.compute.replica.introspection import Introspection
from mzsql.compute.replica.peeks import PendingPeeks
from mzsql.compute.replica.scheduling.commands import Commands
from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle
from mzsql.compute.replica.scheduling.openings import Openings
from mzsql.compute.replica.scheduling.retiring import Retiring
from mzsql.compute.replica.scheduling.scheduler import Scheduler
from mzsql.compute.replica.scheduling.shared import Shared
from mzsql.compute.replica.scheduling.work import Work
from mzsql.compute.replica.step.deltas import Deltas
from mzsql.persist import Clock, PersistClient, SystemClock
from mzsql.render.dataflow import RenderedDataflow
from mzsql.repr.errors import InternalError, SqlError, ThreadFailed, UndefinedObject, told
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

_LOG = logging.getLogger(__name__)

#: While at least this many dataflows wait to be opened, a new one is not checked in advance for whether it must
#: hydrate.
FEW = 64


class _StepEngine:
    """The `step_engine` that a controller set last."""

    def __init__(self, now: str) -> None:
        self.now = now


class _Settings(ComputeSettings, frozen=True, kw_only=True):
    """A replica's settings with the `step_engine` that its controller set last."""

    chosen: _StepEngine

    @property
    def engine(self) -> str:
        """The engine setting for a step begun now."""
        return self.chosen.now


class _Responses:
    """Sends a replica's responses, and lets its introspection logs record them.

    Attributes:
        introspection: the logs; None while the replica is made, when it sends nothing.
    """

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self.introspection: Introspection | None = None

    def send(self, response: Response) -> None:
        """Send a response."""
        self._respond(response)
        if self.introspection is not None:
            self.introspection.noted(response)


class Replica:
    """One replica on threads of this process. It is its own `compute.protocol.ReplicaLink`. Thread-safe."""

    def __init__(
        self,
        first: CreateInstance,
        respond: Respond,
        *,
        persist: PersistClient,
        spark: SparkSession | Callable[[], SparkSession],
        storage: StorageReader,
        registry: ArrangementRegistry,
        renderings: Renderings | None = None,
        clock: Clock | None = None,
        exports: ExportLog | None = None,
        kept: Path | None = None,
    ) -> None:
        """Start the threads.

        Args:
            first: the replica's id and settings.
            respond: takes its responses.
            persist: the client for its arrangements and outputs.
            spark: the Spark session, or a function that makes it when it is first needed.
            storage: reads its inputs.
            registry: maps arrangements to their shards.
            renderings: recently rendered plans; those among them are not rendered again.
            clock: the system's by default.
            exports: the log in which outputs become durable together; None if each view writes its own shard.
            kept: a local directory of this replica alone, in which traces are saved over a restart; None to save
                none.
        """
        replica_id = first.replica_id
        self._replica = replica_id
        self._engine = _StepEngine(first.settings.step_engine)
        self._node_hydration = first.settings.node_hydration
        self._settings = settings = _Settings(
            **{name: getattr(first.settings, name) for name in ComputeSettings.__struct_fields__},
            chosen=self._engine,
        )
        tell = respond
        self._responses = _Responses(tell)
        respond = self._respond = self._responses.send
        self._persist = persist
        self._storage = storage
        self._renderings = renderings if renderings is not None else Renderings(storage)
        self._driver = Driver()
        clock = clock if clock is not None else SystemClock()
        start = partial(persist.supervisor.start, object_id=replica_id)
        self._installed = Installed(replica_id, respond)
        self._work = Work(
            replica_id, self._installed, respond, storage.awaited, settings, clock, start
        )
        self._arrangements = ArrangementShards(
            persist,
            registry,
            replica_id,
            self._driver,
            settings,
            exports,
            later=self._work.later,
            kept=kept,
        )
        self._exports = exports
        if exports is not None:
            exports.begin()
        self._introspection = Introspection(
            self._installed, storage.seen_upper, tell, start, replica_id
        )
        self._responses.introspection = self._introspection
        indexes = Indexes(self._installed, self._arrangements)
        self._databases = HydrationDatabases()
        self._shared = Shared(
            replica_id=replica_id,
            persist=persist,
            spark=SparkStart(spark),
            storage=storage,
            arrangements=self._arrangements,
            driver=self._driver,
            settings=settings,
            deltas=Deltas(self._driver),
            clock=clock,
            frontier=self._installed.frontier,
            open_index=indexes.open,
            installed=self._installed,
            beside=self._work.beside,
            databases=self._databases,
            later=self._work.later,
            let_steps_pass=self._work.let_steps_pass,
            exports=exports,
            respond=respond,
            times=self._introspection.tell_times,
        )
        self._peeks = PendingPeeks(respond, self._installed.readable, indexes.rows)
        self._commands = Commands(replica_id, self._take, start, settings.timeout)
        self._retiring = Retiring(
            self._arrangements,
            self._installed,
            self._commands,
            self._work.later,
            partial(self._work.hydrations.rest, 0.0),
        )
        self._scheduler = Scheduler(
            replica_id,
            self._installed,
            self._work,
            self._peeks.ready,
            self._retiring,
            Openings(self._installed, self._work, storage.awaited, clock),
            storage=storage,
            respond=respond,
            settings=settings,
            clock=clock,
            exports=exports,
            start=start,
        )
        self._unwatch = storage.watch(self._installed.wake)

    #: Its holds on inputs belong to this process, the one that commands it.
    apart = False
    #: A replica in this process cannot become unreachable.
    gone = False

    @property
    def offline(self) -> str | None:
        """Why the replica cannot be used: the failure of a thread that it needs; None while all run."""
        try:
            self._scheduler.check()
        except ThreadFailed as failed:
            return str(failed)
        return None

    # --- commands ---

    def send(self, command: Command) -> None:
        """Queue a command behind those sent before.

        Raises:
            ObjectInUse: the queue stayed full for the whole timeout.
            ThreadFailed: a thread that the replica needs has failed.
        """
        self._scheduler.check()
        self._commands.send(command)

    def _take(self, command: Command) -> None:
        """Carry out a command. A failure is reported as a response, so that the next commands are still taken."""
        try:
            self._carry_out(command)
        except BaseException as error:
            _LOG.info("a command failed: %s", error, exc_info=error)
            match command:
                case CreateDataflow():
                    self._respond(self._refused(command, error))
                case Peek():
                    self._respond(PeekResponse(command.uuid, error=str(error)))
                # No response belongs to these commands. What a failed one leaves behind is deleted later, with the
                # arrangements that nobody uses.
                case _:
                    _LOG.warning("%s: %s", type(command).__name__, error)
            if not isinstance(error, Exception):
                raise

    def _carry_out(self, command: Command) -> None:
        match command:
            case CreateDataflow():
                self._create(command)
            case DropDataflow(id=gid):
                self._installed.drop(gid)
            case AllowCompaction(id=gid, frontier=frontier):
                self._installed.allow(gid, frontier)
            case UpdateConfiguration():
                self._configure(command)
            case InitializationComplete():
                self._retiring.retire()
            case Peek():
                if not self._installed.get(command.id).is_index:
                    raise UndefinedObject(f"{command.id} is no index")
                self._peeks.add(command)
                self._installed.wake()
            case CancelPeek(uuid=uuid):
                self._peeks.cancel(uuid)
            case CreateIntrospection():
                self._introspection.subscribe(command)
            case CancelIntrospection(id=gid):
                self._introspection.cancel(gid)
            case Ping(nonce=nonce):
                self._respond(Pong(nonce))
            case CreateInstance():
                raise InternalError(f"replica {self._replica} was begun already")

    def _configure(self, command: UpdateConfiguration) -> None:
        if command.step_engine is not None:
            self._engine.now = command.step_engine
        if command.node_hydration is not None:
            self._node_hydration = command.node_hydration
            for flow in self._installed.all():
                flow.report.tell_nodes(command.node_hydration)

    def _refused(self, command: CreateDataflow, error: BaseException) -> Status:
        text = told(error)
        return Status(command.id, self._replica, "refused", 0, command.as_of, False, text, 1)

    # --- dataflows ---

    def _create(self, command: CreateDataflow) -> None:
        """Install a dataflow.

        Raises:
            DuplicateObject: the dataflow is installed already.
            UndefinedObject: it imports an index that is not installed on this replica.
            Unsupported: the plan cannot be maintained.
        """
        gid, desc = command.id, command.dataflow
        if (command.output_shard is None) != desc.exports_index:
            raise InternalError(f"{gid}: an index has no output shard, a materialized view has one")
        rendered = self._renderings.of(desc, command.outline)
        spec = DataflowSpec(
            gid, command.name, desc, command.output_shard, command.as_of, command.refresh
        )
        report = HydrationReport(
            gid,
            rendered.lir_ids,
            self._replica,
            self._settings.workers,
            self._respond,
            nodes=self._node_hydration,
        )
        self._installed.check_new(gid, spec.name, rendered.inputs)
        collections = self._hold_inputs(rendered, spec.as_of)
        try:
            below = self._hold_below(rendered, spec.as_of)
        except BaseException:
            each_by_itself(partial(one.close, retire=True) for one in collections)
            raise
        flow = DataflowLifecycle(
            spec, rendered, report, self._shared, collections, allowed=spec.as_of, below=below
        )
        if self._is_new(spec, rendered):
            report.show()
        self._installed.add(flow)

    def _hold_inputs(self, rendered: RenderedDataflow, as_of: Timestamp) -> list[CollectionInput]:
        held: list[CollectionInput] = []
        try:
            for one in rendered.inputs:
                if not one.index:
                    held.append(CollectionInput(one, self._storage, as_of))
        except BaseException:
            each_by_itself(partial(one.close, retire=True) for one in held)
            raise
        return held

    def _hold_below(self, rendered: RenderedDataflow, as_of: Timestamp) -> dict[GlobalId, ReadHold]:
        """Hold the stored collections that the imported indexes are made of, except those that the dataflow imports
        itself.
        """
        held: dict[GlobalId, ReadHold] = {}
        itself = {one.id for one in rendered.inputs if not one.index}
        try:
            for one in rendered.inputs:
                for gid in self._installed.get(one.id).stored if one.index else ():
                    if gid not in itself and gid not in held:
                        held[gid] = self._storage.hold(gid, as_of)
        except BaseException:
            each_by_itself(hold.release for hold in held.values())
            raise
        return held

    def _is_new(self, spec: DataflowSpec, rendered: RenderedDataflow) -> bool:
        """Whether it is known, without opening anything, that the dataflow must hydrate. If this is False its opening
        finds out.
        """
        if spec.refresh is not None and spec.refresh.last is not None:
            # After its last refresh a view has no arrangements, and is hydrated all the same.
            return False
        descs = [arrangement_desc(one) for one in rendered.arrangements]
        if spec.output_shard is None:
            descs.append(index_desc(spec.gid, spec.desc, rendered))
        there = [self._arrangements.exists(desc) for desc in descs]
        if not all(there):
            # Where some are, the opening finds out what is hydrated already.
            return not any(there)
        if spec.output_shard is None or len(self._installed.opening) >= FEW:
            return False
        return not self._persist.exists(spec.output_shard, timeout=self._settings.timeout)

    # --- the end ---

    def close(self) -> None:
        """Stop and join all threads. Shards and holds on inputs stay. Idempotent."""
        if not self._installed.begin_closing():
            return
        timeout = self._settings.timeout
        # Order matters: first nothing new may arrive (storage's reports, introspection, commands), then running work
        # ends, and only then are the handles closed that it used. All are asked to end before the first is waited for,
        # so that the waits overlap.
        self._unwatch()
        self._introspection.close()
        self._commands.close()
        self._work.close()
        self._scheduler.close(timeout)
        self._introspection.join(timeout)
        self._commands.join(timeout)
        self._work.join(timeout)
        self._commit_exports()
        for flow in self._installed.all():
            try:
                flow.close(retire=False)
            except (SqlError, OSError) as error:
                # Handles that cannot be closed lapse with their leases; the other dataflows must still be closed.
                _LOG.warning("closing %s: %s", flow.gid, error)
        self._arrangements.close()
        self._driver.close()
        self._databases.close()

    def release(self) -> None:
        """See `ReplicaLink.release`."""
        each_by_itself(flow.release_inputs for flow in self._installed.all())

    def _commit_exports(self) -> None:
        """Write to the export log what was produced last, so that other processes see it although the shards lack it."""
        if self._exports is not None:
            try:
                self._exports.flush()
            except (SqlError, OSError) as error:
                _LOG.warning("the log of exports: %s", error)
