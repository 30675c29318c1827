"""What is written for DuckDB is what sqlglot writes, and the tree stays as it is: each function's spelling, and forms of queries."""

from __future__ import annotations

import pickle

import function_cases
import pytest
import sqlglot
from sqlglot import expressions as exp
from sqlglot.generators.duckdb import DuckDBGenerator

from mzsql.expr import spell
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.type_texts import Unwritten
from mzsql.expr.writing import write
from mzsql.repr.errors import Unsupported


def by_sqlglot(tree: exp.Expression) -> str:
    return DuckDBGenerator(dialect="duckdb", identify=True, comments=False).generate(tree)


def written(tree: exp.Expression) -> bool:
    """Whether the writer knows the tree; what it writes is sqlglot's."""
    before = pickle.dumps(tree)
    wanted = by_sqlglot(tree)
    try:
        made = write(tree)
    except Unwritten:
        assert to_sql(tree, Engine.DUCKDB) == wanted
        return False
    assert made == wanted
    assert pickle.dumps(tree) == before
    return True


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.long)])
def test_functions_are_written_as_sqlglot_writes_them(every: int) -> None:
    cases = function_cases.build(size=1)
    columns = [
        Sql(exp.column(f"c{i}", quoted=True), typ.type) for i, typ in enumerate(cases.columns)
    ]
    known = 0
    for case in cases.cases[::every]:
        for spelled in (spell.value, spell.error):
            try:
                ast = spelled(case.expr, columns, Engine.DUCKDB)
            except Unsupported:
                continue  # an argument has to be a constant
            if ast is not None:
                known += written(exp.select(ast).from_(exp.to_table("t")))
    # Of the others each is written by sqlglot.
    assert known > len(cases.cases) // every


@pytest.mark.parametrize(
    "text",
    [
        "a % (b % c)", "a * (b % c)", "(a % b) * c", "a + b % c - d", "a // (b % c) // d", "-(-a)", "- -1", "a - (b - c)",
        "(a >> 1) & 3", "a >> (b & 1)", "(a >> 1) = b", "a = b AND c >> 2 = d", "a AND b OR NOT c AND d", "a OR (b OR c) OR d",
        "a IS NOT NULL", "NOT a IS NULL", "a IS NOT DISTINCT FROM b", "a IS DISTINCT FROM b = c", "a BETWEEN 1 AND 2", "a LIKE 'x%'",
        "a NOT LIKE 'x' ESCAPE '$'", "a ILIKE 'x'", "a IN (1, 2)", "a IN (SELECT 1)", "EXISTS (SELECT 1 FROM t)",
        "CASE WHEN a THEN 1 ELSE 2 END", "CASE a WHEN 1 THEN 2 END", "IF(a, 1, 2)", "COALESCE(a, b, 'it''s')", "foo(a, NULL, TRUE)",
        "CAST(a AS DECIMAL(38, 2))", "TRY_CAST(a AS BIGINT)", "CAST(a AS STRUCT(x INTEGER, y TEXT[]))", "CAST(a AS TEXT[])",
        "CAST(a AS TIMESTAMPTZ)", "CAST(a AS TIMETZ)", "CAST(a AS TIME)", "CAST(a AS MAP(TEXT, INTEGER))", "CAST(a AS BLOB) & b",
        "[1, 2, a]", "[(SELECT 1)]", "{'x': a, 'y': {'z': 1}}", "list_transform(a, LAMBDA x : x + 1)", "s.x", "s.t.x", "(f(a)).x",
        "a[1]", "a || b || 'c'", "a / b", "SUM(a) FILTER (WHERE b)", "COUNT(*)", "COUNT(DISTINCT a)", "MAX(a)", "AVG(DISTINCT a)",
        "ROW_NUMBER() OVER (PARTITION BY a ORDER BY b DESC NULLS FIRST, c)",
        "SUM(a) OVER (ORDER BY b ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
        "INTERVAL '1' DAY", "$x", "1e3", "'a''b'", '"odd ""name"""',
        "LAST_VALUE(a IGNORE NULLS) OVER (ORDER BY b)", "a::INT % 3 = 1", "~a", "a ^ b", "f(DISTINCT a ORDER BY b)",
    ],
)  # fmt: skip
def test_expressions_are_written_as_sqlglot_writes_them(text: str) -> None:
    written(sqlglot.parse_one(f"SELECT {text} FROM t WHERE {text}", read="duckdb"))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 UNION ALL SELECT 2 UNION SELECT 3 EXCEPT ALL SELECT 4 ORDER BY 1 LIMIT 2 OFFSET 1",
        "(SELECT 1 UNION SELECT 2) INTERSECT SELECT 3", "SELECT 1 UNION (SELECT 2 UNION ALL SELECT 3)", "SELECT 1 UNION BY NAME SELECT 2",
        "WITH a AS (SELECT 1), b(x) AS MATERIALIZED (SELECT 2), c AS NOT MATERIALIZED (SELECT 3) SELECT * FROM a, b, c",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
        "SELECT (WITH q AS (SELECT 1) SELECT * FROM q)", "SELECT * FROM (WITH q AS (SELECT 1) SELECT * FROM q) AS z",
        "SELECT DISTINCT a, b AS c FROM s.t AS u(x, y) JOIN v ON u.x = v.x LEFT JOIN w USING (x) CROSS JOIN z",
        "SELECT * FROM a, b", "SELECT * FROM a INNER JOIN b ON TRUE FULL JOIN c ON a.x = c.x", "SELECT * FROM a SEMI JOIN b ON a.x = b.x",
        "SELECT * FROM a ANTI JOIN b ON a.x = b.x", "SELECT * FROM a POSITIONAL JOIN b", "SELECT * FROM a NATURAL JOIN b",
        "SELECT * FROM a ASOF JOIN b ON a.x >= b.x", "SELECT * FROM a, LATERAL (SELECT a.x) AS l",
        "SELECT * FROM a JOIN UNNEST([1]) ON TRUE",
        "SELECT a, SUM(b) FROM t GROUP BY a HAVING SUM(b) > 1 ORDER BY a DESC", "SELECT a FROM t GROUP BY ALL",
        "SELECT a FROM t GROUP BY GROUPING SETS ((a), ())", "SELECT a FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY a) = 1",
        "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a", "SELECT * EXCLUDE (a) FROM t", "SELECT t.* FROM t", "VALUES (1, 2)",
        "SELECT a FROM t USING SAMPLE 10", "SELECT SUM(a) OVER w FROM t WINDOW w AS (ORDER BY b)", "SELECT UNNEST(a) FROM t",
        "SELECT * FROM generate_series(1, 3) AS g(i)", "SELECT * FROM (VALUES (1), (2)) AS v(x)", "SELECT a FROM t LIMIT 10 PERCENT",
        "CREATE TABLE x AS SELECT 1", "INSERT INTO x SELECT 1",
    ],
)  # fmt: skip
def test_queries_are_written_as_sqlglot_writes_them(text: str) -> None:
    written(sqlglot.parse_one(text, read="duckdb"))


def test_a_part_that_stands_in_two_places_is_written_as_it_is_in_each() -> None:
    part = sqlglot.parse_one("a % b", read="duckdb")
    column = exp.column("c", quoted=True)
    product = exp.Mul(this=column, expression=part)
    total = exp.Add(this=column, expression=part)
    tree = exp.Select(expressions=[product, total])
    assert written(tree)
    assert write(tree) == 'SELECT "c" * ("a" % "b"), "c" + "a" % "b"'
