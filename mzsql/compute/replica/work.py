"""The work of a replica's dataflows, on the threads of its lanes.

Promise: a dataflow works on one thread at a time; beside that its arrangements may be flushed. One that fails is told as failed and tried
again with growing pauses, and the others do not notice. What takes long lets others pass (`compute.replica.lane`): steps run beside each
other and before hydrations, which run a few at a time, first come first served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from mzsql.compute.protocol import Frontiers, Refreshed, Respond
from mzsql.compute.protocols import ComputeSettings
from mzsql.compute.replica.failures import told_of
from mzsql.compute.replica.flows import Flow, State
from mzsql.compute.replica.installed import Installed
from mzsql.compute.replica.lane import Lane
from mzsql.persist import Clock
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Frontier
from mzsql.threads import Supervised

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: So many threads sort what hydrations write.
SORTS = 2
#: Of so many dataflows what they look into is loaded when they were opened, those that somebody waits for first; of others with a step.
MOST_WARMED = 64
_FOR_EVER = 1e9
#: What can be done later waits for so many seconds for a moment without steps,
LATER_SECONDS = 1.0
#: and where there was none, it is not waited for again for so many.
BUSY_SECONDS = 5.0


class Work:
    """Gives dataflows to threads. Thread-safe.

    Args:
        replica_id: whose they are.
        installed: the dataflows.
        respond: takes what is told of them.
        settings: how many threads there are, and how long pauses are.
        clock: whose monotonic time counts.
        start: starts a supervised thread of a kind for some work.

    Attributes:
        steps, hydrations, flushes: the lanes; a dataflow is in one of them once at most.
        openings: the lane of those that are opened one after another.
        sorts: the lane of what makes the traces that hydrations wait for.
        warmings: the lane of what loads traces that nobody waits for.
    """

    def __init__(
        self,
        replica_id: str,
        installed: Installed,
        respond: Respond,
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
            )

        self.steps = lane("step", settings.step_threads, settings.step_patience)
        self.hydrations = lane(
            "hydrate", settings.hydration_concurrency, settings.hydration_patience
        )
        self.flushes = lane("flush", 1, settings.step_patience)
        self.openings = lane("open", 1, settings.step_patience)
        #: until when the steps' lane is taken to be busy
        self._busy_until = float("-inf")
        # None is added for what takes long: each has pieces of what is sorted in memory.
        self.sorts = lane("sort", SORTS, _FOR_EVER)
        self.warmings = lane("warm", 1, _FOR_EVER)
        #: of how many dataflows that were opened what they look into was asked for
        self._warmed = 0

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        hydrating = (self.openings, self.hydrations, self.sorts)
        return (self.steps, *hydrating, self.flushes, self.warmings)

    def look(self) -> float | None:
        """Let those begin whose turn has come; seconds after which another look may let one begin, None where nobody waits for that."""
        pauses = [lane.look() for lane in self._lanes]
        return min((one for one in pauses if one is not None), default=None)

    # --- what there is to do ---

    def mark(self, flow: Flow) -> None:
        """A thread will work at a dataflow; the lock is held."""
        flow.busy, flow.begun = True, None
        flow.turn += 1

    def open(self, flow: Flow) -> None:
        """Open a dataflow that was marked for it, on this thread."""
        self._work(flow, self._open)

    def hydrate(self, flow: Flow) -> None:
        """Have a dataflow hydrated."""
        self._give(self.hydrations, flow, self._hydrate, "waits for its turn to be hydrated")

    def advance(self, flow: Flow, inputs: Frontier) -> None:
        """Have a dataflow brought forward to ``inputs``."""
        self._give(self.steps, flow, lambda f: self._advance(f, inputs))

    def flush(self, flow: Flow) -> None:
        """Have what a dataflow's arrangements have in memory made durable, beside its steps."""
        self._give_flush(flow, Flow.flush)

    def release(self, flow: Flow) -> None:
        """Have a dataflow let go of what its index no longer has to be readable at, beside its steps."""
        self._give_flush(flow, Flow.release)

    def follow(self, flow: Flow) -> None:
        """Have the shard of a dataflow's export follow, beside its steps."""
        self._give_flush(flow, Flow.follow)

    def later(self, work: Callable[[], None]) -> None:
        """Run what later steps are better off with in the lane of flushes, when no step is at work. Without it they cost more, and that
        is all.
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
        """Wait for a moment without steps, on the thread of the flushes: its work is long, and slows the steps beside it.

        Where steps follow on each other without a pause it goes on beside them, after one wait in some seconds.
        """
        now = self._clock.monotonic()
        if now >= self._busy_until and not self.steps.rest(LATER_SECONDS):
            self._busy_until = now + BUSY_SECONDS

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Run work that a hydration waits for, such as sorting what it writes; what becomes of it. Ends with the replica."""
        made = Future[T]()

        def run() -> None:
            if not made.set_running_or_notify_cancel():
                return
            try:
                made.set_result(work())
            except BaseException as error:  # whoever waits for it is told
                made.set_exception(error)

        if self._installed.closing:
            made.cancel()
        else:
            self.sorts.put(run)
        return made

    # --- on a thread of a lane ---

    def _open(self, flow: Flow) -> None:
        ready = flow.open()
        if not ready:
            flow.tell_kept()
            flow.report.show()
        self._moved(flow, State.RUNNING if ready else State.HYDRATING)
        if ready and self._warmed < MOST_WARMED:
            self._warmed += 1
            self.warmings.put(partial(self._warm, flow))

    def _warm(self, flow: Flow) -> None:
        """Load what the first steps of a dataflow that was opened would wait for. It is not closed meanwhile."""
        installed = self._installed
        # Those that are there go first.
        self.steps.rest(LATER_SECONDS)
        with installed.changed:
            if flow.left or installed.closing or not installed.has(flow):
                return
            flow.warming = True
        try:
            flow.warm()
        except Exception as error:
            _LOG.info("what %s looks into is loaded later: %s", flow.gid, error)
        finally:
            with installed.changed:
                flow.warming = False
                left = flow.left
            if left:
                installed.close_dropped()

    def _hydrate(self, flow: Flow) -> None:
        flow.say("begins to be hydrated")
        stats = flow.hydrate()
        if stats is not None:
            self._respond(Refreshed(stats))
            self._moved(flow, State.RUNNING)

    def _moved(self, flow: Flow, state: State) -> None:
        with self._installed.changed:
            flow.state = state
            self._installed.opening.pop(flow.gid, None)
            self._respond(flow.status())

    def _advance(self, flow: Flow, inputs: Frontier) -> None:
        stats = flow.advance(inputs)
        if stats is not None:
            self._respond(Refreshed(stats))
        self._respond(Frontiers(flow.gid, flow.frontier))

    # --- giving it to a thread ---

    def _give(
        self, lane: Lane, flow: Flow, work: Callable[[Flow], None], waits: str | None = None
    ) -> None:
        installed = self._installed
        with installed.changed:
            gone = flow.left or not installed.has(flow)
            if flow.busy or installed.closing or gone:
                return
            self.mark(flow)
            if waits is not None:
                flow.say(waits)

        def run() -> None:
            self._work(flow, work)
            installed.wake()

        lane.put(run)

    def _work(self, flow: Flow, work: Callable[[Flow], None]) -> None:
        """Do the work that a dataflow was marked for; however it fails, that is the dataflow's affair."""
        installed = self._installed
        flow.begun = self._clock.monotonic()
        try:
            if not installed.closing and not flow.left:
                work(flow)
                self._well(flow)
        except (
            BaseException
        ) as error:  # recorded, shown and tried again: the thread is not this dataflow's to end
            self.failed(flow, error)
        finally:
            with installed.changed:
                flow.busy = False
                left = flow.left
            if left:
                installed.close_dropped()

    def _give_flush(self, flow: Flow, work: Callable[[Flow], None]) -> None:
        installed = self._installed
        with installed.changed:
            if flow.flushing or installed.closing or not installed.has(flow):
                return
            flow.flushing = True

        def run() -> None:
            self._rest()
            try:
                if not installed.closing:
                    work(flow)
            except (SqlError, OSError) as error:
                # Its updates go on waiting, and a later look tries again.
                _LOG.warning("flushing %s: %s", flow.gid, error)
                flow.flush_at = self._clock.monotonic() + self._settings.flush_seconds
            finally:
                with installed.changed:
                    flow.flushing = False
                    left = flow.left
                installed.wake()
                if left:
                    installed.close_dropped()

        self.flushes.put(run)

    def _well(self, flow: Flow) -> None:
        with self._installed.changed:
            failed = flow.failures > 0
            flow.error, flow.failures, flow.retry_at = None, 0, 0.0
            if failed:
                self._respond(flow.status())

    def failed(self, flow: Flow, error: BaseException) -> None:
        """Record and tell that a dataflow's work has failed; it is tried again after a pause."""
        _LOG.info("dataflow %s failed", flow.gid, exc_info=error)
        with self._installed.changed:
            flow.failures += 1
            flow.error = told_of(error)
            pause = self._settings.retry_seconds * 2 ** min(flow.failures - 1, 30)
            pause = min(pause, self._settings.retry_max_seconds)
            flow.retry_at = self._clock.monotonic() + pause
            # It is not at work any more, even while its thread is still here.
            flow.busy, busy = False, flow.busy
            self._respond(flow.status())
            flow.busy = busy

    # --- the end ---

    def close(self) -> None:
        """Begin nothing any more. Idempotent."""
        for lane in self._lanes:
            lane.close()

    def join(self, timeout: float) -> None:
        """Wait until what runs has ended, for so many seconds a thread."""
        for lane in self._lanes:
            lane.join(timeout)


def _begin(
    start: Callable[..., Supervised],
    replica_id: str,
    name: str,
    number: int,
    work: Callable[[Supervised], None],
) -> Supervised:
    thread_name = f"mzsql-{replica_id}-{name}-{number}"
    return start(f"{name}-worker", work, thread_name=thread_name)
