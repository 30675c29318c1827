"""A replica stands by while another one writes its views, and takes over where the other does not."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import compute_kit as kit
import pytest
from test_compute_views import TOTALS

from mzsql.compute.engines.driver import Driver
from mzsql.compute.protocol import CreateDataflow
from mzsql.compute.replica.scheduling import standby
from mzsql.compute.replica.scheduling.standby import (
    FOLLOW_SECONDS,
    PATIENCE,
    VAIN_WAITS,
    Does,
    Standby,
    decide,
    stands_by,
    stepped,
)
from mzsql.lir.sealed import SealedDataflow
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient
from mzsql.render.rendered import Outline
from mzsql.render.rewrites.templates import StepTemplate
from mzsql.storage import ExportLog, log_shard_of

LOG = log_shard_of("s00000000-0000-4000-8000-00000000000a")


def decided(
    standby: Standby,
    now: float,
    inputs: int,
    written: int,
    others: int,
    frontier: int | None = None,
) -> tuple[Standby, Does, float]:
    told = written if frontier is None else frontier
    return decide(standby, now, inputs=inputs, frontier=told, written=written, others=others)


def wrote(standby: Standby, upper: int) -> Standby:
    return stepped(standby, upper, Does.STEP, empty=False)


# --- the rule ---


def test_one_that_nobody_else_writes_for_steps_at_once() -> None:
    standby, does, _ = decided(Standby(5, 5), 0.0, inputs=9, written=5, others=0)
    assert does is Does.STEP
    _, does, _ = decided(wrote(standby, 9), 0.0, inputs=9, written=9, others=4)
    assert does is Does.WAIT


def test_one_that_others_have_caught_up_with_waits_and_then_takes_over() -> None:
    standby, does, pause = decided(Standby(5, 5), 10.0, inputs=9, written=5, others=5)
    assert (does, standby.awaited) == (Does.WAIT, 9)
    assert pause == pytest.approx(PATIENCE)
    # That its inputs go on does not let it wait any longer.
    standby, does, _ = decided(standby, 10.0 + PATIENCE / 2, inputs=12, written=5, others=5)
    assert does is Does.WAIT
    standby, does, _ = decided(standby, 10.1 + PATIENCE, inputs=15, written=5, others=5)
    assert does is Does.TAKE_OVER
    # It has written last.
    standby = wrote(standby, 15)
    assert not stands_by(standby, 5)
    _, does, _ = decided(standby, 10.2 + PATIENCE, inputs=16, written=15, others=5)
    assert does is Does.STEP


def test_what_others_have_written_begins_another_wait() -> None:
    standby, _, _ = decided(Standby(5, 5), 10.0, inputs=9, written=5, others=5)
    standby, does, _ = decided(standby, 10.1, inputs=9, written=9, others=9, frontier=5)
    assert (does, standby.awaited) == (Does.GO_ON, None)
    standby, does, _ = decided(standby, 10.3, inputs=12, written=9, others=9)
    assert (does, standby.awaited, standby.awaited_at) == (Does.WAIT, 12, 10.3)


def test_its_arrangements_follow_after_some_time() -> None:
    standby, does, _ = decided(Standby(5, 5), 10.0, inputs=9, written=9, others=9)
    assert does is Does.WAIT
    for passed in (0.3, 0.6, 0.9):
        now = 10.0 + passed * FOLLOW_SECONDS
        standby, does, pause = decided(standby, now, inputs=12, written=12, others=12)
        assert does is Does.WAIT
        assert pause == pytest.approx((1 - passed) * FOLLOW_SECONDS)
    standby, does, _ = decided(standby, 10.1 + FOLLOW_SECONDS, inputs=15, written=15, others=15)
    assert does is Does.FOLLOW
    followed = stepped(standby, 15, does, empty=False)
    assert stands_by(followed, 15)
    _, does, _ = decided(followed, 20.0, inputs=15, written=15, others=15)
    assert does is Does.WAIT


def test_one_that_goes_on_behind_what_was_written_before_follows_it() -> None:
    standby, does, _ = decided(Standby(5, 5), 10.0, inputs=9, written=9, others=0)
    assert does is Does.WAIT
    _, does, _ = decided(standby, 10.1 + FOLLOW_SECONDS, inputs=9, written=9, others=0)
    assert does is Does.FOLLOW


def test_one_that_is_new_behind_another_stands_by_at_once() -> None:
    standby = Standby(0, 5)
    assert stands_by(standby, others=0)
    # Neither what it makes after the other nor what had no rows makes it the one that writes.
    assert stands_by(stepped(standby, 9, Does.FOLLOW, empty=False), others=0)
    assert stands_by(stepped(standby, 9, Does.TAKE_OVER, empty=True), others=0)
    assert not stands_by(stepped(standby, 9, Does.TAKE_OVER, empty=False), others=0)


def taking_over(standby: Standby, at: float, others: int) -> tuple[Standby, float]:
    """It waits in vain for a change, and its own step over it has no rows."""
    inputs = standby.made + 1
    standby, does, pause = decided(standby, at, inputs, standby.made, others)
    assert does is Does.WAIT
    at += pause + 0.01
    standby, does, _ = decided(standby, at, inputs, standby.made, others)
    assert does is Does.TAKE_OVER
    return stepped(standby, inputs, does, empty=True), at


def test_one_that_is_alone_waits_for_nobody_though_it_has_nothing_to_write() -> None:
    standby, at = Standby(0, 5), 10.0
    for _ in range(VAIN_WAITS):
        standby, at = taking_over(standby, at, others=0)
    made = standby.made
    standby, does, _ = decided(standby, at, made + 1, made, others=0)
    assert does is Does.STEP
    standby = stepped(standby, made + 1, does, empty=True)
    _, does, _ = decided(standby, at + 9, made + 2, made + 1, others=0)
    assert does is Does.STEP
    # Somebody else comes, and is first.
    standby, does, _ = decided(standby, at + 10, made + 2, made + 1, others=made + 1)
    assert does is Does.WAIT


def test_others_that_say_how_far_they_are_now_and_then_are_waited_for() -> None:
    standby, at, others = Standby(0, 5), 10.0, 5
    for _ in range(4):
        for _ in range(VAIN_WAITS - 1):
            standby, at = taking_over(standby, at, others)
        others = standby.made
    assert stands_by(standby, others)


@dataclass
class _Life:
    """One replica over a view that is one number in a log; it looks into the log when it writes and when it takes over."""

    log: dict[str, object]
    standby: Standby = field(default_factory=Standby)
    frontier: int = 0
    others: int = 0
    steps: int = 0

    def look(self) -> None:
        written = self.log["upper"]
        assert isinstance(written, int)
        self.frontier = max(self.frontier, written)
        if self.log["who"] is not self:
            self.others = self.frontier

    def act(self, now: float, inputs: int) -> None:
        self.standby, does, _ = decided(self.standby, now, inputs, self.frontier, self.others)
        if does is Does.TAKE_OVER:
            self.look()
            assert self.standby.awaited is not None
            does = Does.WAIT if self.frontier >= self.standby.awaited else Does.STEP
        if does is Does.STEP:
            self._step(inputs, does)
        elif does is Does.FOLLOW:
            self._step(self.frontier, does)

    def _step(self, upper: int, does: Does) -> None:
        self.steps += 1
        self.standby, self.frontier = stepped(self.standby, upper, does, empty=False), upper
        written = self.log["upper"]
        assert isinstance(written, int)
        if upper > written:
            self.log.update(upper=upper, who=self)
        self.look()


@pytest.mark.parametrize("seed", range(50))
def test_of_two_one_steps_and_the_other_is_soon_there_when_it_dies(seed: int) -> None:
    rng = random.Random(seed)
    log: dict[str, object] = {"upper": 0, "who": None}
    lives = [_Life(log, Standby(rng.choice([0, 1]), 1)) for _ in range(2)]
    now, inputs, since = 0.0, 1, 0.0
    ticks = 0
    for _ in range(3000):
        now += 0.01
        if rng.random() < 0.1:
            since = now if log["upper"] == inputs else since
            inputs, ticks = inputs + 1, ticks + 1
        if rng.random() < 0.002:
            # Killed, and begun anew from where its steps had come.
            at = rng.randrange(2)
            made = lives[at].standby.made
            begun = _Life(log, Standby(0, made), frontier=made, steps=lives[at].steps)
            begun.look()
            lives[at] = begun
        for life in rng.sample(lives, 2):
            life.act(now, inputs)
        late = now - since if log["upper"] != inputs else 0.0
        assert late <= 3 * PATIENCE, "nobody works"
    # Each works in turn, or at the same time for a moment, and the other follows in few steps.
    assert sum(life.steps for life in lives) < 1.5 * ticks


# --- in replicas ---


class _Pair:
    """Two replicas over one store, each with a client and a log of its own, as in processes of their own."""

    def __init__(self) -> None:
        blob, consensus = MemBlob(), MemConsensus()
        self.clients = [PersistClient(blob, consensus, background=False) for _ in range(2)]
        self.logs = [ExportLog(one, LOG) for one in self.clients]
        self.world = kit.World(self.clients[0], kit.no_spark).with_inputs()
        self.world.storage.write("u1", [(1, 5, "x", 1, 1)], upper=4)
        self.world.storage.write("u2", [(1, "north", 1, 1)], upper=4)
        self.shard = self.world.storage.add("u3", TOTALS, errors=True)
        self.controllers: list[kit.Controller] = []

    def begin(
        self, number: int, *, stands_by: bool = True, outline: Outline | None = None
    ) -> kit.Controller:
        made_now = self.world.controller(
            replica=f"r{number}",
            persist=self.clients[number],
            exports=self.logs[number],
            step_engine="duckdb",
            hydrate_here_bytes=1 << 30,
            flush_seconds=0.1,
            apply_seconds=0.1,
            stands_by=stands_by,
        )
        self.controllers.append(made_now)
        sealed = SealedDataflow.of(kit.region_totals())
        made_now.create_dataflow(CreateDataflow("u3", "u3", sealed, self.shard, 1, outline))
        assert made_now.settle(made_now.settings.timeout)
        return made_now

    def change(self, at: int) -> None:
        self.world.storage.write("u1", [(1, at, "y", at, 1)], upper=at + 1)
        self.world.storage.write("u2", [], upper=at + 1)

    def right(self, at: int) -> None:
        soon = time.monotonic() + 60
        while (self.world.storage.readers["u3"].fetch_upper() or 0) <= at:
            assert time.monotonic() < soon, "its shard does not follow"
            time.sleep(0.01)
        storage = self.world.storage
        assert kit.stored(storage, "u3", at) == kit.recomputed(
            storage, kit.REGION_TOTALS, ["u1", "u2"], at
        )

    def close(self) -> None:
        for one in (*self.controllers, *self.logs, *self.clients):
            one.close()


@pytest.fixture
def pair() -> Iterator[_Pair]:
    made_now = _Pair()
    yield made_now
    made_now.close()


def _held(controller: kit.Controller):
    """The view on its replica, which from now on does only what is called here."""
    installed = controller.replica._installed
    flow = installed.get("u3")
    with installed.changed:
        assert installed.changed.wait_for(lambda: not flow.busy, 60)
        flow.busy = True
    return flow


def test_the_second_goes_on_where_the_first_ends(pair: _Pair) -> None:
    first, second = pair.begin(0), None
    first.wait_until("u3", 3, 60)
    second = pair.begin(1)
    second.wait_until("u3", 3, 60)
    for at in range(4, 30):
        pair.change(at)
    for one in (first, second):
        one.wait_until("u3", 29, 60)
    pair.right(29)
    first.close()
    for at in range(30, 40):
        pair.change(at)
    second.wait_until("u3", 39, 60)
    pair.right(39)


def test_what_stands_by_makes_no_step_of_what_is_written(pair: _Pair) -> None:
    first = pair.begin(0)
    first.wait_until("u3", 3, 60)
    second = pair.begin(1)
    second.wait_until("u3", 3, 60)
    flow = _held(second)
    pair.change(4)
    first.wait_until("u3", 4, 60)
    pair.logs[0].flush()
    now = time.monotonic()
    assert flow.standing.does(flow.dataflow, flow.frontier, 5, now)[0] is Does.WAIT
    later = now + PATIENCE + 0.1
    does, _ = flow.standing.does(flow.dataflow, flow.frontier, 5, later)
    assert does is Does.TAKE_OVER
    assert flow.advance(5, does) is None
    assert flow.frontier == 5
    reached = {one.known_upper for one in flow.dataflow.arrangements.values()}
    assert max(reached) < 5
    does, _ = flow.standing.does(flow.dataflow, 5, 5, later)
    assert does is Does.WAIT
    does, _ = flow.standing.does(flow.dataflow, 5, 5, later + FOLLOW_SECONDS)
    assert does is Does.FOLLOW
    stats = flow.advance(5, does)
    assert stats is not None
    assert (stats.kind, stats.lower, stats.upper) == ("step", min(reached), 5)
    assert {one.known_upper for one in flow.dataflow.arrangements.values()} == {5}
    # The first dies.
    first.close()
    pair.change(5)
    assert flow.standing.does(flow.dataflow, 5, 6, later)[0] is Does.WAIT
    does, _ = flow.standing.does(flow.dataflow, 5, 6, later + PATIENCE)
    assert does is Does.TAKE_OVER
    stats = flow.advance(6, does)
    assert stats is not None
    assert flow.frontier == 6
    assert stats.kind == "step"
    pair.change(6)
    assert flow.standing.does(flow.dataflow, 6, 7, later)[0] is Does.STEP


def test_one_that_is_started_anew_stands_by_and_prepares_its_steps_meanwhile(
    pair: _Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pair.begin(0)
    first.wait_until("u3", 3, 60)
    for at in range(4, 8):
        pair.change(at)
    second = pair.begin(1)
    second.wait_until("u3", 7, 60)
    second.close()
    pair.controllers.remove(second)
    pair.change(8)
    first.wait_until("u3", 8, 60)
    pair.logs[0].flush()
    # No step of its own comes first.
    monkeypatch.setattr(standby, "FOLLOW_SECONDS", 600.0)
    # As in an environment that was open before, nothing of the statements is there but their outline.
    again = pair.begin(1, outline=first.replica._installed.get("u3").rendered.outline)
    again.wait_until("u3", 8, 60)
    flow = again.replica._installed.get("u3")
    until = time.monotonic() + 60
    while not flow.practised:
        assert time.monotonic() < until, "its steps are not prepared"
        time.sleep(0.01)
    assert flow.rendered.is_rendered
    flow = _held(again)
    pair.change(9)
    assert flow.standing.does(flow.dataflow, flow.frontier, 10, time.monotonic())[0] is Does.WAIT
    # It comes late, and takes over what came at several times: nothing is rendered or planned for that.
    pair.change(10)
    made: list[str] = []
    for owner, name in ((Driver, "_plan"), (Driver, "_run"), (StepTemplate, "_make")):
        monkeypatch.setattr(owner, name, lambda *_, name=name, **__: made.append(name))
    known = dict(flow.rendered._steps)
    stats = flow.advance(11, Does.STEP)
    assert stats is not None
    assert (stats.kind, stats.upper, made) == ("step", 11, [])
    assert flow.rendered._steps == known
    pair.right(10)


def test_what_is_taken_over_is_told_at_once_though_there_are_no_rows(pair: _Pair) -> None:
    first = pair.begin(0)
    first.wait_until("u3", 3, 60)
    # What is only an upper would wait for as long as this test may.
    pair.logs[1]._quiet = 600.0
    second = pair.begin(1)
    second.wait_until("u3", 3, 60)
    pair.change(4)
    second.wait_until("u3", 4, 60)
    pair.logs[0].flush()
    first.close()
    told = pair.logs[0]
    told.attach(pair.clients[0].open_reader(pair.shard))
    for one in ("u1", "u2"):
        pair.world.storage.write(one, [], upper=6)
    second.wait_until("u3", 5, 60)
    until = time.monotonic() + 60
    while told.others(pair.shard) < 6:
        assert time.monotonic() < until, "nobody is told"
        told.next_move(told.follow().upper, 1.0)


def test_one_whose_process_has_sessions_stands_by_for_nobody(pair: _Pair) -> None:
    first = pair.begin(0, stands_by=False)
    first.wait_until("u3", 3, 60)
    flow = _held(first)
    second = pair.begin(1)
    pair.change(4)
    second.wait_until("u3", 4, 60)
    pair.logs[1].flush()
    pair.logs[0].follow()
    assert pair.logs[0].others(pair.shard) == 5
    pair.change(5)
    assert flow.standing.does(flow.dataflow, flow.frontier, 6, time.monotonic())[0] is Does.STEP
