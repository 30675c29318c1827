"""Lanes: few at once, in order, and who takes long lets others pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from mzsql.compute.replica.scheduling.lane import IN_A_ROW, Lane
from mzsql.threads import Supervised, Supervisor

WAIT = 60.0


class Clock:
    """Monotonic time that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0


class Held:
    """Jobs that run until they are let go, and tell when they began."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.changed = threading.Condition()
        self.free: set[str] = set()
        self.awaited: list[str] = []

    def job(self, name: str) -> Callable[[], None]:
        def run() -> None:
            with self.changed:
                self.began.append(name)
                self.changed.notify_all()
                assert self.changed.wait_for(lambda: name in self.free, WAIT)
                self.ended.append(name)
                self.changed.notify_all()

        return run

    def let(self, *names: str) -> None:
        with self.changed:
            self.free |= set(names)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: set(names) <= set(self.ended), WAIT)

    def until_began(self, *names: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: set(names) <= set(self.began), WAIT)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lane(clock: Clock, held: Held) -> Iterator[Lane]:
    supervisor = Supervisor()

    def start(number: int, work: Callable[[Supervised], None]) -> Supervised:
        return supervisor.start("work", work, thread_name=f"test-lane-{number}")

    lane = Lane(start, at_once=1, patience=5.0, most=3, clock=clock, awaited=lambda: held.awaited)
    yield lane
    with held.changed:
        held.free |= set("abcdef")
        held.changed.notify_all()
    lane.close()
    lane.join(WAIT)
    assert supervisor.statuses() == ()


def test_jobs_take_turns(lane: Lane, held: Held) -> None:
    for name in "abc":
        lane.put(held.job(name))
    for name in "abc":
        held.until_began(name)
        assert held.began == [*"abc"][: len(held.began)]
        assert len(held.began) == len(held.ended) + 1
        held.let(name)


def _order(lane: Lane, held: Held, *jobs: tuple[str, float, float], clock: Clock) -> list[str]:
    """In what order jobs of a name and so many expected seconds begin that are put, at a time each, behind one that runs."""
    lane.put(held.job("a"))
    held.until_began("a")
    for name, seconds, at in jobs:
        clock.now = at
        lane.put(held.job(name), name, seconds)
    held.let("a", *(name for name, *_ in jobs))
    return held.began[1:]


def test_what_somebody_waits_for_goes_first(lane: Lane, held: Held, clock: Clock) -> None:
    held.awaited = ["e", "d"]
    began = _order(lane, held, ("b", 0, 0), ("c", 0, 0), ("d", 9, 0), clock=clock)
    assert began == ["d", "b", "c"]


def test_others_have_their_turn_though_what_is_waited_for_comes_again_and_again(
    lane: Lane, held: Held
) -> None:
    held.awaited = ["b", "c"]
    again, done = 20, threading.Event()

    def comes_again(name: str, left: int) -> None:
        held.began.append(name)
        if left:
            lane.put(lambda: comes_again(name, left - 1), name)
        else:
            done.set()

    lane.put(held.job("a"))
    held.until_began("a")
    lane.put(lambda: held.began.append("d"), "d")
    lane.put(lambda: comes_again("b", again), "b")
    lane.put(lambda: comes_again("c", again), "c")
    lane.put(lambda: held.began.append("e"), "e")
    held.let("a")
    assert done.wait(WAIT)
    assert lane.rest(WAIT)
    assert held.began.index("d") == 1 + IN_A_ROW
    assert held.began.index("e") < 1 + 5 * (IN_A_ROW + 1)
    assert held.began.count("c") == again + 1


def test_an_answer_goes_before_what_is_waited_for(lane: Lane, held: Held) -> None:
    held.awaited = ["b"]
    lane.put(held.job("a"))
    held.until_began("a")
    lane.put(held.job("b"), "b")
    lane.put(held.job("c"), asked=True)
    held.let("a", "b", "c")
    assert lane.rest(WAIT)
    assert held.began == ["a", "c", "b"]


def test_what_is_expected_to_take_long_lets_others_pass(
    lane: Lane, held: Held, clock: Clock
) -> None:
    began = _order(lane, held, ("b", 0.1, 0), ("c", 0.01, 0.5), ("d", 0, 1.5), clock=clock)
    assert began == ["c", "b", "d"]


def test_what_takes_very_long_is_not_passed_for_ever(lane: Lane, held: Held, clock: Clock) -> None:
    began = _order(lane, held, ("b", 100, 0), ("c", 0, 2.9), ("d", 0, 3.1), clock=clock)
    assert began == ["c", "b", "d"]


def test_who_takes_long_lets_the_next_one_pass(lane: Lane, held: Held, clock: Clock) -> None:
    for name in "abc":
        lane.put(held.job(name))
    held.until_began("a")
    clock.now = 4.0
    assert lane.look() == 1.0
    assert held.began == ["a"]
    clock.now = 5.0
    lane.look()
    held.until_began("b")
    assert held.began == ["a", "b"]
    held.let("b")
    held.until_began("c")
    held.let("a", "c")


def test_there_are_never_more_than_the_most(lane: Lane, held: Held, clock: Clock) -> None:
    for name in "abcd":
        lane.put(held.job(name))
    for number, name in enumerate("abc"):
        held.until_began(name)
        clock.now = 5.0 * (number + 1)
        lane.look()
    clock.now = 100.0
    assert lane.look() is None
    assert held.began == ["a", "b", "c"]
    held.let("b")
    held.until_began("d")


def test_a_lane_rests_when_nothing_runs_or_waits(lane: Lane, held: Held) -> None:
    assert lane.rest(WAIT)
    lane.put(held.job("a"))
    lane.put(held.job("b"))
    assert not lane.rest(0.0)
    held.until_began("a")
    rested = threading.Event()
    waits = threading.Thread(target=lambda: rested.set() if lane.rest(WAIT) else None)
    waits.start()
    held.let("a")
    held.until_began("b")
    assert not rested.is_set()
    held.let("b")
    assert rested.wait(WAIT)
    waits.join()


def test_a_closed_lane_begins_nothing(lane: Lane, held: Held, clock: Clock) -> None:
    lane.put(held.job("a"))
    lane.put(held.job("b"))
    held.until_began("a")
    lane.close()
    clock.now = 10.0
    lane.look()
    held.let("a")
    lane.join(WAIT)
    assert held.began == ["a"]


def test_a_job_that_fails_keeps_nobody_waiting(lane: Lane, held: Held) -> None:
    def fails() -> None:
        raise ValueError("x")

    lane.put(fails)
    lane.put(held.job("a"))
    held.until_began("a")
    held.let("a")
