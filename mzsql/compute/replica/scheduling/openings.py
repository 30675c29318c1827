"""Opens a replica's dataflows, of which there may be thousands at once.

Promise: dataflows that somebody in this process waits for are opened first, each after those that it reads; the
others in the order in which they were installed. They are opened one after another on a thread of their own, beside
the steps of open ones. Waiters are woken after each batch, not after each dataflow. One that cannot be opened is
retried after growing pauses and keeps no other one waiting. While many come one after another, as after a start, only
those that somebody waits for are opened, for `GATHERS_SECONDS` at most: what comes is installed in less time without
openings beside it, and is opened in less time afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle, State
from mzsql.compute.replica.scheduling.work import Work
from mzsql.persist import Clock
from mzsql.repr.ids import GlobalId

#: How long a batch of openings lasts, in seconds.
OPEN_SECONDS = 0.05
#: So many dataflows that wait to be opened are many.
MANY = 64
#: Dataflows come one after another while the last one came no more than so many seconds ago …
COMES_SECONDS = 0.1
#: … but are opened all the same so many seconds after the first of them came.
GATHERS_SECONDS = 10.0


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
        # How many had come at the last look, when the last of them had come, and since when those are many.
        self._added = 0
        self._came_at = float("-inf")
        self._many_since: float | None = None

    def look(self, now: float) -> float | None:
        """Queue a batch of openings if a dataflow can be opened.

        Returns:
            Seconds until one that failed is to be retried, or until all that came are looked at; None if none is, or a
            batch runs already.
        """
        installed = self._installed
        with installed.changed:
            installed.looked_after = self._runs
            if self._runs or not installed.opening:
                return None
        # Asked without the lock: storage's own lock is held while it opens collections.
        awaited = self._awaited()
        with installed.changed:
            gathers = self._gathers(now)
            found = self._wanted(awaited) if gathers else iter(installed.opening.values())
            self._runs = any(self._can_open(flow, now) for flow in found)
            installed.looked_after = gathers or self._runs
            if gathers and not self._runs:
                return COMES_SECONDS
            pauses = [f.retry_at - now for f in installed.opening.values() if f.retry_at > now]
        if self._runs:
            self._work.openings.put(self._open_some)
        return min(pauses, default=None)

    def _gathers(self, now: float) -> bool:
        """Whether many come one after another. The caller holds the lock."""
        added = self._installed.added
        if added != self._added:
            self._added, self._came_at = added, now
        if len(self._installed.opening) < MANY:
            self._many_since = None
            return False
        since = self._many_since = now if self._many_since is None else self._many_since
        return now - self._came_at < COMES_SECONDS and now - since < GATHERS_SECONDS

    def _open_some(self) -> None:
        """Open dataflows one after another, for `OPEN_SECONDS`."""
        installed = self._installed
        until = self._clock.monotonic() + OPEN_SECONDS
        try:
            awaited = self._awaited()
            with installed.changed:
                gathers = self._gathers(self._clock.monotonic())
            wanted = self._wanted(awaited) if gathers else self._in_order(awaited)
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
                self._runs = installed.looked_after = False
            installed.wake()

    def _in_order(self, awaited: Iterable[GlobalId]) -> Iterator[DataflowLifecycle]:
        """The dataflows to open, in order: awaited ones first, each after what it reads. The caller holds the lock at
        each step of the iteration.
        """
        seen: set[GlobalId] = set()
        for flow in self._wanted(awaited):
            seen.add(flow.gid)
            yield flow
        for gid, flow in list(self._installed.opening.items()):
            if gid not in seen:
                yield flow

    def _wanted(self, awaited: Iterable[GlobalId]) -> Iterator[DataflowLifecycle]:
        """Those of the dataflows to open that are awaited, or read by these. The caller holds the lock as for `_in_order`."""
        for flow in self._installed.needed(awaited):
            if flow.gid in self._installed.opening:
                yield flow

    def _can_open(self, flow: DataflowLifecycle, now: float) -> bool:
        if flow.busy or flow.ends or flow.retry_at > now:
            return False
        read = [self._installed.find(one.id) for one in flow.rendered.inputs if one.index]
        # An index that is to be opened again may be made anew in another shard than the one that would be found now.
        return all(one is not None and one.state is State.RUNNING and not one.lost for one in read)
