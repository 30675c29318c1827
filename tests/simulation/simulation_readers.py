"""Actors that read: snapshots, splits, parts, keys, stretches of time, and a snapshot followed by what comes after it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from simulation_actor import (
    Actor,
)
from simulation_truth import Attempt
from simulation_world import SECOND, Violation

from mzsql.persist import (
    ExpiredHandle,
    MissingPart,
    ReadHandle,
    ReadTimeout,
    ShardFinalized,
    SinceViolation,
    SnapshotSplit,
)
from mzsql.repr.frontier import Frontier, contains, less_equal, less_than


class Reader(Actor):
    """Reads snapshots, splits, parts, keys and stretches of time, and gives up old times."""

    def step(self) -> None:
        reader = self.reader()
        try:
            self.rng.choice(
                (
                    self._snapshot,
                    self._snapshot,
                    self._splits,
                    self._updates,
                    self._parts,
                    self._projected,
                    self._downgrade,
                    self._downgrade,
                    self._heartbeat,
                    self._below,
                    self._expire,
                    self._inspect,
                )
            )(reader)
        except ShardFinalized:
            raise
        except ExpiredHandle as failure:
            self.expired(reader, failure)

    def _as_of(self, reader: ReadHandle) -> int | None:
        """A time to read at: readable now, or soon."""
        upper = reader.fetch_upper(timeout=self.timeout)
        since = reader.since
        if since is None:
            return None
        last = since + 2 if upper is None else max(upper - 1, since)
        soon = 1 if self.rng.random() < 0.15 else 0
        return self.rng.randint(since, last) + soon

    @contextlib.contextmanager
    def reading(self, as_of: int) -> Iterator[None]:
        """A read that may come too soon."""
        before = self.truth.upper
        try:
            yield
        except SinceViolation as failure:
            # A downgrade that may have happened counts as one that did.
            if contains(self._asked, failure.as_of):
                raise Violation(f"refused to read at {failure.as_of}") from failure
            self._reader = None
            self.count("read given up")
        except ReadTimeout as failure:
            if not less_equal(before, as_of) or before is None:
                raise Violation(f"time {as_of} was complete before the read began") from failure
            self.count("read timed out")
        except MissingPart as failure:
            state = self.truth.state
            if state is None or self._reader is None or self._reader.reader_id in state.readers:
                raise Violation(f"an object went missing under a reader: {failure}") from failure
            self._reader = None
            self.count("object gone with the lease")

    def _snapshot(self, reader: ReadHandle) -> None:
        as_of = self._as_of(reader)
        if as_of is None:
            return
        with self.reading(as_of):
            table = reader.snapshot_arrow(
                as_of, consolidate=self.rng.random() < 0.8, timeout=self.timeout
            )
            self.check(as_of, table, "a snapshot")

    def check(self, as_of: int, table: pa.Table, what: str) -> None:
        """A read at a time against the truth."""
        if less_equal(self.truth.upper, as_of) and self.truth.upper is not None:
            self.truth.fail(f"{what} at {as_of} was served before it was complete")
        self.truth.compare(f"{what} at {as_of}", table, self.truth.at(as_of), None)
        self.count(what)

    def _splits(self, reader: ReadHandle) -> None:
        as_of = self._as_of(reader)
        if as_of is None:
            return
        with self.reading(as_of):
            splits = reader.snapshot(as_of, self.rng.randint(1, 3), timeout=self.timeout)
            self._pause(reader, holds=any(split.parts for split in splits))
            if self.rng.random() < 0.4:
                context = self.client._context
                splits_there = [
                    SnapshotSplit.from_bytes(split.to_bytes(), context=context) for split in splits
                ]
                self.count("splits elsewhere")
            else:
                splits_there = splits
            tables = [split.to_arrow() for split in splits_there]
            del splits
            self.check(as_of, pa.concat_tables(tables), "splits")

    def _pause(self, reader: ReadHandle, *, holds: bool) -> None:
        """Take its time between taking parts and reading them."""
        state = self.truth.state
        assert state is not None
        taken = state.seqno
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            self._heartbeat(reader)
            now = self.truth.state
            assert now is not None
            held = now.readers.get(reader.reader_id)
            if holds and held is not None and held.seqno_hold > taken:
                self.truth.fail(f"parts taken at {taken} are held from {held.seqno_hold} on only")
        if self.rng.random() < 0.6:
            self.world.sleep(round(self.rng.expovariate(1 / 10) * SECOND) + 1)

    def _parts(self, reader: ReadHandle) -> None:
        as_of = self._as_of(reader)
        if as_of is None:
            return
        with self.reading(as_of):
            refs = reader.parts(as_of, timeout=self.timeout)
            self._pause(reader, holds=bool(refs))
            tables = [ref.to_arrow() for ref in refs]
            del refs
            if tables:
                table = pa.concat_tables(tables)
                times = table["mz_time"].to_pylist()
                table = table.filter(pa.array([time <= as_of for time in times]))
                self.check(as_of, table, "parts")

    def _updates(self, reader: ReadHandle) -> None:
        upper = reader.fetch_upper(timeout=self.timeout)
        since = reader.since
        if upper is None or since is None or since + 1 > upper:
            return
        lower = self.rng.choice((0, since + 1, since + 1))
        until = self.rng.randint(max(lower, since + 1), upper)
        with self.reading(max(until - 1, 0)):
            table = reader.updates(lower, until, timeout=self.timeout)
            floor = since if lower == 0 else 0
            wanted = self.truth.between(lower, until, floor)
            self.truth.compare(f"updates of [{lower}, {until})", table, wanted, floor)
            self.count("updates")

    def _projected(self, reader: ReadHandle) -> None:
        """Some columns, some keys."""
        as_of = self._as_of(reader)
        if as_of is None:
            return
        lo = self.rng.randrange(6)
        ranges = [(lo, lo + self.rng.randrange(2))] if self.shard.key is not None else None
        with self.reading(as_of):
            table = reader.snapshot_arrow(
                as_of,
                columns=["k"],
                key_ranges=ranges,
                consolidate=False,
                timeout=self.timeout,
            )
            wanted: Counter[Any] = Counter()
            for row, time, diff in self.truth.updates:
                if time <= as_of and (ranges is None or ranges[0][0] <= row[0] <= ranges[0][1]):
                    wanted[row[0]] += diff
            found: Counter[Any] = Counter()
            for k, diff in zip(table["k"].to_pylist(), table["mz_diff"].to_pylist(), strict=True):
                found[k] += diff
            if {k: n for k, n in found.items() if n} != {k: n for k, n in wanted.items() if n}:
                self.truth.fail(
                    f"keys {ranges} at {as_of} should hold {wanted} where it holds {found}"
                )
            self.count("keys" if ranges else "columns")

    def _downgrade(self, reader: ReadHandle) -> None:
        upper = reader.upper
        since = reader.since
        if since is None:
            return
        last = since + 3 if upper is None else max(upper - 1, since)
        to = self.rng.randint(since, last)
        self.ask_since(to)
        reader.downgrade_since(to, timeout=self.timeout)
        if reader.since != to:
            self.truth.fail(f"a reader downgraded to {to} is at {reader.since}")
        self.count("downgraded")

    def _heartbeat(self, reader: ReadHandle) -> None:
        reader.heartbeat(timeout=self.timeout)
        self.count("heartbeat")

    def _below(self, reader: ReadHandle) -> None:
        """A read below since must be refused."""
        since = reader.since
        if since is None or since == 0:
            return
        for what, act in (
            (
                "snapshot",
                lambda: reader.snapshot_arrow(since - 1, timeout=self.timeout),
            ),
            ("updates", lambda: reader.updates(since, since + 1, timeout=self.timeout)),
            ("listen", lambda: reader.listen(since - 1)),
        ):
            try:
                act()
            except SinceViolation:
                self.count("read below since refused")
            else:
                self.truth.fail(f"a {what} below since {since} was served")

    def _expire(self, reader: ReadHandle) -> None:
        if self.rng.random() < 0.7:
            return
        task = self.world.current
        assert task is not None
        self._reader = None
        task.doing = Attempt("expire", 0, 0, [], expires=True)
        try:
            reader.expire(timeout=self.timeout)
        finally:
            task.doing = None
        self.count("reader given up")

    def _inspect(self, reader: ReadHandle) -> None:
        moment = len(self.world.log)
        assert reader is not None
        state = self.client.inspect(self.shard.shard_id, timeout=self.timeout)
        if state is None or state.upper not in self.truth.upper_since(moment):
            self.truth.fail("inspected a state that there was not meanwhile")
        if not self.client.exists(self.shard.shard_id, timeout=self.timeout):
            self.truth.fail("a shard that exists does not")
        self.count("inspected")


class Listener(Reader):
    """Takes a snapshot and follows it, as a dataflow does."""

    _frontier: int | None = None

    def step(self) -> None:
        if self._reader is None:
            self._frontier = None
        reader = self.reader()
        try:
            self._follow(reader)
        except ShardFinalized:
            raise
        except ExpiredHandle as failure:
            self._frontier = None
            self.expired(reader, failure)

    def _follow(self, reader: ReadHandle) -> None:
        if self._frontier is None:
            as_of = self._as_of(reader)
            if as_of is None:
                return
            with self.reading(as_of):
                self.check(
                    as_of,
                    reader.snapshot_arrow(as_of, timeout=self.timeout),
                    "a snapshot",
                )
                self._frontier = as_of + 1
            if self._frontier is None:
                return
        lower: Frontier = self._frontier
        assert lower is not None
        timeout = self.timeout
        heard = reader.listen(lower - 1, timeout=timeout)
        for _ in range(self.rng.randint(1, 4)):
            assert lower is not None
            found: tuple[pa.Table, Frontier] | None = None
            with self.reading(lower):
                found = next(heard, None)
            if found is None:
                return
            table, upper = found
            if not less_than(lower, upper) or less_than(self.truth.upper, upper):
                self.truth.fail(f"a listen went from {lower} to {upper}")
            assert lower is not None
            self.truth.compare(
                f"a listen of [{lower}, {upper})",
                table,
                self.truth.between(lower, upper, 0),
                0,
            )
            self.count("listened")
            if upper is None:
                return
            self._frontier = lower = upper
            since = reader.since
            if self.rng.random() < 0.6 and less_than(since, upper - 1):
                self.ask_since(upper - 1)
                reader.downgrade_since(upper - 1, timeout=self.timeout)
                self.count("downgraded")
