"""Real processes that lead: killed, stopped and woken, replaced within the stated time, while the views go on."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mzsql
from mzsql.adapter.environment import leader as leader_module
from mzsql.adapter.environment.leader import LEASE_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

#: Added to a stated time: how long a busy machine may take to look and to set dataflows up.
SLACK = 120.0

#: Executes each line of its stdin, and prints what it gives; ``leads`` prints whether it leads.
SERVING = """
import mzsql, sys
con = mzsql.connect({env!r}, deploy_generation={generation!r})
con.execute("SET statement_timeout = '20 min'")
print("ready", flush=True)
for line in sys.stdin:
    try:
        if line == "leads\\n":
            print(con.coordinator.dataflows.leads, flush=True)
        elif line == "promote\\n":
            print(con.promote(), flush=True)
        else:
            cursor = con.execute(line)
            print(cursor.fetchall() if cursor.description else cursor.statusmessage, flush=True)
    except mzsql.Error as failure:
        print(str(failure).splitlines()[0], flush=True)
con.close()
"""


class Serving:
    """A process that serves statements."""

    def __init__(self, env: str, generation: int | None = None) -> None:
        program = textwrap.dedent(SERVING.format(env=env, generation=generation))
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def __call__(self, statement: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()
        return self._answer()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def serve(env: str) -> Iterator[Callable[..., Serving]]:
    running: list[Serving] = []

    def start(generation: int | None = None) -> Serving:
        running.append(Serving(env, generation))
        return running[-1]

    yield start
    for one in running:
        one.end()


def make(leader: Serving) -> None:
    assert leader("CREATE TABLE t (k int, v int)") == "CREATE TABLE"
    assert leader("INSERT INTO t VALUES (1, 1), (2, 2)") == "INSERT 0 2"
    view = "CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS s FROM t GROUP BY k"
    assert leader(view) == "CREATE MATERIALIZED VIEW"
    assert leader("SELECT * FROM sums ORDER BY k") == "[(1, 1), (2, 2)]"
    assert leader("leads") == "True"


def stop(leader: Serving, env: str) -> None:
    """Stop a process at a moment in which it has no database of the environment's directory locked: nobody could write until it wakes."""
    while True:
        leader.signal(signal.SIGSTOP)
        if not any(is_locked(database) for database in Path(env).glob("*.db")):
            return
        leader.signal(signal.SIGCONT)


def is_locked(database: Path) -> bool:
    """Whether somebody keeps others from writing, for half a second at least."""
    with contextlib.closing(sqlite3.connect(database, timeout=0.5, isolation_level=None)) as con:
        try:
            con.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        con.execute("ROLLBACK")
        return False


def leads_within(con: mzsql.Connection, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not con.coordinator.dataflows.leads:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_leader_that_is_killed_is_replaced_at_once(
    env: str,
    spark: SparkSession,
    serve: Callable[..., Serving],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whoever waits here would wait for an hour for a lease to run out.
    monkeypatch.setattr(leader_module, "LEASE_MS", 3_600_000)
    leader = serve()
    make(leader)
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        assert not con.coordinator.dataflows.leads
        con.execute("INSERT INTO t VALUES (3, 3)")
        assert con.execute("SELECT count(*) FROM sums").fetchall() == [(3,)]
        leader.signal(signal.SIGKILL)
        leader.process.wait()
        leads_within(con, SLACK)
        con.execute("INSERT INTO t VALUES (3, 4)")
        assert con.execute("SELECT s FROM sums WHERE k = 3").fetchall() == [(7,)]


def test_a_leader_that_is_stopped_is_replaced_within_its_lease_and_gives_up_when_it_wakes(
    env: str, spark: SparkSession, serve: Callable[..., Serving]
) -> None:
    leader = serve()
    make(leader)
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute("INSERT INTO t VALUES (3, 3)")
        assert con.execute("SELECT count(*) FROM sums").fetchall() == [(3,)]
        stop(leader, env)
        leads_within(con, LEASE_MS / 1000 + SLACK)
        con.execute("INSERT INTO t VALUES (3, 4); DELETE FROM t WHERE k = 1")
        assert con.execute("SELECT * FROM sums ORDER BY k").fetchall() == [(2, 2), (3, 7)]
        # Awake again it does no harm and leads no more, and its sessions go on.
        leader.signal(signal.SIGCONT)
        assert leader("SELECT * FROM sums ORDER BY k") == "[(2, 2), (3, 7)]"
        end = time.monotonic() + SLACK
        while leader("leads") != "False":
            assert time.monotonic() < end
            time.sleep(0.2)
        for n in range(5):
            assert leader(f"INSERT INTO t VALUES ({10 + n}, {n})") == "INSERT 0 1"
            con.execute(f"INSERT INTO t VALUES ({20 + n}, {n})")
        view = con.execute("SELECT * FROM sums ORDER BY k").fetchall()
        again = con.execute("SELECT k, sum(v) FROM t GROUP BY k ORDER BY k").fetchall()
        assert view == again
        assert leader("SELECT * FROM sums ORDER BY k") == str(view)
        assert con.coordinator.dataflows.leads


def test_what_is_stopped_while_it_works_and_wakes_later_leaves_the_views_right(
    env: str, spark: SparkSession, serve: Callable[..., Serving]
) -> None:
    """Stopped anywhere in a step, of which both then write parts."""
    leader = serve()
    make(leader)
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        for n in range(3):
            con.execute(f"INSERT INTO t SELECT k, v + {n} FROM t")
            time.sleep(0.3 * n)
        stop(leader, env)
        con.execute("INSERT INTO t SELECT k + 10, v FROM t")
        leads_within(con, LEASE_MS / 1000 + SLACK)
        leader.signal(signal.SIGCONT)
        for n in range(5):
            con.execute(f"INSERT INTO t VALUES ({n}, {n})")
            assert leader(f"DELETE FROM t WHERE v = {n}").startswith("DELETE")
            view = con.execute("SELECT * FROM sums ORDER BY k").fetchall()
            again = con.execute("SELECT k, sum(v) FROM t GROUP BY k ORDER BY k").fetchall()
            assert view == again


def test_a_promoted_generation_leads_and_its_views_go_on(
    env: str, spark: SparkSession, serve: Callable[..., Serving]
) -> None:
    old = serve()
    make(old)
    with mzsql.connect(env, spark=spark, deploy_generation=1) as new:
        new.execute("SET statement_timeout = '20 min'")
        assert new.execute("SELECT s FROM sums WHERE k = 1").fetchall() == [(1,)]
        assert not new.coordinator.dataflows.leads
        new.promote()
        assert old("SELECT * FROM sums").startswith("fenced by deploy generation 1")
        assert old("INSERT INTO t VALUES (9, 9)").startswith("fenced by deploy generation 1")
        leads_within(new, SLACK)
        new.execute("INSERT INTO t VALUES (1, 10)")
        assert new.execute("SELECT s FROM sums WHERE k = 1").fetchall() == [(11,)]
        assert old("leads") == "False"
