"""The scheduler itself: time, death, locks, and what a dead process may still do."""

from __future__ import annotations

import threading

import pytest
from simulation_backends import Network, PlainBlob, reached_by
from simulation_run import draw, play
from simulation_truth import Truths
from simulation_world import (
    SECOND,
    Condition,
    Died,
    Lock,
    Process,
    Violation,
    World,
    cooperative,
)

from mzsql.location import Determinate, Indeterminate
from mzsql.location.mem import MemConsensus
from mzsql.threads import Supervisor


@pytest.fixture
def world():
    return World(7)


def test_tasks_take_turns_by_simulated_time(world):
    process = Process(world, "p", skew_ms=250)
    seen = []

    def body(name, pause):
        for _ in range(3):
            process.sleep(pause)
            seen.append((name, world.now // 1000))

    tasks = [
        world.spawn(process, "a", lambda: body("a", 2)),
        world.spawn(process, "b", lambda: body("b", 3)),
    ]
    world.run(lambda: all(task.done for task in tasks), 100)
    assert seen == [
        ("a", 2000),
        ("b", 3000),
        ("a", 4000),
        ("b", 6000),
        ("a", 6000),
        ("b", 9000),
    ]
    assert process.monotonic() == 9
    assert process.now_ms() % 1_000_000 == 9250


def test_a_dead_process_does_nothing_more(world):
    truths = Truths(world)
    blob = truths.blob = PlainBlob(world, truths)
    network = Network(world, (), 0.0, 1.0)
    process = Process(world, "p", 0)
    mine, _ = reached_by(network, process, blob, MemConsensus())
    tried = []

    def body():
        try:
            mine.set("before", b"x")
            process.sleep(100)
        except BaseException as death:
            tried.append(type(death))
            try:
                mine.set("after", b"x")
            except BaseException as again:
                tried.append(type(again))
            raise

    task = world.spawn(process, "t", body)
    world.at(5 * SECOND, lambda: world.kill(process))
    world.run(lambda: task.done, 100)
    assert tried == [Died, Died]
    assert blob.get("before") == b"x"
    assert blob.get("after") is None


def test_a_process_frozen_again_wakes_as_a_whole(world):
    process = Process(world, "p", 0)
    woken = []

    def body(pause):
        process.sleep(pause)
        woken.append((world.now, process.frozen_until))

    tasks = [world.spawn(process, str(pause), lambda p=pause: body(p)) for pause in (2, 20)]
    world.at(SECOND, lambda: process.freeze(150 * SECOND))
    world.at(5 * SECOND, lambda: process.freeze(30 * SECOND))
    world.run(lambda: all(task.done for task in tasks), 100)
    assert woken == [(150 * SECOND, 150 * SECOND)] * 2


def test_a_frozen_process_goes_on_later(world):
    process = Process(world, "p", 0)
    task = world.spawn(process, "t", lambda: process.sleep(1))
    process.frozen_until = 90 * SECOND
    world.run(lambda: task.done, 100)
    assert world.now >= 91 * SECOND


def test_a_lock_is_handed_on_and_waits_no_longer_than_told(world):
    process, lock, got = Process(world, "p", 0), Lock(world, reentrant=False), []

    def holder():
        with lock:
            process.sleep(10)

    def patient():
        process.sleep(1)
        got.append(lock.acquire(timeout=20))

    def hasty():
        process.sleep(1)
        got.append(lock.acquire(timeout=2))

    tasks = [world.spawn(process, "t", body) for body in (holder, patient, hasty)]
    world.run(lambda: all(task.done for task in tasks), 100)
    assert got == [False, True]


def test_a_condition_wakes_who_waits(world):
    process, condition, seen = Process(world, "p", 0), Condition(world), []

    def waits():
        with condition:
            seen.append(condition.wait_for(lambda: bool(seen), timeout=60))

    def tells():
        process.sleep(5)
        with condition:
            seen.append("told")
            condition.notify_all()

    tasks = [world.spawn(process, "w", waits), world.spawn(process, "t", tells)]
    world.run(lambda: all(task.done for task in tasks), 100)
    assert seen == ["told", True]
    assert world.now == 5 * SECOND


def test_waiting_for_nobody_is_found(world):
    process, condition = Process(world, "p", 0), Condition(world)

    def waits():
        with condition:
            condition.wait()

    task = world.spawn(process, "w", waits)
    with pytest.raises(Violation, match="everybody waits"):
        world.run(lambda: task.done, 100)
    world.kill(process)


@pytest.mark.parametrize(
    ("kind", "error", "done"),
    [
        ("refused", Determinate, False),
        ("lost", Indeterminate, False),
        ("unanswered", Indeterminate, True),
        ("late", Indeterminate, False),
        ("slow", None, True),
    ],
)
def test_each_fault_is_what_it_says(world, kind, error, done):
    truths = Truths(world)
    blob = truths.blob = PlainBlob(world, truths)
    network = Network(world, (kind,), 1.0, 1.0)
    process = Process(world, "p", 0)
    mine, _ = reached_by(network, process, blob, MemConsensus())
    raised = []

    def body():
        try:
            mine.set("k", b"x")
        except (Determinate, Indeterminate) as failure:
            raised.append(type(failure))

    task = world.spawn(process, "t", body)
    world.run(lambda: task.done, 100)
    assert raised == ([] if error is None else [error])
    if kind != "late":
        assert (blob.get("k") is not None) == done
    world.run(lambda: not network.late, 100)
    assert (blob.get("k") is not None) == (done or kind == "late")


def test_a_supervised_thread_is_a_task_that_dies_with_its_process(world):
    process, rounds = Process(world, "p", 0), []

    def work(thread):
        while not thread.wait(10):
            rounds.append(world.now // SECOND)
            if len(rounds) == 1:
                raise ValueError("once")
            thread.well()

    def body():
        supervisor = Supervisor(clock=process, rng=process.rng)
        supervisor.start("work", work, thread_name="mzsql-work")

    with cooperative(world):
        world.spawn(process, "main", body)
        world.run(lambda: len(rounds) == 3, 100)
        world.kill(process)
    assert rounds == [10, 20, 30]
    assert [task.name for task in process.tasks if task.done] == ["p.main", "p.work"]
    assert world.log[-2:] == [(world.now, "p", "killed"), (world.now, "p.work", "died")]


def test_a_thread_of_the_machine_has_no_place_in_the_world(world):
    with cooperative(world), pytest.raises(Violation, match="stray is a thread of the machine"):
        threading.Thread(target=lambda: None, name="stray").start()


def test_what_works_in_the_background_follows_from_the_seed():
    """Whatever was played before: no thread, lock or handle of an earlier world is left at work."""
    plans = [
        plan for plan in map(draw, range(40, 100)) if any(p.background for p in plan.processes)
    ]
    first, second, *_ = plans
    before = threading.active_count()
    once = play(first).digest()
    play(second)
    assert play(first).digest() == once
    assert threading.active_count() == before
