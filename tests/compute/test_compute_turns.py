"""Which step is next: what somebody waits for; and what has its statements, beside what has not."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import mzsql
from mzsql.compute import ComputeSettings
from mzsql.compute.replica.scheduling import work as scheduling
from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle
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
