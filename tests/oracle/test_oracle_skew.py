"""The guard against fast clocks, over real oracles and machines with clocks of their own; that all wrappers keep the contract."""

from __future__ import annotations

import itertools
import random

import pytest
from prometheus_client import CollectorRegistry

from mzsql.location import Clocked, UsageError
from mzsql.location.mem import MemConsensus, MemOracle, MemTimestamps
from mzsql.oracle import (
    CATALOG,
    EPOCH_MS,
    MAX_AHEAD_MS,
    BoundedClock,
    ClockSkew,
    InMemoryOracle,
    Ledger,
    OracleMetrics,
    OracleReadOnly,
    Serving,
    SkewGuard,
    open_oracle,
    wall_clock_ms,
    wrap_oracle,
)
from mzsql.testing import OracleContract

HOUR, DAY, YEAR = 3_600_000, 86_400_000, 31_536_000_000
WRONG = [HOUR, YEAR]


class TestWrapped(OracleContract):
    """The wrappers keep the contract."""

    def open_oracle(self, place, timeline, now):
        return open_oracle(f"sqlite:{place}/o.db", timeline, now)


class World:
    """Machines on one timeline, and the time as it is.

    Args:
        backend: whether the oracle's backend has a clock.
    """

    def __init__(self, *, backend: bool = True) -> None:
        self.ms = 1_700_000_000_000
        self.backend_wrong = 0
        self.backend = backend
        self.asked = 0
        self.slept = 0.0
        self.meanwhile = lambda: None
        self.timestamps = MemTimestamps()

    def backend_clock(self):
        self.asked += 1
        return self.ms + self.backend_wrong

    def sleep(self, seconds):
        self.slept += seconds
        self.ms += round(seconds * 1000)
        self.meanwhile()

    def boot(self, wrong=0):
        """A process that starts on a machine whose clock is so wrong."""
        return Machine(self, wrong)

    @property
    def newest(self):
        return self.timestamps.write


class Machine:
    """A process with a guarded handle; its clock's error may be changed."""

    def __init__(self, world, wrong):
        self.world, self.wrong = world, wrong
        clock = BoundedClock(self.now, monotonic=lambda: world.ms / 1000 - 12.5, sleep=world.sleep)
        if world.backend:
            clock.consult(world.backend_clock)
        self.oracle = SkewGuard(MemOracle(clock, timestamps=world.timestamps), clock)

    def now(self):
        return self.world.ms + self.wrong

    def write(self):
        ts = self.oracle.write_ts()
        self.oracle.apply_write(ts)
        return ts

    def is_refused(self):
        with pytest.raises(ClockSkew) as refused:
            self.oracle.write_ts()
        assert refused.value.sqlstate == "55000"
        assert "Set this machine's clock" in refused.value.hint
        assert self.world.newest <= self.world.ms + MAX_AHEAD_MS
        return refused.value


@pytest.fixture(params=[True, False], ids=["the backend has a clock", "it has none"])
def world(request):
    return World(backend=request.param)


def test_the_bound_is_ten_seconds():
    assert MAX_AHEAD_MS == 10_000


@pytest.mark.parametrize("wrong", WRONG)
def test_who_has_a_fast_clock_is_stopped_and_the_others_go_on(world, wrong):
    right, other = world.boot(), world.boot()
    right.write()
    fast = world.boot(wrong)
    world.meanwhile = right.write  # others are at work while somebody watches
    for _ in range(3):
        world.ms += 1000
        assert right.write() == world.ms
        error = fast.is_refused()
        assert "ahead of the " in error.message
        assert other.write() <= world.ms + 2
    with pytest.raises(ClockSkew):
        fast.oracle.apply_write(fast.now())
    assert fast.oracle.present_ms() <= world.ms + 1
    assert fast.oracle.read_ts() == right.oracle.read_ts() == world.newest <= world.ms + 2


@pytest.mark.parametrize("wrong", WRONG)
def test_a_clock_that_was_set_right_is_believed_again(world, wrong):
    right, fast = world.boot(), world.boot()
    right.write()
    fast.write()
    fast.wrong = wrong
    fast.is_refused()
    fast.wrong = 0
    world.ms += 1000
    assert fast.write() == world.ms


@pytest.mark.parametrize("wrong", WRONG)
def test_who_has_a_slow_clock_goes_on_by_the_timeline_and_stops_nobody(world, wrong):
    right, slow = world.boot(), world.boot(-wrong)
    for _ in range(3):
        world.ms += 1000
        assert right.write() == world.ms
        assert slow.write() == world.ms + 1
    assert world.slept == 0
    slow.wrong = 0
    world.ms += HOUR
    assert slow.write() == right.write() - 1 == world.ms


@pytest.mark.parametrize("wrong", WRONG)
def test_a_clock_that_jumps_is_refused_while_it_is_fast_only(world, wrong):
    right, jumping = world.boot(), world.boot()
    for step in itertools.islice(itertools.cycle([0, wrong, -wrong, wrong, 0, -wrong]), 24):
        world.ms += 1000
        right.write()
        jumping.wrong = step
        if step > 0:
            jumping.is_refused()
        else:
            jumping.write()
    world.ms += 1000
    assert right.write() == world.ms


def test_a_jump_between_the_check_and_the_allocation_does_not_get_through(world):
    right, jumping = world.boot(), world.boot()
    right.write()
    jumping.write()
    world.ms += 1000
    true, said = jumping.now, []

    def jumps():
        said.append(true() + (HOUR if said else 0))
        return said[-1]

    jumping.oracle._clock._now = jumps
    ts = jumping.oracle.write_ts()
    assert len(said) > 1
    assert ts <= world.ms + MAX_AHEAD_MS
    assert right.write() == ts + 1


@pytest.mark.parametrize("idle", [DAY, YEAR])
def test_after_a_day_without_a_write_a_right_clock_is_believed_at_once(world, idle):
    world.boot().write()
    world.ms += idle
    later = world.boot()
    assert later.write() == world.ms
    assert world.boot().write() > world.ms - 2000
    # also where a process was there all the time
    world.ms += idle
    assert later.write() == world.ms


def test_without_a_clock_of_the_backend_the_first_of_an_idle_timeline_cannot_be_told_to_be_wrong():
    world = World(backend=False)
    world.boot().write()
    world.ms += DAY
    assert world.boot(HOUR).write() == world.ms + HOUR
    # whoever comes then is stopped by nothing, and goes on by the timeline
    assert world.boot().write() == world.newest
    assert world.boot().write() == world.newest


def test_with_a_clock_of_the_backend_nobody_is_believed_blindly():
    world = World()
    world.boot(HOUR).is_refused()
    assert world.newest == 0
    world.boot().write()
    world.ms += DAY
    world.boot(HOUR).is_refused()


def test_the_backends_clock_is_asked_once_while_clocks_are_right():
    world = World()
    right = world.boot()
    for _ in range(1000):
        world.ms += 60_000
        right.write()
    assert world.asked == 1


def test_a_backend_whose_clock_is_set_back_stops_no_process_that_runs_nor_one_that_joins_them():
    world = World()
    running = world.boot()
    running.write()
    world.backend_wrong = -HOUR
    world.ms += 60_000
    assert running.write() == world.ms
    joining = world.boot()
    world.ms += 1000
    assert joining.write() == world.ms
    world.boot(HOUR).is_refused()
    # and when nobody is at work, a clock of two is wrong: who asks is told so
    world.ms += DAY
    assert "set that of the backend" in world.boot().is_refused().hint
    assert running.write() == world.ms


def test_a_backend_whose_clock_is_fast_pushes_nobody_ahead():
    world = World()
    world.backend_wrong = HOUR
    assert world.boot().write() == world.ms
    assert world.boot().oracle.present_ms() == world.ms


def test_a_right_clock_and_the_monotonic_one_may_come_apart_slowly():
    world = World(backend=False)
    right = world.boot()
    for _ in range(300):
        world.ms += HOUR
        right.wrong += 1000 // 24
        right.write()
    assert right.wrong > MAX_AHEAD_MS
    right.wrong += 2 * MAX_AHEAD_MS
    with pytest.raises(ClockSkew, match="ahead of the timeline"):
        right.write()


def test_who_allocates_faster_than_time_passes_waits(world):
    one = world.boot()
    for _ in range(MAX_AHEAD_MS + 1500):
        one.oracle.write_ts()
    assert world.slept > 1
    assert world.newest <= world.ms + MAX_AHEAD_MS


def test_far_ahead_writes_are_refused():
    clock = [100_000]
    inner = MemOracle(lambda: clock[0])
    guard = SkewGuard(inner, lambda: clock[0])
    guard.apply_write(110_000)
    with pytest.raises(UsageError, match=r"10\.0 s ahead of the clock, at most 10 s are allowed"):
        guard.apply_write(110_001)
    assert guard.read_ts() == 110_000


def test_whether_a_time_may_be_applied_is_told_before_anything_is_moved(world):
    machine = world.boot()
    before = machine.write()
    for ahead in (0, MAX_AHEAD_MS, MAX_AHEAD_MS + 1, HOUR):
        ts = world.ms + ahead
        if ahead > MAX_AHEAD_MS:
            for take in (machine.oracle.check_applied, machine.oracle.apply_write):
                with pytest.raises(ClockSkew, match="at most 10 s are allowed"):
                    take(ts)
        else:
            machine.oracle.check_applied(ts)
        assert machine.oracle.read_ts() == before


def test_who_closes_the_guard_closes_the_oracle_behind():
    closed = []

    class Closes(MemOracle):
        def close(self):
            closed.append(True)
            super().close()

    guard = SkewGuard(Closes(lambda: 5), lambda: 5)
    assert guard.write_ts() == 5
    guard.close()
    assert closed == [True]


def test_an_allocation_waits_for_the_clock_and_follows_what_others_have_moved_far():
    clock, slept = [0], []

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += round(seconds * 1000)

    inner = MemOracle(lambda: clock[0])
    guard = SkewGuard(inner, lambda: clock[0], sleep=sleep, monotonic=lambda: clock[0] / 1000)
    inner.apply_write(15_000)
    assert guard.write_ts() == 15_001
    assert slept == [pytest.approx(5.001)]
    assert guard.write_ts() == 15_002
    inner.apply_write(1_000_000)
    assert guard.write_ts() == 1_000_001
    assert guard.write_ts() == 1_000_002
    assert len(slept) <= 2


@pytest.mark.parametrize("seed", range(20))
def test_machines_with_all_sorts_of_clocks(seed):
    """Whoever has a right clock is never refused, whoever has a fast one always is, and the timeline keeps to the time."""
    rng = random.Random(seed)
    world = World()
    machines, right = [world.boot() for _ in range(3)], world.boot()
    for _ in range(400):
        world.ms += rng.choice([0, 1, 1000, 60_000, DAY]) if rng.random() < 0.5 else 1
        world.ms += 20 if rng.random() < 0.2 else 0
        if rng.random() < 0.1:
            world.backend_wrong = rng.choice([0, 0, 2000, -2000])
        one = rng.choice(machines)
        if rng.random() < 0.2:
            one.wrong = rng.choice([0, HOUR, -HOUR, YEAR, -YEAR, 2000, -2000])
        if rng.random() < 0.05:
            machines[machines.index(one)] = one = world.boot(one.wrong)
        if one.wrong >= HOUR:
            one.is_refused()
        else:
            one.write()
        assert right.write() == world.newest
        assert world.newest <= world.ms + MAX_AHEAD_MS
    assert world.slept == 0


def test_a_fast_clock_reserves_no_range_that_is_far_ahead():
    world = World()
    consensus = MemConsensus()

    def open_served(wrong):
        clock = BoundedClock(
            lambda: world.ms + wrong, monotonic=lambda: world.ms / 1000, sleep=world.sleep
        )
        clock.consult(world.backend_clock)
        served = InMemoryOracle("e", Ledger(consensus, EPOCH_MS), clock, "p", serving=Serving())
        return SkewGuard(served, clock), served

    right, _ = open_served(0)
    right.apply_write(right.write_ts())
    fast, served = open_served(HOUR)
    with pytest.raises(ClockSkew):
        fast.write_ts()
    served.apply_write(
        served.write_ts()
    )  # past the guard: what its clock says is cut off all the same
    after, _ = open_served(0)
    assert after.write_ts() <= world.ms + 2 * MAX_AHEAD_MS


@pytest.mark.parametrize("url", ["mem:", "sqlite:{}/o.db"])
@pytest.mark.parametrize("timeline", [EPOCH_MS, CATALOG])
def test_each_embedded_backend_has_a_clock_that_tells_a_fast_one(tmp_path, url, timeline):
    metrics = OracleMetrics(CollectorRegistry())
    place = url.format(tmp_path)
    for wrong in WRONG:
        fast = open_oracle(place, timeline, lambda w=wrong: wall_clock_ms() + w, metrics=metrics)
        with pytest.raises(ClockSkew, match="ahead of the clock of the timestamp oracle's backend"):
            fast.write_ts()
        assert fast.peek_write_ts() == 0
        fast.close()
    right = open_oracle(place, timeline, metrics=metrics)
    assert abs(right.write_ts() - wall_clock_ms()) < MAX_AHEAD_MS
    right.close()


def test_the_clock_of_an_embedded_backend_is_the_machines():
    oracle = MemOracle(lambda: 7)
    assert isinstance(oracle, Clocked)
    before = wall_clock_ms()
    assert before <= oracle.clock_ms() <= wall_clock_ms()


@pytest.mark.parametrize("timeline", [EPOCH_MS, CATALOG])
def test_wall_clock_timelines_are_guarded(timeline):
    oracle = wrap_oracle(
        MemOracle(lambda: 0), timeline, lambda: 0, metrics=OracleMetrics(CollectorRegistry())
    )
    with pytest.raises(UsageError, match="ahead of the clock"):
        oracle.apply_write(10**15)


def test_a_timeline_of_other_times_is_not_guarded():
    oracle = wrap_oracle(
        MemOracle(lambda: 0), "steps", lambda: 0, metrics=OracleMetrics(CollectorRegistry())
    )
    oracle.apply_write(10**15)
    assert oracle.read_ts() == 10**15


def test_timelines_have_their_own_timestamps(tmp_path):
    url = f"sqlite:{tmp_path}/o.db"
    tables, catalog = (open_oracle(url, name, lambda: 7) for name in (EPOCH_MS, CATALOG))
    tables.apply_write(tables.write_ts())
    assert (tables.read_ts(), catalog.read_ts()) == (7, 0)
    tables.close()
    catalog.close()


def test_a_read_only_process_moves_nothing(tmp_path):
    url = f"sqlite:{tmp_path}/o.db"
    writer = open_oracle(url, EPOCH_MS, lambda: 7)
    writer.apply_write(writer.write_ts())
    reader = open_oracle(url, EPOCH_MS, lambda: 1_000, read_only=True)
    with pytest.raises(OracleReadOnly, match="read-only") as refused:
        reader.write_ts()
    assert refused.value.sqlstate == "25006"
    with pytest.raises(OracleReadOnly):
        reader.apply_write(8)
    assert (reader.read_ts(), reader.peek_write_ts(), writer.peek_write_ts()) == (7, 7, 7)
    reader.close()
    writer.close()


def test_opening_read_only_asks_for_no_write(tmp_path):
    """The file may be one that the process has no right to change."""
    path = tmp_path / "o.db"
    writer = open_oracle(f"sqlite:{path}", EPOCH_MS, lambda: 7)
    writer.apply_write(writer.write_ts())
    before = writer.read_ts()
    version = _changes(path)
    reader = open_oracle(f"sqlite:{path}", EPOCH_MS, lambda: 9, read_only=True)
    assert reader.read_ts() == before
    assert _changes(path) == version
    reader.close()
    writer.close()


def _changes(path):
    """The size of the log that each commit to the database makes longer."""
    return path.with_name(path.name + "-wal").stat().st_size
