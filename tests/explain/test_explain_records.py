"""Plans by class: what the optimizer makes of queries over nullable columns, and how constants and padded texts are printed.

Each answer is checked too: the same query over rows has DuckDB's answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from textwrap import dedent

import duckdb
import pytest

import mzsql

_TABLES = """
CREATE TABLE t1 (f1 int, f2 int);
CREATE TABLE t2 (f1 int, f2 int);
INSERT INTO t1 VALUES (1, 1), (2, NULL), (3, 3), (NULL, 4), (3, 9);
INSERT INTO t2 VALUES (1, 10), (1, NULL), (3, 30), (NULL, 5), (7, 7);
"""


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path_factory.mktemp("plans"))) as con:
        con.execute(_TABLES)
        con.execute("CREATE TABLE d (c char(5), v varchar(5), ts timestamptz, l int list)")
        yield con


def _plan(con: mzsql.Connection, query: str) -> str:
    ((text,),) = con.execute(f"EXPLAIN {query}").fetchall()
    return str(text).split("\n\n")[0]


_INNER = """
    Explained Query:
      Filter (#1 > 5)
        Reduce group_by=[#0] aggregates=[sum(#0)]
          Project (#0)
            Join on=(#0 = #1) type=differential
              ArrangeBy keys=[[#0]]
                Project (#0)
                  Filter (#0) IS NOT NULL
                    ReadStorage materialize.public.t1
              ArrangeBy keys=[[#0]]
                Project (#0)
                  Filter (#0) IS NOT NULL
                    ReadStorage materialize.public.t2"""
_EMPTY = """
    Explained Query (fast path):
      Constant <empty>"""


@pytest.mark.parametrize(
    ("query", "plan"),
    [
        (
            "SELECT t1.f1, sum(t2.f1) FROM t1 LEFT JOIN t2 ON t1.f1 = t2.f1 "
            "GROUP BY t1.f1 HAVING sum(t2.f1) > 5",
            _INNER,
        ),
        (
            "SELECT * FROM (SELECT t1.f1, sum(t2.f1) AS s FROM t1 LEFT JOIN t2 ON t1.f1 = t2.f1 "
            "GROUP BY t1.f1) AS g WHERE s > 5",
            _INNER,
        ),
        ("(SELECT * FROM t1 WHERE false) INTERSECT SELECT * FROM t2", _EMPTY),
        (
            "(SELECT * FROM t1 WHERE f1 IS NULL AND f1 = 1) INTERSECT ALL SELECT * FROM t2",
            _EMPTY,
        ),
        ("(SELECT * FROM t1 WHERE false) EXCEPT SELECT * FROM t2", _EMPTY),
    ],
)
def test_what_no_null_passes_is_not_made(con: mzsql.Connection, query: str, plan: str) -> None:
    assert _plan(con, query) == dedent(plan).strip()


def _check_answer(con: mzsql.Connection, query: str) -> None:
    with duckdb.connect() as other:
        other.execute(_TABLES)
        expected = Counter(other.execute(query).fetchall())
    assert Counter(con.execute(query).fetchall()) == expected


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t1.f1, sum(t2.f2) FROM t1 LEFT JOIN t2 ON t1.f1 = t2.f1 GROUP BY 1 HAVING sum(t2.f2) > 5",
        "SELECT t1.f1, sum(t2.f2), count(t2.f2) FROM t1 LEFT JOIN t2 ON t1.f1 = t2.f1 "
        "GROUP BY 1 HAVING max(t2.f2) > 5",
        "SELECT t1.f1, sum(t2.f2), count(*) FROM t1 LEFT JOIN t2 ON t1.f1 = t2.f1 "
        "GROUP BY 1 HAVING sum(t2.f2) > 5",
        "SELECT t1.f1, min(t2.f2), sum(t1.f2) FROM t1 LEFT JOIN t2 ON t1.f1 = t2.f1 "
        "GROUP BY 1 HAVING min(t2.f2) > 5",
        "SELECT t1.f1, count(t2.f2) FROM t1 LEFT JOIN t2 ON t1.f1 = t2.f1 GROUP BY 1 HAVING count(t2.f2) >= 0",
        "SELECT sum(t2.f2) FROM t1 LEFT JOIN t2 ON t1.f1 = t2.f1 HAVING sum(t2.f2) > 5",
        "SELECT t1.f1, bool_or(t2.f2 > 9) FROM t1 LEFT JOIN t2 ON t1.f1 = t2.f1 GROUP BY 1 HAVING bool_or(t2.f2 > 9)",
        "(SELECT f1 FROM t1) INTERSECT SELECT f1 FROM t2",
        "(SELECT f1 FROM t1 WHERE f1 > 5) INTERSECT ALL SELECT f1 FROM t2",
    ],
)
def test_its_answer_is_the_same(con: mzsql.Connection, query: str) -> None:
    _check_answer(con, query)


def test_what_can_fail_is_shown_by_its_cost_and_asked_of_what_others_let_pass(
    con: mzsql.Connection,
) -> None:
    con.execute("CREATE TABLE waits (a int, b int, c int)")
    con.execute("INSERT INTO waits VALUES (9, 0, 3), (9, 1, 1), (1, 1, 2)")
    query = "SELECT a FROM waits WHERE (c = 1 OR c = 2) AND a / b > 2"
    shown = "Filter ((#0 / #1) > 2) AND ((#2 = 1) OR (#2 = 2))"
    assert shown in _plan(con, query)
    assert con.execute(query).fetchall() == [(9,)]
    con.execute("INSERT INTO waits VALUES (9, 0, 2)")
    with pytest.raises(mzsql.Error, match="division by zero"):
        con.execute(query).fetchall()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1, f1 + f2 FROM t1 UNION ALL SELECT 1, f1 * f2 FROM t2",
        "SELECT * FROM (SELECT 1 AS x, f1 FROM t1) AS s, (VALUES (2, 'a'), (2, 'b')) AS v (n, c)",
        "SELECT f1, max(1), min(f2), max(NULL::int) FROM t1 GROUP BY f1",
        "SELECT max(1), min('x'), count(*) FROM t1 WHERE f1 > 100",
        "SELECT f1, f2 FROM t1 EXCEPT ALL SELECT f1, f1 FROM t2",
        "SELECT f2, count(*), sum(f2) FROM t1 WHERE f1 = f2 GROUP BY f2",
        "SELECT * FROM t1, t2 WHERE t1.f1 = t1.f2 AND t1.f2 = t2.f1",
        "SELECT * FROM t1, t2 WHERE t1.f1 = t2.f1 AND t1.f2 = t2.f1 AND t1.f1 + t1.f2 = 6",
        "SELECT * FROM t1 AS x WHERE x.f2 >= (SELECT avg(y.f2) FROM t1 AS y WHERE y.f1 = x.f1)",
        "SELECT f1, (SELECT count(*) FROM t1 AS y WHERE y.f1 = x.f1 AND y.f2 > 3) FROM t1 AS x",
    ],
)
def test_rows_stay_where_plans_are_others(con: mzsql.Connection, query: str) -> None:
    _check_answer(con, query)


def test_what_is_told_of_a_joins_source_is_told_after_the_first_lookup(
    con: mzsql.Connection,
) -> None:
    con.execute("CREATE TABLE i1 (a int, b int); CREATE TABLE i2 (a int, b int)")
    con.execute("CREATE INDEX i1_a ON i1 (a); CREATE INDEX i2_a ON i2 (a)")
    query = "SELECT i1.b, i2.b FROM i1, i2 WHERE i1.a = i2.a AND i1.b = 3"
    ((text,),) = con.execute(f"EXPLAIN PHYSICAL PLAN FOR {query}").fetchall()
    expected = """
        Explained Query:
          Join::Linear
            linear_stage[0]
              closure
                project=(#1, #2)
                filter=((#0) IS NOT NULL AND (#1 = 3))
              lookup={ relation=1, key=[#0] }
              stream={ key=[#0], thinning=(#1) }
            source={ relation=0, key=[#0] }"""
    assert str(text).startswith(dedent(expected).strip() + "\n")
    con.execute("INSERT INTO i1 VALUES (1, 3), (2, 4), (NULL, 3); INSERT INTO i2 VALUES (1, 7)")
    assert con.execute(query).fetchall() == [(3, 7)]


@pytest.mark.parametrize(
    ("constant", "shown"),
    [
        ("LIST[1, NULL]", "[1, null]"),
        ("LIST[LIST['a'], LIST['b\"c']]", '[["a"], ["b\\"c"]]'),
        ("ARRAY['a', NULL, 'b c']", '{"a", null, "b c"}'),
        ("'{b=>2, a=>1}'::map[text=>int]", '{"a": 1, "b": 2}'),
        ("row(1, 'a', NULL)", '[1, "a", null]'),
        ("'[1,3)'::int4range", "[1,3)"),
        ("'(,5)'::int8range", "(,5)"),
        ("'empty'::int4range", "empty"),
        (r"'\x0aFF'::bytea", "0x0aff"),
        ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("1e20::float", "100000000000000000000"),
        ("1e-7::float", "0.0000001"),
        ("'-inf'::float", "-inf"),
        ("'nan'::float", "NaN"),
        ("timestamptz '2020-01-01 01:02:03.5+01'", "2020-01-01 00:02:03.5 UTC"),
        ("timestamp '2020-01-01 01:02:03.5'", "2020-01-01 01:02:03.5"),
        ("""'["a", {"b": 1.5, "c": null}]'::jsonb""", '["a", {"b": 1.5, "c": json_null}]'),
    ],
)
def test_constants_are_printed_by_their_types(
    con: mzsql.Connection, constant: str, shown: str
) -> None:
    assert f"  Map ({shown})" in _plan(con, f"SELECT *, {constant} FROM t1").split("\n")


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("c LIKE 'a%'", 'like["a%"](padchar(#0))'),
        ("c ILIKE 'a%'", 'ilike["a%"](padchar(#0))'),
        ("c LIKE v", "(padchar(#0) like varchar_to_text(#1))"),
        ("v LIKE 'a%'", 'like["a%"](varchar_to_text(#1))'),
        ("ts > '2020-01-01'", "(#2 > 2020-01-01 00:00:00 UTC)"),
    ],
)
def test_conditions_are_printed_by_their_types(
    con: mzsql.Connection, condition: str, shown: str
) -> None:
    assert f"  Filter {shown}" in _plan(con, f"SELECT * FROM d WHERE {condition}").split("\n")


@pytest.mark.parametrize("order", ["f2", "f2 DESC", "f1 DESC, f2"])
@pytest.mark.parametrize("view", [False, True])
def test_an_aggregate_of_a_window_follows_its_order(
    con: mzsql.Connection, order: str, view: bool
) -> None:
    query = f"""
        SELECT f1, f2, string_agg(f1::text || f2::text, ',') OVER (ORDER BY {order}) AS s,
            array_agg(f1 * 10 + f2) OVER (ORDER BY {order} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a
        FROM t1 WHERE f1 IS NOT NULL AND f2 IS NOT NULL"""
    with duckdb.connect() as other:
        other.execute(_TABLES)
        expected = sorted(other.execute(query).fetchall())
    if view:
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW w AS {query}")
        query = "SELECT * FROM w"
    assert sorted(con.execute(query).fetchall()) == expected
