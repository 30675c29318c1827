"""A machine's wall clock, believed no further than what others know bears out.

A clock is not compared with itself, nor with a clock of another machine that may be wrong as well. What there is to compare it with:

- *the clock of the backend*, where it has one (`mzsql.location.Clocked`: PostgreSQL's, on SQLite and in memory the machine's own). It is
  asked at the first claim and then goes on by this process's monotonic clock; only a claim that this does not bear out asks again;
- *the timeline*: the timestamps allocated so far, each of which somebody's clock has named, and the monotonic time since one was seen. It
  counts where the backend has no clock, or one that the timeline has left far behind, which is then the one that is slow.

A claim within `MAX_AHEAD_MS` of one of these is borne out, and so is one that the timeline has passed already: it moves nothing. A clock
that is slow claims nothing, so it is never refused.

What this cannot know: without a clock of the backend, a process that has just come finds the timeline at the last write, and time may have
passed since. It looks once more a moment later: a timeline that has moved is somebody's at work, whose time is known then; one that has not
bears out whatever the first one to write says. From then on a jump of its clock is found out by the monotonic clock. And where the clock of
the backend itself is fast, it bears out what it should not; only those write ahead whose own clock is as fast.

Trade-off: where the time is borne out by the monotonic clock, and that stood still (a machine that slept) with no backend's clock to ask,
a right clock is refused until the environment is opened anew.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from mzsql.oracle.errors import ClockSkew
from mzsql.oracle.sharing import Patience

MAX_AHEAD_MS = 10_000
WATCH_SECONDS = 1.0
"""A process that has just come, without a clock of the backend, looks at the timeline again after so long."""
_LEFT_BEHIND = 3
"""A backend's clock that the timeline is so many bounds ahead of is not what the timeline goes by."""
_DRIFT = 0.01
"""By how much of the time that passes a right clock and the monotonic one come apart at most."""


class _Reading(NamedTuple):
    """A time in milliseconds, and the monotonic moment at which it was the present."""

    ms: int
    at: float

    def went_on(self, now: float) -> int:
        return self.ms + round((now - self.at) * 1000)


class BoundedClock:
    """A wall clock in milliseconds: calling it gives the time, never further ahead than is borne out. Thread-safe.

    Until a source is there to ask (`consult`, `watch`), and in between where nobody has asked yet, it gives what the clock says.

    Args:
        now: what the machine's clock says.
        monotonic: seconds of the clock that never jumps.
        sleep: pauses for seconds.
        max_ahead_ms: the bound.
    """

    def __init__(
        self,
        now: Callable[[], int],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        max_ahead_ms: int = MAX_AHEAD_MS,
    ) -> None:
        self._now = now
        self._monotonic = monotonic
        self._sleep = sleep
        self.max_ahead_ms = max_ahead_ms
        self._ask: Callable[[], int] | None = None
        self._newest: Callable[[], int] | None = None
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._backend: _Reading | None = None
        self._timeline: _Reading | None = None
        self._seen = 0

    def consult(self, ask: Callable[[], int]) -> None:
        """``ask`` tells the time by the backend's clock."""
        self._ask = ask

    def watch(self, newest: Callable[[], int]) -> None:
        """``newest`` tells the latest timestamp that was allocated; asked only where a claim is in doubt."""
        self._newest = newest

    # --- what is known ------------------------------------------------------------------------

    def _known(self) -> int | None:
        """The latest time that others bear out, as far as known here."""
        with self._lock:
            backend, timeline = self._backend, self._timeline
        now = self._monotonic()
        known = [one.went_on(now) for one in (backend, timeline) if one is not None]
        return max(known, default=None)

    def _limit(self) -> int | None:
        known = self._known()
        return None if known is None else max(known + self.max_ahead_ms, self._seen)

    def _borne_out(self, claim: int) -> bool:
        limit = self._limit()
        return claim <= (self._seen if limit is None else limit)

    def _saw(self, ts: int) -> None:
        with self._lock:
            self._seen = max(self._seen, ts)

    def __call__(self) -> int:
        """The time, cut off at what is borne out."""
        now, limit = self._now(), self._limit()
        return now if limit is None else min(now, limit)

    # --- claims -------------------------------------------------------------------------------

    def check(self) -> None:
        """Find out that the clock's time is borne out.

        Raises:
            ClockSkew: it is ahead of what others know.
            LocationError: the backend cannot be asked.
        """
        now = self._now()
        if self._borne_out(now):
            self._keep_up(now)
        else:
            self._look()

    def believed(self) -> int:
        """The time by the clock, or by what others know where it is ahead of that; a slow clock's own time, as it is."""
        now = self._now()
        if self._borne_out(now):
            return now
        if self._ask is not None:
            self._ask_backend()
        else:
            with contextlib.suppress(ClockSkew):
                self._look()
        known = self._known()
        return now if known is None or self._borne_out(now) else min(now, known)

    def _look(self) -> None:
        """Ask those who may bear the clock out: one thread at a time, what it learns is everybody's."""
        Patience("what time it is").acquire(self._looking)
        try:
            if self._borne_out(self._now()):
                return
            if self._ask is not None:
                self._ask_backend()
                if self._borne_out(self._now()):
                    return
            if self._newest is not None:
                self._look_at_timeline(self._newest)
            now = self._now()
            if not self._borne_out(now):
                raise self._skew(now)
        finally:
            self._looking.release()

    def _ask_backend(self) -> None:
        assert self._ask is not None
        before = self._monotonic()
        reading = _Reading(self._ask(), before)
        with self._lock:
            # One that was set back does not take back what it bore out before: no running process is stopped by it.
            known = self._backend
            if known is None or known.went_on(before) < reading.ms:
                self._backend = reading

    def _look_at_timeline(self, newest: Callable[[], int]) -> None:
        ts, at = newest(), self._monotonic()
        self._saw(ts)
        now = self._now()
        if self._backend is not None:
            if ts - self._backend.went_on(at) > _LEFT_BEHIND * self.max_ahead_ms:
                self._follow(ts, at)
            return
        if self._timeline is not None:
            self._follow(ts, at)
            return
        if ts > 0 and now > ts + self.max_ahead_ms:
            self._sleep(WATCH_SECONDS)
            again, at = newest(), self._monotonic()
            self._saw(again)
            now = self._now() if again == ts else again
        with self._lock:
            self._timeline = _Reading(now, at)

    def _follow(self, ts: int, at: float) -> None:
        """The timeline is at ``ts``: where that is further than was known, others have moved it there."""
        with self._lock:
            known = self._timeline
            if known is None or ts > known.went_on(at) + self.max_ahead_ms:
                self._timeline = _Reading(ts, at)

    def _keep_up(self, claim: int) -> None:
        """Where there is no clock of the backend, what a right clock and the monotonic one come apart by goes into what is known."""
        if self._ask is not None:
            return
        with self._lock:
            if self._timeline is None:
                return
            at = self._monotonic()
            went_on = self._timeline.went_on(at)
            slack = (at - self._timeline.at) * 1000 * _DRIFT
            if slack >= 1:
                apart = max(-slack, min(claim - went_on, slack))
                self._timeline = _Reading(went_on + round(apart), at)

    def _skew(self, now: int) -> ClockSkew:
        known = self._known() or self._seen
        alone = self._ask is None
        by = "the timeline" if alone else "the clock of the timestamp oracle's backend"
        return ClockSkew(
            f"this machine's clock is {(now - known) / 1000:.1f} s ahead of {by}, "
            f"at most {self.max_ahead_ms / 1000:g} s are allowed",
            detail=f"It says {_text(now)}, where others know {_text(known)}. No timestamp was allocated, and nothing was written.",
            hint="Set this machine's clock; what others write goes on meanwhile."
            + (
                " If it was set right just now, open the environment anew."
                if alone
                else " If it is right, set that of the backend."
            ),
        )

    # --- timestamps ---------------------------------------------------------------------------

    def _reference(self) -> int:
        """The present, as far as is known: by the clock where that is borne out, and by others, where the clock is slow."""
        now, known = self(), self._known()
        return now if known is None else max(now, known)

    def check_applied(self, ts: int) -> None:
        """Find out that ``ts`` is one that may be applied: within the bound of the time, or one that was allocated.

        Raises:
            ClockSkew: it is further ahead.
            LocationError: the backend cannot be asked.
        """
        if ts <= self._seen or ts - self._reference() <= self.max_ahead_ms:
            return
        if self._ask is not None:
            self._ask_backend()
        ahead = ts - self._reference()
        if ahead > self.max_ahead_ms:
            raise ClockSkew(
                f"timestamp {ts} is {ahead / 1000:.1f} s ahead of the clock, "
                f"at most {self.max_ahead_ms / 1000:g} s are allowed",
                hint="Set the clock of the machine the timestamp comes from.",
            )

    def await_time(self, ts: int) -> None:
        """``ts`` was allocated: wait until the time is within the bound of it. A timeline that others have moved further is followed."""
        ahead = ts - self._reference()
        while self.max_ahead_ms < ahead <= 2 * self.max_ahead_ms:
            self._sleep((ahead - self.max_ahead_ms) / 1000)
            ahead = ts - self._reference()
            if ahead <= self.max_ahead_ms and self._ask is None:
                # Whether it was the clock that is slow nobody knows here; it need not wait again.
                self._follow(ts - self.max_ahead_ms, self._monotonic())
        if ahead > 2 * self.max_ahead_ms:
            self._follow(ts, self._monotonic())
        self._saw(ts)

    def adopt(self, ts: int) -> None:
        """``ts`` is the timeline's by now, whoever named it."""
        self._saw(ts)


def _text(ms: int) -> str:
    """A time for a person; a clock may say one that there is no date for."""
    try:
        moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return f"{ms} ms since the epoch"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
