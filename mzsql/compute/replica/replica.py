"""A replica: dataflows brought forward as their inputs advance, as commands say, and told of by responses.

Promise: it knows nothing above it. Commands (`compute.protocol`) are taken in order on a thread of their own; all that is told is a
response. Storage tells when an upper may have moved; a scheduling thread then finds the dataflows whose inputs are ahead of them and
gives each to a lane: steps run beside each other and before hydrations, which run a few at a time, first come first served; what takes
long lets others pass (`compute.replica.lane`). A dataflow works on one thread at a time. As its own progress moves the inputs of those
that read it, a chain of views advances in dependency order and a view never sees half of a time. One that fails is told as failed and
tried again with growing pauses; the others do not notice. Every wait ends at a timeout or at `close`, which joins all threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.spark_start import SparkStart
from mzsql.compute.protocol import (
    AllowCompaction,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    DropDataflow,
    Frontiers,
    InitializationComplete,
    Peek,
    PeekResponse,
    Ping,
    Pong,
    Refreshed,
    Respond,
    Status,
    UpdateConfiguration,
)
from mzsql.compute.protocols import ArrangementRegistry, ComputeSettings, ExportLog, StorageReader
from mzsql.compute.replica.arrangements import Arrangement, Arrangements
from mzsql.compute.replica.commands import Commands
from mzsql.compute.replica.dataflow import DataflowSpec, Renderings, arrangement_desc, index_desc
from mzsql.compute.replica.deltas import Deltas
from mzsql.compute.replica.flows import Flow, Shared, State
from mzsql.compute.replica.hydration import HydrationReport
from mzsql.compute.replica.inputs import CollectionInput
from mzsql.compute.replica.lane import Lane
from mzsql.compute.replica.peeks import PendingPeeks
from mzsql.compute.replica.ticks import Ticks
from mzsql.lir.plan import IndexExport
from mzsql.persist import Clock, PersistClient, SystemClock
from mzsql.render.dataflow import RenderedDataflow
from mzsql.render.rendered import InputSpec
from mzsql.repr.errors import (
    DuplicateObject,
    InternalError,
    ObjectInUse,
    ResultTooLarge,
    SqlError,
    UndefinedObject,
)
from mzsql.repr.frontier import Frontier, Timestamp, less_than
from mzsql.repr.ids import GlobalId
from mzsql.threads import Supervised, ThreadStatus

_LOG = logging.getLogger(__name__)

#: Arrangements that were given up, and that somebody still reads, are looked after so often, in seconds.
RETIRE_SECONDS = 60.0
#: What waits to become durable is looked after so often at most, in seconds.
LOOK_SECONDS = 0.1
#: What later steps are better off with waits for so many seconds for a moment without steps.
LATER_SECONDS = 1.0


class _Settings(ComputeSettings, frozen=True, kw_only=True):
    """A replica's settings, as its controller has said last."""

    now: Callable[[], str]

    @property
    def engine(self) -> str:
        """What runs a step begun now."""
        return self.now()


class Replica:
    """One replica on threads of this process: the way to it (`compute.protocol.ReplicaLink`) is itself. Thread-safe."""

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
    ) -> None:
        """Start the threads.

        Args:
            first: who it is.
            respond: takes its responses.
            persist: where its arrangements and exports are.
            spark: the session, or a function that makes it when it is first needed.
            storage: its inputs.
            registry: which shard holds which arrangement.
            renderings: what was rendered already of the plans that it is to run.
            clock: the system's by default.
            exports: where exports become durable together; None: each by itself.
        """
        replica_id = first.replica_id
        self._engine = first.settings.step_engine
        self._settings = _Settings(
            **{name: getattr(first.settings, name) for name in ComputeSettings.__struct_fields__},
            now=lambda: self._engine,
        )
        self._respond = respond
        self._storage = storage
        self._renderings = renderings if renderings is not None else Renderings(storage)
        self._driver = Driver()
        self._arrangements = Arrangements(
            persist, registry, replica_id, self._driver, self._settings, exports
        )
        self._exports = exports
        self._ticks = None if exports is None else Ticks(exports.settle)
        self._spark = SparkStart(spark)
        self._changed = threading.Condition()
        self._flows: dict[GlobalId, Flow] = {}
        self._peeks = PendingPeeks(respond)
        self._retire_due = False
        # When what was given up and others still read is to be looked after again.
        self._retire_at = 0.0
        self._woken = True
        self._closing = False
        self._shared = Shared(
            replica_id=replica_id,
            persist=persist,
            spark=self._spark,
            storage=storage,
            arrangements=self._arrangements,
            driver=self._driver,
            settings=self._settings,
            deltas=Deltas(self._driver),
            clock=clock if clock is not None else SystemClock(),
            frontier=self._known_frontier,
            open_index=self._open_index,
            closing=lambda: self._closing,
            later=self._later,
            exports=exports,
        )
        if exports is not None:
            exports.begin()
        # A dataflow is in one of these lanes once at most.
        start = partial(persist.supervisor.start, object_id=replica_id)
        self._steps, self._hydrations, self._flushes = (
            Lane(
                partial(_begin, start, replica_id, name),
                at_once=at_once,
                patience=patience,
                most=self._settings.most_threads,
                clock=self._shared.clock,
            )
            for name, at_once, patience in (
                ("step", self._settings.step_threads, self._settings.step_patience),
                (
                    "hydrate",
                    self._settings.hydration_concurrency,
                    self._settings.hydration_patience,
                ),
                ("flush", 1, self._settings.step_patience),
            )
        )
        self._scheduler = start(
            "scheduler",
            self._schedule,
            thread_name=f"mzsql-{replica_id}",
            changed=self._scheduler_changed,
        )
        self._commands = Commands(replica_id, self._take, start, self._settings.timeout)
        self._unwatch = storage.watch(self._wake)

    # --- commands ---

    def send(self, command: Command) -> None:
        """Take a command after those that were sent before.

        Raises:
            ObjectInUse: too many wait for as long as the timeout.
            ThreadFailed: a thread that it needs has ended by a failure.
        """
        self._scheduler.check(f"the scheduler of replica {self._shared.replica_id}")
        self._commands.send(command)

    def _take(self, command: Command) -> None:
        """Carry a command out; what fails of it is told, and keeps no other one waiting."""
        try:
            self._carry_out(command)
        except BaseException as error:
            _LOG.info("a command failed: %s", error, exc_info=error)
            match command:
                case CreateDataflow():
                    self._respond(self._refused(command, error))
                case Peek():
                    self._respond(PeekResponse(command.uuid, error=str(error)))
                case _:
                    # What it leaves behind is given up with the arrangements that nobody uses.
                    _LOG.warning("%s: %s", type(command).__name__, error)
            if not isinstance(error, Exception):
                raise

    def _carry_out(self, command: Command) -> None:
        match command:
            case CreateDataflow():
                self._create(command)
            case DropDataflow(id=gid):
                self._drop(gid)
            case AllowCompaction(id=gid, frontier=frontier):
                with self._changed:
                    flow = self._flows.get(gid)
                    if flow is not None:
                        flow.allowed = max(flow.allowed, frontier)
            case UpdateConfiguration(step_engine=engine):
                if engine is not None:
                    self._engine = engine
            case InitializationComplete():
                self._retire_unused()
            case Peek():
                with self._changed:
                    flow = self._flow(command.id)
                if not flow.is_index:
                    raise UndefinedObject(f"{command.id} is no index")
                self._peeks.add(command)
                self._wake()
            case CancelPeek(uuid=uuid):
                self._peeks.cancel(uuid)
            case Ping(nonce=nonce):
                self._respond(Pong(nonce))
            case CreateInstance():
                raise InternalError(f"replica {self._shared.replica_id} was begun already")

    def _refused(self, command: CreateDataflow, error: BaseException) -> Status:
        text = str(error)
        if not isinstance(error, SqlError):
            text = f"internal error: {type(error).__name__}: {error}"
        return Status(
            command.id, self._shared.replica_id, "refused", 0, command.as_of, False, text, 1
        )

    # --- dataflows ---

    def _create(self, command: CreateDataflow) -> None:
        """Install a dataflow.

        Raises:
            DuplicateObject: it is installed already.
            UndefinedObject: it imports an index that is not installed here.
            Unsupported: the plan cannot be maintained.
        """
        gid, desc = command.id, command.dataflow
        if (command.output_shard is None) != isinstance(desc.export, IndexExport):
            raise InternalError(f"{gid}: an index has no output shard, a materialized view has one")
        rendered = self._renderings.of(desc)
        spec = DataflowSpec(gid, command.name, desc, command.output_shard, command.as_of)
        report = HydrationReport(
            gid, rendered.lir_ids, self._shared.replica_id, self._settings.workers, self._respond
        )
        with self._changed:
            if gid in self._flows:
                raise DuplicateObject(f'dataflow "{spec.name}" ({gid}) is already installed')
            for one in rendered.inputs:
                if one.index and one.id not in self._flows:
                    raise UndefinedObject(f"index {one.id}, which {gid} reads, is not installed")
        collections = self._hold_inputs(rendered, spec.as_of)
        flow = Flow(spec, rendered, report, self._shared, collections, allowed=spec.as_of)
        if not self._all_there(spec, rendered):
            report.show()
        with self._changed:
            self._flows[gid] = flow
            self._respond(flow.status())
        self._wake()

    def _hold_inputs(self, rendered: RenderedDataflow, as_of: Timestamp) -> list[CollectionInput]:
        held: list[CollectionInput] = []
        try:
            for one in rendered.inputs:
                if not one.index:
                    held.append(CollectionInput(one, self._storage, as_of))
        except BaseException:
            for source in held:
                source.close(retire=True)
            raise
        return held

    def _all_there(self, spec: DataflowSpec, rendered: RenderedDataflow) -> bool:
        """Whether a dataflow seems to need no hydration: asks the registry and the export's upper, opens nothing else."""
        descs = [arrangement_desc(one) for one in rendered.arrangements]
        if spec.output_shard is None:
            descs.append(index_desc(spec.gid, spec.desc, rendered))
        if not all(self._arrangements.exists(desc) for desc in descs):
            return False
        if spec.output_shard is None:
            return True
        persist = self._shared.persist
        if not persist.exists(spec.output_shard, timeout=self._settings.timeout):
            return False
        writer = persist.open_writer(spec.output_shard, timeout=self._settings.timeout)
        try:
            return writer.fetch_upper(timeout=self._settings.timeout) != 0
        finally:
            writer.expire()

    def _drop(self, gid: GlobalId) -> None:
        with self._changed:
            flow = self._flows.get(gid)
            if flow is None or flow.dropped:
                return
            flow.dropped = True
        flow.report.retract()
        self._close_dropped()
        self._wake()

    def _close_dropped(self) -> None:
        """Close dropped dataflows that nobody reads any more; those that are at work are closed when that has ended."""
        while True:
            with self._changed:
                read = {
                    one.id
                    for flow in self._flows.values()
                    for one in flow.rendered.inputs
                    if one.index
                }
                unread = [f for f in self._flows.values() if f.dropped and f.gid not in read]
                for flow in unread:
                    flow.left = True
                gone = next((f for f in unread if _is_idle(f)), None)
                if gone is None:
                    return
                del self._flows[gone.gid]
            try:
                gone.close(retire=True)
            except (SqlError, OSError) as error:
                # What it leaves behind is given up with the arrangements that nobody uses.
                _LOG.warning("closing a dropped dataflow: %s", error)
            self._respond(msgspec.structs.replace(gone.status(), state="dropped"))

    def _retire_unused(self) -> None:
        """Give up the arrangements in the registry that no installed dataflow uses; not before all have opened what they may reuse."""
        with self._changed:
            opening = any(f.state is State.OPENING for f in self._flows.values())
        if opening:
            self._retire_due = True
            return
        try:
            self._arrangements.retire_unused()
        except SqlError as error:
            _LOG.warning("giving up what no dataflow uses: %s", error)
            self._retire_due = True

    def _known_frontier(self, gid: GlobalId) -> Frontier:
        with self._changed:
            return self._flow(gid).frontier

    def _flow(self, gid: GlobalId) -> Flow:
        flow = self._flows.get(gid)
        if flow is None:
            raise UndefinedObject(f"no dataflow {gid} is installed on {self._shared.replica_id}")
        return flow

    # --- peeks ---

    def _peekable(self, gid: GlobalId) -> Frontier:
        """How far an index can be read."""
        with self._changed:
            flow = self._flows.get(gid)
            if flow is None:
                return None
            return flow.frontier if flow.state is State.RUNNING else 0

    def _peek(self, peek: Peek) -> None:
        try:
            response = PeekResponse(peek.uuid, self._index_rows(peek))
        except Exception as error:  # told to who has asked
            response = PeekResponse(peek.uuid, error=str(error))
        self._peeks.answer(response)

    def _index_rows(self, peek: Peek) -> pa.Table:
        arrangement = self._open_index(peek.id)
        try:
            if not arrangement.fits_driver(arrangement.parts(peek.as_of), None):
                raise ResultTooLarge(
                    f"index {peek.id} has more rows than a peek may bring into one process"
                )
            table = arrangement.read(peek.as_of)
        finally:
            self._arrangements.release(arrangement, retire=False)
        return (
            table if peek.columns is None else table.select([*peek.columns, "mz_time", "mz_diff"])
        )

    def _open_index(self, gid: GlobalId) -> Arrangement:
        with self._changed:
            flow = self._flow(gid)
        found = self._arrangements.find(index_desc(gid, flow.spec.desc, flow.rendered))
        if found is None:
            raise ObjectInUse(f"index {gid} is not hydrated yet")
        return found

    # --- scheduling ---

    def _wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def _scheduler_changed(self, thread: ThreadStatus) -> None:
        if thread.status == "failed":
            with self._changed:
                for flow in self._flows.values():
                    flow.error, flow.failures = f"the scheduler has ended: {thread.error}", 1
                    self._respond(flow.status())
        self._wake()

    def _schedule(self, thread: Supervised) -> None:
        self._wake()  # begun anew, it does not know what it was told of
        cooled, looked = self._shared.clock.monotonic(), float("-inf")
        while True:
            with self._changed:
                if self._closing:
                    return
                woken, self._woken = self._woken, False
                # In the order in which they were installed.
                idle = [flow for flow in self._flows.values() if not flow.busy]
            uppers: dict[GlobalId, Frontier] = {}
            now = self._shared.clock.monotonic()
            pause = self._settings.idle_seconds
            if now - looked >= LOOK_SECONDS:
                looked = now
                pause = min(pause, self._look_behind(idle))
            else:
                pause = min(pause, looked + LOOK_SECONDS - now)
            for flow in idle:
                if flow.retry_at > now:
                    pause = min(pause, flow.retry_at - now)
                    continue
                self._consider(flow, uppers, told=woken)
            for peek in self._peeks.ready(self._peekable):
                self._steps.put(partial(self._peek, peek))
            if self._retire_due or (self._arrangements.left and now >= self._retire_at):
                self._retire_due, self._retire_at = False, now + RETIRE_SECONDS
                self._commands.after(self._retire_unused)
            if self._ticks is not None:
                self._ticks.look(self._stepping(now), now)
            for lane in (self._steps, self._hydrations, self._flushes):
                again = lane.look()
                if again is not None:
                    pause = min(pause, again)
            if now - cooled >= self._settings.idle_seconds:
                self._arrangements.cool()
                cooled = now
            thread.well()
            with self._changed:
                self._changed.wait_for(lambda: self._woken or self._closing, pause)

    def _look_behind(self, idle: Sequence[Flow]) -> float:
        """Have made durable what has waited long enough; seconds until more will have. It asks each arrangement, so not at each step."""
        pause = self._settings.idle_seconds
        behind, flush = self._may_be_behind(len(idle))
        for flow in idle:
            if flow.flush_due(flush):
                self._give_flush(flow, Flow.flush)
            late = flow.late()
            if late is not None:
                pause = min(pause, max(behind - late, 0.01))
                if late >= behind or flow.overfull:
                    self._give_flush(flow, Flow.follow)
        return pause

    def _may_be_behind(self, flows: int) -> tuple[float, float]:
        """For how many seconds exports' shards may be behind, and arrangements', where there are so many dataflows."""
        settings = self._settings
        flush = max(settings.flush_seconds, flows / settings.flush_writes)
        if self._exports is None:
            return max(settings.quiet_seconds, flows / settings.quiet_writes), flush
        return max(settings.apply_seconds, flows / settings.flush_writes), flush

    def _stepping(self, now: float) -> dict[GlobalId, int]:
        """The dataflows that have work for steps, without those that have been at it for long."""
        patience = self._settings.step_patience
        with self._changed:
            return {
                flow.gid: flow.turn
                for flow in self._flows.values()
                if flow.busy
                and flow.state is State.RUNNING
                and (flow.begun is None or now - flow.begun < patience)
            }

    def _consider(self, flow: Flow, uppers: dict[GlobalId, Frontier], *, told: bool) -> None:
        """Give a dataflow work if there is some. Where nobody told of a change, no more is asked than what nobody tells of."""

        def upper(gid: GlobalId) -> Frontier:
            if gid not in uppers:
                with self._changed:
                    own = self._flows.get(gid)
                # One that works is where it is known to be here; of one that does not another process may bring the shard forward.
                works = own is not None and own.state is State.RUNNING and not own.failures
                if own is not None and (works or own.spec.output_shard is None or not told):
                    uppers[gid] = own.frontier
                else:
                    # Whoever told of a change has it from what is known here by now.
                    uppers[gid] = self._storage.seen_upper(gid)
            return uppers[gid]

        try:
            if flow.state is State.OPENING:
                if all(self._index_ready(one) for one in flow.rendered.inputs):
                    self._give(self._steps, flow, self._open)
                return
            inputs = flow.input_upper(upper)
        except Exception as error:  # recorded, shown and tried again
            self._failed(flow, error)
            return
        if flow.state is State.HYDRATING:
            if less_than(flow.needs(), inputs):
                self._give(self._hydrations, flow, self._hydrate)
        elif less_than(flow.frontier, inputs):
            self._give(self._steps, flow, lambda f: self._advance(f, inputs))

    def _index_ready(self, one: InputSpec) -> bool:
        if not one.index:
            return True
        with self._changed:
            return self._flow(one.id).state is State.RUNNING

    def _give(
        self,
        lane: Lane,
        flow: Flow,
        work: Callable[[Flow], None],
    ) -> None:
        with self._changed:
            gone = flow.left or self._flows.get(flow.gid) is not flow
            if flow.busy or self._closing or gone:
                return
            flow.busy, flow.begun = True, None
            flow.turn += 1

        def run() -> None:
            flow.begun = self._shared.clock.monotonic()
            try:
                if not self._closing and not flow.left:
                    work(flow)
                    self._well(flow)
            except (
                BaseException
            ) as error:  # recorded, shown and tried again: the thread is not this dataflow's to end
                self._failed(flow, error)
            finally:
                with self._changed:
                    flow.busy = False
                    left = flow.left
                self._wake()
                if left:
                    self._close_dropped()

        lane.put(run)

    def _later(self, work: Callable[[], None]) -> None:
        """Run what later steps are better off with in the lane of flushes, when no step is at work: it is long work in Python, which
        steps beside it would wait for again and again. Without it they cost more, and that is all.
        """

        def run() -> None:
            self._steps.rest(LATER_SECONDS)
            try:
                work()
            except Exception as error:
                _LOG.warning("later steps do without: %s", error, exc_info=error)

        if not self._closing:
            self._flushes.put(run)

    def _give_flush(self, flow: Flow, work: Callable[[Flow], None]) -> None:
        """Have what a dataflow has in memory made durable, beside its steps."""
        with self._changed:
            if flow.flushing or self._closing or self._flows.get(flow.gid) is not flow:
                return
            flow.flushing = True

        def run() -> None:
            try:
                if not self._closing:
                    work(flow)
            except (SqlError, OSError) as error:
                # Its updates go on waiting, and a later look tries again.
                _LOG.warning("flushing %s: %s", flow.gid, error)
                flow.flush_at = self._shared.clock.monotonic() + self._settings.flush_seconds
            finally:
                with self._changed:
                    flow.flushing = False
                    left = flow.left
                self._wake()
                if left:
                    self._close_dropped()

        self._flushes.put(run)

    def _well(self, flow: Flow) -> None:
        with self._changed:
            failed = flow.failures > 0
            flow.error, flow.failures, flow.retry_at = None, 0, 0.0
            if failed:
                self._respond(flow.status())

    def _failed(self, flow: Flow, error: BaseException) -> None:
        _LOG.info("dataflow %s failed", flow.gid, exc_info=error)
        with self._changed:
            flow.failures += 1
            flow.error = f"{type(error).__name__}: {error}"
            pause = self._settings.retry_seconds * 2 ** min(flow.failures - 1, 30)
            pause = min(pause, self._settings.retry_max_seconds)
            flow.retry_at = self._shared.clock.monotonic() + pause
            self._respond(flow.status())

    def _open(self, flow: Flow) -> None:
        ready = flow.open()
        if not ready:
            flow.report.show()
        self._moved(flow, State.RUNNING if ready else State.HYDRATING)

    def _hydrate(self, flow: Flow) -> None:
        stats = flow.hydrate()
        if stats is not None:
            self._respond(Refreshed(stats))
            self._moved(flow, State.RUNNING)

    def _moved(self, flow: Flow, state: State) -> None:
        with self._changed:
            flow.state = state
            self._respond(flow.status())

    def _advance(self, flow: Flow, inputs: Frontier) -> None:
        stats = flow.advance(inputs)
        if stats is not None:
            self._respond(Refreshed(stats))
        self._respond(Frontiers(flow.gid, flow.frontier))

    def close(self) -> None:
        """Stop and join all threads; shards and holds on inputs stay. Idempotent."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        self._unwatch()
        self._commands.close()
        lanes = (self._steps, self._hydrations, self._flushes)
        for lane in lanes:
            lane.close()
        self._scheduler.stop()
        self._scheduler.join(self._settings.timeout)
        self._commands.join(self._settings.timeout)
        for lane in lanes:
            lane.join(self._settings.timeout)
        self._commit_exports()
        for flow in self._flows.values():
            try:
                flow.close(retire=False)
            except (SqlError, OSError) as error:
                # Handles that cannot be given up lapse with their leases; the others still get their turn.
                _LOG.warning("closing %s: %s", flow.gid, error)
        self._driver.close()

    def _commit_exports(self) -> None:
        """Let other processes know of what was made at last, before its shards have it."""
        if self._exports is not None:
            try:
                self._exports.flush()
            except (SqlError, OSError) as error:
                _LOG.warning("the log of exports: %s", error)


def _begin(
    start: Callable[..., Supervised],
    replica_id: str,
    name: str,
    number: int,
    work: Callable[[Supervised], None],
) -> Supervised:
    thread_name = f"mzsql-{replica_id}-{name}-{number}"
    return start(f"{name}-worker", work, thread_name=thread_name)


def _is_idle(flow: Flow) -> bool:
    return not flow.busy and not flow.flushing
