"""Which step is next: what somebody waits for; and what has its statements, beside what has not. What is not urgent lets steps pass."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

import mzsql
from mzsql.compute import ComputeSettings
from mzsql.compute.replica.scheduling import work as scheduling
from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle
from mzsql.compute.replica.scheduling.retiring import (
    STATEMENTS_LOOK,
    STATEMENTS_WAIT,
    Retiring,
)
from mzsql.compute.replica.scheduling.work import Work
from mzsql.threads import Supervisor

WAIT = 60.0


def _flow(gid, *inputs):
    rendered = SimpleNamespace(inputs=[SimpleNamespace(id=one) for one in inputs])
    return SimpleNamespace(gid=gid, rendered=rendered, status=lambda: None)


def test_what_a_reader_waits_for_is_next_with_what_it_reads():
    supervisor, installed = Supervisor(), Installed("r1", lambda _: None)
    for flow in (_flow("u1"), _flow("u2"), _flow("u3", "u2", "t1"), _flow("u4")):
        installed.add(flow)
    work = Work(
        "r1", installed, lambda _: None, lambda: ["u3"], ComputeSettings(), time, supervisor.start
    )
    began, go, done = [], threading.Event(), threading.Event()
    try:
        work.steps.put(lambda: go.wait(WAIT))
        for gid in ("u1", "u3", "u4", "u2"):
            work.steps.put(lambda gid=gid: began.append(gid), gid)
        work.steps.put(done.set)
        go.set()
        assert done.wait(WAIT)
        assert began == ["u2", "u3", "u1", "u4"]
    finally:
        work.close()
        work.join(WAIT)


@pytest.fixture
def work():
    supervisor, installed = Supervisor(), Installed("r1", lambda _: None)
    made = Work("r1", installed, lambda _: None, list, ComputeSettings(), time, supervisor.start)
    yield made
    made.close()
    made.join(WAIT)


def test_a_hydration_lets_a_step_pass_between_two_of_its_parts(work, monkeypatch):
    monkeypatch.setattr(scheduling, "PASS_SECONDS", WAIT)
    did, begun, go, done = [], threading.Event(), threading.Event(), threading.Event()

    def step():
        begun.set()
        assert go.wait(WAIT)
        did.append("step")

    def hydrate():
        did.append("part")
        work.steps.put(step)
        assert begun.wait(WAIT)
        threading.Timer(0.05, go.set).start()
        work.let_steps_pass()
        did.append("part")
        done.set()

    work.hydrations.put(hydrate)
    assert done.wait(WAIT)
    assert did == ["part", "step", "part"]
    assert work.beside(lambda: "sorted").result(WAIT) == "sorted"


def test_a_hydration_goes_on_beside_steps_without_a_pause(work, monkeypatch):
    monkeypatch.setattr(scheduling, "PASS_SECONDS", 0.001)
    go, done = threading.Event(), threading.Event()
    work.steps.put(lambda: go.wait(WAIT))

    def hydrate():
        for _ in range(20):
            work.let_steps_pass()
        done.set()

    work.hydrations.put(hydrate)
    assert done.wait(WAIT)
    # For a turn it asks for no pause at all.
    monkeypatch.setattr(scheduling, "TURN_SECONDS", WAIT)
    again = threading.Event()

    def turn():
        work.let_steps_pass()
        monkeypatch.setattr(scheduling, "PASS_SECONDS", WAIT)
        work.let_steps_pass()
        again.set()

    work.hydrations.put(turn)
    assert again.wait(WAIT / 2)
    go.set()


def test_a_hydration_waits_for_no_step_that_takes_long(monkeypatch):
    monkeypatch.setattr(scheduling, "PASS_SECONDS", WAIT)
    supervisor, installed = Supervisor(), Installed("r1", lambda _: None)
    settings = ComputeSettings(step_patience=0.05)
    work = Work("r1", installed, lambda _: None, list, settings, time, supervisor.start)
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def step():
        begun.set()
        assert go.wait(WAIT)

    def hydrate():
        work.let_steps_pass()
        done.set()

    try:
        work.steps.put(step)
        assert begun.wait(WAIT)
        time.sleep(0.1)
        work.hydrations.put(hydrate)
        assert done.wait(WAIT / 2)
    finally:
        go.set()
        work.close()
        work.join(WAIT)


def test_statements_are_freed_when_nothing_is_hydrated_or_after_minutes():
    cooled, calm = [], [False]
    rendered = SimpleNamespace(warm=lambda _: True, cool=cooled.append)
    installed = SimpleNamespace(all=lambda: [SimpleNamespace(gid="u1", rendered=rendered)])
    arrangements = SimpleNamespace(cool=lambda: None)
    retiring = Retiring(arrangements, installed, None, lambda job: job(), lambda: calm[0])
    now = 1000.0
    retiring.cool(now)
    retiring.cool(now + 60)
    assert not cooled
    calm[0] = True
    retiring.cool(now + 120)
    assert len(cooled) == 1
    calm[0] = False
    retiring.cool(now + 180)
    retiring.cool(now + 180 + STATEMENTS_WAIT - 1)
    assert len(cooled) == 1
    late = now + 180 + STATEMENTS_WAIT + STATEMENTS_LOOK
    retiring.cool(late)
    assert len(cooled) == 2
    # From then on as ever, until something else is put off.
    retiring.cool(late + STATEMENTS_LOOK)
    assert len(cooled) == 3


def test_a_step_whose_statements_are_to_be_made_is_beside_those_that_have_them(
    tmp_path, monkeypatch
):
    # Nothing is made in advance, so that the first step makes it.
    monkeypatch.setattr(scheduling, "MOST_WARMED", 0)
    threads, advance = [], DataflowLifecycle.advance

    def told(flow, inputs, does):
        threads.append(threading.current_thread().name)
        return advance(flow, inputs, does)

    monkeypatch.setattr(DataflowLifecycle, "advance", told)
    with mzsql.connect(tmp_path / "env") as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t")
        assert connection.execute("SELECT n FROM v").fetchall() == [(0,)]
        for number in range(1, 4):
            connection.execute("INSERT INTO t VALUES (1)")
            assert connection.execute("SELECT n FROM v").fetchall() == [(number,)]
    assert "-first-" in threads[0]
    assert "-step-" in threads[-1]
