"""A thread that gives way has less of the cores, with all that it starts, and no other thread has."""

from __future__ import annotations

import os
import sys
import threading

import pytest

import mzsql
from mzsql.threads import give_way

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


def test_hydrations_give_way_to_steps(tmp_path):
    before = os.getpriority(os.PRIO_PROCESS, os.getpid())
    with mzsql.connect(tmp_path / "env") as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM t")
        connection.execute("INSERT INTO t VALUES (1)")
        assert connection.execute("SELECT * FROM v").fetchall() == [(1,)]
        found = _of_lanes()
    assert found == {"step": {before}, "hydrate": {before + 5}, "sort": {before + 10}}


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
