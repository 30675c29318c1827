"""Which step is next: what somebody waits for; and what has its statements, beside what has not. Which hydration is."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import mzsql
from mzsql.compute import ComputeSettings
from mzsql.compute.replica.scheduling import work as scheduling
from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle, State
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


def test_a_step_whose_statements_are_to_be_made_is_beside_those_that_have_them(
    tmp_path, monkeypatch
):
    # Nothing is made in advance, so that the first step makes it.
    monkeypatch.setattr(scheduling, "MOST_WARMED", 0)
    threads, advance = [], DataflowLifecycle.advance

    def told(flow, inputs):
        threads.append(threading.current_thread().name)
        return advance(flow, inputs)

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


def _hydrating(monkeypatch, installed, most_unsorted):
    """Work at one hydration at a time, of flows whose hydrations take no time and whose traces wait for an event."""
    monkeypatch.setattr(scheduling, "MOST_WARMED", 0)
    monkeypatch.setattr(scheduling, "MOST_UNSORTED", most_unsorted)
    supervisor, settings = Supervisor(), ComputeSettings(hydration_concurrency=1)
    work = Work("r1", installed, lambda _: None, tuple, settings, time, supervisor.start)
    go, flows = threading.Event(), []
    for gid in ("u1", "u2"):
        flow = _flow(gid)
        flow.hydrated, flow.handed_over = threading.Event(), threading.Event()

        def hydrate(flow=flow):
            flow.sorted = work.beside(lambda: go.wait(WAIT), 100)
            flow.hydrated.set()
            return "statistics"

        def hand_over(flow=flow):
            assert flow.sorted.result(WAIT)
            flow.handed_over.set()

        vars(flow).update(hydrate=hydrate, hand_over=hand_over, say=lambda _: None)
        vars(flow).update(left=False, busy=False, failures=0, turn=0, state=State.HYDRATING)
        installed.add(flow)
        flows.append(flow)
    return work, go, flows


def test_the_next_hydration_does_not_wait_for_traces_of_the_one_before_but_its_steps_do(
    monkeypatch,
):
    installed = Installed("r1", lambda _: None)
    work, go, (first, second) = _hydrating(monkeypatch, installed, 1 << 20)
    try:
        for flow in (first, second):
            work.hydrate(flow)
        assert second.hydrated.wait(WAIT)
        assert (first.busy, first.state) == (True, State.HYDRATING)
        go.set()
        for flow in (first, second):
            assert flow.handed_over.wait(WAIT)
        assert work.sorts.rest(WAIT)
        assert [(one.busy, one.state) for one in (first, second)] == [(False, State.RUNNING)] * 2
    finally:
        go.set()
        work.close()
        work.join(WAIT)


def test_the_next_hydration_waits_while_too_much_is_to_be_sorted(monkeypatch):
    installed = Installed("r1", lambda _: None)
    work, go, (first, second) = _hydrating(monkeypatch, installed, 99)
    try:
        for flow in (first, second):
            work.hydrate(flow)
        assert first.hydrated.wait(WAIT)
        # The one thread of hydrations is at the first one until its traces are sorted.
        assert not work.hydrations.rest(0.05)
        assert not second.hydrated.is_set()
        go.set()
        assert second.handed_over.wait(WAIT)
    finally:
        go.set()
        work.close()
        work.join(WAIT)


def test_a_dataflow_that_is_dropped_while_its_traces_are_sorted_is_left(monkeypatch):
    installed = Installed("r1", lambda _: None)
    work, go, (first, _) = _hydrating(monkeypatch, installed, 1 << 20)
    try:
        work.hydrate(first)
        assert work.hydrations.rest(WAIT)
        assert first.busy
        closed = threading.Event()
        monkeypatch.setattr(installed, "close_dropped", closed.set)
        first.left = True
        go.set()
        # By whichever thread sorts, whether or not it had begun to hand over.
        assert closed.wait(WAIT)
        assert not first.busy
    finally:
        go.set()
        work.close()
        work.join(WAIT)
