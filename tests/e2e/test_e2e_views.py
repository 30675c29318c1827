"""Materialized views on Spark, end to end: right after every change, across restarts, takeovers and kills."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import duckdb
import pytest

import mzsql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

TABLES = (
    "CREATE TABLE orders (id int NOT NULL, customer int, total numeric(12, 2))",
    "CREATE TABLE customers (id int NOT NULL, region text)",
)
VIEWS = {
    "by_region": "SELECT c.region, count(*) AS n, sum(o.total) AS total FROM orders AS o "
    "JOIN customers AS c ON o.customer = c.id GROUP BY c.region",
    "top": "SELECT id, total FROM orders ORDER BY total DESC, id LIMIT 2",
    "quiet": "SELECT id FROM customers WHERE NOT EXISTS (SELECT 1 FROM orders WHERE customer = customers.id)",
}
CHANGES = (
    "INSERT INTO customers VALUES (1, 'north'), (2, 'south'), (3, NULL)",
    "INSERT INTO orders VALUES (10, 1, 5.00), (11, 2, 7.50), (12, 1, 1.25)",
    "UPDATE orders SET total = total * 2 WHERE customer = 1",
    "DELETE FROM orders WHERE id = 11",
    "INSERT INTO orders SELECT id + 100, 3, 9 FROM orders",
)


def check(con: mzsql.Connection, other: duckdb.DuckDBPyConnection) -> None:
    for name, query in VIEWS.items():
        found = sorted(map(repr, con.execute(f"SELECT * FROM {name}").fetchall()))
        assert found == sorted(map(repr, other.execute(query).fetchall())), name


def test_views_follow_their_tables_and_go_on_after_a_restart(env: str, spark: SparkSession) -> None:
    other = duckdb.connect()
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        for statement in (*TABLES, *CHANGES[:2]):
            con.execute(statement)
            other.execute(statement)
        for name, query in VIEWS.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        check(con, other)
        con.execute("CREATE INDEX by_region_idx ON by_region (region)")
        for statement in CHANGES[2:4]:
            con.execute(statement)
            other.execute(statement)
            check(con, other)
        # Nothing waits for the index: steps are done long before Spark has hydrated it.
        hydrated = "SELECT DISTINCT hydrated FROM mz_internal.mz_hydration_statuses"
        deadline = time.monotonic() + 120
        while con.execute(hydrated).fetchall() != [(True,)]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        arrangements = "SELECT shard_id FROM mz_internal.mz_arrangements ORDER BY shard_id"
        shards = con.execute(arrangements).fetchall()
        assert shards
        with mzsql.connect(env, read_only=True) as beside:
            # Whoever maintains them.
            assert beside.execute(arrangements).fetchall() == shards
            readable = (
                "SELECT bool_and(read_frontier < write_frontier) FROM mz_internal.mz_frontiers"
            )
            assert beside.execute(readable).fetchall() == [(True,)]
        hydrations = con.execute(
            "SELECT count(*) FROM mz_internal.mz_refreshes WHERE kind = 'hydration'"
        ).fetchall()
        plan = con.execute("EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW by_region").fetchall()
        with pytest.raises(
            mzsql.ProgrammingError, match="still depended upon by materialized view"
        ):
            con.execute("DROP TABLE orders")
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        assert con.plans_from_cache == (4, 4)
        check(con, other)
        assert (
            con.execute("EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW by_region").fetchall() == plan
        )
        con.execute(CHANGES[4])
        other.execute(CHANGES[4])
        check(con, other)
        assert con.execute(arrangements).fetchall() == shards
        hydrated = "SELECT count(*) FROM mz_internal.mz_refreshes WHERE kind = 'hydration'"
        assert con.execute(hydrated).fetchall() == hydrations, "nothing is hydrated anew"
        con.execute("DROP MATERIALIZED VIEW by_region")
        con.execute("DROP TABLE orders CASCADE")
        assert con.execute("SHOW MATERIALIZED VIEWS").fetchall() == []
        assert con.execute("SELECT * FROM mz_internal.mz_hydration_statuses").fetchall() == []


def test_a_view_that_is_planned_over_a_younger_index_goes_on_after_a_restart(
    env: str, spark: SparkSession
) -> None:
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2)")
        con.execute("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, max(b) AS b FROM t")
        assert con.execute("SELECT * FROM m").fetchall() == [(1, 2)]
        con.execute("CREATE INDEX i ON t (a)")
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute("INSERT INTO t VALUES (2, 5)")
        assert con.execute("SELECT * FROM m").fetchall() == [(2, 5)]


def test_errors_of_a_view_are_read_and_recover(env: str, spark: SparkSession) -> None:
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)")
        con.execute("CREATE MATERIALIZED VIEW inverse AS SELECT 10 / a AS x FROM t")
        assert sorted(con.execute("SELECT x FROM inverse").fetchall()) == [(5,), (10,)]
        con.execute("INSERT INTO t VALUES (0)")
        with pytest.raises(mzsql.DataError, match="division by zero"):
            con.execute("SELECT x FROM inverse")
        con.execute("DELETE FROM t WHERE a = 0")
        assert sorted(con.execute("SELECT x FROM inverse").fetchall()) == [(5,), (10,)]


def test_a_view_that_nobody_maintains_says_so(env: str, spark: SparkSession) -> None:
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a + 1 AS b FROM t")
        assert con.execute("SELECT * FROM v").fetchall() == [(2,)]
    with mzsql.connect(env, read_only=True) as con:
        assert con.execute("SELECT * FROM v").fetchall() == [(2,)]
        writer = subprocess.run(
            [
                sys.executable,
                "-c",
                textwrap.dedent(
                    f"""
                    from mzsql.adapter.coordinator import Coordinator
                    from mzsql.adapter.environment.environment import Environment
                    from mzsql.adapter.environment.locations import locate
                    from mzsql.adapter.session.session import Session
                    env = Environment.open(locate({env!r}))
                    serving = Coordinator(env, spark=None)
                    serving.execute(Session(), "INSERT INTO t VALUES (5)")
                    serving.close()
                    env.close()
                    """
                ),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert writer.returncode == 0, writer.stderr
        con.execute("SET statement_timeout = '2s'")
        with pytest.raises(mzsql.OperationalError) as caught:
            con.execute("SELECT * FROM v")
        text = str(caught.value)
        assert 'relation "materialize.public.v" is not readable at' in text
        assert "Replicas: r1 (size 2); no process runs them now." in text


@pytest.mark.long
def test_a_process_killed_in_the_middle_of_a_refresh_loses_nothing(
    env: str, spark: SparkSession
) -> None:
    program = f"""
        import mzsql
        con = mzsql.connect({env!r})
        con.execute("SET statement_timeout = '20 min'")
        con.execute("CREATE TABLE t (k int, v int); INSERT INTO t VALUES (1, 1), (2, 2)")
        con.execute("CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k")
        con.execute("SELECT * FROM sums")
        for i in range(1000):
            con.execute("INSERT INTO t SELECT k, v + %s FROM t WHERE k < 3", [i])
            con.execute("DELETE FROM t WHERE k = 2 AND v > 50")
            print(i, flush=True)
    """
    other = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    # The second round is acknowledged while the first is still being worked on: a step takes far longer than a commit.
    while other.stdout.readline() not in ("1\n", ""):
        pass
    other.send_signal(signal.SIGKILL)
    other.wait()
    with mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        frontier, wanted = con.execute(
            "SELECT f.write_frontier, t.write_frontier FROM mz_internal.mz_frontiers AS f, "
            "mz_internal.mz_frontiers AS t WHERE f.object_id = 'u2' AND t.object_id = 'u1'"
        ).fetchall()[0]
        assert frontier <= wanted
        view = sorted(con.execute("SELECT * FROM sums").fetchall())
        again = sorted(con.execute("SELECT k, sum(v), count(*) FROM t GROUP BY k").fetchall())
        assert view == again
        hydrated = "SELECT count(*) FROM mz_internal.mz_refreshes WHERE kind = 'hydration'"
        assert con.execute(hydrated).fetchall() == [(1,)], "by the process before"
