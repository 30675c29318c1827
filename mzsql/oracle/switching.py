"""An oracle whose implementation can be changed at run time: distributed, or served from one process's memory.

Promise: everything handed out or applied before a switch is below what is handed out after it, in every process. The
setting is in the catalog, and each process follows it at its next statement; the first one to do so makes the switch:

- to ``in-memory``: it takes the timeline over (`mzsql.oracle.in_memory`), at the highest timestamp of all
  implementations;
- to ``distributed``: it raises the distributed oracle to the bound of what was served from memory, then appends to the
  log, which fences the process that served. A process that dies between the two has only advanced timestamps.

A switch happens once, however many processes see the setting, and a process that has seen an older setting undoes
nothing: the log's entry has the setting's step. `confirm_leadership` says whether timestamps read before it are still
valid when results are returned. With timestamps from memory it is always needed; with the distributed oracle only while
a way back is kept open (`Wish.way_back`), since other processes may be about to serve from memory then. Otherwise it
does no IO. An operation during which a switch happens is done by the implementation that serves then.

One case cannot be seen here: a process that has allocated from the distributed oracle and commits while another already
serves from memory. So a reader for which `alone` is true reads the write-ahead log, and raises the oracle to what is
committed there (`Environment.fresh_timestamp`). Source: Materialize's distributed timestamp oracle design, "rollout".
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable
from typing import TypeVar

import msgspec

from mzsql.location import TimestampOracle
from mzsql.oracle.errors import OracleClosed, OracleFenced, OutdatedSetting
from mzsql.oracle.in_memory import PROCESS, InMemoryOracle, Serving
from mzsql.oracle.read_only import FollowingOracle
from mzsql.oracle.reservation import Implementation, Ledger, Reservation
from mzsql.oracle.sharing import Patience, SharedCalls

DISTRIBUTED: Implementation = "distributed"
IN_MEMORY: Implementation = "in-memory"
IMPLEMENTATIONS: tuple[Implementation, ...] = (DISTRIBUTED, IN_MEMORY)

T = TypeVar("T")

_SWITCHED = "the timestamp oracle was switched while the statement ran"


class Wish(msgspec.Struct, frozen=True):
    """The setting in the catalog.

    Attributes:
        implementation: the implementation that is to serve.
        way_back: whether leadership is confirmed with the distributed oracle too.
        step: how often the setting was changed: a later one overrules an earlier one, also where it says the same.
    """

    implementation: Implementation = DISTRIBUTED
    way_back: bool = False
    step: int = 0


class _Active(msgspec.Struct, frozen=True):
    """The implementation in use in this process.

    Attributes:
        implementation: its name in the setting.
        step: the setting's step.
        oracle: answers the operations.
        served: the timestamps in this process's memory, where it serves them.
        seqno: the log's newest entry when the distributed implementation was taken into use.
    """

    implementation: Implementation
    step: int
    oracle: TimestampOracle
    served: InMemoryOracle | None = None
    seqno: int | None = None

    def serves(self, wish: Wish) -> bool:
        """Whether it is the wished implementation, without interruption; a process whose serving a switch has ended
        must start again.
        """
        superseded = self.served is not None and self.served.superseded
        return self.step == wish.step and not superseded


class SwitchingOracle:
    """The oracle that the catalog's setting names, decided at each operation.

    Args:
        distributed: the distributed oracle, owned by this one from now on.
        ledger: the timeline's log.
        name: environment and timeline, unique among all that the process opens.
        now: the wall clock, in milliseconds since the epoch.
        who: this process, for messages.
        wish: gives the setting as last seen, without IO.
        ask: reads the setting; only called before a switch.
        serving: the timelines that the process serves from memory.
        meter: wraps the in-memory oracle in metrics.
        read_only: whether this process must change nothing.
    """

    def __init__(
        self,
        distributed: TimestampOracle,
        ledger: Ledger,
        name: str,
        now: Callable[[], int],
        who: str,
        *,
        wish: Callable[[], Wish],
        ask: Callable[[], Wish],
        serving: Serving = PROCESS,
        meter: Callable[[TimestampOracle], TimestampOracle] = lambda oracle: oracle,
        read_only: bool = False,
    ) -> None:
        self._meter = meter
        self._read_only = read_only
        self._distributed = distributed
        self._ledger = ledger
        self._name = name
        self._now = now
        self._who = who
        self._wish = wish
        self._ask = ask
        self._serving = serving
        self._switching = threading.Lock()
        self._active: _Active | None = None
        self._closed = False
        self._term = 0
        self._cut_off = 0
        self._looks = SharedCalls[bool]("the confirmation of leadership")

    # --- which one ----------------------------------------------------------------------------

    def _current(self) -> _Active:
        active = self._active
        if active is not None and active.serves(self._wish()):
            return active
        patience = Patience("the switch of the timestamp oracle")
        patience.acquire(self._switching)
        try:
            return self._switch(patience)
        finally:
            self._switching.release()

    def _switch(self, patience: Patience) -> _Active:
        """Follow the setting; `_switching` is held."""
        if self._closed:
            raise OracleClosed("the timestamp oracle is closed")
        while True:
            active, wish = self._active, self._ask()
            if active is not None and active.serves(wish):
                return active
            if active is not None:
                self._leave(active)
            with contextlib.suppress(OutdatedSetting):
                self._active = self._join(wish)
                return self._active
            patience.slice()

    def _leave(self, active: _Active) -> None:
        """Running statements go on with the next implementation, unless what they have read so far may be too old."""
        self._term += 1
        self._active = None
        if active.served is not None:
            active.served.close()
            if not active.served.ended_well:
                self._cut_off = self._term

    def _join(self, wish: Wish) -> _Active:
        """Take the wished implementation into use.

        Raises:
            OutdatedSetting: the catalog or the log has changed meanwhile.
        """
        seqno, entry = self._ledger.newest()
        if self._read_only:
            return self._follow(wish, seqno, entry)
        if wish.implementation == IN_MEMORY:
            return self._serve(wish)
        if entry is not None and entry.step > wish.step:
            raise OutdatedSetting("the setting of timestamp_oracle has changed")
        if entry is None or entry.implementation == DISTRIBUTED:
            return _Active(DISTRIBUTED, wish.step, self._distributed, seqno=seqno)
        # Before the entry: once others see it they take timestamps from the distributed oracle, and those must be
        # above all served from memory.
        self._distributed.apply_write(entry.bound)
        back = Reservation(
            epoch=entry.epoch + 1,
            implementation=DISTRIBUTED,
            token=str(uuid.uuid4()),
            who=self._who,
            bound=entry.bound,
            step=wish.step,
        )
        number = self._ledger.append(seqno, back)
        if number is None:
            raise OutdatedSetting("another process has switched the timestamp oracle first")
        return _Active(DISTRIBUTED, wish.step, self._distributed, seqno=number)

    def _follow(self, wish: Wish, seqno: int | None, entry: Reservation | None) -> _Active:
        """What a read-only process reads from: another process may serve from memory, or be about to."""
        moved = entry is not None and entry.implementation == IN_MEMORY
        if moved or wish.implementation == IN_MEMORY:
            following = FollowingOracle(self._distributed, self._ledger)
            return _Active(wish.implementation, wish.step, following)
        return _Active(DISTRIBUTED, wish.step, self._distributed, seqno=seqno)

    def _serve(self, wish: Wish) -> _Active:
        served = InMemoryOracle(
            self._name,
            self._ledger,
            self._now,
            self._who,
            step=wish.step,
            serving=self._serving,
        )
        try:
            # Read it after the take-over: what others allocate from now on is not acknowledged by this oracle.
            served.apply_write(max(self._distributed.peek_write_ts(), self._distributed.read_ts()))
        except BaseException:
            served.close()
            raise
        return _Active(IN_MEMORY, wish.step, self._meter(served), served)

    # --- operations -----------------------------------------------------------------------------

    def _ask_current(self, operation: Callable[[TimestampOracle], T]) -> T:
        """Run ``operation`` on the implementation in use; once more where a switch ended that one before it did
        anything.
        """
        while True:
            active = self._current()
            try:
                return operation(active.oracle)
            except OracleClosed:
                if self._closed or self._active is active:
                    raise

    def write_ts(self) -> int:
        """Allocate a timestamp."""
        return self._ask_current(lambda oracle: oracle.write_ts())

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        return self._ask_current(lambda oracle: oracle.peek_write_ts())

    def read_ts(self) -> int:
        """The read timestamp."""
        return self._ask_current(lambda oracle: oracle.read_ts())

    def apply_write(self, ts: int) -> None:
        """Raise both timestamps to at least ``ts``."""
        self._ask_current(lambda oracle: oracle.apply_write(ts))

    # --- leadership -----------------------------------------------------------------------------

    @property
    def alone(self) -> bool:
        """Whether timestamps come from this process's memory."""
        return self._current().served is not None

    @property
    def due(self) -> bool:
        """Whether the next operation would switch or fail; background work leaves that to a statement."""
        active = self._active
        if active is None or not active.serves(self._wish()):
            return True
        return active.served is not None and not active.served.serves

    @property
    def term(self) -> int:
        """Grows with each switch that this process follows. Read it before a statement's first timestamp, and pass it
        to `confirm_leadership`.
        """
        active = self._active
        if active is not None and not active.serves(self._wish()):
            # Make a due switch now: otherwise it would look as if it had come between this and the first timestamp.
            Patience("the switch of the timestamp oracle").acquire(self._switching)
            try:
                if self._active is active:
                    self._leave(active)
            finally:
                self._switching.release()
        return self._term

    def confirm_leadership(self, term: int | None = None) -> None:
        """Check that timestamps read since ``term`` are still valid; to be called before results read at them are
        returned.

        Raises:
            OracleFenced: another process has taken over, or has switched the implementation.
        """
        if term is not None and term < self._cut_off:
            raise OracleFenced(_SWITCHED, hint="Run the statement again.", sqlstate="40001")
        active = self._active
        if active is None:
            return
        if active.served is not None:
            self._confirm_served(active, active.served, term)
        elif (
            active.oracle is self._distributed
            and self._wish().way_back
            and not self._looks.share(self._is_newest)
        ):
            with self._switching:
                if self._active is active:
                    self._leave(active)
            raise OracleFenced(_SWITCHED, hint="Run the statement again.", sqlstate="40001")

    def _confirm_served(self, active: _Active, served: InMemoryOracle, term: int | None) -> None:
        try:
            served.confirm_leadership()
        except OracleClosed:
            if self._closed or self._active is active:
                raise
            # A switch is under way: after it, it is known whether this process served to the end.
            Patience("the switch of the timestamp oracle").acquire(self._switching)
            self._switching.release()
            self.confirm_leadership(term)

    def _is_newest(self) -> bool:
        active = self._active
        return active is not None and not self._ledger.newer(active.seqno)

    def close(self) -> None:
        """Close all implementations. Idempotent."""
        with self._switching:
            self._closed = True
            active, self._active = self._active, None
            if active is not None and active.served is not None:
                active.served.close()
            self._distributed.close()
