"""The life of one dataflow on a replica: opened, hydrated, stepped, and retried when it fails.

Promise: `DataflowLifecycle` is the replica's record of a dataflow. Its state changes under the lock that all flows of the replica
share (`compute.replica.scheduling.installed`); its work (`open`, `hydrate`, `advance`) runs on one thread at a time. A failure
changes the state of this dataflow alone.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from mzsql.compute.dependencies import ReadHold
from mzsql.compute.protocol import ReadFrontier, RefreshStats, Status
from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.dataflows.dataflow import Dataflow, DataflowSpec, fill_plan
from mzsql.compute.replica.dataflows.elapsed import Elapsed
from mzsql.compute.replica.dataflows.engine_choice import Refusals, for_hydration
from mzsql.compute.replica.dataflows.inputs import CollectionInput, IndexInput, Input
from mzsql.compute.replica.endings import Unwanted, each_by_itself, patience
from mzsql.compute.replica.hydration.here import HydrationHere
from mzsql.compute.replica.hydration.hydration import Hydration
from mzsql.compute.replica.hydration.report import HydrationReport
from mzsql.compute.replica.scheduling.sessions import DataflowSessions
from mzsql.compute.replica.scheduling.shared import Shared
from mzsql.compute.replica.scheduling.standby import Does
from mzsql.compute.replica.scheduling.standing import Standing
from mzsql.compute.replica.step.preparing import prepare_steps
from mzsql.compute.replica.step.step import StepTools, run_step
from mzsql.compute.replica.target import Overtaken, no_updates
from mzsql.expr.functions.table import Engine
from mzsql.location import waiting
from mzsql.render.dataflow import RenderedDataflow
from mzsql.repr.errors import InternalError, SqlError
from mzsql.repr.frontier import MAX_TIMESTAMP, Frontier, Timestamp, less_than, meet
from mzsql.repr.ids import GlobalId
from mzsql.repr.refresh import done

_LOG = logging.getLogger(__name__)

#: How many seconds a dataflow's first step is expected to take.
FIRST_STEP_SECONDS = 0.3
#: A trace of fewer updates loads so quickly that it is left to the step that first looks into it.
WARMED_ROWS = 10_000


class State(enum.Enum):
    """The stage of a dataflow; the values are those of `protocol.Status.state`."""

    OPENING = "waiting"
    HYDRATING = "hydrating"
    RUNNING = "running"


@dataclass
class DataflowLifecycle:
    """One installed dataflow."""

    spec: DataflowSpec
    rendered: RenderedDataflow
    report: HydrationReport
    replica: Shared
    #: its stored inputs; they are held from the moment of installation
    collections: Sequence[CollectionInput]
    #: the controller has said that the index need not be readable before this time
    allowed: Timestamp
    #: holds on the stored collections that the imported indexes are made of. If the view is planned anew without the
    #: indexes, it reads those collections instead, and can resume only if they are still readable
    below: Mapping[GlobalId, ReadHold]
    state: State = State.OPENING
    dataflow: Dataflow | None = None
    busy: bool = False
    #: how often it was given work
    turn: int = 0
    #: monotonic time at which its present work began; None while that is queued
    begun: float | None = None
    #: how many seconds its next step may take, which is what the last one took
    expected: float = FIRST_STEP_SECONDS
    #: whether its steps' statements were made, by a step or in advance
    practised: bool = False
    #: whether its arrangements are being flushed, which runs beside its other work
    flushing: bool = False
    #: whether traces that its steps look into are being loaded, which runs beside all other work
    warming: bool = False
    #: monotonic time before which no flush is tried again after a failed one
    flush_at: float = 0.0
    #: whether its output's shard lacks so much that it must follow at once
    overfull: bool = False
    #: dropped, and read by no other dataflow: it gets no more work, and is closed when its present work is done
    left: bool = False
    #: cannot go on where it stands: it gets no more work, and is opened again when its present work is done
    lost: bool = False
    frontier: Frontier = 0
    error: str | None = None
    failures: int = 0
    retry_at: float = 0.0
    #: what it does or waits for while it is not hydrated, for a person
    doing: str = "waits for its turn to be opened"
    #: the LIR node that it is at meanwhile
    node: int | None = None
    elapsed: Elapsed = field(default_factory=Elapsed)
    #: whether another replica writes its output
    standing: Standing = field(init=False)
    _refusals: Refusals = field(default_factory=Refusals)
    _holding: threading.Lock = field(default_factory=threading.Lock)
    _held_at: float = field(default=float("-inf"))
    #: `durable_lower` and `allowed` as they were at the last downgrade of its holds
    _held_from: Frontier = 0
    _held_allowed: Timestamp = -1
    #: whether it holds nothing any more, because its output is complete for ever
    _let_go: bool = False
    #: hands what a hydration has sorted to the traces
    _hand_over: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        replica = self.replica
        self._unwanted = Unwanted(replica.installed)
        shared = not self.is_index and self.spec.refresh is None
        self.standing = Standing(replica, shared=shared)
        self._sessions = DataflowSessions(replica.spark, replica.settings.workers, self._unwanted)

    @property
    def dropped(self) -> bool:
        """Whether the dataflow was dropped; others may still read it."""
        return self._unwanted.dropped

    @property
    def ends(self) -> bool:
        """Whether it gets no more work as it stands."""
        return self.left or self.lost

    def drop(self) -> None:
        """Begin no more work for it."""
        self._unwanted.dropped = True

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
        """The stored collections that it reads, itself or through indexes."""
        return (*(one.spec.id for one in self.collections), *self.below)

    @property
    def follows(self) -> bool:
        """Whether the view is written by another deployment, and only followed here."""
        return self.replica.settings.read_only and not self.is_index

    def status(self) -> Status:
        """Its present status, as the response that reports it."""
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
        """Report what it does or waits for while it is not hydrated, if that has changed."""
        if (doing, node) != (self.doing, self.node):
            self.doing, self.node = doing, node
            if self.state is not State.RUNNING:
                self.replica.respond(self.status())

    def waits_for(self, upper: Callable[[GlobalId], Frontier]) -> str:
        """A text naming the inputs that are not yet complete at the time at which it is to be hydrated."""
        at = self.needs()
        behind = [one.id for one in self.rendered.inputs if not less_than(at, upper(one.id))]
        return f"waits until {', '.join(behind)} {'is' if len(behind) == 1 else 'are'} complete at {at}"

    def tell_kept(self) -> None:
        """Report the nodes whose arrangements were found filled as hydrated."""
        dataflow = self.dataflow
        assert dataflow is not None
        if dataflow.arrangements:
            missing = {desc.name for desc in dataflow.missing}
            for stage in dataflow.rendered.hydration(Engine.DUCKDB, dataflow.as_of):
                if stage.target is not None and stage.target not in missing:
                    self.report.node_done(stage.completes)

    def input_upper(self, upper: Callable[[GlobalId], Frontier]) -> Frontier:
        """How far a step may go: the meet of the inputs' uppers, rounded down to a refresh where the view has a
        schedule.

        Args:
            upper: returns the upper of an input.
        """
        uppers = [upper(one.id) for one in self.rendered.inputs]
        if self.follows:
            written = self.replica.storage.seen_upper(self.gid)
            # Go no further than the other deployment has written: if this process took the view over, whatever lies
            # between would never be written. The time that hydration needs is excepted: it is below that upper as soon
            # as anybody writes the view, and nobody may have begun to.
            uppers.append(None if written is None else max(written, self.needs() + 1))
        refresh = self.spec.refresh
        if refresh is not None and less_than(refresh.last, self.needs()):
            # Inputs can no longer be read at the last refresh's time; the view is refreshed late, at the first time at
            # which they can.
            return meet(*uppers)
        # A view with a refresh schedule advances from one refresh to the next, not with each update.
        return done(refresh, meet(*uppers))

    # --- work, on one thread at a time ---

    def open(self) -> bool:
        """Open the inputs, the arrangements and the output; return whether nothing has to be hydrated."""
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
                # A hold that no lease ends: a restart resumes from it, however long no process was there.
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
                        arrangements=self.replica.arrangements,
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
            release = self.replica.arrangements.release
            each_by_itself(partial(release, one, retire=False) for one in indexes.values())
            raise
        self.dataflow = dataflow
        ready = dataflow.goes_on = not dataflow.to_hydrate()
        if ready:
            # Another replica has probably written the view meanwhile.
            self._hydrated(behind=True)
        return ready

    def hydrate(self) -> RefreshStats | None:
        """Fill the arrangements and the output that are missing; return statistics, or None if it was interrupted."""
        dataflow = self.dataflow
        assert dataflow is not None
        size = sum(part.bytes for one in dataflow.inputs for part in one.parts(dataflow.as_of))
        engine, reason = for_hydration(self.replica.settings, size, self._refusals)
        if dataflow.rendered.recursions:
            engine, reason = Engine.DUCKDB, "a recursion is computed in process"
        hydration = self._hydration(dataflow, engine, reason)
        new = dataflow.export_to_hydrate()
        try:
            # Once nobody wants the dataflow any more, whatever waits for a backend is given little time.
            with waiting(patience(self._unwanted, self.replica.clock)):
                stats = hydration.run()
        except Exception as error:
            self._refusals.note(error)
            raise
        if dataflow.to_hydrate():
            return None
        self._refusals.clear()
        self._hydrated(behind=not new)
        self._hand_over = hydration.hand_over
        return stats

    def hand_over(self) -> None:
        """Load what steps look into, after a hydration: the view is reported as hydrated by then, and can be read."""
        dataflow, (hand_over, self._hand_over) = self.dataflow, (self._hand_over, None)
        if dataflow is None or hand_over is None:
            return
        # That traces cannot be loaded now is no failure of the view, since a step loads what it does not find.
        try:
            each_by_itself((hand_over, partial(self._warm, dataflow)))
        except Exception as error:
            _LOG.warning("what %s looks into is loaded later: %s", self.gid, error)

    def warm(self, give_way: Callable[[], object] = lambda: None) -> None:
        """Load the traces that its steps will look into and nobody has loaded, and prepare its steps if that is likely to be of use.
        Runs beside its steps; `give_way` as for `prepare`.
        """
        dataflow = self.dataflow
        if dataflow is not None and not self._unwanted():
            self._warm(dataflow, least=WARMED_ROWS)
            # Plans that were never rendered stay encoded: there may be thousands of dataflows whose inputs never
            # change. Who stands by has time now, and none once the other replica is gone.
            if dataflow.rendered.is_rendered or self.standing.may_wait:
                self.prepare(give_way)

    def prepare(self, give_way: Callable[[], object] = lambda: None) -> None:
        """Make what its first steps would otherwise wait for: their statements, rendered and planned. Runs beside its
        steps; `give_way` is called now and then, and may wait for steps of other dataflows.
        """

        def unwanted() -> bool:
            give_way()
            return self._unwanted()

        dataflow, replica = self.dataflow, self.replica
        if dataflow is None or self._unwanted():
            return
        if replica.settings.engine == Engine.SPARK.value:
            dataflow.rendered.prepare()
        else:
            may_wait = self.standing.may_wait
            prepare_steps(dataflow, replica.driver, replica.deltas, unwanted, several=may_wait)
        self.practised = True

    def _warm(self, dataflow: Dataflow, *, least: int = 0) -> None:
        """Load the traces that steps look into, of arrangements with at least `least` updates."""
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
            # Checked last: `lookups` decodes and renders the plan, which takes longer than loading the traces where
            # all are small.
            if name in {lookup.arrangement for lookup in dataflow.rendered.lookups}:
                arrangement.trace(lower - 1)
                # Clear the count of loaded bytes, which no step is to report as its own.
                arrangement.take_loaded()

    def _hydrated(self, *, behind: bool) -> None:
        assert self.dataflow is not None
        self.standing.begin(self.dataflow.lower(), behind=behind)
        assert self.dataflow.output is not None
        self.dataflow.output.begin_to_tell()
        self.dataflow.pass_to_refresh()
        self.frontier = self.dataflow.frontier()
        self.replica.times(self.gid, self.elapsed)  # before it is said to be hydrated
        self.report.object_done()
        self.report.show()
        self._hold(force=True)

    def _hydration(self, dataflow: Dataflow, engine: Engine, reason: str) -> Hydration:
        kind = HydrationHere if engine is Engine.DUCKDB else Hydration
        return kind(
            dataflow,
            self.report,
            session=self._sessions.hydration,
            arrangements=self.replica.arrangements,
            persist=self.replica.persist,
            settings=self.replica.settings,
            stopped=self._unwanted,
            reason=reason,
            doing=self.say,
            elapsed=self.elapsed,
            beside=self.replica.beside,
            databases=self.replica.databases,
            let_steps_pass=self.replica.let_steps_pass,
        )

    def advance(self, input_upper: Frontier, does: Does = Does.STEP) -> RefreshStats | None:
        """Advance the output to `input_upper`, or as far as what it `does` says; return the step's statistics, or None if
        there was nothing to do.

        Raises:
            InternalError: the dataflow is not hydrated.
        """
        dataflow = self.dataflow
        if dataflow is None or dataflow.output is None:
            raise InternalError(f"dataflow {self.gid} was advanced before it was hydrated")
        input_upper = self.standing.goes_to(dataflow, input_upper, does)
        lower = dataflow.lower()
        stats: RefreshStats | None = None
        upper = MAX_TIMESTAMP if input_upper is None else input_upper
        steps = does is Does.FOLLOW or less_than(dataflow.frontier(), upper)
        if lower is not None and steps and less_than(lower, upper):
            try:
                stats = run_step(dataflow, lower, upper, self._tools())
                self._count(stats)
            except Overtaken:
                # Another replica has written further. Fetch all uppers, so that the next step begins from them.
                for target in dataflow.targets():
                    target.upper()
            except Exception as error:
                # Spark may have been stopped: the next attempt gets new sessions from one that runs.
                self._sessions.forget()
                self._refusals.note(error)
                raise
            else:
                self.standing.stepped(upper, does, empty=stats.kind == "empty")
                if does is Does.TAKE_OVER and self.replica.exports is not None:
                    # Whoever waits for the view has waited for the other replica already.
                    self.replica.exports.hasten()
            self._refusals.clear()
        elif does is Does.FOLLOW:
            self.standing.stepped(upper, does, empty=True)
        dataflow.output.follow_others()
        if input_upper is None and dataflow.output.known_upper is not None:
            # All inputs are sealed, so the output is sealed too.
            nothing = no_updates(dataflow.output.schema)
            dataflow.output.append(nothing, dataflow.output.known_upper, None)
        dataflow.pass_to_refresh()
        self.frontier = dataflow.frontier()
        self.replica.storage.moved(self.gid)
        settings = self.replica.settings
        self.overfull = dataflow.output.overfull(settings.apply_batches, settings.apply_bytes)
        # Where the shards are to follow soon their flush downgrades the holds; until then these are needed.
        if dataflow.ended or not dataflow.follows_soon():
            self._hold(force=False)
        return stats

    def _count(self, stats: RefreshStats) -> None:
        """Add a step's time to the root node's: one statement computes all nodes, so it cannot be divided among them."""
        if stats.kind != "empty":
            root = self.spec.desc.desc.root.plan.lir_id
            self.elapsed.add(root, stats.seconds, statements=1, rows=stats.rows_out)

    def _tools(self) -> StepTools:
        replica, settings = self.replica, self.replica.settings
        if settings.engine == "auto" and self._refusals.instead_of(Engine.SPARK) is not None:
            settings = msgspec.structs.replace(settings, alone=True)
        return StepTools(
            self._sessions.small,
            self._sessions.large,
            replica.driver,
            settings,
            replica.deltas,
            self._refusals,
            replica.later,
        )

    def _hold(self, *, force: bool) -> None:
        """Downgrade the holds to what steps still need, and release all of them once the output is complete for ever.
        May run beside steps.

        Without `force` it does so at most every `since_seconds`, and only if the shards that steps write have
        advanced since.
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
                # Set before the calls: if they fail, they are tried again after the same pause.
                self._held_at = now
                dataflow.hold(allowed)
                if lower is not None and lower > 0:
                    for hold in self.below.values():
                        hold.downgrade(lower - 1)
                    self.replica.respond(ReadFrontier(self.gid, lower - 1))
                self._held_from, self._held_allowed = lower, allowed

    def release_due(self) -> bool:
        """Whether the controller allows more of the index to be compacted than at the last downgrade, and no step has
        downgraded it since.
        """
        if self.state is not State.RUNNING or not self.is_index:
            return False
        late = self.replica.clock.monotonic() - self._held_at >= self.replica.settings.since_seconds
        return late and self.allowed > self._held_allowed

    def release(self) -> None:
        """Downgrade the holds to what the controller has allowed. May run beside steps."""
        if self.dataflow is not None:
            self._hold(force=False)

    def flush_due(self, seconds: float) -> bool:
        """Whether updates of its arrangements have waited for `seconds` to become durable, or are too many bytes to wait."""
        dataflow, settings = self.dataflow, self.replica.settings
        if dataflow is None or self.state is not State.RUNNING:
            return False
        if self.replica.clock.monotonic() < self.flush_at:
            return False
        return dataflow.flush_due(seconds, settings.flush_bytes)

    def late(self) -> float | None:
        """For how many seconds its output's shard has been behind the frontier; None if it is not, or if a failed flush
        still pauses it.
        """
        dataflow, state = self.dataflow, self.state
        if dataflow is None or state is not State.RUNNING:
            return None
        late = dataflow.late()
        if late is None:
            return None
        return min(late, self.replica.clock.monotonic() - self.flush_at)

    def flush(self) -> None:
        """Write what its arrangements and its output lack in their shards, then downgrade the holds that this needed.
        May run beside steps.
        """
        dataflow = self.dataflow
        self.overfull = False
        if dataflow is not None:
            dataflow.flush(self.replica.settings.keep_seconds)
            self._hold(force=True)

    def follow(self) -> None:
        """Write what the output's shard lacks. May run beside steps."""
        dataflow = self.dataflow
        self.overfull = False
        if dataflow is not None:
            dataflow.flush_output()
            self._hold(force=True)

    def needs(self) -> Timestamp:
        """The time at which all inputs must be complete before it can be hydrated."""
        return self.spec.as_of if self.dataflow is None else self.dataflow.as_of

    def release_inputs(self) -> None:
        """Release its holds on stored collections. Idempotent."""
        holds = [partial(one.close, retire=True) for one in self.collections]
        each_by_itself((*holds, *(hold.release for hold in self.below.values())))

    def close_to_open(self) -> None:
        """Close its handles, so that it can be opened as after a restart. Its holds stay. None of its work may be running."""
        self.doing, self.node = "waits for its turn to be opened", None
        if self.is_index:
            self.frontier = 0
        self.report.object_undone()
        if self.dataflow is not None:
            self._close_handles(retire=False, let_go=False)

    def close(self, *, retire: bool) -> None:
        """Close its handles; with `retire` also delete its arrangements, unless others use them. None of its work may
        be running.
        """
        if self.dataflow is not None:
            # Holds normally outlive the process, since a restart resumes from them. Those of a read-only replica are
            # leases, and are released.
            self._close_handles(retire=retire, let_go=retire or self.replica.settings.read_only)
        elif retire:
            self.release_inputs()

    def _close_handles(self, *, retire: bool, let_go: bool) -> None:
        dataflow, self.dataflow = self.dataflow, None
        assert dataflow is not None
        arrangements = self.replica.arrangements
        if not retire:
            try:
                dataflow.flush(0.0)
            except (SqlError, OSError) as error:
                # Nothing is lost: the first steps after a restart compute it again.
                _LOG.warning("flushing %s: %s", self.gid, error)
        used, output = [*dataflow.arrangements.values()], dataflow.output
        parts: list[Callable[[], None]]
        parts = [partial(source.close, retire=let_go) for source in dataflow.inputs]
        parts += [hold.release for hold in self.below.values() if let_go]
        if isinstance(output, Arrangement):
            used.append(output)
        parts += [partial(arrangements.release, one, retire=retire) for one in used]
        if output is not None and not isinstance(output, Arrangement):
            parts.append(output.close)
        # Each must be tried: a hold that is not released here is held for ever.
        each_by_itself(parts)
