"""Random views of every node, function and type are, after every change, what their own queries answer; on both engines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from fuzz_awkward import KINDS, Column, Table
from fuzz_calls import Calls, Ref, callable_functions
from fuzz_engines import Failure, Worlds
from fuzz_maintained import Maintained, difference, plan_of, run_plan
from fuzz_steps import Gate, in_process
from spark_kit import hydrated_by_spark

import mzsql
from mzsql.render import dataflow
from mzsql.render.nodes.naming import Shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with in_process() as made:
        yield made


@pytest.fixture(scope="module")
def worlds(gate: Gate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    gate.open()
    with Worlds(tmp_path_factory.mktemp("fuzz") / "env") as made:
        yield made


def _all_hold(
    worlds: Worlds, seeds: range, views: int, changes: int, gate: Gate | None = None
) -> None:
    world = Maintained(worlds, gate)
    found = [str(one) for seed in seeds for one in run_plan(world, plan_of(seed, views, changes))]
    world.end()
    assert not found, f"{len(found)} differ\n\n" + "\n\n".join(found[:3])
    assert world.tally.counts["views"] > len(seeds)
    assert world.tally.counts["comparisons"] > len(seeds) * views


def test_views_are_what_their_queries_answer(worlds: Worlds, gate: Gate) -> None:
    _all_hold(worlds, range(3), 4, 2, gate)


@pytest.mark.long
def test_many_views_are_what_their_queries_answer(worlds: Worlds, gate: Gate) -> None:
    _all_hold(worlds, range(100, 104), 12, 3, gate)


@pytest.mark.spark
def test_views_that_spark_keeps_are_what_their_queries_answer(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> None:
    with hydrated_by_spark(), Worlds(tmp_path_factory.mktemp("fuzz") / "env", spark) as worlds:
        _all_hold(worlds, range(50, 51), 3, 1)


@pytest.mark.long
def test_every_declared_function_can_stand_in_a_view(worlds: Worlds) -> None:
    table = Table("every_kind", tuple(Column(f"c{n}", kind) for n, kind in enumerate(KINDS)))
    worlds.ours.execute(table.created())
    refs = [Ref(column.name, column.kind) for column in table.columns]
    calls, refused = Calls(random.Random(3)), []
    for func in callable_functions():
        query = f"SELECT {calls.call(func, refs, 0)} FROM every_kind"
        answer = worlds.mine(query)
        if isinstance(answer, Failure) and answer.sqlstate[:2] in ("0A", "42", "XX"):
            refused.append(f"{func.key}: {query}: {answer.message}")
    assert not refused, "\n".join(refused)


def test_what_creates_a_view_renders_it_once(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[object] = []
    renders = dataflow._rendered

    def counted(shape: Shape) -> object:
        rendered.append(shape)
        return renders(shape)

    world = Maintained(worlds)
    world.begin()
    worlds.ours.execute("CREATE TABLE t (k integer)")
    worlds.ours.execute("CREATE MATERIALIZED VIEW first AS SELECT k FROM t")
    monkeypatch.setattr(dataflow, "_rendered", counted)
    worlds.ours.execute("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k")
    assert len(rendered) == 1
    worlds.ours.execute("INSERT INTO t VALUES (1), (1)")
    assert worlds.mine("SELECT * FROM v") == [(1, 2)]
    assert len(rendered) == 1
    world.end()


def test_a_view_that_is_wrong_is_told(worlds: Worlds) -> None:
    world = Maintained(worlds)
    plan = plan_of(1, 3, 1)
    answers = iter(range(10_000))
    ask = world.ask

    def lying(sql: str) -> object:
        """A view has one row too many."""
        answer = ask(sql)
        if sql.startswith("SELECT * FROM v") and not isinstance(answer, mzsql.Error):
            answer[(next(answers),)] += 1
        return answer

    world.ask = lying  # type: ignore[method-assign,assignment]
    found = list(run_plan(world, plan))
    world.end()
    assert found
    assert {one.how for one in found} == {"rows"}
    assert "CREATE TABLE t0" in str(found[0])


#: What was found: a view, rows of t (k integer, b boolean, d date, p timestamptz) that change it, and how they leave.
FOUND = {
    "an error beside a constant, below a group": (
        "SELECT 1 / (r.k - r.k) AS x, '1'::oid AS y, count(*) AS n FROM t AS r LEFT JOIN t AS s ON r.b = s.b GROUP BY 1, 2",
        ("(3, false, NULL, NULL), (4, true, NULL, NULL)",),
    ),
    "a key beyond the days that Python knows": (
        "SELECT r.k, s.k AS l FROM t AS r LEFT JOIN t AS s ON r.d + 1 = s.d",
        ("(1, true, '9999-12-31', NULL)", "(2, true, '9999-12-30', NULL)", "(3, true, NULL, NULL)"),
    ),
    "the side that an outer join keeps, by a key of another scale": (
        "SELECT r.k, s.n FROM t AS r RIGHT JOIN (SELECT b, (k / 4.0)::numeric(12, 2) AS n FROM t) AS s ON r.k = s.n AND r.b = s.b",
        ("(1, true, NULL, NULL), (4, true, NULL, NULL)", "(6, true, NULL, NULL), (NULL, true, NULL, NULL)"),
    ),
    "both sides of a full join by keys of other scales": (
        "SELECT r.k, s.n FROM t AS r FULL JOIN (SELECT (k / 4.0)::numeric(12, 2) AS n FROM t) AS s ON r.k = s.n",
        ("(1, true, NULL, NULL), (4, true, NULL, NULL)", "(6, true, NULL, NULL), (NULL, true, NULL, NULL)"),
    ),
    "a group by a moment beyond the days that Python knows": (
        "SELECT r.p + INTERVAL '1 day' AS x, count(*) AS n, min(r.k) AS k FROM t AS r GROUP BY 1",
        ("(1, true, NULL, '9999-12-31 12:00:00+00')", "(2, true, NULL, '9999-12-31 12:00:00+00')"),
    ),
    "what one path of a join says by a lookup and another by a predicate": (
        "SELECT q.k AS x, r.k, s.k AS l FROM t AS r JOIN t AS s ON r.d = s.d JOIN t AS q ON (r.k < s.k) = (q.k < q.k)",
        ("(1, true, '2024-01-01', NULL), (2, true, '2024-01-01', NULL)", "(3, true, NULL, NULL), (NULL, true, NULL, NULL)"),
    ),
    "the first of each group by one column twice": (
        "SELECT DISTINCT ON (q.x, q.y) q.x, q.y, q.b, q.d FROM (SELECT k AS x, k AS y, b, d FROM t) AS q ORDER BY q.x, q.y DESC, q.d, q.b",
        ("(1, true, '2024-01-02', NULL), (2, true, NULL, NULL)", "(1, true, '2024-01-01', NULL), (2, false, '2024-01-03', NULL)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FOUND)
def test_what_was_found_is_mended(worlds: Worlds, what: str) -> None:
    query, inserts = FOUND[what]
    world = Maintained(worlds)
    world.begin()
    for statement in (
        "CREATE TABLE t (k integer, b boolean, d date, p timestamptz)",
        "CREATE INDEX t_by_k ON t (k)",
        f"CREATE MATERIALIZED VIEW v AS {query}",
        f"INSERT INTO t VALUES {inserts[0]}",
        f"CREATE MATERIALIZED VIEW w AS {query}",
        *(f"INSERT INTO t VALUES {rows}" for rows in inserts[1:]),
        "DELETE FROM t WHERE k = 1",
        "DELETE FROM t",
    ):
        worlds.ours.execute(statement)
        if " w AS " in statement or statement.startswith("DELETE"):
            for view in "vw":
                how = difference(world.ask(f"SELECT * FROM {view}"), world.ask(query))
                assert not how, (view, statement, how)
    world.end()


def test_a_column_that_a_view_leaves_out_brings_no_errors(worlds: Worlds) -> None:
    world = Maintained(worlds)
    world.begin()
    for statement in (
        "CREATE TABLE t (k integer, c integer)",
        "CREATE VIEW inner_one AS SELECT k, c, 12 / c AS x FROM t",
        "CREATE VIEW v AS SELECT k, c, x FROM inner_one",
        "CREATE INDEX v_by_k ON v (k)",
        "CREATE MATERIALIZED VIEW less AS SELECT r.k, s.c FROM v AS r JOIN t AS s ON r.k = s.k",
        "CREATE MATERIALIZED VIEW whole AS SELECT r.k, r.x, s.c FROM v AS r JOIN t AS s ON r.k = s.k",
        "INSERT INTO t VALUES (1, 0), (2, 3)",
    ):
        worlds.ours.execute(statement)
    explained = {
        name: str(worlds.mine(f"EXPLAIN OPTIMIZED PLAN AS TEXT FOR MATERIALIZED VIEW {name}"))
        for name in ("less", "whole")
    }
    # An index is read by whoever reads all that it can fail with.
    assert "v_by_k" in explained["whole"]
    assert "v_by_k" not in explained["less"]
    less = worlds.mine("SELECT * FROM less ORDER BY k")
    assert less == [(1, 0), (2, 3)]
    failed = worlds.mine("SELECT * FROM whole")
    assert isinstance(failed, Failure)
    assert failed.sqlstate == "22012"
    worlds.ours.execute("DELETE FROM t WHERE c = 0")
    assert worlds.mine("SELECT * FROM whole") == [(2, 4, 3)]
    world.end()
