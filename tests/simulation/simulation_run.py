"""One schedule: a plan drawn from a seed, run, and judged at its end.

`draw` makes the plan; `play` runs it and raises `Violation` or whatever broke. After the actors are done the backends are healed and
everything must work: each process still alive writes and reads once more, then all are gone, their leases run out, and an auditor
finds the contents equal to the truth, few batches, a short log, and no object that nothing names but what leaks may have left, which
the finder of leaks removes.
"""

from __future__ import annotations

import contextlib
import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from simulation_actors import (
    ACTORS,
    SCHEMAS,
    Actor,
    Budget,
    Shared,
    definite_updates,
    drawn_updates,
)
from simulation_backends import BLOBS, CONSENSUS, FAULTS, Network, reached_by
from simulation_truth import Truth, Truths
from simulation_world import (
    MS,
    NEWER,
    SECOND,
    Died,
    Process,
    Violation,
    World,
    cooperative,
)

from mzsql.location import around
from mzsql.persist import (
    BlobCache,
    BlobPart,
    ExpiredHandle,
    KeySpec,
    NewerVersion,
    PersistClient,
    Settings,
    ShardFinalized,
    ShardHeld,
    WriteHandle,
    machine,
)
from mzsql.persist.clock import new_id
from mzsql.persist.state import ShardState
from mzsql.repr.version import VERSION

EVENTS = ("kill", "crash", "freeze", "burst", "cut")
_LIMIT = 400_000
_TROUBLES = (
    "process killed",
    "process killed at the end",
    *(f"fault {kind}" for kind in (*FAULTS, "cut")),
    "failed Determinate",
    "failed Indeterminate",
    "batch written",
)
"""What may leave objects behind that nothing names."""


class ClockPlan(msgspec.Struct):
    """What happens to a wall clock: it is set ``by_ms`` forward or back, or, by nothing, stands still for ``seconds``."""

    at_seconds: float
    by_ms: int
    seconds: float


class ProcessPlan(msgspec.Struct):
    """A process: which actors share its client, and on which shard."""

    name: str
    shard: int
    actors: list[str]
    steps: int
    background: bool
    skew_ms: int
    version: str = VERSION
    cache: str = ""
    """The blob cache it reads through, if any: in "memory", in a directory of its "own", or in one "shared" with others."""
    rate: float = 1.0
    """How fast its monotonic clock runs."""
    clock: list[ClockPlan] = []
    """What happens to its wall clock."""


class EventPlan(msgspec.Struct):
    """Something that happens to a process or a backend."""

    kind: str
    at_seconds: float
    process: str
    backend: str
    seconds: float
    steps: int


class Plan(msgspec.Struct):
    """All a schedule consists of; the rest follows from ``seed``."""

    seed: int
    shards: list[str]
    workers: int
    processes: list[ProcessPlan]
    events: list[EventPlan]
    faults: list[str]
    rate: float
    latency_ms: float
    stale: float
    blob: str
    consensus: str
    think_seconds: float
    finalize_after: float
    settings: dict[str, Any]
    wait_seconds: float = 1.0
    """How long a follower waits for news in one call; short, and most of what happens is that it wakes for nothing."""


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    rng = random.Random(seed)
    shards = [_weighted(rng, {"plain": 6, "keyed": 4, "definite": 2, "additive": 1})]
    if rng.random() < 0.15:
        shards.append(_weighted(rng, {"plain": 2, "keyed": 1, "definite": 1}))
    lease = rng.choice((15_000, 40_000, 90_000))
    processes = [_drawn_process(rng, f"p{i}", shards) for i in range(rng.randint(2, 5))]
    if rng.random() < 0.2:
        for process in [process for process in processes if process.shard == 0][:2]:
            process.actors.append("holder")
    if rng.random() < 0.08:
        rng.choice(processes).version = NEWER
    if rng.random() < 0.15:
        processes.append(ProcessPlan("end", 0, ["finalizer"], 6, False, 0))
    _draw_finder(seed, processes)
    _draw_clocks(seed, processes)
    calm = rng.random() < 0.1
    events = [] if calm else [_drawn_event(rng, processes) for _ in range(rng.randrange(6))]
    return Plan(
        seed=seed,
        shards=shards,
        workers=rng.choice((1, 1, 2)),
        processes=processes,
        events=events,
        faults=[kind for kind in FAULTS if rng.random() < 0.7],
        rate=0.0 if calm else rng.choice((0.0, 0.02, 0.08, 0.2)),
        latency_ms=rng.choice((0.5, 3.0, 20.0)),
        stale=rng.choice((0.0, 0.0, 0.3)),
        blob=rng.choice(tuple(BLOBS)),
        consensus=rng.choice(tuple(CONSENSUS)),
        think_seconds=rng.choice((0.01, 0.3, 3.0)),
        finalize_after=rng.choice((0.0, 1.0, 10.0, 40.0)),
        settings={
            "inline_bytes": rng.choice((0, 400, 2000, 65536)),
            "inline_total_bytes": rng.choice((0, 700, 3000, 1 << 20)),
            "part_bytes": rng.choice((60, *[64 << 20] * 7)),
            "row_group_rows": rng.choice((2, *[131072] * 3)),
            "compression": (compression := rng.choice(("zstd", "none", "none"))),
            "keyed_compression": compression,
            "keyed_row_group_rows": 2,
            "keyed_row_group_rows_least": 1,
            "page_rows": 1,
            "poll_seconds": 0.25,
            "poll_max_seconds": 4.0,
            "rollup_interval": rng.choice((2, 5, 16, 128)),
            "compaction_fanout": rng.choice((2, 3, 4)),
            "max_batches": rng.choice((2, 5, 48)),
            "reader_lease_ms": lease,
            "writer_lease_ms": rng.choice((2000, lease)),
            "timeout": rng.choice((3.0, 20.0, 60.0)),
        },
        wait_seconds=10.0,
    )


def _weighted(rng: random.Random, weights: dict[str, int]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def _drawn_process(rng: random.Random, name: str, shards: list[str]) -> ProcessPlan:
    shard = rng.randrange(len(shards))
    writes = {"definite": 4} if shards[shard] == "definite" else {"appender": 5, "batcher": 3}
    weights = {**writes, "reader": 4, "listener": 3, "compactor": 1, "holder": 1}
    actors = [_weighted(rng, writes)] if name == "p0" else []
    actors += [_weighted(rng, weights) for _ in range(rng.choice((1, 1, 1, 2, 3)) - len(actors))]
    return ProcessPlan(
        name=name,
        shard=shard,
        actors=actors,
        steps=rng.randint(4, 14),
        background=rng.random() < 0.4,
        skew_ms=rng.choice((0, 0, rng.randint(-5000, 5000), rng.randint(-100_000, 100_000))),
    )


_HOUR_MS = 3_600_000
_OFF_MS = (_HOUR_MS, -_HOUR_MS, 30 * _HOUR_MS, -30 * _HOUR_MS, 8766 * _HOUR_MS, -8766 * _HOUR_MS)


def _draw_clocks(seed: int, processes: list[ProcessPlan]) -> None:
    """Clocks that are wrong, jump and stand still; drawn apart from all else."""
    for process in processes:
        rng = random.Random(f"{seed}/clock/{process.name}")
        process.rate = rng.choice((1.0, 1.0, 0.995, 1.005))
        if rng.random() < 0.3:
            process.skew_ms += rng.choice(_OFF_MS)
        for _ in range(rng.choice((0, 0, 0, 1, 3))):
            by_ms = rng.choice((0, 0, *_OFF_MS, rng.randint(-100_000, 100_000)))
            at_seconds = rng.expovariate(1 / 8)
            process.clock.append(ClockPlan(at_seconds, by_ms, rng.choice((5.0, 60.0, 1e6))))


def _draw_finder(seed: int, processes: list[ProcessPlan]) -> None:
    """A finder of leaks at work beside the others; drawn apart from all else."""
    rng = random.Random(f"{seed}/finder")
    if rng.random() < 0.1:
        shard = processes[0].shard
        processes.append(ProcessPlan("leaks", shard, ["finder"], 12, False, rng.choice(_OFF_MS)))


def _drawn_event(rng: random.Random, processes: list[ProcessPlan]) -> EventPlan:
    return EventPlan(
        kind=rng.choice(EVENTS),
        at_seconds=rng.expovariate(1 / 8),
        process=rng.choice(processes).name,
        backend=rng.choice(("blob", "consensus")),
        seconds=rng.choice((0.5, 5.0, 30.0, 150.0)),
        steps=rng.randint(1, 60),
    )


class Life:
    """A process of the plan, through all its incarnations."""

    def __init__(self, run: Run, plan: ProcessPlan) -> None:
        self.run = run
        self.plan = plan
        self.budgets = [Budget(plan.steps) for _ in plan.actors]
        self.lives = 0
        self.process: Process | None = None
        self.client: Any = None
        self.begin()

    @property
    def done(self) -> bool:
        """Whether no actor has anything left to do; one that was killed is going to come back."""
        process = self.process
        if process is None or not process.alive:
            return False
        actors = self._actors
        while self._ended < len(actors) and actors[self._ended].done:
            self._ended += 1
        return self._ended == len(actors)

    def begin(self) -> None:
        """Start it, again."""
        self.lives += 1
        name = f"{self.plan.name}.{self.lives}"
        self.process = process = Process(self.run.world, name, self.plan.skew_ms, self.plan.rate)
        process.version = self.plan.version
        process.on_death = self._reborn
        self.run.processes.append(process)
        self._ended = 0
        self._actors: list[Any] = []
        self._actors.append(self.run.world.spawn(process, "main", self._main))

    def _main(self) -> None:
        run, process = self.run, self.process
        assert process is not None
        self.client = client = run.client(
            process, background=self.plan.background, cache=self.plan.cache
        )
        shard = run.shards[self.plan.shard]
        for number, (kind, budget) in enumerate(zip(self.plan.actors, self.budgets, strict=True)):
            actor = ACTORS[kind](run, process, client, shard, budget)
            self._actors.append(run.world.spawn(process, f"{number}{kind}", actor))

    def end(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.run.world.kill(self.process)

    def _reborn(self) -> None:
        if self.run.network.healed:
            self.run.world.coverage["process killed at the end"] += 1
            return
        self.run.world.coverage["process killed"] += 1
        self.run.world.at(SECOND // 2, self.begin)


class Run:
    """A plan being played."""

    def __init__(self, plan: Plan, *, verbose: bool = False) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        self.world.verbose = verbose
        self.truths = Truths(self.world)
        self.network = Network(self.world, plan.faults, plan.rate, plan.latency_ms)
        self.truths.network = self.network
        self.blob = BLOBS[plan.blob](self.world, self.truths)
        self.truths.blob = self.blob
        self.consensus = CONSENSUS[plan.consensus](self.world, self.truths, plan.stale)
        self.settings = Settings(**plan.settings)
        self.mailbox: dict[str, list[Any]] = {}
        self.processes: list[Process] = []
        self.violations: list[Violation] = []
        """Promises broken where the program took the exception for one of its own."""
        self.caches = contextlib.ExitStack()
        self._cache_root: Path | None = None
        self.shards = [self._shard(number, kind) for number, kind in enumerate(plan.shards)]

    @property
    def seconds(self) -> float:
        """How long the world has been."""
        return self.world.now / SECOND

    def _shard(self, number: int, kind: str) -> Shared:
        shard_id = "s" + new_id(random.Random(f"{self.plan.seed}/shard{number}"))
        key = None
        if kind in ("keyed", "additive"):
            additive = ("n",) if kind == "additive" else ()
            key = KeySpec(("k",), workers=self.plan.workers, additive=additive)
        truth = Truth(self.world, shard_id, key)
        self.truths.shards[shard_id] = truth
        return Shared(shard_id, kind, key, truth)

    def _cache(self, process: Process, kind: str) -> BlobCache | None:
        """A cache of the kind; what is in a directory outlives the process."""
        if not kind:
            return None
        directory = None
        if kind != "memory":
            if self._cache_root is None:
                made = tempfile.TemporaryDirectory(prefix="mzsql-simulation-")
                self._cache_root = Path(self.caches.enter_context(made))
            directory = self._cache_root / (
                process.name.partition(".")[0] if kind == "own" else kind
            )
        cache = BlobCache(directory, memory_bytes=process.rng.choice((0, 3000, 1 << 20)))
        cache.observe = lambda more: self.world.coverage.update(
            {f"cache {what}": number for what, number in more.items()}
        )
        return cache

    def client(self, process: Process, *, background: bool, cache: str = "") -> PersistClient:
        """A client of a process."""
        blob, consensus = reached_by(self.network, process, self.blob, self.consensus)
        client = PersistClient(
            blob,
            consensus,
            clock=process,
            rng=process.rng,
            settings=self.settings,
            background=background,
            version=process.version,
            cache=self._cache(process, cache),
        )
        # Its maintenance and leases run as tasks; pools of threads cannot.
        msgspec.structs.force_setattr(client._context, "threads", False)
        return client

    def play(self) -> None:
        """All of it."""
        world = self.world
        with cooperative(world):
            try:
                self.lives = [Life(self, plan) for plan in self.plan.processes]
                for life in self.lives:
                    for change in life.plan.clock:
                        world.at(round(change.at_seconds * SECOND), self._clock(life, change))
                for event in self.plan.events:
                    world.at(round(event.at_seconds * SECOND), self._happens(event))
                world.run(lambda: all(life.done for life in self.lives), _LIMIT)
                self._heal()
                self._still_working()
                self._audit()
                if self.violations:
                    raise self.violations[0]
            finally:
                self.network.heal()
                self.caches.close()
                for process in self.processes:
                    world.current = None
                    world.kill(process)

    def _clock(self, life: Life, change: ClockPlan) -> Callable[[], None]:
        def happen() -> None:
            world, process = self.world, life.process
            assert process is not None
            if change.by_ms:
                process.jump(change.by_ms)
                world.coverage["clock back" if change.by_ms < 0 else "clock forward"] += 1
            else:
                process.stand_still(world.now + round(change.seconds * SECOND))
                world.coverage["clock stands still"] += 1

        return happen

    def _happens(self, event: EventPlan) -> Callable[[], None]:
        [life] = [life for life in self.lives if life.plan.name == event.process]

        def happen() -> None:
            world, process = self.world, life.process
            if self.network.healed or process is None:
                return
            world.note(event.kind, process.name, event.backend)
            world.coverage[event.kind] += 1
            until = world.now + round(event.seconds * SECOND)
            match event.kind:
                case "kill":
                    life.end()
                case "crash":
                    process.dies_in = event.steps
                case "freeze":
                    process.freeze(until)
                case "burst":
                    self.network.bursts[event.backend] = (until, 0.8)
                case "cut":
                    self.network.cuts[process.name, event.backend] = until

        return happen

    def task(self, process: Process, what: str, body: Callable[[], None]) -> None:
        """Run one task to its end."""
        task = self.world.spawn(process, what, body)
        self.world.run(lambda: task.done, _LIMIT)

    def _heal(self) -> None:
        world = self.world
        self.network.heal()
        thawed = world.now + 60 * SECOND  # what is slow on its way ends meanwhile
        for process in self.processes:
            thawed = max(thawed, process.frozen_until)
            process.dies_in = None
        world.note("healed")
        world.at(thawed - world.now + 1, lambda: None)
        world.run(lambda: world.now > thawed, _LIMIT)
        world.run(lambda: not self.network.late, _LIMIT)

    def _still_working(self) -> None:
        """Each process that is alive can write and read once more."""
        for life in self.lives:
            process = life.process
            assert process is not None
            shard, client = self.shards[life.plan.shard], life.client
            outdated = shard.truth.outdated(process)
            if not process.alive or shard.truth.ending or outdated:
                continue
            kind = "definite" if shard.kind == "definite" else "appender"
            actor = ACTORS[kind](self, process, client, shard, Budget(1))
            self.task(
                process,
                "still writes",
                lambda actor=actor: _unless_outdated(actor, _appended),
            )
            self.task(process, "still reads", lambda a=actor: _unless_outdated(a, _read_once))
            if process.rng.random() < 0.5:
                self.task(process, "closes", lambda c=client: _closed(self.world, c))
            else:
                self.world.kill(process)

    def _audit(self) -> None:
        """Leases run out, and one last process finds everything in order."""
        world = self.world
        for process in self.processes:
            if process.alive:
                world.kill(process)
        world.run(lambda: not self.network.late, _LIMIT)
        lease = max(self.settings.reader_lease_ms, self.settings.writer_lease_ms)
        # Nobody expires anybody before having watched for as long as a lease.
        ahead = max((p.most_skew_ms for p in self.processes), default=0)
        auditor = Process(world, "auditor", ahead)
        auditor.version = NEWER
        self.processes.append(auditor)
        client = self.client(auditor, background=False)
        for shard in self.shards:
            if shard.truth.state is not None:
                self.task(auditor, "watches", lambda s=shard: client.inspect(s.shard_id))
        world.now += (lease + 1000) * MS
        for shard in self.shards:
            if shard.truth.state is not None:
                self.task(auditor, "audits", lambda s=shard: Audit(self, auditor, client, s)())


def _unless_outdated(actor: Actor, act: Callable[[Actor], None]) -> None:
    try:
        act(actor)
    except NewerVersion:
        if not actor.truth.outdated(actor.process):
            raise


def _appended(actor: Actor) -> None:
    """One append, however many it takes to win."""
    shard = actor.shard
    writer = actor.client.open_writer(shard.shard_id, shard.schema, key=shard.key)
    while (lower := writer.fetch_upper()) is not None:
        if _last_append(actor, writer, lower) == "done":
            return


def _last_append(actor: Actor, writer: WriteHandle, lower: int) -> str:
    shard, upper = actor.shard, lower + 1
    if shard.kind == "definite":
        updates = definite_updates(actor.run.plan.seed, lower, upper)
        attempt = actor.attempt("last", lower, upper, updates)
        attempt.definite = True
        table = shard.table(updates)
        return actor.attempted(attempt, lambda: writer.append(table, lower=lower, upper=upper))
    updates = drawn_updates(actor.rng, shard.kind, lower, upper, 2)
    attempt = actor.attempt("last", lower, upper, updates)
    given = shard.by_worker(updates)
    return actor.attempted(
        attempt,
        lambda: writer.compare_and_append(given, expected_upper=lower, new_upper=upper),
    )


def _read_once(actor: Actor) -> None:
    shard, truth = actor.shard, actor.shard.truth
    reader = actor.client.open_reader(shard.shard_id, shard.schema, key=shard.key)
    upper = reader.fetch_upper()
    if upper is None or upper == 0 or reader.since is None:
        return
    as_of = max(upper - 1, reader.since)
    table = reader.snapshot_arrow(as_of)
    truth.compare(f"the last read at {as_of}", table, truth.at(as_of), None)


def _closed(world: World, client: PersistClient) -> None:
    from simulation_truth import Attempt

    task = world.current
    assert task is not None
    task.doing = Attempt("close", 0, 0, [], expires=True)
    client.close()


PATIENCE = 60.0
"""Seconds for each piece of tidying: what is left to merge by then may take longer than the limit that the run plays with."""


class Audit:
    """The last look at a shard."""

    def __init__(self, run: Run, process: Process, client: PersistClient, shard: Shared) -> None:
        self.run = run
        self.process = process
        self.client = client
        self.shard = shard
        self.truth = shard.truth

    def __call__(self) -> None:
        if self.truth.ending:
            self._over()
        else:
            self._contents()
            self._tidy()
        if self.truth.finalized or self.process.rng.random() < 0.5:
            self._finalized()
        for attempt in self.truth.attempts:
            if attempt.outcome == "done" and attempt.commits != 1 and not attempt.definite:
                self.truth.fail(f"{attempt.name} was acknowledged and is lost")

    def _over(self) -> None:
        """Nobody can read it any more, and what was to end ends once nobody holds it."""
        try:
            self.client.open_reader(self.shard.shard_id)
        except ShardFinalized:
            pass
        else:
            self.truth.fail("a shard that is to end was opened")
        state = self.truth.state
        assert state is not None
        for hold_id in list(state.critical):
            self._release(hold_id)
        self.client.maintain(self.shard.shard_id, timeout=PATIENCE)
        if not self.truth.finalized:
            self.truth.fail("a shard that was to end has not, though nobody holds it")
        self.run.world.coverage["ended by its last holder"] += 1

    def _release(self, hold_id: str) -> None:
        hold = self.client.open_critical_reader(self.shard.shard_id, hold_id)
        task = self.run.world.current
        assert task is not None
        task.doing = f"hold {hold.token}"
        hold.release()
        task.doing = None

    def _contents(self) -> None:
        truth, shard = self.truth, self.shard
        reader = self.client.open_reader(shard.shard_id)
        upper, since = reader.fetch_upper(), reader.since
        if upper != truth.upper or since != truth.since:
            truth.fail("the auditor sees other frontiers")
        if upper is None or since is None:
            return
        if since < upper:
            for as_of in {
                since,
                upper - 1,
                (since + upper) // 2 if since < upper else since,
            }:
                if since <= as_of < upper:
                    table = reader.snapshot_arrow(as_of)
                    truth.compare(f"the final contents at {as_of}", table, truth.at(as_of), None)
            if since + 1 < upper:
                table = reader.updates(since + 1, upper)
                truth.compare("all updates", table, truth.between(since + 1, upper, 0), 0)
            truth.ask_since(upper - 1)
            reader.downgrade_since(upper - 1)
        self._expire(reader)

    def _expire(self, handle: Any) -> None:
        from simulation_truth import Attempt

        task = self.run.world.current
        assert task is not None
        task.doing = Attempt("expire", 0, 0, [], expires=True)
        handle.expire()
        task.doing = None

    def _tidy(self) -> None:
        """Maintained to rest, there is little left, and nothing beside it."""
        truth, client, shard_id = self.truth, self.client, self.shard.shard_id
        client.maintain(shard_id, timeout=PATIENCE)
        state = self._state()
        bound = self._bound(state)
        if len(state.trace) > bound:
            truth.fail(f"{len(state.trace)} batches are left, more than {bound}")
        client.maintain(shard_id, full=True, timeout=PATIENCE)
        client.maintain(shard_id, timeout=PATIENCE)
        state = self._state()
        if len(state.trace) > 1:
            truth.fail(f"{len(state.trace)} batches are left of a full compaction")
        if state.readers or state.writers:
            truth.fail(f"expired handles are left: {[*state.readers, *state.writers]}")
        if state.garbage:
            truth.fail(f"garbage is left: {state.garbage}")
        entries = self.run.consensus.inner.scan(shard_id, 0, 1 << 20)
        if len(entries) > 3 * self.run.settings.rollup_interval + 16:
            truth.fail(f"{len(entries)} entries are left in the log")
        if len(state.rollups) > 2:
            truth.fail(f"rollups are left: {state.rollups}")
        self._leaks(state)
        self._contents_again()

    def _bound(self, state: ShardState) -> int:
        """How many batches tiered compaction may leave."""
        fanout = self.run.settings.compaction_fanout
        rows = max(sum(batch.rows for batch in state.trace), 2)
        tiers = int(math.log(rows, fanout)) + 2
        return min(tiers * fanout, max(self.run.settings.max_batches, 2))

    def _state(self) -> ShardState:
        state = self.client.inspect(self.shard.shard_id)
        assert state is not None
        if state != self.truth.state:
            self.truth.fail("the auditor sees another state than the log's")
        return state

    def _leaks(self, state: ShardState) -> None:
        named = {p.key for b in state.trace for p in b.parts if isinstance(p, BlobPart)}
        named |= set(state.rollups.values())
        there = {k for k in self.run.truths.objects() if k.startswith(self.shard.shard_id)}
        if named - there:
            self.truth.fail(f"objects are gone: {named - there}")
        leaked = there - named
        coverage = self.run.world.coverage
        coverage["leaked objects"] += len(leaked)
        if not leaked:
            return
        troubled = any(coverage[what] for what in _TROUBLES)
        if not troubled:
            self.truth.fail(f"objects leaked though nothing ever failed: {leaked}")
        seen = list(self.client.find_leaks(shard_ids=[self.shard.shard_id], delete=True))
        if any(leak.deleted for leak in seen):
            self.truth.fail(f"leaks were deleted at first sight: {seen}")
        self.run.world.now += 25 * 3600 * SECOND
        found = list(self.client.find_leaks(shard_ids=[self.shard.shard_id], delete=True))
        if {leak.key for leak in found} != leaked or not all(leak.deleted for leak in found):
            self.truth.fail(f"the finder of leaks found {found}, not {leaked}")

    def _contents_again(self) -> None:
        """A new client, which has to start from the rollup, sees the same."""
        client = self.run.client(self.process, background=False)
        reader = client.open_reader(self.shard.shard_id)
        upper, since = reader.upper, reader.since
        if upper is not None and since is not None and since < upper:
            table = reader.snapshot_arrow(upper - 1)
            wanted = self.truth.at(upper - 1)
            self.truth.compare("the compacted contents", table, wanted, None)
            if table.num_rows != len(wanted):
                self.truth.fail("a snapshot is not consolidated")
        self._expire(reader)

    def _unheld(self, state: ShardState | None) -> None:
        """Holds keep the shard; whoever takes them over may release them."""
        assert state is not None
        for hold_id in list(state.critical):
            try:
                self.client.finalize(self.shard.shard_id)
            except ShardHeld as held:
                if [h.id for h in held.holders] != sorted(state.critical):
                    self.truth.fail(f"finalization was refused for {held.holders}")
            else:
                self.truth.fail("a shard that is held was finalized")
            self._release(hold_id)

    def _finalized(self) -> None:
        truth, shard_id = self.truth, self.shard.shard_id
        truth.finalize_asked = True
        self._unheld(truth.state)
        self.client.finalize(shard_id)
        self.client.maintain(shard_id)
        left = [k for k in self.run.truths.objects() if k.startswith(shard_id)]
        if left:
            truth.fail(f"objects outlive their shard: {left}")
        entries = self.run.consensus.inner.scan(shard_id, 0, 1 << 20)
        if len(entries) != 1:
            truth.fail(f"a tombstone has {len(entries)} entries")
        for act in (self.client.open_reader,):
            try:
                act(shard_id)
            except ExpiredHandle:
                continue
            truth.fail("a tombstone was opened")


def play(plan: Plan, *, verbose: bool = False) -> World:
    """Run a plan; the world as it was at its end.

    Raises:
        Violation: a promise was broken.
    """
    pages, slice_ = around.PAGE_KEYS, machine._WAIT_SLICE
    around.PAGE_KEYS = 3
    machine._WAIT_SLICE = plan.wait_seconds
    run = Run(plan, verbose=verbose)
    try:
        run.play()
    finally:
        around.PAGE_KEYS, machine._WAIT_SLICE = pages, slice_
    return run.world


def run_all(seeds: range, drawn: Callable[[int], Plan] = draw) -> Counter[str]:
    """What the schedules of the seeds met, once all of them kept every promise."""
    coverage: Counter[str] = Counter()
    for seed in seeds:
        try:
            coverage += play(drawn(seed)).coverage
        except (Exception, Violation) as failure:
            more = "" if drawn is draw else " --buffered"
            command = f".venv/bin/python tests/simulation --seed {seed}{more} --verbose"
            raise AssertionError(f"{failure}\nagain: {command}") from failure
    return coverage


__all__ = ["SCHEMAS", "Died", "Plan", "Run", "Violation", "draw", "play", "run_all"]
