"""Traces that are made while their arrangements are filled.

Promise: what a hydration writes to an arrangement's shard is sorted for its trace on the way, by threads beside it, so that the first step
after it looks things up as every later one does. What was written is not read again for that where it has passed this process; of what
Spark has written it is. Whatever fails here costs time only: who needs a trace that is not there loads it from the shard. Of each trace
at most `PIECES` pieces of `PIECE_BYTES` wait to be sorted.

Trade-off: a trace that was made so has a run for each piece instead of one, each of which every lookup looks into.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import Protocol, TypeVar

import pyarrow as pa

from mzsql.compute.replica.arrangement import Arrangement
from mzsql.compute.replica.runs import Run
from mzsql.repr.frontier import Timestamp

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: A run is made of about so many bytes, as they are in memory.
PIECE_BYTES = 128 * 1024 * 1024
#: So many pieces wait, or are worked at, before the next one is made.
PIECES = 2
#: Between two looks whether it is still wanted, in seconds.
_LOOK_SECONDS = 0.1


class Beside(Protocol):
    """Runs work on a thread of its own."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]:
        """What becomes of it."""


class Filling:
    """The trace of an arrangement that is filled at a time. For one thread.

    Args:
        arrangement: whose it is.
        as_of: the one time of all updates.
        most_rows: with more the arrangement has no trace.
        beside: sorts.
        stopped: whether nobody wants it any more.
    """

    def __init__(
        self,
        arrangement: Arrangement,
        as_of: Timestamp,
        most_rows: int,
        beside: Beside,
        stopped: Callable[[], bool],
    ) -> None:
        self._arrangement = arrangement
        self._as_of = as_of
        self._most_rows = most_rows
        self._beside = beside
        self._stopped = stopped
        self._trace = arrangement.empty_trace(as_of)
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0
        self._given_up = False
        self._runs: list[Future[Run | None]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Updates, as the shard has them: the arrangement's columns, mz_time, mz_diff."""
        self._rows += batch.num_rows
        if self._rows > self._most_rows:
            self._give_up()
        if self._given_up:
            return
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= PIECE_BYTES:
            self._sort()

    def _sort(self) -> None:
        """Have what waits made a run."""
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting)
            self._waiting, self._bytes = [], 0
            if not _done(self._runs[: 1 - PIECES], self._stopped):
                self._give_up()
                return
            self._runs.append(self._beside(lambda: self._trace.run_of(rows)))

    def _give_up(self) -> None:
        self._given_up = True
        for one in self._runs:
            one.cancel()
        self._waiting, self._runs = [], []

    def end(self) -> None:
        """There are no more updates, and those that came are in the shard."""
        self._sort()

    def hand_over(self) -> None:
        """Give the arrangement its trace, once it is made and as long as somebody wants it."""
        if self._given_up or not _done(self._runs, self._stopped):
            self._give_up()
            return
        try:
            made = [run for one in self._runs if (run := one.result()) is not None]
        except (Exception, CancelledError) as error:
            _LOG.warning("the trace of %s is loaded later: %s", self._arrangement.desc.name, error)
            return
        self._trace.take(made)
        self._arrangement.hot.give(self._trace, self._as_of + 1)


class Reading:
    """The trace of an arrangement that was filled by others, loaded from its shard."""

    def __init__(
        self,
        arrangement: Arrangement,
        as_of: Timestamp,
        beside: Beside,
        stopped: Callable[[], bool],
    ) -> None:
        self._arrangement = arrangement
        self._stopped = stopped
        self._made = [beside(lambda: self._load(as_of))]

    def _load(self, as_of: Timestamp) -> None:
        self._arrangement.trace(as_of)
        # A part of the hydration, which has read more than this.
        self._arrangement.take_loaded()

    def hand_over(self) -> None:
        """Wait until it is there, as long as somebody wants it."""
        if not _done(self._made, self._stopped):
            self._made[0].cancel()
            return
        try:
            self._made[0].result()
        except (Exception, CancelledError) as error:
            _LOG.warning("the trace of %s is loaded later: %s", self._arrangement.desc.name, error)


def _done(work: Sequence[Future[T]], stopped: Callable[[], bool]) -> bool:
    """Wait until all is done; whether it is, and nobody has stopped it."""
    while wait(work, _LOOK_SECONDS).not_done:
        if stopped():
            return False
    return True
