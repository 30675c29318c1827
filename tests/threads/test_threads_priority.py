"""A thread that gives way has less of the cores, with what it starts for itself, and no other thread has."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

import mzsql
from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.spark_start import SparkStart
from mzsql.persist import duck
from mzsql.threads import Supervisor, give_way, plainly

_LEAST = 19  # no niceness is higher

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="niceness is a thread's own on Linux"
)


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def _on_a_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_gives_way_with_what_it_starts():
    before = _niceness()

    def gives_way():
        give_way(3)
        give_way(3)
        return _niceness(), _on_a_thread(_niceness)

    assert _on_a_thread(gives_way) == (before + 3, before + 3)
    assert _niceness() == before
    assert _on_a_thread(_niceness) == before


def test_who_gives_way_further_stays_there():
    before = _niceness()

    def gives_way():
        give_way(4)
        give_way(2)
        return _niceness()

    assert _on_a_thread(gives_way) == before + 4


def _of_process() -> dict[int, int]:
    """The niceness of all threads of this process."""
    threads = [int(one.name) for one in Path("/proc/self/task").iterdir()]
    return {one: nice for one in threads if (nice := _of_thread(one)) is not None}


def _of_thread(one: int) -> int | None:
    """The niceness of a thread of this process; None of one that has ended since it was listed, as another test's may."""
    try:
        return os.getpriority(os.PRIO_PROCESS, one)
    except ProcessLookupError:
        return None


def _started_by_one_that_gives_way(start):
    """The niceness of the threads that are there after a thread that gives way has called `start`, and were not before."""
    before: set[int] = set()

    def gives_way():
        give_way(3)
        before.update(_of_process())
        kept.append(start())

    kept: list[object] = []
    _on_a_thread(gives_way)
    return {nice for one, nice in _of_process().items() if one not in before}


def test_what_is_started_plainly_does_not_give_way():
    def gives_way():
        give_way(3)
        return plainly(lambda: _on_a_thread(_niceness)), _niceness()

    assert _on_a_thread(gives_way) == (_niceness(), _niceness() + 3)
    assert plainly(_niceness) == _niceness()


def test_what_fails_when_it_is_started_plainly_is_raised():
    def gives_way():
        give_way(3)
        with pytest.raises(ZeroDivisionError):
            plainly(lambda: 1 // 0)
        return True

    assert _on_a_thread(gives_way)


def test_supervised_threads_and_shared_databases_do_not_give_way(monkeypatch):
    go, driver = threading.Event(), Driver()
    threads = []

    def supervised():
        threads.append(Supervisor().start("work", lambda _: go.wait(60), thread_name="w"))
        return threads[0]

    def shared():
        monkeypatch.setattr(duck, "_databases", {})
        with duck.connection() as connection:
            connection.execute("SELECT 1")

    try:
        for start in (supervised, shared, lambda: driver._planner("usual")):
            assert _started_by_one_that_gives_way(start) == {_niceness()}
    finally:
        go.set()
        threads[0].join()
        driver.close()


def test_spark_does_not_give_way_to_who_asks_for_it_first():
    found = []

    def session():
        found.append(_niceness())
        return object()

    def gives_way():
        give_way(3)
        SparkStart(session).session(lambda: False)

    _on_a_thread(gives_way)
    assert found == [_niceness()]


def test_hydrations_give_way_to_steps(tmp_path):
    before = os.getpriority(os.PRIO_PROCESS, os.getpid())
    with mzsql.connect(tmp_path / "env") as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM t")
        connection.execute("INSERT INTO t VALUES (1)")
        assert connection.execute("SELECT * FROM v").fetchall() == [(1,)]
        found = _of_lanes()
    wanted = {"step": before, "hydrate": before + 5, "sort": before + 10}
    assert found == {lane: {min(nice, _LEAST)} for lane, nice in wanted.items()}


def _of_lanes():
    """The niceness of the threads of a replica's lanes."""
    return {
        lane: {
            os.getpriority(os.PRIO_PROCESS, one.native_id)
            for one in threading.enumerate()
            if f"-{lane}-" in one.name and one.native_id is not None
        }
        for lane in ("step", "hydrate", "sort")
    }
