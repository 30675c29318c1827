"""A machine's wall clock, trusted only as far as others confirm it.

A clock cannot be checked against itself, nor against another machine's clock that may be wrong too. These are what it
is checked against:

- *the backend's clock*, where it has one (`mzsql.location.Clocked`: PostgreSQL's; on SQLite and in memory the machine's
  own). It is read at the first check and then extrapolated by this process's monotonic clock; only a time that this
  does not confirm reads it again;
- *the timeline*: the timestamps allocated so far, each of which some clock has named, and the monotonic time since one
  was seen. It counts where the backend has no clock, or a slow one that the timeline has left far behind.

A time within `MAX_AHEAD_MS` of one of these is confirmed, and so is one that the timeline has passed already, since it
advances nothing. A slow clock is never refused.

What cannot be detected: without a backend's clock, a new process finds the timeline at the last write, and time may
have passed since. It looks once more a moment later: a timeline that has advanced is in use by a process whose time is
known then; one that has not confirms whatever the first writer says. From then on the monotonic clock detects jumps.
And where the backend's own clock is fast, it confirms times that it should not; only machines whose clocks are as fast
write ahead then.

The trade-off: where only the monotonic clock confirms the time, and it stood still (a machine that slept) without a
backend's clock to ask, a right clock is refused until the environment is opened again.
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
"""Without a backend's clock, a new process reads the timeline again after so many seconds."""
_LEFT_BEHIND = 3
"""A backend's clock that is so many bounds behind the timeline does not count."""
_DRIFT = 0.01
"""How far a right clock and the monotonic clock may drift apart, as a part of the time passed."""


class _Reading(NamedTuple):
    """A time in milliseconds, and the monotonic time in seconds at which it was read."""

    ms: int
    at: float

    def went_on(self, now: float) -> int:
        return self.ms + round((now - self.at) * 1000)


class BoundedClock:
    """A wall clock: calling it gives milliseconds since the epoch, never further ahead than is confirmed. Thread-safe.

    Before a source is set (`consult`, `watch`), and before it was first asked, it gives what the machine's clock says.

    Args:
        now: the machine's clock, in milliseconds since the epoch.
        monotonic: seconds of a clock that never jumps.
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
        """Set the source of the backend's clock."""
        self._ask = ask

    def watch(self, newest: Callable[[], int]) -> None:
        """Set the source of the latest allocated timestamp; called only where a time is in doubt."""
        self._newest = newest

    # --- what is known ------------------------------------------------------------------------

    def _known(self) -> int | None:
        """The latest time that others confirm, as far as known here; None: nothing is known."""
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
        """The time, limited to what is confirmed."""
        now, limit = self._now(), self._limit()
        return now if limit is None else min(now, limit)

    # --- claims -------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that the clock's time is confirmed.

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
        """The clock's time, or what others know where the clock is ahead of that; a slow clock's time is returned as it
        is.
        """
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
        """Ask the sources: one thread at a time, for all."""
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
            # A backend's clock that was set back does not invalidate what it confirmed before, so no running process is
            # stopped by that.
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
        """The timeline is at ``ts``: where that is further than was known, others have advanced it."""
        with self._lock:
            known = self._timeline
            if known is None or ts > known.went_on(at) + self.max_ahead_ms:
                self._timeline = _Reading(ts, at)

    def _keep_up(self, claim: int) -> None:
        """Without a backend's clock, allow for the drift between a right clock and the monotonic clock."""
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
        """The present as far as known: by the clock where it is confirmed, and by others where the clock is slow."""
        now, known = self(), self._known()
        return now if known is None else max(now, known)

    def check_applied(self, ts: int) -> None:
        """Check that ``ts`` may be applied: it is within the bound of the present, or was allocated.

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
        """``ts`` was allocated: wait until the present is within the bound of it. A timeline that others have advanced
        further is followed.
        """
        ahead = ts - self._reference()
        while self.max_ahead_ms < ahead <= 2 * self.max_ahead_ms:
            self._sleep((ahead - self.max_ahead_ms) / 1000)
            ahead = ts - self._reference()
            if ahead <= self.max_ahead_ms and self._ask is None:
                # It is unknown whether this clock is slow; either way it need not wait again.
                self._follow(ts - self.max_ahead_ms, self._monotonic())
        if ahead > 2 * self.max_ahead_ms:
            self._follow(ts, self._monotonic())
        self._saw(ts)

    def adopt(self, ts: int) -> None:
        """``ts`` is on the timeline now, whoever allocated it."""
        self._saw(ts)


def _text(ms: int) -> str:
    """A time for messages; a clock may give one beyond the calendar."""
    try:
        moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return f"{ms} ms since the epoch"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
