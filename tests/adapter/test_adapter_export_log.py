"""One write commits what a tick makes of all views and indexes; others read it at once, and a crash loses or doubles none of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

import mzsql
from mzsql.adapter.environment import opening
from mzsql.location import consensus_around, open_blob, open_consensus

T = TypeVar("T")

TICKS = 6
#: In the names of threads that work behind a tick.
BEHIND = ("-flush-", "maintenance", "follow")
VIEWS = {
    "sums": "SELECT customer, sum(amount)::bigint AS s, count(*) AS n FROM o GROUP BY customer",
    "big": "SELECT customer, s FROM sums WHERE s > 10",
    "top": "SELECT max(s) AS m, count(*) AS n FROM big",
    "flat": "SELECT id, amount * 2 AS a FROM o WHERE amount > 4",
    "shares": "SELECT id, 60 / amount AS share FROM o",
}


class Asked:
    """Opens backends as the registry does, and counts writes to Consensus that ticks make."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def _act(self, operation: str, act: Callable[[], T]) -> T:
        name = threading.current_thread().name
        if not any(one in name for one in BEHIND):
            self.counts[operation] += 1
        return act()

    def open_blob(self, url: str) -> Any:
        return open_blob(url)

    def open_consensus(self, url: str) -> Any:
        return consensus_around(open_consensus(url), self._act)


def prepare(con: mzsql.Connection) -> None:
    con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
    con.execute("CREATE TABLE o (id bigint, customer bigint, amount bigint)")
    con.execute("INSERT INTO o VALUES (1, 1, 10), (2, 1, 5), (3, 2, 7)")
    for name, query in VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    con.execute("CREATE INDEX sums_by_customer ON sums (customer)")


def contents(con: mzsql.Connection) -> dict[str, list[Any]]:
    found = {name: sorted(con.execute(f"SELECT * FROM {name}").fetchall()) for name in VIEWS}
    found["by index"] = con.execute("SELECT s FROM sums WHERE customer = 1").fetchall()
    return found


def expected(con: mzsql.Connection) -> dict[str, list[Any]]:
    """What the queries say of the table alone."""
    found = {}
    for name, query in VIEWS.items():
        whole = query
        for _ in VIEWS:
            for below, its in VIEWS.items():
                whole = whole.replace(f"FROM {below}", f"FROM ({its}) AS {below}")
        found[name] = sorted(con.execute(whole).fetchall())
    found["by index"] = [row[1:2] for row in found["sums"] if row[0] == 1]
    return found


@pytest.mark.parametrize("views", [2, 14])
def test_a_tick_writes_as_often_with_many_views(
    tmp_env: Path, monkeypatch: pytest.MonkeyPatch, views: int
) -> None:
    asked = Asked()
    monkeypatch.setattr(opening, "default_registry", lambda: asked)
    with mzsql.connect(tmp_env) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        # What replicas tell of themselves is written by time, not by ticks: it would be counted now and then.
        con.execute("ALTER SYSTEM SET enable_introspection_subscribes = false")
        con.execute("CREATE TABLE o (id bigint, amount bigint)")
        con.execute("INSERT INTO o VALUES (0, 0)")
        for i in range(views):
            con.execute(f"CREATE MATERIALIZED VIEW v{i} AS SELECT id, amount + {i} AS a FROM o")
        con.execute("CREATE MATERIALIZED VIEW above AS SELECT max(a) AS a FROM v0")
        con.execute("CREATE INDEX above_by_a ON above (a)")
        read = "SELECT " + ", ".join(f"(SELECT max(a) FROM v{i})" for i in range(views))
        hydrated = "SELECT bool_and(hydrated) FROM mz_internal.mz_hydration_statuses"
        while con.execute(hydrated).fetchall() != [(True,)]:
            pass
        for tick in range(1, TICKS + 2):
            if tick == 2:
                asked.counts.clear()  # the first one opens what the others use
            con.execute(f"INSERT INTO o VALUES ({tick}, {tick})")
            assert con.execute(read).fetchall() == [tuple(tick + i for i in range(views))]
            assert con.execute("SELECT a FROM above").fetchall() == [(tick,)]
        # the transaction, its table's shard, and the log; the log again where a slow machine cuts a tick, and leases
        assert asked.counts["compare_and_set"] <= 6 * TICKS, asked.counts
        # each statement's look at the catalog
        assert asked.counts["scan"] <= 4 * TICKS, asked.counts


_OTHER = """
import sys, mzsql
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings
controller.ComputeSettings = lambda **given: ComputeSettings(apply_seconds=1e9, flush_seconds=1e9, **given)
with mzsql.connect(sys.argv[1]) as con:
    for line in sys.stdin:
        cursor = con.execute(line)
        print(sorted(cursor.fetchall()) if cursor.description else "done", flush=True)
"""


class Other:
    """A process that runs statements; where it leads, no view's shard follows the log."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def run(self, statement: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def other(env: Path) -> Iterator[Other]:
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER, str(env)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Other(process)
        finally:
            process.kill()


CHANGES = [
    "INSERT INTO o VALUES (4, 2, 4)",
    "DELETE FROM o WHERE id = 2",
    "UPDATE o SET amount = amount + 1 WHERE customer = 2",
    "INSERT INTO o VALUES (5, 3, 30), (6, 1, 2)",
]


def test_others_read_what_only_the_log_has_and_take_over_from_it(tmp_env: Path) -> None:
    with mzsql.connect(tmp_env) as con:
        prepare(con)
        assert contents(con) == expected(con)
    with other(tmp_env) as leader:
        assert leader.run("SELECT count(*) FROM flat") == "[(3,)]"
        with mzsql.connect(tmp_env) as con:
            with con.subscribe("SUBSCRIBE big WITH (PROGRESS)") as cursor:
                for statement in CHANGES:
                    assert leader.run(statement) == "done"
                    assert contents(con) == expected(con)
                seen: Counter[Any] = Counter()
                while +seen != Counter({(2, 13): 1, (3, 30): 1, (1, 12): 1}):
                    _, progressed, diff, *row = cursor.fetchone()
                    if not progressed:
                        seen[tuple(row)] += diff
            leader.process.kill()
            leader.process.wait()
            for number in range(3):
                con.execute(f"INSERT INTO o VALUES ({10 + number}, {number}, {number + 1})")
                assert contents(con) == expected(con)
    with mzsql.connect(tmp_env) as con:
        assert contents(con) == expected(con)


_DIES = """
import os, sys, mzsql
from mzsql.adapter.environment import opening
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.controller import controller
from mzsql.location import open_blob, open_consensus
from mzsql.storage import log_shard_of

env, what, when, countdown = *sys.argv[1:4], int(sys.argv[4])
controller.ComputeSettings = lambda **given: ComputeSettings(apply_seconds=0.2, flush_seconds=0.3, **given)
armed, shards = False, set()

class Dies:
    def open_blob(self, url):
        return open_blob(url)
    def open_consensus(self, url):
        store = open_consensus(url)
        plain = store.compare_and_set
        def compare_and_set(key, expected, new):
            global countdown
            hit = armed and key in shards
            countdown -= hit
            if hit and countdown == 0 and when == "before":
                os._exit(9)
            done = plain(key, expected, new)
            if hit and countdown == 0:
                os._exit(9)
            return done
        store.compare_and_set = compare_and_set
        return store

registry = Dies()
opening.default_registry = lambda: registry
with mzsql.connect(env) as con:
    con.execute("SELECT count(*) FROM top").fetchall()
    state = con.coordinator.env.catalog.state
    views = {item.shard for item in state.stored if item.kind == "materialized-view"}
    shards |= {log_shard_of(state.meta.wal_shard)} if what == "log" else views
    armed = True
    number = 100
    while True:
        number += 1
        con.execute(f"INSERT INTO o VALUES ({number}, {number % 3}, {number % 7 + 1})")
        con.execute("SELECT count(*) FROM top").fetchall()
        if number % 3 == 0:
            con.execute(f"DELETE FROM o WHERE id = {number - 2}")
"""


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["log", "view"])
def test_a_process_killed_around_a_write_leaves_the_views_right(
    tmp_env: Path, what: str, when: str
) -> None:
    with mzsql.connect(tmp_env) as con:
        prepare(con)
        assert contents(con) == expected(con)
    for countdown in (1, 4):
        died = subprocess.run(
            [sys.executable, "-c", _DIES, str(tmp_env), what, when, str(countdown)],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert died.returncode == 9, died.stderr
        with mzsql.connect(tmp_env) as con:
            assert contents(con) == expected(con)
            con.execute(f"INSERT INTO o VALUES ({-countdown}, 1, 3)")
            assert contents(con) == expected(con)
