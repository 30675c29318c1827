"""Statements that are planned once, over tables that change."""

from __future__ import annotations

import gc
import json
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from sqlglot import expressions as exp
from sqlglot import parse_one

from mzsql.compute.engines.driver import ALONE, PLAN_USES, PLANNED_ROWS, Driver
from mzsql.compute.engines.plans import Plan, Plans
from mzsql.expr.engines import locked_connection
from mzsql.expr.functions.table import Engine
from mzsql.render.rewrites.templates import LeanText, Text
from mzsql.render.times import LOWER, UPPER

_SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.decimal128(38, 2))])


def rows(*values: tuple[int, Any]) -> pa.Table:
    """A table of _SCHEMA."""
    columns = list(zip(*values, strict=True)) if values else [(), ()]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


class Counted:
    """A table that counts how often it is read."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.schema, self.reads = table, table.schema, 0

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        self.reads += 1
        return self.table.__arrow_c_stream__(requested_schema)


def text_of(sql: str) -> Text:
    """A step's text; :lower, :before and :upper are its times."""
    times = {":lower": LOWER, ":before": LOWER - 1, ":upper": UPPER}
    for name, time in times.items():
        sql = sql.replace(name, f"CAST({time} AS BIGINT)")
    statement = parse_one(sql, dialect="duckdb")
    assert isinstance(statement, exp.Expression)
    return Text(statement, Engine.DUCKDB)


_JOINED = text_of(
    "WITH j AS (SELECT a.k, a.v + b.v AS v FROM a JOIN b ON a.k = b.k) "
    "SELECT k, sum(v) AS s, :lower AS t FROM j WHERE k < :lower GROUP BY k "
    "UNION ALL SELECT count(*), NULL, :upper FROM j WHERE k < :before OR :before > k"
)


def plan_of(text: Text) -> Plan:
    """Its plan over a and b."""
    assert text.with_parameters is not None
    return Plan(
        locked_connection(),
        text.with_parameters,
        {"a": _SCHEMA, "b": _SCHEMA},
        frozenset(text.parameters(0, 1)),
    )


def answer(text: Text, lower: int, upper: int, tables: dict[str, pa.Table]) -> list[Any]:
    """What DuckDB says to the text with its times in it."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        found = connection.execute(text.at(lower, upper)).fetchall()
    return sorted(map(repr, found))


def as_rows(table: pa.Table) -> list[Any]:
    """As `answer` gives them."""
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


def test_a_plan_answers_over_each_runs_tables_and_times() -> None:
    """As though the statement was written for them: none of an earlier run's rows, none of its times."""
    plan = plan_of(_JOINED)
    for lower, a, b in [
        (10, rows((1, 1), (2, 5)), rows((2, 7))),
        (3, rows((2, None), (3, 4)), rows((2, 1), (3, 2), (3, 3))),
        (2**40, rows(), rows((1, 1))),
        (11, rows(*((i, i) for i in range(5000))), rows(*((i, 1) for i in range(0, 5000, 3)))),
    ]:
        tables = {"a": a, "b": b}
        assert plan.fits(tables)
        made = plan.run(tables, _JOINED.parameters(lower, lower + 5))
        assert made is not None
        assert as_rows(made) == answer(_JOINED, lower, lower + 5, tables)
    plan.close()


_ONCE = text_of(
    "SELECT k, :lower AS t FROM a WHERE k < :lower AND NOT k = :before "
    "UNION ALL SELECT k, :lower FROM b WHERE k < :lower"
)


def test_nothing_is_planned_in_a_run() -> None:
    """DuckDB would ask for each relation's schema, that is for its rows once more than the statement does."""
    plan = plan_of(_ONCE)
    for lower in range(1, 5):
        a, b = Counted(rows((0, 1), (9, 1))), Counted(rows((0, 2)))
        made = plan.run({"a": a, "b": b}, _ONCE.parameters(lower, lower + 1))
        assert (a.reads, b.reads) == (1, 1)
        assert made is not None
        assert made.num_rows == (1 if lower == 1 else 2)
    plan.close()


def test_duckdb_keeps_what_it_has_planned() -> None:
    """Some releases plan a prepared statement that reads relations anew in each run, several times the cost of a small step.

    DuckDB's own figures tell: to bind four hundred expressions takes a thousand times what it takes to find a plan by its name.
    """
    terms = ", ".join(f"v * {n} + coalesce(v, {n})" for n in range(400))
    connection = duckdb.connect()
    connection.execute("PRAGMA enable_profiling = 'no_output'")

    def bound() -> float:
        found = json.loads(connection.get_profiling_information("json"))
        return float(found["planner"]["binding_time"])

    plan = Plan(connection, f"SELECT {terms} FROM a", {"a": _SCHEMA})
    connection.execute(f"SELECT {terms} FROM a").fetchall()
    planning = bound()
    made = plan.run({"a": rows((1, 1))})
    assert made is not None
    # What is had as Arrow leaves no figures: it is run as a plan is, once more.
    for _ in range(3):
        connection.execute("EXECUTE planned").fetchall()
        assert bound() < planning / 10
    plan.close()


def test_a_failed_run_leaves_the_plan_as_it_was() -> None:
    """With the error that the statement has."""
    text = text_of("SELECT error('no ' || k) AS e FROM a WHERE k > :lower")
    assert text.with_parameters is not None
    plan = Plan(
        locked_connection(),
        text.with_parameters,
        {"a": _SCHEMA},
        frozenset(text.parameters(0, 1)),
    )
    for _ in range(2):
        with pytest.raises(duckdb.Error, match="no 7"):
            plan.run({"a": rows((7, 1))}, text.parameters(5, 6))
        made = plan.run({"a": rows((7, 1))}, text.parameters(8, 9))
        assert made is not None
        assert made.num_rows == 0
    plan.close()


def test_a_plan_is_for_tables_of_its_schemas() -> None:
    """Others are not misread."""
    plan = plan_of(_JOINED)
    good = rows((1, 1))
    assert plan.fits({"a": good, "b": good})
    assert not plan.fits({"a": good})
    assert not plan.fits({"a": good, "b": good, "c": good})
    assert not plan.fits({"a": good, "b": good.cast(pa.schema([("k", pa.int32()), _SCHEMA[1]]))})
    assert not plan.fits({"a": good, "b": good.rename_columns(["k", "w"])})
    plan.close()


def test_one_thread_at_a_time_runs_a_plan() -> None:
    """The second one is told so, instead of waiting or mixing its rows with the first one's."""
    plan = plan_of(_ONCE)
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Counted):
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            inside.set()
            assert go_on.wait(60)
            return super().__arrow_c_stream__(requested_schema)

    made: list[pa.Table | None] = []
    slow = {"a": Slow(rows((1, 1))), "b": rows()}
    thread = threading.Thread(target=lambda: made.append(plan.run(slow, _ONCE.parameters(5, 6))))
    thread.start()
    assert inside.wait(60)
    assert plan.run({"a": rows(), "b": rows((1, 1))}, _ONCE.parameters(5, 6)) is None
    go_on.set()
    thread.join(60)
    assert made[0] is not None
    assert made[0].num_rows == 1
    plan.close()


def test_what_cannot_be_planned_is_told_and_leaves_nothing() -> None:
    """Neither a connection."""
    connection = locked_connection()
    with pytest.raises(duckdb.Error, match="nothing_of_the_kind"):
        Plan(connection, "SELECT * FROM nothing_of_the_kind", {})
    with pytest.raises(duckdb.Error, match="closed"):
        connection.execute("SELECT 1")


def simple_plan(text: str) -> Plan:
    """A plan over a."""
    return Plan(locked_connection(), text, {"a": _SCHEMA})


def test_plans_are_bounded_by_their_texts_length() -> None:
    """Those used longest ago go; the newest stays, however long."""
    texts = [f"SELECT k + {i} AS k FROM a" for i in range(4)]
    plans = Plans(most=2 * len(texts[0]))
    table = {"a": rows((1, 1))}
    keys = [(text, (_SCHEMA,)) for text in texts]
    for key in keys[:2]:
        plans.keep(key, simple_plan(key[0]))
    assert plans.get(keys[0], table) is not None
    plans.keep(keys[2], simple_plan(texts[2]))
    assert [plans.get(key, table) is not None for key in keys[:3]] == [True, False, True]
    long = ("SELECT k FROM a WHERE " + " OR ".join(["k = 1"] * 30), (_SCHEMA,))
    plans.keep(long, simple_plan(long[0]))
    assert len(plans) == 1
    assert plans.get(long, table) is not None
    plans.close()


def test_a_plan_goes_with_its_text() -> None:
    """That is, with its dataflow."""
    plans = Plans()
    text = text_of("SELECT k FROM a")
    plans.keep(text, simple_plan("SELECT k FROM a"))
    assert len(plans) == 1
    del text
    gc.collect()
    assert len(plans) == 0


@pytest.mark.parametrize("recurs", [False, True])
def test_a_step_is_planned_when_it_comes_again(recurs: bool) -> None:
    """And says the same before and after, with rows of the same schemas, of others, and with many."""
    driver = Driver()
    text = Text(_JOINED.statement, Engine.DUCKDB, recurs=recurs)
    waiting: list[Any] = []
    planned_at = 0 if recurs else PLAN_USES - 1
    many = rows(*((i, i) for i in range(PLANNED_ROWS)))
    for turn in range(8):
        a, b = rows((turn, 1), (2, 2)), rows((2, turn))
        if turn == 5:
            b = b.cast(pa.schema([("k", pa.int32()), _SCHEMA[1]]))
        if turn == 6:
            a = pa.concat_tables([a, many])
        tables = {"a": a, "b": b}
        made = driver.step(text, turn, turn + 1, tables, waiting.append)
        assert as_rows(made) == answer(text, turn, turn + 1, tables)
        if turn < 5:
            assert len(waiting) == (turn == planned_at)
        for work in waiting:
            work()
        waiting.clear()
    driver.close()


def test_a_text_that_cannot_be_planned_is_not_tried_in_each_step() -> None:
    """It is run as it is written."""
    driver = Driver()
    text = text_of("SELECT k FROM a")
    text.recurs = True
    tried: list[Any] = []
    for _ in range(3):
        driver.step(text, 1, 2, {"a": rows((1, 1))}, tried.append)
    assert len(tried) == 1
    driver.close()


def test_simple_texts_are_planned_for_each_schema() -> None:
    """The same text over other columns is another one."""
    driver = Driver()
    other = pa.table({"k": pa.array([5], pa.int32()), "w": ["x"]})
    for turn in range(PLAN_USES + 2):
        assert driver.simple("SELECT * FROM a", {"a": rows((turn, 1))})["k"].to_pylist() == [turn]
        assert driver.simple("SELECT * FROM a", {"a": other}).to_pylist() == [{"k": 5, "w": "x"}]
    assert len(driver._plans) == 2
    driver.close()


def test_a_step_whose_text_was_prepared_is_not_planned_again() -> None:
    driver = Driver()
    text = Text(_JOINED.statement, Engine.DUCKDB, recurs=True)
    schemas = {"a": _SCHEMA, "b": _SCHEMA, "c": _SCHEMA}
    driver.prepare(schemas, LeanText({}, None, ()))
    assert len(driver._plans) == 0
    driver.prepare(schemas, LeanText({}, text, ("a", "b")))
    assert len(driver._plans) == 1
    tried: list[Any] = []
    for turn in range(3):
        tables = {"a": rows((turn, 1), (2, 2)), "b": rows((2, turn))}
        made = driver.step(text, turn, turn + 1, tables, tried.append)
        assert as_rows(made) == answer(text, turn, turn + 1, tables)
    assert not tried
    driver.close()


def _threads() -> set[str]:
    """The threads of this process, those of libraries too; a number that has ended is not given again soon."""
    return {one.name for one in Path("/proc/self/task").iterdir()}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system tells no threads")
def test_who_runs_a_planned_text_works_alone() -> None:
    """DuckDB, told of three threads, starts no more than where it is told of one."""
    started = []
    for settings in ({"threads": "1"}, ALONE):
        before = _threads()
        with locked_connection(settings=settings) as connection:
            found = connection.execute("SELECT count(DISTINCT v % 1000) FROM range(200_000) t(v)")
            assert found.fetchall() == [(1000,)]
            started.append(len(_threads() - before))
    assert started[0] == started[1]


def test_a_text_that_cannot_be_prepared_is_run_as_it_is_written() -> None:
    driver = Driver()
    text = Text(_JOINED.statement, Engine.DUCKDB, recurs=True)
    broken = pa.schema([("other", pa.int64())])
    with pytest.raises(duckdb.Error):
        driver.prepare({"a": broken, "b": broken}, LeanText({}, text, ("a", "b")))
    tried: list[Any] = []
    tables = {"a": rows((1, 1), (2, 2)), "b": rows((2, 5))}
    made = driver.step(text, 3, 4, tables, tried.append)
    assert as_rows(made) == answer(text, 3, 4, tables)
    assert not tried
    driver.close()
