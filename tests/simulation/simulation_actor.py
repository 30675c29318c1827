"""What all actors of the simulated world have in common: a shard, a client, handles, and how the outcome of a call is judged.

Every outcome is judged at once: what a call returned against `simulation_truth`, what it raised against what it may raise at this
moment. An actor may share its client with other actors of its process, as threads do.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from simulation_truth import Attempt, Truth, Update
from simulation_world import SECOND, Process, Violation

from mzsql.location import Determinate, Indeterminate, LocationError, UsageError
from mzsql.persist import (
    CorruptPart,
    ExpiredHandle,
    KeySpec,
    MissingPart,
    NewerVersion,
    ReadHandle,
    ShardFinalized,
    UpperMismatch,
    WriteHandle,
)
from mzsql.repr.frontier import Frontier, less_equal, less_than

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
            if not self.truth.ending:
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
        if reader.reader_id in state.readers:
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
            lapsed = type(failure) is ExpiredHandle and self._writer_lapsed()
            if not lapsed and not (isinstance(failure, ShardFinalized) and truth.finalized):
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

    def _writer_lapsed(self) -> bool:
        """Whether the actor's writer was expired, as it has just been told; then the next one is opened anew."""
        state = self.truth.state
        if state is None or self._writer is None or self._writer.writer_id not in state.expired:
            return False
        self._writer = None
        self.count("writer reopened")
        return True

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
