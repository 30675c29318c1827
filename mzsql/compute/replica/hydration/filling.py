"""Builds the traces of arrangements while these are being filled.

Promise: what a hydration writes to an arrangement's shard is also sorted for its trace, by threads beside the
writing, so that the first step finds the trace. Rows that pass through this process are not read again for that;
those that Spark wrote are. Any failure here costs only time, since a missing trace is loaded from the shard. At most
`PIECES` pieces of `PIECE_BYTES` of a trace wait to be sorted.

Trade-off: such a trace has one run for each piece instead of one in all, and every lookup looks into each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import Protocol, TypeVar

import pyarrow as pa

from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.arrangements.runs import Run
from mzsql.repr.frontier import Timestamp

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Bytes in memory of the rows of one run.
PIECE_BYTES = 128 * 1024 * 1024
#: How many pieces may wait or be sorted before the next one is made.
PIECES = 2
#: Pause between two checks for whether the trace is still wanted, in seconds.
_LOOK_SECONDS = 0.1


class Beside(Protocol):
    """Runs work on another thread."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]:
        """A future of the work's result."""


class Filling:
    """Builds the trace of an arrangement from the rows written to it. For one thread.

    Args:
        arrangement: the arrangement.
        as_of: the time of all updates.
        most_rows: with more rows no trace is built.
        beside: runs the sorting.
        stopped: whether the hydration is not wanted any more.
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
        """Add updates in the shard's form: the arrangement's columns, mz_time, mz_diff."""
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
        """Have the waiting rows sorted into a run."""
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
        """All updates were added and are in the shard."""
        self._sort()

    def hand_over(self) -> None:
        """Wait until the trace is built and give it to the arrangement, unless it is not wanted any more."""
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
    """Loads the trace of an arrangement that Spark has filled, from its shard."""

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
        # Clear the count of loaded bytes, so that no step reports what was part of the hydration.
        self._arrangement.take_loaded()

    def hand_over(self) -> None:
        """Wait until the trace is loaded, unless it is not wanted any more."""
        if not _done(self._made, self._stopped):
            self._made[0].cancel()
            return
        try:
            self._made[0].result()
        except (Exception, CancelledError) as error:
            _LOG.warning("the trace of %s is loaded later: %s", self._arrangement.desc.name, error)


def _done(work: Sequence[Future[T]], stopped: Callable[[], bool]) -> bool:
    """Wait until all work is done; return False if it was stopped before."""
    while wait(work, _LOOK_SECONDS).not_done:
        if stopped():
            return False
    return True
