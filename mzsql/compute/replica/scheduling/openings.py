"""Opens a replica's dataflows, of which there may be thousands at once.

Promise: dataflows that somebody in this process waits for are opened first, each after those that it reads; the
others in the order in which they were installed. They are opened one after another on a thread of their own, beside
the steps of open ones. Waiters are woken after each batch, not after each dataflow. One that cannot be opened is
retried after growing pauses and keeps no other one waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle, State
from mzsql.compute.replica.scheduling.work import Work
from mzsql.persist import Clock
from mzsql.repr.ids import GlobalId

#: How long a batch of openings lasts, in seconds.
OPEN_SECONDS = 0.05


class Openings:
    """Opens the dataflows of one replica.

    Args:
        installed: the dataflows.
        work: opens them.
        awaited: returns the collections that somebody waits for.
        clock: its monotonic time is used.
    """

    def __init__(
        self,
        installed: Installed,
        work: Work,
        awaited: Callable[[], Sequence[GlobalId]],
        clock: Clock,
    ) -> None:
        self._installed = installed
        self._work = work
        self._awaited = awaited
        self._clock = clock
        # Whether a batch is queued or running; there is one at a time.
        self._runs = False

    def look(self, now: float) -> float | None:
        """Queue a batch of openings if a dataflow can be opened.

        Returns:
            Seconds until one that failed is to be retried; None if none is, or a batch runs already.
        """
        installed = self._installed
        with installed.changed:
            if self._runs or not installed.opening:
                return None
            self._runs = any(self._can_open(flow, now) for flow in installed.opening.values())
            pauses = [f.retry_at - now for f in installed.opening.values() if f.retry_at > now]
        if self._runs:
            self._work.openings.put(self._open_some)
        return min(pauses, default=None)

    def _open_some(self) -> None:
        """Open dataflows one after another, for `OPEN_SECONDS`."""
        installed = self._installed
        until = self._clock.monotonic() + OPEN_SECONDS
        try:
            wanted = self._wanted()
            while not installed.closing:
                with installed.changed:
                    now = self._clock.monotonic()
                    flow = next((one for one in wanted if self._can_open(one, now)), None)
                    if flow is None:
                        break
                    self._work.mark(flow)
                self._work.open(flow)
                if self._clock.monotonic() >= until:
                    break
        finally:
            with installed.changed:
                self._runs = False
            installed.wake()

    def _wanted(self) -> Iterator[DataflowLifecycle]:
        """The dataflows to open, in order: awaited ones first, each after what it reads. The caller holds the lock at
        each step of the iteration.
        """
        seen: set[GlobalId] = set()
        for flow in self._installed.needed(self._awaited()):
            seen.add(flow.gid)
            if flow.gid in self._installed.opening:
                yield flow
        for gid, flow in list(self._installed.opening.items()):
            if gid not in seen:
                yield flow

    def _can_open(self, flow: DataflowLifecycle, now: float) -> bool:
        if flow.busy or flow.ends or flow.retry_at > now:
            return False
        read = [self._installed.find(one.id) for one in flow.rendered.inputs if one.index]
        # An index that is to be opened again may be made anew in another shard than the one that would be found now.
        return all(one is not None and one.state is State.RUNNING and not one.lost for one in read)
