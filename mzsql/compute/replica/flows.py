"""The life of one dataflow on a replica: opened, hydrated, stepped, and when it fails tried again.

Promise: `Flow` holds what the replica knows of a dataflow; its transitions happen under the lock of all of them
(`compute.replica.installed`), its work (`open`, `hydrate`, `advance`) on one thread at a time. A failure changes nothing but this
dataflow's state.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
from pyspark.sql import SparkSession

from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.spark_session import (
    hydration_session,
    large_step_session,
    step_session,
)
from mzsql.compute.engines.spark_start import SparkStart
from mzsql.compute.protocol import ReadFrontier, RefreshStats, Respond, Status
from mzsql.compute.protocols import ComputeSettings, ExportLog, ReadHold, StorageReader
from mzsql.compute.replica.arrangement import Arrangement
from mzsql.compute.replica.arrangements import Arrangements
from mzsql.compute.replica.choice import Refusals, for_hydration
from mzsql.compute.replica.dataflow import Dataflow, DataflowSpec, fill_plan
from mzsql.compute.replica.deltas import Deltas
from mzsql.compute.replica.elapsed import Elapsed
from mzsql.compute.replica.endings import each_by_itself, patience
from mzsql.compute.replica.filling import Beside
from mzsql.compute.replica.hydration import Hydration, HydrationReport
from mzsql.compute.replica.hydration_here import HydrationHere
from mzsql.compute.replica.inputs import CollectionInput, IndexInput, Input
from mzsql.compute.replica.step import StepTools, run_step
from mzsql.compute.replica.target import Overtaken, no_updates
from mzsql.expr.functions.table import Engine
from mzsql.location import waiting
from mzsql.persist import Clock, PersistClient
from mzsql.render.dataflow import RenderedDataflow
from mzsql.repr.errors import InternalError, SqlError
from mzsql.repr.frontier import MAX_TIMESTAMP, Frontier, Timestamp, less_than, meet
from mzsql.repr.ids import GlobalId
from mzsql.repr.refresh import done

_LOG = logging.getLogger(__name__)


#: Fewer updates than this are loaded in no time, with the step that looks into them.
WARMED_ROWS = 10_000


class State(enum.Enum):
    """Where a dataflow stands."""

    OPENING = "waiting"
    HYDRATING = "hydrating"
    RUNNING = "running"


@dataclass
class Shared:
    """What the dataflows of one replica share."""

    replica_id: str
    persist: PersistClient
    spark: SparkStart
    storage: StorageReader
    arrangements: Arrangements
    driver: Driver
    settings: ComputeSettings
    deltas: Deltas
    clock: Clock
    #: the frontier of another dataflow of this replica (an index)
    frontier: Callable[[GlobalId], Frontier]
    #: a handle of another dataflow's index
    open_index: Callable[[GlobalId], Arrangement]
    closing: Callable[[], bool]
    #: sorts what hydrations write
    beside: Beside
    #: runs what later work is better off with, beside other work
    later: Callable[[Callable[[], None]], None]
    respond: Respond
    #: where exports become durable together; None: each by itself
    exports: ExportLog | None = None


@dataclass
class Flow:
    """One installed dataflow."""

    spec: DataflowSpec
    rendered: RenderedDataflow
    report: HydrationReport
    replica: Shared
    #: storage inputs are held from the moment of installation
    collections: Sequence[CollectionInput]
    #: an index need not be readable before this, as far as the controller has said
    allowed: Timestamp
    #: what the indexes that it reads are made of in storage, held as it holds these: where it is planned again without them, it goes on
    #: from there
    below: Mapping[GlobalId, ReadHold]
    state: State = State.OPENING
    dataflow: Dataflow | None = None
    busy: bool = False
    #: how often it was given work, and since when it has been at the latest; None while that waits for its turn
    turn: int = 0
    begun: float | None = None
    #: whether its arrangements are being flushed; beside its other work
    flushing: bool = False
    #: whether what its steps look into is being loaded; beside all of that
    warming: bool = False
    #: not again before this, after a failure
    flush_at: float = 0.0
    #: whether its export's shard lacks so much that it is to follow at once
    overfull: bool = False
    dropped: bool = False
    #: dropped, and read by nobody: it gets no work any more, and is closed when what it has is done
    left: bool = False
    frontier: Frontier = 0
    error: str | None = None
    failures: int = 0
    retry_at: float = 0.0
    #: while it is not hydrated: what it does or waits for, and at which node
    doing: str = "waits for its turn to be opened"
    node: int | None = None
    elapsed: Elapsed = field(default_factory=Elapsed)
    _refusals: Refusals = field(default_factory=Refusals)
    _session: SparkSession | None = None
    _holding: threading.Lock = field(default_factory=threading.Lock)
    _large: SparkSession | None = None
    _held_at: float = field(default=float("-inf"))
    #: from where it would have to go on when it last let go of what is before, and what it was allowed to let go of then
    _held_from: Frontier = 0
    _held_allowed: Timestamp = -1
    #: whether it holds nothing any more, as its export is complete for ever
    _let_go: bool = False

    @property
    def gid(self) -> GlobalId:
        """The exported object."""
        return self.spec.gid

    @property
    def is_index(self) -> bool:
        """Whether it exports an index."""
        return self.spec.output_shard is None

    @property
    def stored(self) -> tuple[GlobalId, ...]:
        """What it reads of storage, itself or through indexes."""
        return (*(one.spec.id for one in self.collections), *self.below)

    @property
    def follows(self) -> bool:
        """Whether it is a view's that another deployment writes."""
        return self.replica.settings.read_only and not self.is_index

    def status(self) -> Status:
        """How it stands."""
        return Status(
            self.gid,
            self.replica.replica_id,
            "failed" if self.failures else self.state.value,
            self.frontier,
            self.spec.as_of if self.dataflow is None else self.dataflow.as_of,
            self.report.hydrated,
            self.error,
            self.failures,
            self.rendered.temporal,
            *self._reason(),
        )

    def _reason(self) -> tuple[str, int | None]:
        if self.failures and not self.busy:
            pause = max(0.0, self.retry_at - self.replica.clock.monotonic())
            return f"is tried again {pause:.1f} s after it has failed", self.node
        return ("", None) if self.state is State.RUNNING else (self.doing, self.node)

    def say(self, doing: str, node: int | None = None) -> None:
        """Tell what it does or waits for while it is not hydrated, where that is news."""
        if (doing, node) != (self.doing, self.node):
            self.doing, self.node = doing, node
            if self.state is not State.RUNNING:
                self.replica.respond(self.status())

    def waits_for(self, upper: Callable[[GlobalId], Frontier]) -> str:
        """The inputs that are not complete at the time at which it is to be hydrated."""
        at = self.needs()
        behind = [one.id for one in self.rendered.inputs if not less_than(at, upper(one.id))]
        return f"waits until {', '.join(behind)} {'is' if len(behind) == 1 else 'are'} complete at {at}"

    def tell_kept(self) -> None:
        """Say of the nodes whose arrangements are there that they are hydrated."""
        dataflow = self.dataflow
        assert dataflow is not None
        if dataflow.arrangements:
            missing = {desc.name for desc in dataflow.missing}
            for stage in dataflow.rendered.hydration(Engine.DUCKDB, dataflow.as_of):
                if stage.target is not None and stage.target not in missing:
                    self.report.node_done(stage.completes)

    def input_upper(self, upper: Callable[[GlobalId], Frontier]) -> Frontier:
        """How far its inputs are complete, by a function that knows each one's upper."""
        uppers = [upper(one.id) for one in self.rendered.inputs]
        if self.follows:
            # Not beyond what was written of the view, or what goes on from here would lack what is beyond it. What it is hydrated from is
            # below that, whoever writes it, also where nobody has begun to.
            written = self.replica.storage.seen_upper(self.gid)
            uppers.append(None if written is None else max(written, self.needs() + 1))
        refresh = self.spec.refresh
        if refresh is not None and less_than(refresh.last, self.needs()):
            # The last refresh is made late, as its time could not be read any more.
            return meet(*uppers)
        # A view that is refreshed at some times only is brought from one to the next.
        return done(refresh, meet(*uppers))

    # --- work, on one thread at a time ---

    def open(self) -> bool:
        """Open inputs, arrangements and export; whether nothing has to be hydrated."""
        by_id = {one.spec.id: one for one in self.collections}
        inputs: list[Input] = []
        indexes: dict[str, Arrangement] = {}
        try:
            for spec in self.rendered.inputs:
                if not spec.index:
                    inputs.append(by_id[spec.id])
                    continue
                arrangement = self.replica.open_index(spec.id)
                indexes[f"arr_{spec.id}"] = arrangement
                name = f"{self.replica.replica_id}/{self.gid}"
                hold = self.replica.persist.open_critical_reader(
                    arrangement.shard_id,
                    name,
                    purpose=f"{self.gid} reads {spec.id}",
                    timeout=self.replica.settings.timeout,
                )
                inputs.append(
                    IndexInput(
                        spec,
                        arrangement,
                        hold,
                        frontier=self.replica.frontier,
                        release=self._release_index,
                    )
                )
            dataflow = Dataflow(self.spec, self.rendered, inputs, indexes)
            self.replica.deltas.enroll(self.rendered)
            fill_plan(
                dataflow,
                self.replica.arrangements,
                self.replica.persist,
                self.replica.settings,
                self.replica.exports,
                self.replica.storage,
            )
        except BaseException:
            each_by_itself(partial(self._release_index, one) for one in indexes.values())
            raise
        self.dataflow = dataflow
        ready = dataflow.goes_on = not dataflow.to_hydrate()
        if ready:
            self._hydrated()
        return ready

    def _release_index(self, arrangement: Arrangement) -> None:
        self.replica.arrangements.release(arrangement, retire=False)

    def hydrate(self) -> RefreshStats | None:
        """Fill what is missing; None when it was interrupted."""
        dataflow = self.dataflow
        assert dataflow is not None
        size = sum(part.bytes for one in dataflow.inputs for part in one.parts(dataflow.as_of))
        engine, reason = for_hydration(self.replica.settings, size, self._refusals)
        if dataflow.rendered.recursions:
            engine, reason = Engine.DUCKDB, "a recursion is computed in process"
        hydration = self._hydration(dataflow, engine, reason)
        try:
            with waiting(patience(self._unwanted, self.replica.clock)):
                stats = hydration.run()
        except Exception as error:
            self._refusals.note(error)
            raise
        if dataflow.to_hydrate():
            return None
        self._refusals.clear()
        self._hydrated()
        # It is readable meanwhile, and steps load what they do not find.
        try:
            each_by_itself((hydration.hand_over, partial(self._warm, dataflow)))
        except Exception as error:
            _LOG.warning("what %s looks into is loaded later: %s", self.gid, error)
        return stats

    def warm(self) -> None:
        """Load what its steps will look into and nobody has loaded, and make what they are rendered from; beside them."""
        dataflow = self.dataflow
        if dataflow is not None and not self._unwanted():
            self._warm(dataflow, least=WARMED_ROWS)
            # Of what is small plans are left packed: there may be thousands, which nothing changes.
            if dataflow.rendered.is_rendered and not self._unwanted():
                dataflow.rendered.prepare()

    def _warm(self, dataflow: Dataflow, *, least: int = 0) -> None:
        """Load what steps look into, where it has so many updates at least."""
        lower = dataflow.lower()
        if lower is None:
            return
        for name, arrangement in dataflow.arrangements.items():
            if arrangement.hot.loaded:
                continue
            if self._unwanted():
                return
            rows = sum(part.rows for part in arrangement.parts(lower - 1))
            if not least <= rows <= self.replica.settings.warm_rows:
                continue
            # Asked last: for that the plan is decoded and rendered, which takes longer than the rest where all are small.
            if name in {lookup.arrangement for lookup in dataflow.rendered.lookups}:
                arrangement.trace(lower - 1)
                # No step has read this.
                arrangement.take_loaded()

    def _hydrated(self) -> None:
        assert self.dataflow is not None
        assert self.dataflow.output is not None
        self.dataflow.output.begin_to_tell()
        self.dataflow.pass_to_refresh()
        self.frontier = self.dataflow.frontier()
        self.report.object_done()
        self.report.show()
        self._hold(force=True)

    def _hydration(self, dataflow: Dataflow, engine: Engine, reason: str) -> Hydration:
        settings = self.replica.settings
        kind = HydrationHere if engine is Engine.DUCKDB else Hydration
        return kind(
            dataflow,
            self.report,
            session=lambda: hydration_session(self._spark(), workers=settings.workers),
            arrangements=self.replica.arrangements,
            persist=self.replica.persist,
            settings=settings,
            stopped=self._unwanted,
            reason=reason,
            doing=self.say,
            elapsed=self.elapsed,
            beside=self.replica.beside,
        )

    def advance(self, input_upper: Frontier) -> RefreshStats | None:
        """Bring the export to the inputs' upper; None where nothing was left to do."""
        dataflow = self.dataflow
        if dataflow is None or dataflow.output is None:
            raise InternalError(f"dataflow {self.gid} was advanced before it was hydrated")
        lower = dataflow.lower()
        stats: RefreshStats | None = None
        upper = MAX_TIMESTAMP if input_upper is None else input_upper
        if lower is not None and less_than(dataflow.frontier(), upper):
            try:
                stats = run_step(dataflow, lower, upper, self._tools())
                self._count(stats)
            except Overtaken:
                for target in dataflow.targets():
                    target.upper()
            except Exception as error:
                # Where Spark was stopped under it, the next attempt is to have one that runs.
                self._session = self._large = None
                self._refusals.note(error)
                raise
            self._refusals.clear()
        if input_upper is None and dataflow.output.known_upper is not None:
            # all inputs are sealed: so is the export
            nothing = no_updates(dataflow.output.schema)
            dataflow.output.append(nothing, dataflow.output.known_upper, None)
        dataflow.pass_to_refresh()
        self.frontier = dataflow.frontier()
        self.replica.storage.moved(self.gid)
        settings = self.replica.settings
        self.overfull = dataflow.output.overfull(settings.apply_batches, settings.apply_bytes)
        if dataflow.ended or not dataflow.follows_soon():
            self._hold(force=False)
        return stats

    def _count(self, stats: RefreshStats) -> None:
        """A step's time is the root's: it is one statement for all nodes."""
        if stats.kind != "empty":
            root = self.spec.desc.desc.root.plan.lir_id
            self.elapsed.add(root, stats.seconds, statements=1, rows=stats.rows_out)

    def _tools(self) -> StepTools:
        replica, settings = self.replica, self.replica.settings
        if settings.engine == "auto" and self._refusals.instead_of(Engine.SPARK) is not None:
            settings = msgspec.structs.replace(settings, alone=True)
        return StepTools(
            self._step_session,
            self._large_session,
            replica.driver,
            settings,
            replica.deltas,
            self._refusals,
            replica.later,
        )

    def _step_session(self) -> SparkSession:
        if self._session is None:
            self._session = step_session(self._spark())
        return self._session

    def _large_session(self) -> SparkSession:
        if self._large is None:
            workers = self.replica.settings.workers
            self._large = large_step_session(self._spark(), workers=workers)
        return self._large

    def _spark(self) -> SparkSession:
        return self.replica.spark.session(self._unwanted)

    def _unwanted(self) -> bool:
        return self.dropped or self.replica.closing()

    def _hold(self, *, force: bool) -> None:
        """Let go of what nobody needs any more, of all of it once the export is complete for ever; beside steps too. Nothing of that
        changes but by writes to its shards.
        """
        dataflow = self.dataflow
        assert dataflow is not None
        with self._holding:
            if self._let_go:
                return
            if dataflow.ended:
                each_by_itself((dataflow.let_go, *(hold.release for hold in self.below.values())))
                self.replica.respond(ReadFrontier(self.gid, None))
                self._let_go = True
                return
            now, lower = self.replica.clock.monotonic(), dataflow.durable_lower()
            allowed = self.allowed
            late = now - self._held_at >= self.replica.settings.since_seconds
            if force or (late and (lower, allowed) != (self._held_from, self._held_allowed)):
                self._held_at = now  # where it fails it is tried again after the same pause
                dataflow.hold(allowed)
                if lower is not None and lower > 0:
                    for hold in self.below.values():
                        hold.downgrade(lower - 1)
                    self.replica.respond(ReadFrontier(self.gid, lower - 1))
                self._held_from, self._held_allowed = lower, allowed

    def release_due(self) -> bool:
        """Whether more of its index may be let go of than when it last did, with no step since that would have."""
        if self.state is not State.RUNNING or not self.is_index:
            return False
        late = self.replica.clock.monotonic() - self._held_at >= self.replica.settings.since_seconds
        return late and self.allowed > self._held_allowed

    def release(self) -> None:
        """Let go of what the controller has allowed since; may run beside steps."""
        if self.dataflow is not None:
            self._hold(force=False)

    def flush_due(self, seconds: float) -> bool:
        """Whether updates of its arrangements wait to become durable, and have waited for so long."""
        dataflow, settings = self.dataflow, self.replica.settings
        if dataflow is None or self.state is not State.RUNNING:
            return False
        if self.replica.clock.monotonic() < self.flush_at:
            return False
        return dataflow.flush_due(seconds, settings.flush_bytes)

    def late(self) -> float | None:
        """For how many seconds its export's shard has been behind its frontier; None where it is not, or is not to follow yet."""
        dataflow, state = self.dataflow, self.state
        if dataflow is None or state is not State.RUNNING:
            return None
        late = dataflow.late()
        if late is None:
            return None
        return min(late, self.replica.clock.monotonic() - self.flush_at)

    def flush(self) -> None:
        """Make all of that durable, and let go of what it was made of; may run beside steps."""
        dataflow = self.dataflow
        self.overfull = False
        if dataflow is not None:
            dataflow.flush(self.replica.settings.keep_seconds)
            self._hold(force=True)

    def follow(self) -> None:
        """Have the export's shard follow; may run beside steps."""
        dataflow = self.dataflow
        self.overfull = False
        if dataflow is not None:
            dataflow.flush_output()
            self._hold(force=True)

    def needs(self) -> Timestamp:
        """The time that inputs must have completed before it can be hydrated."""
        return self.spec.as_of if self.dataflow is None else self.dataflow.as_of

    def release_inputs(self) -> None:
        """Let go of what it holds of storage. Idempotent."""
        holds = [partial(one.close, retire=True) for one in self.collections]
        each_by_itself((*holds, *(hold.release for hold in self.below.values())))

    def close(self, *, retire: bool) -> None:
        """Give up what it holds; with `retire`, its arrangements too unless others use them. No work may be running."""
        dataflow, self.dataflow = self.dataflow, None
        arrangements = self.replica.arrangements
        if dataflow is None:
            if retire:
                self.release_inputs()
            return
        if not retire:
            try:
                dataflow.flush(0.0)
            except (SqlError, OSError) as error:
                # What is lost so is made again by the steps that a restart begins with.
                _LOG.warning("flushing %s: %s", self.gid, error)
        # holds outlive the process: a restart goes on from them; those of what only follows are leases
        let_go = retire or self.replica.settings.read_only
        used, output = [*dataflow.arrangements.values()], dataflow.output
        parts: list[Callable[[], None]]
        parts = [partial(source.close, retire=let_go) for source in dataflow.inputs]
        parts += [hold.release for hold in self.below.values() if let_go]
        if isinstance(output, Arrangement):
            used.append(output)
        parts += [partial(arrangements.release, one, retire=retire) for one in used]
        if output is not None and not isinstance(output, Arrangement):
            parts.append(output.close)
        # Nobody gives up later what is left out now, and whatever it holds stays held.
        each_by_itself(parts)
