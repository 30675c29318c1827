"""The thread that finds work for a replica's dataflows.

Promise: it sleeps until something has changed or a pause is over, then queues all work that can be done
(`compute.replica.scheduling.work`): a step of a dataflow whose inputs are ahead of it, a peek whose time has come, a flush of
updates that have waited long enough. A dataflow's progress moves the inputs of the dataflows that read it, so a
chain of views advances in dependency order, and a view never reads some but not all of the updates of one time.
docs/architecture.md, "The way of an update through a dataflow", step 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.compute.dependencies import ComputeSettings, ExportLog, StorageReader
from mzsql.compute.protocol import Respond
from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle, State
from mzsql.compute.replica.scheduling.openings import Openings
from mzsql.compute.replica.scheduling.retiring import Retiring
from mzsql.compute.replica.scheduling.standby import Does
from mzsql.compute.replica.scheduling.ticks import Ticks
from mzsql.compute.replica.scheduling.work import Work
from mzsql.persist import Clock
from mzsql.repr.frontier import Frontier, less_than
from mzsql.repr.ids import GlobalId
from mzsql.threads import Supervised, ThreadStatus

#: Least time in seconds between two checks for updates that should be made durable.
LOOK_SECONDS = 0.1


class Scheduler:
    """Finds work for the dataflows of one replica, on a thread of its own.

    Args:
        replica_id: the replica.
        installed: its dataflows.
        work: the queues and threads that do what is found.
        ready: returns the jobs that answer the peeks whose time has come.
        retiring: deletes arrangements that nobody uses.
        openings: decides which dataflows are opened next.
        storage: tells how far inputs are complete.
        respond: takes the statuses of the dataflows, if the scheduler fails.
        settings: lengths of pauses.
        clock: its monotonic time is used.
        exports: the log in which outputs become durable together; None if each view writes its own shard.
        start: starts a supervised thread.
    """

    def __init__(
        self,
        replica_id: str,
        installed: Installed,
        work: Work,
        ready: Callable[[], Sequence[Callable[[], None]]],
        retiring: Retiring,
        openings: Openings,
        *,
        storage: StorageReader,
        respond: Respond,
        settings: ComputeSettings,
        clock: Clock,
        exports: ExportLog | None,
        start: Callable[..., Supervised],
    ) -> None:
        self._replica = replica_id
        self._installed = installed
        self._work = work
        self._ready = ready
        self._retiring = retiring
        self._openings = openings
        self._storage = storage
        self._respond = respond
        self._settings = settings
        self._clock = clock
        self._together = exports is not None
        self._ticks = None if exports is None else Ticks(exports.settle)
        self._thread = start(
            "scheduler", self._run, thread_name=f"mzsql-{replica_id}", changed=self._changed
        )

    def check(self) -> None:
        """Check that the scheduler's thread goes on.

        Raises:
            ThreadFailed: it has ended for good.
        """
        self._thread.check(f"the scheduler of replica {self._replica}")

    def close(self, timeout: float) -> None:
        """End the thread, and wait up to `timeout` seconds for it. Idempotent."""
        self._thread.stop()
        self._thread.join(timeout)

    def _changed(self, thread: ThreadStatus) -> None:
        if thread.status == "failed":
            with self._installed.changed:
                for flow in self._installed.all():
                    flow.error, flow.failures = f"the scheduler has ended: {thread.error}", 1
                    self._respond(flow.status())
        self._installed.wake()

    def _run(self, thread: Supervised) -> None:
        self._installed.wake()  # a restarted thread does not know which reports the one before it took
        cooled, looked = self._clock.monotonic(), float("-inf")
        while not self._installed.closing:
            # Read the wake-up before looking at anything: a change that comes while this pass looks is then seen by
            # the next pass.
            woken, idle = self._installed.woken(), self._installed.idle()
            uppers: dict[GlobalId, Frontier] = {}
            now = self._clock.monotonic()
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
                again = self._consider(flow, now, uppers, told=woken)
                pause = pause if again is None else min(pause, again)
            more = self._openings.look(now)
            if more is not None:
                pause = min(pause, more)
            for answer in self._ready():
                self._work.steps.put(answer, asked=True)
            self._retiring.look(now)
            if self._ticks is not None:
                self._ticks.look(self._stepping(now), now)
            again = self._work.look()
            if again is not None:
                pause = min(pause, again)
            if now - cooled >= self._settings.idle_seconds:
                self._retiring.cool(now)
                cooled = now
            thread.well()
            self._installed.wait(pause)

    def _look_behind(self, idle: Sequence[DataflowLifecycle]) -> float:
        """Queue flushes of what has waited long enough; return the seconds until more will have.

        It asks every arrangement of every idle dataflow, so it runs every `LOOK_SECONDS` and not with each pass.
        """
        pause = self._settings.idle_seconds
        behind, flush = self._may_be_behind(len(idle))
        for flow in idle:
            if flow.flush_due(flush):
                self._work.flush(flow)
            elif flow.release_due():
                self._work.release(flow)
            late = flow.late()
            if late is not None:
                pause = min(pause, max(behind - late, 0.01))
                if late >= behind or flow.overfull:
                    self._work.follow(flow)
        return pause

    def _may_be_behind(self, flows: int) -> tuple[float, float]:
        """How many seconds the shards of outputs, and those of arrangements, may be behind, given the number of
        dataflows.
        """
        settings = self._settings
        flush = max(settings.flush_seconds, flows / settings.flush_writes)
        if not self._together:
            return max(settings.quiet_seconds, flows / settings.quiet_writes), flush
        return max(settings.apply_seconds, flows / settings.flush_writes), flush

    def _stepping(self, now: float) -> dict[GlobalId, int]:
        """The dataflows that have steps queued or running, except those whose step has run longer than `step_patience`,
        each with its turn number.
        """
        patience = self._settings.step_patience
        return {
            flow.gid: flow.turn
            for flow in self._installed.all()
            if flow.busy
            and flow.state is State.RUNNING
            and (flow.begun is None or now - flow.begun < patience)
        }

    def _consider(
        self,
        flow: DataflowLifecycle,
        now: float,
        uppers: dict[GlobalId, Frontier],
        *,
        told: bool,
    ) -> float | None:
        """Queue work of a dataflow if it has some; return after how many seconds it may have, if it waits for that.

        Args:
            flow: the dataflow.
            now: the monotonic time.
            uppers: uppers that this pass has asked for already.
            told: whether a change was reported since the pass before; if not, what this replica knows of its own
                dataflows is not asked again.
        """

        def upper(gid: GlobalId) -> Frontier:
            if gid not in uppers:
                uppers[gid] = self._upper(gid, told=told)
            return uppers[gid]

        try:
            inputs = flow.input_upper(upper)
        except Exception as error:  # recorded, shown and tried again
            self._work.failed(flow, error)
            return None
        if flow.state is State.HYDRATING:
            if less_than(flow.needs(), inputs):
                self._work.hydrate(flow)
            else:
                flow.say(flow.waits_for(upper))
            return None
        does, pause = flow.standing.does(flow.dataflow, flow.frontier, inputs, now)
        if does is Does.WAIT:
            return pause
        self._work.advance(flow, inputs, does)
        return None

    def _upper(self, gid: GlobalId, *, told: bool) -> Frontier:
        """How far an input is complete."""
        own = self._installed.find(gid)
        # The output of another dataflow of this replica is as far as that dataflow knows, while it runs without
        # failures. If it fails, another process may bring the shard forward in its place, and if it only follows a
        # view, another process writes the shard: then storage is asked.
        works = own is not None and own.state is State.RUNNING and not own.failures
        if (
            own is not None
            and not own.follows
            and (works or own.spec.output_shard is None or not told)
        ):
            return own.frontier
        # Storage updated what it has seen before it reported the change, so no call to a backend is needed.
        return self._storage.seen_upper(gid)
