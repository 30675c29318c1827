"""The compute controller: one replica's dataflows, brought forward as their inputs advance.

Promise: storage tells when an upper may have moved; a scheduling thread then finds the dataflows whose inputs are ahead of them and
gives each to a lane: steps run beside each other and before hydrations, which run a few at a time, first come first served; what takes
long lets others pass (`compute.replica.lane`). A dataflow works on one thread at a time. As its own progress moves the inputs of those
that read it, a chain of views advances in dependency order and a view never sees half of a time. One that fails is shown as failed and
tried again with growing pauses; the others do not notice. Every wait ends at a timeout or at `close`, which joins all threads.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.spark_start import SparkStart
from mzsql.compute.protocols import (
    ArrangementRegistry,
    ComputeSettings,
    DataflowStatus,
    OperatorHydrationStatus,
    RefreshStats,
    StatusSink,
    StorageReader,
)
from mzsql.compute.replica.arrangements import Arrangement, Arrangements
from mzsql.compute.replica.dataflow import DataflowSpec, arrangement_desc, index_desc, rendered_over
from mzsql.compute.replica.flows import Flow, Replica, State, unreadable
from mzsql.compute.replica.hydration import HydrationReport
from mzsql.compute.replica.inputs import CollectionInput
from mzsql.compute.replica.lane import Lane
from mzsql.lir.plan import DataflowDescription, IndexExport
from mzsql.persist import Clock, PersistClient, SystemClock
from mzsql.render.dataflow import RenderedDataflow
from mzsql.render.rendered import InputSpec
from mzsql.repr.errors import DuplicateObject, InternalError, ObjectInUse, SqlError, UndefinedObject
from mzsql.repr.frontier import Frontier, Timestamp, less_than
from mzsql.repr.ids import GlobalId, sort_key
from mzsql.threads import Supervised

_LOG = logging.getLogger(__name__)


class ComputeController:
    """Runs the dataflows of one replica on its own threads. Methods may be called from any thread."""

    def __init__(
        self,
        persist: PersistClient,
        spark: SparkSession | Callable[[], SparkSession],
        storage: StorageReader,
        registry: ArrangementRegistry,
        status_sink: StatusSink,
        *,
        replica_id: str = "r1",
        settings: ComputeSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Start the threads and retract what an earlier life of the replica reported.

        `spark` may be a function that makes the session when it is first needed.
        """
        self._settings = settings if settings is not None else ComputeSettings()
        self._sink = status_sink
        self._storage = storage
        self._driver = Driver()
        self._arrangements = Arrangements(
            persist, registry, replica_id, self._driver, self._settings
        )
        self._spark = SparkStart(spark)
        self._changed = threading.Condition()
        self._flows: dict[GlobalId, Flow] = {}
        self._refreshes: deque[RefreshStats] = deque(maxlen=self._settings.refreshes_kept)
        self._woken = True
        self._closing = False
        self._replica = Replica(
            replica_id=replica_id,
            persist=persist,
            spark=self._spark,
            storage=storage,
            arrangements=self._arrangements,
            driver=self._driver,
            settings=self._settings,
            clock=clock if clock is not None else SystemClock(),
            frontier=self._known_frontier,
            open_index=self._open_index,
            waiting_as_of=self._waiting_as_of,
            closing=lambda: self._closing,
            later=self._later,
        )
        status_sink.delete_replica(replica_id)
        # A dataflow is in one of these lanes once at most.
        start = partial(persist.supervisor.start, object_id=replica_id)
        self._steps, self._hydrations, self._flushes = (
            Lane(
                partial(_begin, start, replica_id, name),
                at_once=at_once,
                patience=patience,
                most=self._settings.most_threads,
                clock=self._replica.clock,
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
            changed=lambda _: self._wake(),
        )
        self._unwatch = storage.watch(self._wake)

    # --- dataflows ---

    def create_dataflow(
        self,
        gid: GlobalId,
        desc: DataflowDescription,
        *,
        output_shard: str | None,
        as_of: Timestamp,
        name: str,
        rendered: RenderedDataflow | None = None,
    ) -> None:
        """Install a dataflow that maintains a materialized view (its shard has columns c0 …, mz_error) or, with `output_shard` None,
        an index. A new one hydrates at `as_of`, which must be readable in all inputs; one whose shards are there goes on. What
        `rendered_over` has rendered of it is not rendered again, unless it is another plan.

        Raises:
            DuplicateObject: it is installed already.
            UndefinedObject: it imports an index that is not installed here.
            Unsupported: the plan cannot be maintained.
        """
        self._scheduler.check(f"the scheduler of replica {self._replica.replica_id}")
        if (output_shard is None) != isinstance(desc.export, IndexExport):
            raise InternalError(f"{gid}: an index has no output shard, a materialized view has one")
        if rendered is None or rendered.desc != desc:
            rendered = rendered_over(self._storage, desc)
        spec = DataflowSpec(gid, name, desc, output_shard, as_of)
        report = HydrationReport(
            gid, rendered.lir_ids, self._replica.replica_id, self._settings.workers, self._sink
        )
        with self._changed:
            if gid in self._flows:
                raise DuplicateObject(f'dataflow "{name}" ({gid}) is already installed')
            for one in rendered.inputs:
                if one.index and one.id not in self._flows:
                    raise UndefinedObject(f"index {one.id}, which {gid} reads, is not installed")
        collections = self._hold_inputs(rendered, as_of)
        flow = Flow(spec, rendered, report, self._replica, collections)
        if not self._all_there(spec, rendered):
            report.show()
        with self._changed:
            self._flows[gid] = flow
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
        persist = self._replica.persist
        if not persist.exists(spec.output_shard, timeout=self._settings.timeout):
            return False
        writer = persist.open_writer(spec.output_shard, timeout=self._settings.timeout)
        try:
            return writer.fetch_upper(timeout=self._settings.timeout) != 0
        finally:
            writer.expire()

    def drop(self, gid: GlobalId) -> None:
        """Stop the dataflow, retract its statuses and give up the arrangements nobody else uses. Idempotent.

        An index that others still read is maintained, unseen, until the last of them is dropped.
        """
        with self._changed:
            flow = self._flows.get(gid)
            if flow is None or flow.dropped:
                return
            flow.dropped = True
        flow.report.retract()
        self._collect_dropped()
        self._wake()

    def _collect_dropped(self, *, wait: bool = True) -> None:
        """Close dropped dataflows that nobody reads any more; waits for their work to end, or takes those that nobody waits for."""
        while True:
            with self._changed:
                read = {
                    one.id
                    for flow in self._flows.values()
                    for one in flow.rendered.inputs
                    if one.index
                }
                gone = next(
                    (
                        f
                        for f in self._flows.values()
                        if f.dropped and f.gid not in read and (wait or (f.left and _is_idle(f)))
                    ),
                    None,
                )
                if gone is None:
                    return
                if not self._changed.wait_for(partial(_is_idle, gone), self._settings.timeout):
                    gone.left = True
                    raise ObjectInUse(
                        f'dataflow "{gone.spec.name}" ({gone.gid}) is still at work and will be dropped when it has ended'
                    )
                if self._flows.pop(gone.gid, None) is None:
                    continue
            gone.close(retire=True)

    def retire_unused(self) -> int:
        """Give up arrangements in the registry that no installed dataflow uses (after startup); how many.

        Call it when every dataflow is installed and none is `waiting` any more.
        """
        with self._changed:
            opening = [f.gid for f in self._flows.values() if f.state is State.OPENING]
        if opening:
            raise ObjectInUse(
                f"dataflows {', '.join(opening)} have not opened their arrangements yet"
            )
        return self._arrangements.retire_unused()

    @property
    def left(self) -> bool:
        """Whether somebody still reads an arrangement that was given up, so that `retire_unused` is to be called again."""
        return self._arrangements.left

    def frontier(self, gid: GlobalId) -> Frontier:
        """The upper of the export as known here."""
        with self._changed:
            return self._flow(gid).frontier

    def wait_until(self, gid: GlobalId, ts: Timestamp, timeout: float) -> None:
        """Wait until `ts` is complete in the export. Raises NotReadable naming frontier, time and replicas."""
        with self._changed:
            if gid not in self._flows:
                raise unreadable(None, gid, ts, self._replica.replica_id)
            self._changed.wait_for(
                lambda: (
                    self._closing
                    or self._scheduler.failed
                    or gid not in self._flows
                    or less_than(ts, self._flows[gid].frontier)
                ),
                timeout,
            )
            flow = self._flows.get(gid)
            if flow is None or not less_than(ts, flow.frontier):
                self._scheduler.check(f"the scheduler of replica {self._replica.replica_id}")
                raise unreadable(flow, gid, ts, self._replica.replica_id)

    def status(self) -> tuple[DataflowStatus, ...]:
        """Every installed dataflow, by id."""
        with self._changed:
            return tuple(f.status() for f in self._shown())

    def hydration(self) -> tuple[OperatorHydrationStatus, ...]:
        """The operator statuses that are in the sink now."""
        with self._changed:
            flows = self._shown()
        return tuple(status for flow in flows for status in flow.report.statuses())

    def refreshes(self) -> tuple[RefreshStats, ...]:
        """The latest refreshes, oldest first."""
        with self._changed:
            return tuple(self._refreshes)

    @property
    def temporal(self) -> bool:
        """Whether some dataflow's rows come and go as time passes, without any update."""
        with self._changed:
            return any(flow.rendered.temporal for flow in self._flows.values())

    def _shown(self) -> list[Flow]:
        flows = (flow for flow in self._flows.values() if not flow.dropped)
        return sorted(flows, key=lambda flow: sort_key(flow.gid))

    def _flow(self, gid: GlobalId) -> Flow:
        flow = self._flows.get(gid)
        if flow is None:
            raise UndefinedObject(f"no dataflow {gid} is installed on {self._replica.replica_id}")
        return flow

    # --- reads ---

    def index_snapshot(
        self, gid: GlobalId, as_of: Timestamp, *, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The contents of an index that is installed here: its arrangement's columns (key, value, mz_error), mz_time and mz_diff."""
        self.wait_until(gid, as_of, self._settings.timeout)
        arrangement = self._open_index(gid)
        try:
            table = arrangement.read(as_of)
        finally:
            self._arrangements.release(arrangement, retire=False)
        return table if columns is None else table.select([*columns, "mz_time", "mz_diff"])

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

    def _waiting_as_of(self, gid: GlobalId) -> Timestamp | None:
        with self._changed:
            waiting = (
                flow.spec.as_of
                for flow in self._flows.values()
                if flow.dataflow is None and any(one.id == gid for one in flow.rendered.inputs)
            )
            return min(waiting, default=None)

    def _known_frontier(self, gid: GlobalId) -> Frontier:
        with self._changed:
            return self._flow(gid).frontier

    def _schedule(self, thread: Supervised) -> None:
        self._wake()  # begun anew, it does not know what it was told of
        cooled = self._replica.clock.monotonic()
        while True:
            with self._changed:
                if self._closing:
                    return
                woken, self._woken = self._woken, False
                # In the order in which they were installed.
                idle = [flow for flow in self._flows.values() if not flow.busy]
            uppers: dict[GlobalId, Frontier] = {}
            now = self._replica.clock.monotonic()
            pause = self._settings.idle_seconds
            quiet = max(self._settings.quiet_seconds, len(idle) / self._settings.quiet_writes)
            for flow in idle:
                if flow.flush_due():
                    self._give_flush(flow, Flow.flush)
                late = flow.late()
                if late is not None:
                    pause = min(pause, max(quiet - late, 0.01))
                    if late >= quiet:
                        self._give_flush(flow, Flow.follow)
                if flow.retry_at > now:
                    pause = min(pause, flow.retry_at - now)
                    continue
                self._consider(flow, uppers, told=woken)
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
        elif flow.flushed:
            self._give(self._steps, flow, Flow.let_go)

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
            flow.busy = True

        def run() -> None:
            try:
                if not self._closing:
                    work(flow)
                    with self._changed:
                        flow.error, flow.failures, flow.retry_at = None, 0, 0.0
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
                    self._close_left()

        lane.put(run)

    def _later(self, work: Callable[[], None]) -> None:
        """Run what later steps are better off with in the lane of flushes. Without it they cost more, and that is all."""

        def run() -> None:
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
                flow.flush_at = self._replica.clock.monotonic() + self._settings.flush_seconds
            finally:
                with self._changed:
                    flow.flushing = False
                    left = flow.left
                self._wake()
                if left:
                    self._close_left()

        self._flushes.put(run)

    def _close_left(self) -> None:
        """Close what was dropped while it was at work, where that took longer than the drop waited."""
        try:
            self._collect_dropped(wait=False)
        except SqlError as error:
            # What it leaves behind is given up with the arrangements that nobody uses.
            _LOG.warning("closing a dropped dataflow: %s", error)

    def _failed(self, flow: Flow, error: BaseException) -> None:
        _LOG.info("dataflow %s failed", flow.gid, exc_info=error)
        with self._changed:
            flow.failures += 1
            flow.error = f"{type(error).__name__}: {error}"
            pause = self._settings.retry_seconds * 2 ** min(flow.failures - 1, 30)
            pause = min(pause, self._settings.retry_max_seconds)
            flow.retry_at = self._replica.clock.monotonic() + pause

    def _open(self, flow: Flow) -> None:
        ready = flow.open()
        if not ready:
            flow.report.show()
        with self._changed:
            flow.state = State.RUNNING if ready else State.HYDRATING

    def _hydrate(self, flow: Flow) -> None:
        stats = flow.hydrate()
        if stats is not None:
            with self._changed:
                self._refreshes.append(stats)
                flow.state = State.RUNNING

    def _advance(self, flow: Flow, inputs: Frontier) -> None:
        stats = flow.advance(inputs)
        if stats is not None:
            with self._changed:
                self._refreshes.append(stats)

    def close(self) -> None:
        """Stop and join all threads; shards, statuses and holds on inputs stay. Idempotent."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        self._unwatch()
        lanes = (self._steps, self._hydrations, self._flushes)
        for lane in lanes:
            lane.close()
        self._scheduler.stop()
        self._scheduler.join(self._settings.timeout)
        for lane in lanes:
            lane.join(self._settings.timeout)
        for flow in self._flows.values():
            try:
                flow.close(retire=False)
            except (SqlError, OSError) as error:
                # Handles that cannot be given up lapse with their leases; the others still get their turn.
                _LOG.warning("closing %s: %s", flow.gid, error)
        self._driver.close()


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
