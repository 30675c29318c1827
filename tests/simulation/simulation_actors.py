"""What the processes of the simulated world do: write, hand batches on, read, listen, hold, compact, collect, finalize.

Every call's outcome is judged at once: what it returned against `simulation_truth`, what it raised against what it may raise at this
moment. An actor may share its client with other actors of its process, as threads do.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from simulation_truth import Attempt, Truth, Update
from simulation_world import SECOND, Died, Process, Violation

from mzsql.location import Determinate, Indeterminate, LocationError, UsageError
from mzsql.persist import (
    Batch,
    CorruptPart,
    ExpiredHandle,
    InvalidBounds,
    KeySpec,
    MissingPart,
    NewerVersion,
    ReadHandle,
    ReadTimeout,
    SchemaMismatch,
    ShardFinalized,
    SinceViolation,
    SnapshotSplit,
    UpperMismatch,
    WriteHandle,
)
from mzsql.repr.errors import Fenced
from mzsql.repr.frontier import Frontier, contains, less_equal, less_than

if TYPE_CHECKING:
    from simulation_run import Run

SCHEMAS = {
    "plain": pa.schema([("k", pa.int64()), ("v", pa.string())]),
    "keyed": pa.schema([("k", pa.int64()), ("v", pa.string())]),
    "additive": pa.schema([("k", pa.int64()), ("n", pa.int64())]),
    "definite": pa.schema([("k", pa.int64()), ("v", pa.string())]),
}


def drawn_row(rng: random.Random, kind: str) -> tuple[Any, ...]:
    """A row of few values, so that rows meet and cancel out."""
    k = rng.randrange(6)
    return (
        k,
        rng.randint(-2, 2) if kind == "additive" else rng.choice(("a", "b", None)),
    )


def drawn_updates(rng: random.Random, kind: str, lower: int, upper: int, rows: int) -> list[Update]:
    """Updates with times in ``[lower, upper)``."""
    return [
        (
            drawn_row(rng, kind),
            rng.randrange(lower, upper),
            rng.choice((1, 1, 1, -1, 2)),
        )
        for _ in range(rows)
    ]


def definite_updates(seed: int, lower: int, upper: int) -> list[Update]:
    """What a definite source holds in ``[lower, upper)``: the same whoever asks."""
    found: list[Update] = []
    for time in range(lower, upper):
        rng = random.Random(f"{seed}/definite/{time}")
        found += drawn_updates(rng, "definite", time, time + 1, rng.randrange(3))
    return found


class Budget:
    """So many steps are left, over all lives of a process."""

    def __init__(self, steps: int) -> None:
        self.left = steps


class Shared:
    """A shard as one process has it."""

    def __init__(self, shard_id: str, kind: str, key: KeySpec | None, truth: Truth) -> None:
        self.shard_id = shard_id
        self.kind = kind
        self.key = key
        self.truth = truth
        self.schema = SCHEMAS[kind]

    def table(self, updates: list[Update]) -> pa.Table:
        """Updates as a table."""
        rows = [(*row, time, diff) for row, time, diff in updates]
        schema = pa.schema([*self.schema, ("mz_time", pa.int64()), ("mz_diff", pa.int64())])
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def by_worker(self, updates: list[Update]) -> Any:
        """Updates as appends of the shard take them."""
        if self.key is None or self.key.workers == 1:
            return self.table(updates)
        of: dict[int, list[Update]] = {}
        for update in updates:
            of.setdefault(update[0][0] % self.key.workers, []).append(update)
        return {worker: self.table(of[worker]) for worker in sorted(of)}


class Actor:
    """One task's doing."""

    def __init__(
        self, run: Run, process: Process, client: Any, shard: Shared, budget: Budget
    ) -> None:
        self.run = run
        self.world = run.world
        self.process = process
        self.client = client
        self.shard = shard
        self.truth = shard.truth
        self.budget = budget
        self.rng = random.Random(
            f"{run.plan.seed}/{process.name}/{type(self).__name__}/{budget.left}"
        )
        self._writer: WriteHandle | None = None
        self._reader: ReadHandle | None = None

    def __call__(self) -> None:
        """All its steps."""
        while self.budget.left > 0 and not self.truth.finalized:
            self.budget.left -= 1
            self.world.sleep(
                round(self.rng.expovariate(1 / self.run.plan.think_seconds) * SECOND) + 1
            )
            with self.judged():
                self.step()

    def step(self) -> None:
        """One call, or several that belong together."""
        raise AssertionError

    def count(self, what: str) -> None:
        """Note that something happened."""
        self.world.coverage[what] += 1
        self.world.note(self.process.name, what)

    @property
    def timeout(self) -> float:
        """How long a call may take: sometimes too short."""
        if self.run.network.healed:
            return 60.0
        return self.rng.choice((0.02, 0.5, 2.0, 10.0, 60.0))

    @contextlib.contextmanager
    def judged(self) -> Iterator[None]:
        """What calls may raise, whatever they are."""
        try:
            yield
        except (Determinate, Indeterminate) as failure:
            if self.run.network.healed and not isinstance(failure, MissingPart | CorruptPart):
                raise Violation(f"failed on healthy backends: {failure}") from failure
            self.count("failed " + type(failure).__name__)
        except CorruptPart:
            if not getattr(self.process, "flipped", False):
                raise
            self.count("corruption noticed")
        except ShardFinalized:
            if not self.truth.finalized:
                raise
            self.count("met a tombstone")
        except NewerVersion:
            if not self.truth.outdated(self.process):
                raise
            self.count("refused by version")

    # Handles.

    def writer(self) -> WriteHandle:
        """The actor's writer."""
        if self._writer is None:
            made = self.client.open_writer(
                self.shard.shard_id,
                self.shard.schema,
                key=self.shard.key,
                timeout=self.timeout,
            )
            self._writer = made
        return self._writer

    def reader(self) -> ReadHandle:
        """The actor's reader, opened anew when its lease ran out."""
        if self._reader is None:
            asked = self.truth.since
            made = self.client.open_reader(
                self.shard.shard_id,
                self.shard.schema,
                key=self.shard.key,
                timeout=self.timeout,
            )
            if less_than(made.since, asked):
                self.truth.fail(f"a reader was opened at {made.since}, below since {asked}")
            self._reader = made
            self._asked: Frontier = made.since
        return self._reader

    def ask_since(self, frontier: Frontier) -> None:
        """The reader is about to be told to give up reading below this."""
        self.truth.ask_since(frontier)
        if less_than(self._asked, frontier):
            self._asked = frontier

    def expired(self, reader: ReadHandle, failure: ExpiredHandle) -> None:
        """A reader says it has expired: it must have."""
        state = self.truth.state
        assert state is not None
        held = state.readers.get(reader.reader_id)
        now = max(state.walltime_ms + 1, self.process.now_ms())
        if held is not None and held.heartbeat_ms + held.lease_ms >= now:
            raise Violation("a reader said it had expired while it had not") from failure
        self._reader = None
        self.count("reader reopened")

    # Writing.

    def attempted(self, attempt: Attempt, act: Callable[[], None]) -> str:
        """Do what `attempt` says, and judge the outcome, which it returns."""
        truth, world = self.truth, self.world
        truth.attempts.append(attempt)
        task = world.current
        assert task is not None
        moment = len(world.log)
        task.doing = attempt
        attempt.outcome = "maybe"
        try:
            act()
        except UpperMismatch as mismatch:
            attempt.outcome = "failed"
            if mismatch.current not in truth.upper_since(moment):
                truth.fail(f"{attempt.name}: the upper was never {mismatch.current} meanwhile")
            if mismatch.current == attempt.lower and not attempt.definite:
                truth.fail(f"{attempt.name}: refused although the upper is the one expected")
        except Indeterminate:
            if self.run.network.healed:
                raise
        except UsageError as failure:
            attempt.outcome = "failed"
            if not (isinstance(failure, ShardFinalized) and truth.finalized):
                raise
        except (LocationError, NewerVersion) as failure:
            # What is not known to be maybe done is not done.
            attempt.outcome = "failed"
            if attempt.commits:
                truth.fail(f"{attempt.name} was committed, but said: {failure}")
            with self.judged():
                raise
        else:
            attempt.outcome = "done"
            self._check_done(attempt)
        finally:
            task.doing = None
        if attempt.outcome == "failed" and attempt.commits:
            truth.fail(f"{attempt.name} was committed although it failed")
        self.count(f"{attempt.name.partition(' ')[0]} {attempt.outcome}")
        return attempt.outcome

    def _check_done(self, attempt: Attempt) -> None:
        truth = self.truth
        if attempt.definite and less_equal(attempt.upper, truth.upper):
            return
        if attempt.commits != 1:
            truth.fail(f"{attempt.name} was acknowledged and committed {attempt.commits} times")

    def attempt(
        self, what: str, lower: Frontier, upper: Frontier, updates: list[Update]
    ) -> Attempt:
        """A new attempt."""
        number = len(self.truth.attempts)
        name = f"{what} {self.process.name}#{number} of [{lower}, {upper})"
        return Attempt(name=name, lower=lower, upper=upper, updates=updates)

    def current_upper(self, writer: WriteHandle) -> Frontier:
        """The upper, fetched or as this process last saw it."""
        moment = len(self.world.log)
        draw = self.rng.random()
        if draw < 0.2:
            return writer.upper
        if draw < 0.4:
            return self.truth.upper  # somebody told us
        upper = writer.fetch_upper(timeout=self.timeout)
        if upper not in self.truth.upper_since(moment):
            self.truth.fail(f"fetched the upper {upper}, which it was not meanwhile")
        return upper


class Appender(Actor):
    """Appends with compare_and_append."""

    def step(self) -> None:
        rng, writer = self.rng, self.writer()
        if rng.random() < 0.04:
            self._misuse(writer)
            return
        if rng.random() < 0.04:
            self._expire(writer)
            return
        lower = self.current_upper(writer)
        if lower is None:
            return
        upper = lower + rng.randint(1, 4)
        rows = rng.choice((0, 1, 1, 2, 3, 8))
        if rng.random() < 0.06:
            upper, rows = lower, 0
        updates = drawn_updates(rng, self.shard.kind, lower, upper, rows) if rows else []
        attempt = self.attempt("append", lower, upper, updates)
        given = self.shard.by_worker(updates) if updates or rng.random() < 0.5 else None
        timeout = self.timeout
        self.attempted(
            attempt,
            lambda: writer.compare_and_append(
                given, expected_upper=lower, new_upper=upper, timeout=timeout
            ),
        )

    def _misuse(self, writer: WriteHandle) -> None:
        """A call that must be refused, and change nothing."""
        lower = self.current_upper(writer)
        if lower is None:
            return
        updates = [(drawn_row(self.rng, self.shard.kind), lower + 1, 1)]
        good = self.shard.by_worker(updates)
        narrow: Any = self.shard.table(updates).drop(["k"])
        narrow = {0: narrow} if isinstance(good, dict) else narrow
        given, upper, error = self.rng.choice(
            [
                (good, lower + 1, InvalidBounds),
                (good, max(lower - 1, 0), InvalidBounds if lower else UsageError),
                (narrow, lower + 2, SchemaMismatch),
            ]
        )
        attempt = self.attempt("misuse", lower, upper, [])
        try:
            outcome = self.attempted(
                attempt,
                lambda: writer.compare_and_append(given, expected_upper=lower, new_upper=upper),
            )
        except error:
            self.count("misuse refused")
        else:
            if outcome == "done":
                self.truth.fail("misuse was accepted")

    def _expire(self, writer: WriteHandle) -> None:
        task = self.world.current
        assert task is not None
        self._writer = None
        task.doing = Attempt("expire", 0, 0, [], expires=True)
        try:
            writer.expire(timeout=self.timeout)
        finally:
            task.doing = None
        self.count("writer given up")


class Definite(Actor):
    """One of several writers of the same definite data."""

    def step(self) -> None:
        rng, writer = self.rng, self.writer()
        current = self.current_upper(writer)
        if current is None:
            return
        lower = max(0, current - rng.randrange(3))
        upper = lower + rng.randint(1, 5)
        updates = definite_updates(self.run.plan.seed, lower, upper)
        attempt = self.attempt("definite", lower, upper, updates)
        attempt.definite = True
        timeout = self.timeout
        self.attempted(
            attempt,
            lambda: writer.append(
                self.shard.table(updates), lower=lower, upper=upper, timeout=timeout
            ),
        )


class Batcher(Actor):
    """Writes batches before their time is known, and appends those that others wrote."""

    def step(self) -> None:
        waiting = self.run.mailbox.setdefault(self.shard.shard_id, [])
        if not waiting or self.rng.random() < 0.5:
            self._write(waiting)
        else:
            self._append(waiting)

    def _write(self, waiting: list[tuple[bytes, list[Update]]]) -> None:
        rng, writer = self.rng, self.writer()
        updates = drawn_updates(rng, self.shard.kind, 0, 1, rng.choice((1, 2, 8)))
        given = self.shard.by_worker(updates)
        if rng.random() < 0.3 and not isinstance(given, dict) and self.shard.key is None:
            batch = self._adopted(writer, given)
        elif isinstance(given, dict):
            batch = writer.batch_by_worker(given, lower=0, upper=1)
        else:
            batch = writer.batch(given, lower=0, upper=1)
        waiting.append((batch.to_bytes(), updates))
        self.count("batch written")

    def _adopted(self, writer: WriteHandle, table: pa.Table) -> Batch:
        """As Spark writes: into Blob by path, with checksums of pages, with no durability."""
        blob = self.run.blob
        key = f"{writer.part_prefix()}/part-0.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, write_page_checksum=True)
        blob._inner.set(key, sink.getvalue().to_pybytes())
        if hasattr(blob, "make_durable"):
            blob.volatile.add(key)
        task = self.world.current
        assert task is not None
        task.doing = "adopt"
        try:
            return writer.adopt_parts([key], lower=0, upper=1, timeout=self.timeout)
        finally:
            task.doing = None
            self.count("adopted")

    def _append(self, waiting: list[tuple[bytes, list[Update]]]) -> None:
        rng, writer = self.rng, self.writer()
        taken = [
            waiting.pop(rng.randrange(len(waiting)))
            for _ in range(min(len(waiting), rng.randint(1, 3)))
        ]
        try:
            lower = self.current_upper(writer)
        except (Determinate, Indeterminate):
            waiting += taken
            raise
        if lower is None:
            return
        upper = lower + rng.randint(1, 3)
        batches = [Batch.from_bytes(data).rewrite_ts(lower) for data, _ in taken]
        updates = [(row, lower, diff) for _, of in taken for row, _, diff in of]
        attempt = self.attempt("batches", lower, upper, updates)
        timeout = self.timeout
        outcome = self.attempted(
            attempt,
            lambda: writer.compare_and_append_batch(
                batches, expected_upper=lower, new_upper=upper, timeout=timeout
            ),
        )
        if outcome == "failed":
            if rng.random() < 0.5:
                waiting += taken
            else:
                for batch in batches:
                    writer.delete_batch(batch)
                    self.count("batch deleted")


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


class Compactor(Actor):
    """Maintains the shard from outside."""

    def step(self) -> None:
        if self.truth.state is None:
            return
        full = self.rng.random() < 0.3
        report = self.client.maintain(self.shard.shard_id, full=full, timeout=self.timeout)
        self.count("maintained")
        self.world.coverage["merges of compactors"] += report.merges


class Holder(Actor):
    """Owns a critical hold until another process takes it over."""

    _hold: Any = None

    def step(self) -> None:
        rng, truth = self.rng, self.truth
        shard_id = self.shard.shard_id
        if self._hold is None:
            if truth.state is None:
                self.writer()
            self._hold = self.client.open_critical_reader(shard_id, "hold", timeout=self.timeout)
            self.count("hold taken")
            return
        hold = self._hold
        try:
            task = self.world.current
            assert task is not None
            if rng.random() < 0.1:
                task.doing = f"hold {hold.token}"
                try:
                    hold.release(timeout=self.timeout)
                finally:
                    task.doing = None
                self._hold = None
                self.count("hold released")
                return
            since, upper = hold.since, truth.upper
            if since is None or upper is None:
                return
            to = rng.randint(since, max(since, upper - 1))
            truth.ask_since(to)
            task.doing = f"hold {hold.token}"
            try:
                hold.downgrade_since(to, timeout=self.timeout)
            finally:
                task.doing = None
            self.count("hold moved")
        except Fenced as failure:
            state = truth.state
            assert state is not None
            held = state.critical.get("hold")
            if held is not None and held.token == hold.token:
                raise Violation("fenced by nobody") from failure
            self._hold = None
            self.count("fenced")
        except ShardFinalized:
            raise
        except ExpiredHandle:
            self._hold = None
            self.count("hold was released")


class Finalizer(Actor):
    """Ends the shard, once, near its end."""

    def step(self) -> None:
        if self.run.seconds < self.run.plan.finalize_after or self.truth.state is None:
            return
        self.truth.finalize_asked = True
        self.client.finalize(self.shard.shard_id, timeout=self.timeout)
        self.count("finalized by call")


ACTORS: dict[str, type[Actor]] = {
    "appender": Appender,
    "batcher": Batcher,
    "compactor": Compactor,
    "definite": Definite,
    "finalizer": Finalizer,
    "holder": Holder,
    "listener": Listener,
    "reader": Reader,
}

__all__ = ["ACTORS", "Actor", "Budget", "Died", "Shared"]
