"""Runs the work of a replica's dataflows on the threads of its lanes.

Promise: at most one thread works at a dataflow; only its flushes run beside that. A dataflow whose work fails is
reported as failed and retried after growing pauses, without effect on others; if it cannot go on where it stands, it is
opened again as after a restart. Long work does not hold up other work
(`compute.replica.scheduling.lane`): steps have a lane of their own, so they do not wait for hydrations, which run a few at a
time, what somebody waits for first and the others as they come, with less of the cores where there are not enough for both.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.protocol import Frontiers, Refreshed, Respond
from mzsql.compute.replica.scheduling.failures import is_lost, told_of
from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lane import Lane
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle, State
from mzsql.compute.replica.scheduling.standby import Does
from mzsql.persist import Clock
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Frontier
from mzsql.repr.ids import GlobalId
from mzsql.threads import Supervised, give_way

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Threads that sort what hydrations write.
SORTS = 2
#: By so many steps of niceness a lane's threads, and those of uploads and of their own DuckDB databases, give way to the others: what is
#: hydrated to ticks and to whoever asks; what only later steps need, to the hydrations that others wait for.
GIVES_WAY = {"hydrate": 5, "sort": 10}
#: For how many installed dataflows what their first steps need is loaded or made in advance: of opened ones those somebody waits
#: for first. The others do that with their first step.
MOST_WARMED = 64
_FOR_EVER = 1e9
#: How long deferred work waits for a moment without steps, in seconds.
LATER_SECONDS = 1.0
#: How long the preparation of steps waits for a moment without hydrations, in seconds.
HYDRATING_SECONDS = 30.0
#: How long after its hydration a dataflow's steps are prepared, in seconds: one that is dropped at once needs none.
PREPARE_SECONDS = 0.3
#: How long a hydration waits between two of its parts for a moment without steps, and for how long it goes on without waiting if there was
#: none, in seconds.
PASS_SECONDS = 0.1
TURN_SECONDS = 0.02
#: If there was no such moment, for how many seconds further deferred work does not wait again.
BUSY_SECONDS = 5.0


class Work:
    """Queues the work of dataflows and runs it on threads. Thread-safe.

    Args:
        replica_id: the replica.
        installed: its dataflows.
        respond: takes what is reported of them.
        awaited: returns the collections that somebody waits for; their steps come first.
        settings: numbers of threads and lengths of pauses.
        clock: its monotonic time is used.
        start: starts a supervised thread.

    Attributes:
        steps, firsts, hydrations, flushes: lanes; a dataflow is in at most one of steps, firsts and hydrations, once, and in
            flushes at most once. In firsts are steps for which the statements are still to be made, which takes many times as
            long as the step: others' ticks do not wait for that.
        openings: the lane in which dataflows are opened, one after another.
        sorts: the lane of the sorting that hydrations wait for.
        warmings: the lane that makes and loads in advance what first steps need.
    """

    def __init__(
        self,
        replica_id: str,
        installed: Installed,
        respond: Respond,
        awaited: Callable[[], Sequence[GlobalId]],
        settings: ComputeSettings,
        clock: Clock,
        start: Callable[..., Supervised],
    ) -> None:
        self._installed = installed
        self._respond = respond
        self._settings = settings
        self._clock = clock

        def lane(name: str, at_once: int, patience: float) -> Lane:
            return Lane(
                partial(_begin, start, replica_id, name),
                at_once=at_once,
                patience=patience,
                most=settings.most_threads,
                clock=clock,
                awaited=partial(_urgent, installed, awaited),
            )

        self.steps = lane("step", settings.step_threads, settings.step_patience)
        self.firsts = lane("first", settings.step_threads, settings.step_patience)
        self.hydrations = lane(
            "hydrate", settings.hydration_concurrency, settings.hydration_patience
        )
        self.flushes = lane("flush", 1, settings.step_patience)
        self.openings = lane("open", 1, settings.step_patience)
        #: until when a hydration's thread goes on beside steps: `until`, monotonic seconds, for each thread
        self._turns = threading.local()
        #: monotonic time until which the steps' lane is assumed to be busy
        self._busy_until = float("-inf")
        # No threads are added if sorting takes long: each holds pieces in memory.
        self.sorts = lane("sort", SORTS, _FOR_EVER)
        self.warmings = lane("warm", 1, _FOR_EVER)
        #: for which installed dataflows something was loaded or made in advance
        self._warmed: list[DataflowLifecycle] = []

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        hydrating = (self.openings, self.hydrations, self.sorts)
        return (self.steps, self.firsts, *hydrating, self.flushes, self.warmings)

    def look(self) -> float | None:
        """Begin queued work whose turn has come.

        Returns:
            Seconds after which another call may begin more; None if nothing waits for that.
        """
        pauses = [lane.look() for lane in self._lanes]
        return min((one for one in pauses if one is not None), default=None)

    # --- what there is to do ---

    def mark(self, flow: DataflowLifecycle) -> None:
        """Record that a thread will work at a dataflow. The caller holds `Installed.changed`."""
        flow.busy, flow.begun = True, None
        flow.turn += 1

    def open(self, flow: DataflowLifecycle) -> None:
        """Open a dataflow on this thread; it must have been marked."""
        self._work(flow, self._open)

    def hydrate(self, flow: DataflowLifecycle) -> None:
        """Queue the hydration of a dataflow."""
        self._give(self.hydrations, flow, self._hydrate, "waits for its turn to be hydrated")

    def advance(self, flow: DataflowLifecycle, inputs: Frontier, does: Does = Does.STEP) -> None:
        """Queue a step that advances a dataflow to ``inputs``, or what else it ``does``."""
        lane = self.steps if flow.practised else self.firsts
        self._give(lane, flow, lambda f: self._advance(f, inputs, does), seconds=flow.expected)

    def flush(self, flow: DataflowLifecycle) -> None:
        """Queue the flush of a dataflow's arrangements and output, beside its steps."""
        self._give_flush(flow, DataflowLifecycle.flush)

    def release(self, flow: DataflowLifecycle) -> None:
        """Queue the downgrade of a dataflow's holds to what the controller has allowed, beside its steps."""
        self._give_flush(flow, DataflowLifecycle.release)

    def follow(self, flow: DataflowLifecycle) -> None:
        """Queue the write that lets the shard of a dataflow's output catch up, beside its steps."""
        self._give_flush(flow, DataflowLifecycle.follow)

    def later(self, work: Callable[[], None]) -> None:
        """Queue work that makes later steps cheaper, such as merging a trace's runs, in the lane of flushes, for a
        moment without steps.

        If it fails that is logged, and later steps only cost more.
        """

        def run() -> None:
            self._rest()
            try:
                work()
            except Exception as error:
                _LOG.warning("later steps do without: %s", error, exc_info=error)

        if not self._installed.closing:
            self.flushes.put(run)

    def _rest(self) -> None:
        """Wait, on the thread of the flushes, for a moment without steps: the work to come is long and would slow steps
        beside it.

        If steps follow each other without a pause, only one call in `BUSY_SECONDS` waits, and the work runs beside
        them.
        """
        now = self._clock.monotonic()
        if now >= self._busy_until and not self.steps.rest(LATER_SECONDS):
            self._busy_until = now + BUSY_SECONDS

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Run work that a hydration waits for, such as sorting what it writes.

        Returns:
            A future of its result; cancelled if the replica is closing.
        """
        made = Future[T]()

        def run() -> None:
            if not made.set_running_or_notify_cancel():
                return
            self.let_steps_pass()
            try:
                made.set_result(work())
            except BaseException as error:  # raised by the future's result()
                made.set_exception(error)

        if self._installed.closing:
            made.cancel()
        else:
            self.sorts.put(run)
        return made

    # --- on a thread of a lane ---

    def _open(self, flow: DataflowLifecycle) -> None:
        ready = flow.open()
        if not ready:
            flow.tell_kept()
            flow.report.show()
        self._moved(flow, State.RUNNING if ready else State.HYDRATING)
        if ready:
            self._warm_later(
                flow, partial(self._warm, flow, lambda one: one.warm(self._let_steps_pass))
            )

    def _warm_later(self, flow: DataflowLifecycle, job: Callable[[], None]) -> None:
        """Have a job run in advance for a dataflow, unless `MOST_WARMED` others that are still installed had one."""
        installed = self._installed
        with installed.changed:
            self._warmed = [one for one in self._warmed if one is not flow and installed.has(one)]
            if len(self._warmed) >= MOST_WARMED:
                return
            self._warmed.append(flow)
        self.warmings.put(job)

    def _warm(self, flow: DataflowLifecycle, work: Callable[[DataflowLifecycle], None]) -> None:
        """Load or make what the first steps of a dataflow would otherwise wait for. The dataflow is not closed
        meanwhile.
        """
        installed = self._installed
        # Steps that are queued already go first.
        self._let_steps_pass()
        with installed.changed:
            if flow.ends or installed.closing or not installed.has(flow):
                return
            flow.warming = True
        try:
            work(flow)
        except Exception as error:
            _LOG.info("what %s looks into is made later: %s", flow.gid, error)
        finally:
            with installed.changed:
                flow.warming = False
            installed.worked(flow)

    def let_steps_pass(self) -> None:
        """Wait for a moment without steps. Called between two parts of a hydration: the interpreter is one thread's at a
        time, so a step of some milliseconds takes many times as long beside it.

        A step that has taken longer than `step_patience` is not waited for. If steps follow each other without a pause,
        the thread waits for `PASS_SECONDS`, and then goes on for `TURN_SECONDS` and to the end of the part that it is at.
        """
        now = self._clock.monotonic()
        if now < getattr(self._turns, "until", now) or self.steps.rest(PASS_SECONDS, but_long=True):
            return
        self._turns.until = self._clock.monotonic() + TURN_SECONDS

    def _let_steps_pass(self) -> None:
        """Wait for a moment without steps. First steps make what they need themselves, and what is made beside them for later ones
        would only keep them waiting.
        """
        until = self._clock.monotonic() + LATER_SECONDS
        for lane in (self.firsts, self.steps):
            lane.rest(max(until - self._clock.monotonic(), 0.0))

    def _prepare(self, flow: DataflowLifecycle, at: float) -> None:
        """Prepare the steps of a hydrated dataflow, not before the monotonic time `at`."""
        installed = self._installed
        if flow.ends:
            return
        # Views are often created together: their hydrations go first. Steps that are not prepared work, too. A long hydration keeps all
        # that were hydrated meanwhile waiting once, not one after the other.
        self.hydrations.rest(max(at + HYDRATING_SECONDS - self._clock.monotonic(), 0.0))
        with installed.changed:
            pause = at - self._clock.monotonic()
            installed.changed.wait_for(lambda: flow.ends or installed.closing, max(pause, 0.0))
        self._warm(flow, lambda one: one.prepare(self._let_steps_pass))

    def _hydrate(self, flow: DataflowLifecycle) -> None:
        flow.say("begins to be hydrated")
        stats = flow.hydrate()
        if stats is not None:
            self._respond(Refreshed(stats))
            self._moved(flow, State.RUNNING)
            flow.hand_over()
            at = self._clock.monotonic() + PREPARE_SECONDS
            self._warm_later(flow, partial(self._prepare, flow, at))

    def _moved(self, flow: DataflowLifecycle, state: State) -> None:
        with self._installed.changed:
            flow.state = state
            self._installed.opening.pop(flow.gid, None)
            self._respond(flow.status())

    def _advance(self, flow: DataflowLifecycle, inputs: Frontier, does: Does) -> None:
        begun = self._clock.monotonic()
        stats = flow.advance(inputs, does)
        if stats is not None:
            self._respond(Refreshed(stats))
            if stats.kind != "empty":
                flow.expected, flow.practised = self._clock.monotonic() - begun, True
        self._respond(Frontiers(flow.gid, flow.frontier))

    # --- giving it to a thread ---

    def _give(
        self,
        lane: Lane,
        flow: DataflowLifecycle,
        work: Callable[[DataflowLifecycle], None],
        waits: str | None = None,
        seconds: float = 0.0,
    ) -> None:
        installed = self._installed
        with installed.changed:
            gone = flow.ends or not installed.has(flow)
            if flow.busy or installed.closing or gone:
                return
            self.mark(flow)
            if waits is not None:
                flow.say(waits)

        def run() -> None:
            self._work(flow, work)
            installed.wake()

        lane.put(run, flow.gid, seconds)

    def _work(self, flow: DataflowLifecycle, work: Callable[[DataflowLifecycle], None]) -> None:
        """Do the work that a dataflow was marked for. Every failure is recorded as the dataflow's."""
        installed = self._installed
        flow.begun = self._clock.monotonic()
        try:
            if not installed.closing and not flow.ends:
                work(flow)
                self._well(flow)
        except (
            BaseException
        ) as error:  # recorded, shown and tried again: the thread is not this dataflow's to end
            self.failed(flow, error)
            self._open_again(flow, error)
        finally:
            with installed.changed:
                flow.busy = False
            installed.worked(flow)

    def _give_flush(
        self, flow: DataflowLifecycle, work: Callable[[DataflowLifecycle], None]
    ) -> None:
        installed = self._installed
        with installed.changed:
            if flow.flushing or flow.lost or installed.closing or not installed.has(flow):
                return
            flow.flushing = True

        def run() -> None:
            self._rest()
            try:
                if not installed.closing:
                    work(flow)
            except (SqlError, OSError) as error:
                # The updates stay in memory, and a later pass of the scheduler tries again.
                _LOG.warning("flushing %s: %s", flow.gid, error)
                flow.flush_at = self._clock.monotonic() + self._settings.flush_seconds
                self._open_again(flow, error)
            finally:
                with installed.changed:
                    flow.flushing = False
                installed.wake()
                installed.worked(flow)

        self.flushes.put(run)

    def _well(self, flow: DataflowLifecycle) -> None:
        with self._installed.changed:
            failed = flow.failures > 0
            flow.error, flow.failures, flow.retry_at = None, 0, 0.0
            if failed:
                self._respond(flow.status())

    def failed(self, flow: DataflowLifecycle, error: BaseException) -> None:
        """Record and report that a dataflow's work failed. It is retried after a pause that doubles with each failure."""
        _LOG.info("dataflow %s failed", flow.gid, exc_info=error)
        with self._installed.changed:
            flow.failures += 1
            flow.error = told_of(error)
            # The exponent is bounded, as the product with a float overflows after a thousand failures.
            pause = self._settings.retry_seconds * 2 ** min(flow.failures - 1, 30)
            pause = min(pause, self._settings.retry_max_seconds)
            flow.retry_at = self._clock.monotonic() + pause
            # The status is to say when it is retried, which `DataflowLifecycle.status` says only of an idle dataflow; but this
            # thread is not done with it yet.
            flow.busy, busy = False, flow.busy
            self._respond(flow.status())
            flow.busy = busy

    def _open_again(self, flow: DataflowLifecycle, error: BaseException) -> None:
        """Have a dataflow opened again after a failure that trying again would not mend."""
        try:
            if is_lost(error, flow.replica.arrangements.runs_here):
                _LOG.warning("%s is opened again: %s", flow.gid, error)
                self._installed.open_again(flow)
        except (SqlError, OSError) as other:
            # Who runs the replica is not known now. The dataflow fails again, and it is asked again.
            _LOG.warning("%s is not opened again: %s", flow.gid, other)

    # --- the end ---

    def close(self) -> None:
        """Let no more work begin. Idempotent."""
        for lane in self._lanes:
            lane.close()

    def join(self, timeout: float) -> None:
        """Wait until running work has ended, up to `timeout` seconds for each thread."""
        for lane in self._lanes:
            lane.join(timeout)


def _urgent(installed: Installed, awaited: Callable[[], Sequence[GlobalId]]) -> list[GlobalId]:
    """The dataflows that somebody waits for, each after those that it reads."""
    return [flow.gid for flow in installed.needed(awaited())]


def _begin(
    start: Callable[..., Supervised],
    replica_id: str,
    name: str,
    number: int,
    work: Callable[[Supervised], None],
) -> Supervised:
    by = GIVES_WAY.get(name, 0)

    def run(thread: Supervised) -> None:
        if by:
            give_way(by)
        work(thread)

    thread_name = f"mzsql-{replica_id}-{name}-{number}"
    return start(f"{name}-worker", run, thread_name=thread_name)
