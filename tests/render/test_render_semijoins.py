"""Joins with distinct keys as semi joins, and not at all: the rows are those of the statement as it was, by DuckDB."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from sqlglot import expressions as exp

from mzsql.compute.replica.step.relation_facts import measured
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.render.rewrites.lean import Relation
from mzsql.render.rewrites.semijoins import semi_joined

Tables = Mapping[str, pa.Table]


def _known(tables: Tables) -> dict[str, Relation]:
    return {name: measured(table, table.column_names) for name, table in tables.items()}


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    """What is registered on a cursor is that one's alone; opening a database takes longer than most comparisons."""
    return duckdb.connect()


def _rows(text: str, tables: Tables) -> list[tuple[Any, ...]]:
    with _database().cursor() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return sorted(connection.execute(text).fetchall(), key=repr)


def _made(text: str, tables: Tables) -> exp.Expression:
    """The statement as it is made of a text; its rows are the text's."""
    statement = sqlglot.parse_one(text, read="duckdb")
    assert isinstance(statement, exp.Expression)
    semi_joined(statement, _known(tables))
    assert _rows(to_sql(statement, Engine.DUCKDB), tables) == _rows(text, tables)
    return statement


def _table(rng: random.Random, rows: int, typ: pa.DataType | None = None) -> pa.Table:
    """Keys that come again, NULLs among them, and values."""

    def keys(most: int) -> pa.Array:
        found = [rng.choice([None, *range(most)]) for _ in range(rows)]
        return pa.array(found, pa.int64()).cast(typ or pa.int64())

    return pa.table({"k": keys(6), "l": keys(3), "v": pa.array(range(rows), pa.int64())})


def _two(seed: int, rows: int = 30, typ: pa.DataType | None = None) -> Tables:
    rng = random.Random(seed)
    return {"a": _table(rng, rows, typ), "b": _table(rng, rows, typ)}


def _joins(statement: exp.Expression) -> list[str]:
    return [join.kind for join in statement.find_all(exp.Join)]


def _groups(statement: exp.Expression) -> int:
    return len(list(statement.find_all(exp.Group)))


@pytest.mark.parametrize(
    "text",
    [
        # the keys first, and last; their columns read, and not
        "WITH p AS (SELECT k FROM b GROUP BY k) SELECT a.v FROM p AS d JOIN a AS a ON d.k = a.k",
        "WITH p AS (SELECT k FROM b GROUP BY k) SELECT a.v, d.k FROM a AS a JOIN p AS d ON (a.k = d.k)",
        # columns with other names, several of them, in another order
        "WITH p AS (SELECT l AS x, k AS y FROM b GROUP BY k, l)"
        " SELECT d.y AS k, d.x + 1 AS l, a.v FROM p AS d JOIN a AS a ON ((d.x = a.l) AND (a.k = d.y))",
        # what the query does beside
        "WITH p AS (SELECT k FROM b WHERE v < 9 GROUP BY k), q AS (SELECT k FROM b WHERE v < 9),"
        " r AS (SELECT k FROM q GROUP BY k)"
        " SELECT d.k, sum(a.v) AS v FROM r AS d JOIN a AS a ON d.k = a.k WHERE d.k > 1 GROUP BY d.k",
        # of the relation itself
        "WITH p AS (SELECT l FROM a GROUP BY l) SELECT d.l, a.v FROM p AS d JOIN a AS a ON d.l = a.k",
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_join_with_distinct_keys_is_a_semi_join(text: str, seed: int) -> None:
    assert "SEMI" in _joins(_made(text, _two(seed)))


@pytest.mark.parametrize(
    "text",
    [
        # some of the keys: a row may meet several
        "WITH p AS (SELECT k, l FROM b GROUP BY k, l) SELECT a.v FROM p AS d JOIN a AS a ON d.k = a.k",
        # keys that something else reads, too
        "WITH p AS (SELECT k FROM b GROUP BY k) SELECT a.v FROM p AS d JOIN a AS a ON d.k = a.k"
        " UNION ALL SELECT k FROM p",
        # no keys: groups with something else, of something else, or of a condition
        "WITH p AS (SELECT k, max(v) AS v FROM b GROUP BY k) SELECT a.v FROM p AS d JOIN a AS a ON d.k = a.k",
        "WITH p AS (SELECT k FROM b GROUP BY k, l) SELECT a.v FROM p AS d JOIN a AS a ON d.k = a.k",
        "WITH p AS (SELECT k FROM b GROUP BY k HAVING count(*) > 5)"
        " SELECT a.v FROM p AS d JOIN a AS a ON d.k = a.k",
        "WITH p AS (SELECT k FROM b) SELECT a.v FROM p AS d JOIN a AS a ON d.k = a.k",
        # more than that there are such keys
        "WITH p AS (SELECT k FROM b GROUP BY k) SELECT a.v FROM p AS d JOIN a AS a ON d.k = a.k AND d.k = a.l",
        "WITH p AS (SELECT k, l FROM b GROUP BY k, l)"
        " SELECT a.v FROM p AS d JOIN a AS a ON d.k = a.k AND d.l = a.k",
        # other joins
        "WITH p AS (SELECT k FROM b GROUP BY k) SELECT a.v FROM a AS a LEFT JOIN p AS d ON d.k = a.k",
        "WITH p AS (SELECT k FROM b GROUP BY k)"
        " SELECT a.v FROM a AS a JOIN p AS d ON d.k IS NOT DISTINCT FROM a.k",
        "WITH p AS (SELECT k FROM b GROUP BY k) SELECT a.v FROM a AS a JOIN p AS d ON d.k < a.k",
        "WITH p AS (SELECT k FROM b GROUP BY k) SELECT a.v FROM a AS a JOIN p AS d ON TRUE",
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_another_join_stays(text: str, seed: int) -> None:
    assert "SEMI" not in _joins(_made(text, _two(seed)))


def test_of_equal_values_that_differ_the_keys_stay_where_they_are_read() -> None:
    """0.0 and -0.0 are equal."""
    text = "WITH p AS (SELECT k FROM b GROUP BY k) SELECT {} FROM p AS d JOIN a AS a ON d.k = a.k"
    tables = {
        "a": pa.table({"k": [0.0, 1.0, None], "v": [1, 2, 3]}),
        "b": pa.table({"k": [-0.0, 1.0, 1.0]}),
    }
    assert _joins(_made(text.format("d.k, a.v"), tables)) != ["SEMI"]
    assert _joins(_made(text.format("a.k, a.v"), tables)) == ["SEMI"]


def test_of_another_type_the_keys_stay_where_they_are_read() -> None:
    text = "WITH p AS (SELECT k FROM b GROUP BY k) SELECT {} FROM p AS d JOIN a AS a ON d.k = a.k"
    tables = {"a": pa.table({"k": [0, 1], "v": [1, 2]}), "b": _two(1, typ=pa.int32())["b"]}
    assert _joins(_made(text.format("d.k"), tables)) != ["SEMI"]
    assert _joins(_made(text.format("a.k"), tables)) == ["SEMI"]


_AGAIN = (
    "WITH j AS (SELECT x.k AS k, x.v AS v FROM a AS x {}), p AS (SELECT k FROM j GROUP BY k),"
    " t AS (SELECT d.k AS c0, e.v AS c1 FROM p AS d JOIN {} AS e ON d.k = e.k),"
    " g AS (SELECT c0, sum(c1) AS s FROM t GROUP BY c0 {})"
    " SELECT d.k AS k, d.v AS v, g.s AS s FROM g AS g JOIN j AS d ON {}"
)


@pytest.mark.parametrize("seed", range(4))
def test_keys_of_all_rows_are_not_asked_for(seed: int) -> None:
    tables = _two(seed)
    for having in ("", "HAVING sum(c1) > 30"):
        made = _made(_AGAIN.format("JOIN b AS y ON x.k = y.l", "b", having, "g.c0 = d.k"), tables)
        assert "SEMI" not in _joins(made)
        assert _groups(made) == 1


@pytest.mark.parametrize(
    ("beside", "others", "again"),
    [
        ("WHERE x.v < 5", "b", "g.c0 = d.k"),
        ("LIMIT 3", "b", "g.c0 = d.k"),
        ("JOIN b AS y ON x.k < y.l", "b", "g.c0 = d.k"),
        ("", "b", "g.c0 < d.k"),
        ("", "b", "g.s = d.k"),
        ("", "b", "g.c0 = d.v"),
        ("", "many", "g.c0 = d.k"),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_keys_that_leave_something_out_are_asked_for(
    beside: str, others: str, again: str, seed: int
) -> None:
    tables = {**_two(seed), "many": _table(random.Random(seed), 5000)}
    order = "ORDER BY x.v LIMIT 3" if beside == "LIMIT 3" else beside
    assert "SEMI" in _joins(_made(_AGAIN.format(order, others, "", again), tables))


def test_errors_of_rows_that_are_left_out_stay_out() -> None:
    text = (
        "WITH p AS (SELECT k FROM a GROUP BY k),"
        " t AS (SELECT d.k AS c0, e.v AS mz_error FROM p AS d JOIN b AS e ON d.k = e.k),"
        " g AS (SELECT c0, max(mz_error) AS mz_error FROM t GROUP BY c0)"
        " SELECT d.v AS v, g.mz_error AS s FROM g AS g JOIN a AS d ON g.c0 = d.k"
    )
    assert "SEMI" in _joins(_made(text, _two(3)))


def test_random_statements_keep_their_rows() -> None:
    """Statements of keys, joins and groups in many forms."""
    rng = random.Random(11)
    changed = 0
    for seed in range(150):
        keys = rng.choice(["k", "l", "k, l", "l AS k, k AS l"])
        names = [one.split()[-1] for one in keys.split(", ")]
        by = ", ".join(one.split()[0] for one in keys.split(", "))
        on = " AND ".join(
            f"d.{one} = e.{rng.choice([one, one, 'v', 'k'])}"
            for one in rng.sample(names, rng.randint(1, len(names)))
        )
        shown = rng.sample(["e.v AS x", "e.k AS y", f"d.{names[0]} AS z"], rng.randint(1, 3))
        order = ("p AS d JOIN {} AS e", "{} AS e JOIN p AS d")[rng.randrange(2)]
        origin = order.format(rng.choice(["a", "b", "f"]))
        where = rng.choice(["", f" WHERE d.{names[0]} > 1", " WHERE e.v % 2 = 0"])
        text = (
            f"WITH f AS (SELECT k, l, v FROM a WHERE v < {rng.randrange(30)}),"
            f" p AS (SELECT {keys} FROM {rng.choice(['b', 'f'])} GROUP BY {by}),"
            f" t AS (SELECT {', '.join(shown)} FROM {origin} ON {on}{where}) SELECT * FROM t"
        )
        changed += "SEMI" in _joins(_made(text, _two(seed)))
    assert changed > 40
