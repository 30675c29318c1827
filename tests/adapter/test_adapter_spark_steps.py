"""Steps with `step_engine` at spark: right, in few jobs, and compiled once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import mzsql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_TABLES = (
    "CREATE TABLE o (id bigint, customer bigint, amount numeric(12, 2))",
    "CREATE TABLE c (id bigint, region text)",
    "CREATE TABLE r (name text, tax numeric(4, 2))",
    "INSERT INTO c SELECT g, 'r' || g % 3 FROM generate_series(1, 20) AS g",
    "INSERT INTO r VALUES ('r0', 0.1), ('r1', 0.2)",
    "INSERT INTO o SELECT g, g % 20, g FROM generate_series(1, 200) AS g",
)

#: A view of each kind, and the most jobs that a step of it may take.
_VIEWS = {
    "sums": ("SELECT customer, sum(amount) AS s, count(*) AS n FROM o GROUP BY customer", 2),
    "extremes": ("SELECT customer, min(amount) AS a, max(amount) AS z FROM o GROUP BY customer", 2),
    "first": ("SELECT id, amount FROM o ORDER BY amount DESC, id LIMIT 3", 2),
    "taxes": (
        "SELECT r.name, sum(o.amount * r.tax) AS t, count(*) AS n FROM o JOIN c ON c.id = o.customer JOIN r ON r.name = c.region "
        "GROUP BY r.name",
        6,
    ),
    "outside": ("SELECT c.id, o.amount FROM c LEFT JOIN o ON o.customer = c.id", 6),
}


@pytest.fixture(scope="module")
def con(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path_factory.mktemp("steps") / "env"), spark=spark) as made:
        made.execute("SET statement_timeout = '10 min'")
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        for statement in _TABLES:
            made.execute(statement)
        for name, (query, _) in _VIEWS.items():
            made.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        _check(made)
        made.execute("ALTER SYSTEM SET step_engine = 'spark'")
        yield made


def _check(con: mzsql.Connection) -> None:
    for name, (query, _) in _VIEWS.items():
        view = sorted(map(repr, con.execute(f"SELECT * FROM {name}").fetchall()))
        assert view == sorted(map(repr, con.execute(query).fetchall())), name


def _steps(con: mzsql.Connection, name: str) -> list[tuple[int, str]]:
    """Jobs and engine of each step of a view that Spark ran."""
    return con.execute(
        "SELECT r.jobs, r.engine FROM mz_internal.mz_refreshes AS r JOIN mz_catalog.mz_objects AS o ON o.id = r.object_id "
        "WHERE o.name = %s AND r.kind = 'step' ORDER BY r.upper",
        [name],
    ).fetchall()


def _change(con: mzsql.Connection, *statements: str) -> None:
    """A transaction, and a step of each view after it, told of too."""
    before = {name: len(_steps(con, name)) for name in _VIEWS}
    con.execute("BEGIN")
    for statement in statements:
        con.execute(statement)
    con.execute("COMMIT")
    _check(con)
    while any(len(_steps(con, name)) == count for name, count in before.items()):
        time.sleep(0.01)


def test_steps_are_right_and_take_few_jobs(con: mzsql.Connection) -> None:
    """Whatever changed: the updates, what they are looked up in, or both."""
    _change(con, "INSERT INTO o VALUES (900, 3, 7.5), (901, 4, 0.5), (902, NULL, 4)")
    _change(
        con,
        "DELETE FROM o WHERE customer IN (3, 7)",
        "UPDATE c SET region = 'r0' WHERE id < 5",
        "INSERT INTO r VALUES ('r2', 0.3)",
        "INSERT INTO o VALUES (903, 5, 1)",
    )
    for name, (_, most) in _VIEWS.items():
        ran = _steps(con, name)
        assert len(ran) >= 2
        assert {engine for _, engine in ran} == {"spark"}
        assert all(0 < jobs <= most for jobs, _ in ran), (name, ran)


def test_a_step_like_those_before_is_not_compiled_again(
    con: mzsql.Connection, spark: SparkSession
) -> None:
    """The times of a step are no part of the text that Spark compiles."""
    compiled = spark.sparkContext._jvm.org.apache.spark.metrics.source.CodegenMetrics
    counts = []
    for number in range(4):
        _change(con, f"INSERT INTO o VALUES ({1000 + number}, 6, {number})")
        counts.append(compiled.METRIC_COMPILATION_TIME().getCount())
    assert counts[3] == counts[2]
