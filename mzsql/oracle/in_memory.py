"""The single-process oracle: timestamps from memory, out of ranges whose upper bound is durable.

Promise: the four operations need no round trip, except for one compare_and_set every few seconds of writing, before the
bound is passed. A process that opens the timeline starts at the bound of the process that served it before, so it is
above everything handed out, and *fences* that process, by an epoch in the log of `mzsql.oracle.reservation`. A process
that does not know yet that it is fenced may still read a timestamp that is too old. So `confirm_leadership` must be
called after reading a timestamp and before returning results read at it: it reads the log, once for all results that
wait at that moment, and raises where another process has taken over. (The design's transaction is a write; a
linearizable read of the log ensures the same.) Source: Materialize's distributed timestamp oracle design, "the current
oracle".

Handles in one process share the timestamps, so opening twice in a process fences nobody. The trade-off: after a crash
the timeline starts up to `RANGE_MS` ahead of the clock.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
import uuid
from collections.abc import Callable

import msgspec

from mzsql.location import MAX_SEQNO, Determinate, LocationError
from mzsql.location.keys import check_ts
from mzsql.oracle.errors import OracleClosed, OracleFenced, OutdatedSetting
from mzsql.oracle.reservation import Ledger, Reservation
from mzsql.oracle.sharing import Patience, SharedCalls
from mzsql.repr.errors import SqlError

RANGE_MS = 5_000
"""Milliseconds by which the durable bound is set ahead of the clock."""
LEAST_RANGE = 256
"""The bound is at least so many timestamps above the one needed where that is ahead of the clock. Not `RANGE_MS`, or
repeated crashes would add up.
"""
MAX_TS = MAX_SEQNO - 1

_log = logging.getLogger(__name__)

_ONE_PROCESS = (
    "With timestamp_oracle = 'in-memory' one process at a time serves an environment: close the others, or run"
    " ALTER SYSTEM SET timestamp_oracle = 'distributed'."
)


class InMemoryTimestamps:
    """The timestamps of one timeline, served by this process. Thread-safe; handles are `InMemoryOracle`.

    Attributes:
        handles: how many handles are open.
        superseded: whether serving ended by a switch to another implementation.
        ended_well: whether serving ended when the last handle was closed, with no take-over.

    Args:
        ledger: the durable log.
        who: this process, for messages.
        step: the step of the setting that it follows.
        floor: a lower bound for both timestamps.

    Raises:
        OutdatedSetting: another process has followed a later setting.
        LocationError: Consensus cannot be reached.
    """

    def __init__(self, ledger: Ledger, who: str, *, step: int = 0, floor: int = 0) -> None:
        check_ts(floor)
        self._ledgers = [ledger]
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._reserving = threading.Lock()
        self._lost: SqlError | None = None
        self.ended_well = False
        self.superseded = False
        self._confirms = SharedCalls[None]("the confirmation of leadership")
        while True:
            seqno, last = ledger.newest()
            if last is not None and last.step > step:
                raise OutdatedSetting(
                    f"process {last.who} has followed a later setting of timestamp_oracle",
                    hint="Run the statement again.",
                )
            self._read, self._write = _begin(last, floor)
            entry = Reservation(
                epoch=1 if last is None else last.epoch + 1,
                implementation="in-memory",
                token=str(uuid.uuid4()),
                who=who,
                bound=self._write,
                step=step,
            )
            number = ledger.append(seqno, entry)
            if number is not None:
                break
        self._entry, self._seqno = entry, number
        self.handles = 0

    @property
    def serves(self) -> bool:
        """Whether this process serves the timestamps, as far as it knows."""
        return self._lost is None and os.getpid() == self._pid

    @property
    def epoch(self) -> int:
        """The epoch in which this process serves."""
        return self._entry.epoch

    def _check(self) -> None:
        if self._lost is not None:
            raise copy.copy(self._lost)

    def _check_process(self) -> None:
        """Refuse in a forked child. Called before any lock is taken: one that was held at the fork stays held in the
        child.
        """
        if os.getpid() != self._pid:
            raise OracleFenced(
                "the timestamps are served from the memory of the process that this one was forked from",
                hint="Open the environment in the child. " + _ONE_PROCESS,
            )

    def write_ts(self, now: Callable[[], int]) -> int:
        """Allocate a timestamp by the handle's clock ``now``.

        Raises:
            Determinate: the timeline has no timestamps left.
        """
        self._check_process()
        while True:
            with self._lock:
                self._check()
                ts = max(self._write + 1, now())
                if ts > MAX_TS:
                    raise Determinate("the timeline has no timestamps left")
                # Only below the durable bound: whoever takes over after a crash begins at it.
                if ts <= self._entry.bound:
                    self._write = ts
                    return ts
            self._reserve(ts, now)

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        self._check_process()
        with self._lock:
            self._check()
            return self._write

    def read_ts(self) -> int:
        """The read timestamp."""
        self._check_process()
        with self._lock:
            self._check()
            return self._read

    def apply_write(self, ts: int, now: Callable[[], int]) -> None:
        """Raise both timestamps to at least ``ts``."""
        check_ts(ts)
        self._check_process()
        while True:
            with self._lock:
                self._check()
                if ts <= self._entry.bound:
                    self._read = max(self._read, ts)
                    self._write = max(self._write, ts)
                    return
            self._reserve(ts, now)

    def _reserve(self, ts: int, now: Callable[[], int]) -> None:
        """Make a bound durable that is at or above ``ts``."""
        Patience("a range of timestamps").acquire(self._reserving)
        try:
            # Another thread may have reserved enough while this one waited.
            entry = self._entry
            if ts <= entry.bound:
                return
            bound = min(MAX_TS, max(ts + LEAST_RANGE, min(now(), MAX_TS) + RANGE_MS))
            self._append(msgspec.structs.replace(entry, bound=bound))
        finally:
            self._reserving.release()

    def _append(self, entry: Reservation) -> None:
        """Append an entry in this epoch; `_reserving` is held."""
        number = self._ledgers[-1].append(self._seqno, entry)
        if number is None:
            # An earlier attempt whose answer was lost may have arrived late; any other process's entry is a take-over.
            self._look()
            return
        with self._lock:
            self._seqno, self._entry = number, entry

    def confirm_leadership(self) -> None:
        """Check that no other process has taken over, by a read of the log that began after this call; concurrent
        callers share it.

        Raises:
            OracleFenced: another process has: what was read here may be too old and must not be returned.
        """
        self._check_process()
        self._check()
        self._confirms.share(self._look)

    def _look(self) -> None:
        seqno = self._seqno
        for number, entry in self._ledgers[-1].newer(seqno):
            with self._lock:
                if entry.token != self._entry.token:
                    self.superseded = entry.implementation == "distributed"
                    self._lost = self._lost or _fenced(entry)
                elif number > self._seqno:
                    self._seqno, self._entry = number, entry
        self._check()

    def add(self, ledger: Ledger) -> None:
        """Register another handle of this process, with its own Consensus handle."""
        with self._lock:
            self._ledgers.append(ledger)
            self.handles += 1

    def remove(self, ledger: Ledger) -> bool:
        """A handle is closed; with the last one both timestamps become durable as they are. Whether it was the last
        one.
        """
        with self._lock:
            self.handles -= 1
            last = self.handles == 0
            if not last:
                self._ledgers.remove(ledger)
        if last and self.serves:
            self._give_up()
        return last

    def _give_up(self) -> None:
        with self._reserving:
            with self._lock:
                ended = msgspec.structs.replace(
                    self._entry, bound=self._write, read_ts=self._read, write_ts=self._write
                )
                # Set before the write: nothing is handed out from here on, so what becomes durable is final.
                self._lost = OracleClosed("the timestamp oracle is closed")
            self.ended_well = self._ledgers[-1].append(self._seqno, ended) is not None


def _begin(last: Reservation | None, floor: int) -> tuple[int, int]:
    """The timestamps at which a process starts that takes over after ``last``."""
    if last is None:
        return floor, floor
    if last.read_ts is not None and last.write_ts is not None:
        return max(last.read_ts, floor), max(last.write_ts, floor)
    # The process before ended without a word: it may have handed out, and had acknowledged, anything up to its bound.
    return max(last.bound, floor), max(last.bound, floor)


def _fenced(by: Reservation) -> OracleFenced:
    if by.implementation == "distributed":
        return OracleFenced(
            f"process {by.who} has switched the timestamp oracle to 'distributed' while the statement ran",
            hint="Run the statement again.",
            sqlstate="40001",
        )
    return OracleFenced(
        f"process {by.who} serves the environment's timestamps now, from its memory (epoch {by.epoch})",
        detail="This process served them before; what it reads since then may be too old to be returned.",
        hint=_ONE_PROCESS,
    )


class Serving:
    """The timelines that a process serves, by name. A program has one, `PROCESS`; a test that simulates several
    processes has several.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: dict[str, InMemoryTimestamps] = {}

    def open(
        self, name: str, ledger: Ledger, who: str, *, step: int = 0, floor: int = 0
    ) -> InMemoryTimestamps:
        """The timestamps with this name, taken over unless this process serves them already; to be closed with `close`.

        Raises:
            LocationError: Consensus cannot be reached.
        """
        Patience("the timestamps served from memory").acquire(self._lock)
        try:
            served = self._served.get(name)
            if served is None or not served.serves:
                served = InMemoryTimestamps(ledger, who, step=step, floor=floor)
                self._served[name] = served
            served.add(ledger)
            return served
        finally:
            self._lock.release()

    def close(self, name: str, served: InMemoryTimestamps, ledger: Ledger) -> None:
        """Close a handle."""
        with self._lock:
            if served.remove(ledger) and self._served.get(name) is served:
                del self._served[name]


PROCESS = Serving()


class InMemoryOracle:
    """A handle on the timestamps that this process serves; opening the first one takes them over.

    Args:
        name: environment and timeline, unique among all that the process opens.
        ledger: the durable log.
        now: this handle's wall clock, in milliseconds since the epoch.
        who: this process, for messages.
        step: the step of the setting that it follows.
        floor: a lower bound for both timestamps.
        serving: the timelines that the process serves.

    Raises:
        OutdatedSetting: another process has followed a later setting.
        LocationError: Consensus cannot be reached.
    """

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        now: Callable[[], int],
        who: str,
        *,
        step: int = 0,
        floor: int = 0,
        serving: Serving = PROCESS,
    ) -> None:
        self._name = name
        self._ledger = ledger
        self._now = now
        self._serving = serving
        self._closed = threading.Lock()
        self._timestamps = serving.open(name, ledger, who, step=step, floor=floor)

    def write_ts(self) -> int:
        """Allocate a timestamp.

        Raises:
            OracleFenced: another process serves the timestamps now.
            LocationError: a range must be reserved, and Consensus cannot be reached.
        """
        return self._timestamps.write_ts(self._now)

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        return self._timestamps.peek_write_ts()

    def read_ts(self) -> int:
        """The read timestamp; only valid once `confirm_leadership` has returned after it."""
        return self._timestamps.read_ts()

    def apply_write(self, ts: int) -> None:
        """Raise both timestamps to at least ``ts``."""
        self._timestamps.apply_write(ts, self._now)

    def confirm_leadership(self) -> None:
        """As `InMemoryTimestamps.confirm_leadership`."""
        self._timestamps.confirm_leadership()

    @property
    def serves(self) -> bool:
        """Whether this process serves the timestamps, as far as it knows."""
        return self._timestamps.serves

    @property
    def superseded(self) -> bool:
        """Whether this process's serving ended by a switch to another implementation, so that it may take over again
        later.
        """
        return self._timestamps.superseded

    @property
    def ended_well(self) -> bool:
        """Whether this process served to the end: closing found that nobody had taken over."""
        return self._timestamps.ended_well

    def close(self) -> None:
        """Close the handle; with the process's last one the timestamps become durable as they are. Idempotent."""
        if not self._closed.acquire(blocking=False):
            return
        try:
            self._serving.close(self._name, self._timestamps, self._ledger)
        except LocationError as failure:
            # Nothing is lost: the next process starts at the bound.
            _log.info("the timestamps served from memory were not written down: %s", failure)
