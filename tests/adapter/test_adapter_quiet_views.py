"""A view whose inputs did not change costs its ticks nothing, and is right for all that: read here, elsewhere, after a crash."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

import mzsql
from mzsql.adapter.environment import environment, opening
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings
from mzsql.location import blob_around, consensus_around, open_blob, open_consensus
from mzsql.storage import ExportLog

T = TypeVar("T")

TICKS = 5
#: In the names of threads: steps, and what is behind them and comes whether there are ticks or not (the leader releases history).
WORK = ("-step-", "-flush-", "maintenance", "leader")


class Asked:
    """Opens backends as the registry does, and counts what is asked of them, by the work that asks."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def _act(self, operation: str, act: Callable[[], T]) -> T:
        thread = threading.current_thread().name
        work = next((one for one in WORK if one in thread), "")
        self.counts[work, operation] += 1
        return act()

    def open_blob(self, url: str) -> Any:
        return blob_around(open_blob(url), self._act)

    def open_consensus(self, url: str) -> Any:
        return consensus_around(open_consensus(url), self._act)

    def by_steps(self) -> int:
        return sum(n for (work, _), n in self.counts.items() if work == "-step-")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked()
    monkeypatch.setattr(opening, "default_registry", lambda: made)
    return made


@pytest.fixture
def never_following(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views' shards do not follow by themselves, nor the log before them, as if each moment were the first after a tick."""

    def settings(**given: Any) -> ComputeSettings:
        return ComputeSettings(apply_seconds=1e9, **given)

    monkeypatch.setattr(controller, "ComputeSettings", settings)
    monkeypatch.setattr(environment, "ExportLog", partial(ExportLog, delay=1e9, quiet=1e9))
    monkeypatch.setattr(ExportLog, "settle", lambda _: None)


def prepare(con: mzsql.Connection) -> None:
    con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
    con.execute("CREATE TABLE o (id bigint, customer bigint, amount bigint)")
    con.execute("CREATE TABLE other (id bigint)")
    con.execute(
        "INSERT INTO o VALUES (1, 1, 10), (2, 1, 5), (3, 2, 7); INSERT INTO other VALUES (0)"
    )


@pytest.mark.parametrize("views", [3, 40])
def test_ticks_of_other_tables_ask_for_as_little_with_many_views(
    tmp_env: Path, asked: Asked, views: int
) -> None:
    with mzsql.connect(tmp_env) as con:
        prepare(con)
        for i in range(views):
            con.execute(f"CREATE MATERIALIZED VIEW v{i} AS SELECT id, amount + {i} AS a FROM o")
        # What replicas tell of themselves is written by time, not by ticks: it would be counted now and then.
        con.execute("ALTER SYSTEM SET enable_introspection_subscribes = false")
        con.execute("CREATE MATERIALIZED VIEW reader AS SELECT count(*) AS n FROM other")
        con.execute("CREATE MATERIALIZED VIEW over AS SELECT max(a) AS a FROM v0")
        last = f"SELECT max(a), (SELECT n FROM reader), (SELECT a FROM over) FROM v{views - 1}"
        for i in range(views):
            assert con.execute(f"SELECT count(*) FROM v{i}").fetchall() == [(3,)]
        assert con.execute(last).fetchall() == [(10 + views - 1, 1, 10)]
        asked.counts.clear()
        for tick in range(TICKS):
            con.execute(f"INSERT INTO other VALUES ({tick})")
            assert con.execute(last).fetchall() == [(10 + views - 1, tick + 2, 10)]
        # of the steps: the one of `reader` applies the table's write to its shard, however many views there are
        writes = asked.counts["-step-", "compare_and_set"]
        assert asked.by_steps() <= 2 * TICKS, asked.counts
        assert writes + asked.counts["", "compare_and_set"] <= 3 * TICKS, asked.counts
        # of the rest: a statement's look at the catalog, and what its wait for a view looks at
        assert asked.counts["", "scan"] <= 4 * TICKS, asked.counts


@pytest.mark.usefixtures("never_following")
def test_a_quiet_view_is_read_at_once_and_changes_after_that(tmp_env: Path) -> None:
    with mzsql.connect(tmp_env) as con:
        prepare(con)
        con.execute(
            "CREATE MATERIALIZED VIEW sums AS SELECT customer, sum(amount) AS s FROM o GROUP BY customer"
        )
        con.execute("CREATE MATERIALIZED VIEW many AS SELECT customer FROM sums WHERE s > 10")
        con.execute("CREATE INDEX by_customer ON sums (customer)")
        con.execute(
            "CREATE MATERIALIZED VIEW pairs AS SELECT s.s, t.id FROM sums AS s JOIN other AS t ON t.id = s.customer"
        )
        queries = ("sums", "many", "pairs")

        def check(*answers: list[tuple[Any, ...]]) -> None:
            for name, answer in zip(queries, answers, strict=True):
                found = con.execute(f"SELECT * FROM {name}").fetchall()
                assert sorted(found) == answer, name
            assert con.execute("SELECT s FROM sums WHERE customer = 1").fetchall() == [
                row[1:] for row in answers[0] if row[0] == 1
            ]

        check([(1, 15), (2, 7)], [(1,)], [])
        with con.subscribe("SUBSCRIBE many WITH (PROGRESS)") as cursor:
            con.execute("INSERT INTO other VALUES (5)")
            check([(1, 15), (2, 7)], [(1,)], [])
            con.execute("INSERT INTO other VALUES (2)")
            check([(1, 15), (2, 7)], [(1,)], [(7, 2)])
            con.execute("INSERT INTO o VALUES (4, 2, 4)")
            check([(1, 15), (2, 11)], [(1,), (2,)], [(11, 2)])
            con.execute("DELETE FROM o WHERE id = 2")
            con.execute("INSERT INTO other VALUES (1)")
            check([(1, 10), (2, 11)], [(2,)], [(10, 1), (11, 2)])
            seen: Counter[Any] = Counter()
            while seen != Counter({2: 1}):
                _, progressed, diff, customer = cursor.fetchone()
                if not progressed:
                    seen[customer] += diff
                    seen = Counter({key: n for key, n in seen.items() if n})


_DIES = """
import sys, mzsql
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings
from mzsql.storage import ExportLog
controller.ComputeSettings = lambda **given: ComputeSettings(apply_seconds=1e9, **given)
ExportLog.settle = lambda _: None
with mzsql.connect(sys.argv[1]) as con:
    for number in range(3):
        con.execute(f"INSERT INTO other VALUES ({number})")
        print(con.execute("SELECT count(*), (SELECT m FROM over) FROM sums").fetchall(), flush=True)
    sys.stdin.read()
"""


def test_a_process_that_is_killed_before_the_shards_have_followed_loses_nothing(
    tmp_env: Path,
) -> None:
    read = "SELECT count(*), (SELECT m FROM over) FROM sums"
    with mzsql.connect(tmp_env) as con:
        prepare(con)
        con.execute(
            "CREATE MATERIALIZED VIEW sums AS SELECT customer, sum(amount)::bigint AS s FROM o GROUP BY customer"
        )
        con.execute("CREATE MATERIALIZED VIEW over AS SELECT max(s) AS m FROM sums, other")
        assert con.execute(read).fetchall() == [(2, 15)]
    with subprocess.Popen(
        [sys.executable, "-c", _DIES, str(tmp_env)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert [other.stdout.readline() for _ in range(3)] == ["[(2, 15)]\n"] * 3
        other.kill()
    with mzsql.connect(tmp_env) as con:
        assert con.execute(read).fetchall() == [(2, 15)]
        con.execute("INSERT INTO o VALUES (9, 2, 100)")
        assert con.execute(read).fetchall() == [(2, 107)]
        con.execute("INSERT INTO other VALUES (9)")
        con.execute("DELETE FROM o WHERE id = 9")
        assert con.execute(read).fetchall() == [(2, 15)]


_READ = """
import sys, mzsql
with mzsql.connect(sys.argv[1]) as con:
    for line in sys.stdin:
        print(con.execute(line).fetchall(), flush=True)
"""


def test_another_process_sees_a_quiet_view_soon(tmp_env: Path) -> None:
    """Its read is at a time that only the other process's memory has complete: the shard follows without another write."""
    with mzsql.connect(tmp_env) as con:
        prepare(con)
        con.execute(
            "CREATE MATERIALIZED VIEW sums AS SELECT customer, sum(amount) AS s FROM o GROUP BY customer"
        )
        con.execute("SELECT * FROM sums").fetchall()
        with subprocess.Popen(
            [sys.executable, "-c", _READ, str(tmp_env)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            for number in range(3):
                con.execute(f"INSERT INTO other VALUES ({number})")
                other.stdin.write("SELECT count(*) FROM sums\n")
                other.stdin.flush()
                assert other.stdout.readline() == "[(2,)]\n"
            other.stdin.close()
