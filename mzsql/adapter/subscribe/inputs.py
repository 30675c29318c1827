"""The inputs of a subscription: collections with a history, and relations that only have a present state.

Promise: an input gives its contents at a time and its updates between times, and stays readable from the subscription's
frontier on. A table or a materialized view gives what its shard holds. A builtin relation has no history: it is polled,
and the difference to the last poll becomes updates at the latest complete time. The trade-off: a poll computes the
whole relation, which is small.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from mzsql.adapter.environment.environment import Environment
from mzsql.compute.peek.inputs import Inputs
from mzsql.persist import consolidate
from mzsql.repr.errors import SqlError, UndefinedTable
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.storage.collection import TABLE

#: Seconds between two polls of a relation without history.
POLL_SECONDS = 1.0


class Input(Protocol):
    """One collection that a subscription reads."""

    def upper(self) -> Frontier:
        """The frontier below which it is complete."""

    def complete(self, past: Timestamp, *, ask: bool) -> bool:
        """Whether it is complete at ``past``; without ``ask`` judged from what this process knows, provided that it is
        notified of changes.
        """

    def patience(self, pause: float) -> float:
        """Seconds until it is to be checked again without a notification, where the last pause was ``pause`` seconds."""

    def snapshot(self, as_of: Timestamp) -> pa.RecordBatchReader:
        """The contents at ``as_of``, with the columns c0, c1, …, [mz_error], [mz_time], mz_diff."""

    def rows_between(self, lower: Timestamp, upper: Timestamp) -> int:
        """An upper bound on the number of updates in ``[lower, upper)``."""

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """The updates with ``lower <= mz_time < upper``, with the columns c0, c1, …, [mz_error], mz_time, mz_diff."""

    def hold(self, since: Timestamp) -> None:
        """Release the history before ``since``."""

    def close(self) -> None:
        """Release everything. Idempotent."""


class StoredInput:
    """A table or a materialized view, held readable from ``as_of`` on.

    Raises:
        NotReadable: it is not readable at ``as_of`` any more.
    """

    def __init__(self, env: Environment, gid: GlobalId, as_of: Timestamp) -> None:
        self._env = env
        self._gid = gid
        meta = env.collections.meta(gid)
        self._name = meta.name
        self._is_table = meta.kind == TABLE
        self._hold = env.collections.hold(gid, as_of)
        # Tables advance with the log, which the process follows anyway; a view's shard must be followed.
        self._unfollow = None if self._is_table else env.collections.followers.follow(gid)

    @property
    def since(self) -> Frontier:
        """The earliest time held."""
        return self._hold.since

    def upper(self) -> Frontier:
        """The collection's upper.

        Raises:
            UndefinedTable: the collection was dropped.
        """
        try:
            return self._env.collections.upper(self._gid)
        except UndefinedTable:
            raise self._dropped() from None

    def _dropped(self) -> SqlError:
        return UndefinedTable(
            f'subscribe has been terminated because underlying relation "{self._name}" was dropped'
        )

    def complete(self, past: Timestamp, *, ask: bool) -> bool:
        """Whether the collection's upper is beyond it.

        Raises:
            UndefinedTable: the collection was dropped.
        """
        collections = self._env.collections
        try:
            upper = collections.upper(self._gid) if ask else collections.seen_upper(self._gid)
        except UndefinedTable:
            raise self._dropped() from None
        return upper is None or upper > past

    def patience(self, pause: float) -> float:
        """`POLL_SECONDS` where this process is notified of changes; else growing pauses, since the store cannot notify."""
        told = self._is_table or self._env.collections.followers.told(self._gid)
        return POLL_SECONDS if told else min(pause * 1.5, POLL_SECONDS)

    def snapshot(self, as_of: Timestamp) -> pa.RecordBatchReader:
        """The shard's contents, read piece by piece."""
        return self._env.collections.snapshot_reader(self._gid, as_of)

    def rows_between(self, lower: Timestamp, upper: Timestamp) -> int:
        """The number of rows in the parts that may hold such updates."""
        parts = self._env.collections.parts_between(self._gid, lower, upper)
        return sum(part.rows for part in parts)

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """The shard's updates."""
        return self._env.collections.updates(self._gid, lower, upper)

    def hold(self, since: Timestamp) -> None:
        """Move the hold forward."""
        self._hold.downgrade(since)

    def close(self) -> None:
        """Release the hold, and follow no more."""
        if self._unfollow is not None:
            self._unfollow()
        self._hold.release()


class CatalogNews:
    """Tells whether the catalog may have changed, so that drops by other processes are noticed. Thread-safe."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._told: bool | None = None
        self._number = 0

    def heed(self) -> None:
        """Follow the catalog from now on, where Consensus can notify."""
        with self._lock:
            if self._told is None:
                self._told = self._env.follow_catalog(self._heard)

    def _heard(self) -> None:
        with self._lock:
            self._number += 1

    def sync(self, seen: int) -> int:
        """Read the catalog where it may have changed since the call that returned ``seen``.

        Returns:
            A number for the next call.
        """
        with self._lock:
            told, number = self._told, self._number
        if not told or number != seen:
            self._env.sync()
        return number


class PolledInput:
    """A relation without history.

    Args:
        env: gives the time.
        inputs: read its present contents.
        gid: the relation.
        as_of: the time for which they are read at first, and again.
    """

    def __init__(self, env: Environment, inputs: Inputs, gid: GlobalId, as_of: Timestamp) -> None:
        self._env = env
        self._inputs = inputs
        self._gid = gid
        self._as_of = as_of
        self._last: pa.Table | None = None
        self._next = 0.0
        self._upper: Timestamp = 0

    def upper(self) -> Frontier:
        """The time of the last poll; advances at most every `POLL_SECONDS`."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + POLL_SECONDS
            self._upper = max(self._upper + 1, self._env.oracle.present_ms())
        return self._upper

    def complete(self, past: Timestamp, *, ask: bool) -> bool:
        """Whether it was polled after ``past``."""
        del ask
        upper = self.upper()
        return upper is None or upper > past

    def patience(self, pause: float) -> float:
        """Seconds until the next poll."""
        del pause
        return max(self._next - time.monotonic(), 0.01)

    def _contents(self) -> pa.Table:
        return self._inputs.snapshot(self._gid, self._as_of)

    def snapshot(self, as_of: Timestamp) -> pa.RecordBatchReader:
        """The present contents, whatever ``as_of`` says."""
        del as_of
        self._last = self._contents()
        return self._last.to_reader()

    def rows_between(self, lower: Timestamp, upper: Timestamp) -> int:
        """Always 0: its updates have one time, so cutting the step would not make it smaller."""
        del lower, upper
        return 0

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """The difference between the last poll and the present contents, all at ``upper - 1``."""
        del lower
        assert self._last is not None
        now = self._contents()
        gone = self._last.set_column(
            self._last.schema.get_field_index("mz_diff"),
            "mz_diff",
            pc.negate(self._last.column("mz_diff")),
        )
        both = pa.concat_tables([now, gone], promote_options="default")
        self._last = now
        times = pa.repeat(pa.scalar(upper - 1, pa.int64()), both.num_rows)
        diffs = both.schema.get_field_index("mz_diff")
        return consolidate(both.add_column(diffs, "mz_time", times))

    def hold(self, since: Timestamp) -> None:
        """Do nothing: there is no history."""

    def close(self) -> None:
        """Do nothing."""
