"""Switches of the optimizer: in both positions the answers are the ones that DuckDB has, and the plans differ where they say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest

import mzsql

TABLES = """
CREATE TABLE foo (a int, b text);
CREATE TABLE bar (a int, c int);
INSERT INTO foo VALUES (1, 'x'), (1, 'y'), (2, 'x'), (NULL, 'x'), (3, NULL), (5, 'y');
INSERT INTO bar VALUES (1, 10), (1, 2), (2, NULL), (NULL, 4), (3, 1), (7, 10);
"""


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path_factory.mktemp("switches"))) as con:
        con.execute(TABLES)
        yield con


@pytest.fixture(scope="module")
def other() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as other:
        other.execute(TABLES)
        yield other


@pytest.mark.parametrize("lowering", ["on", "off"])
@pytest.mark.parametrize(
    "condition",
    [
        "foo.a = bar.a",
        "foo.a = bar.a AND foo.b = 'x'",
        "foo.a = bar.a AND bar.c > 3",
        "bar.c > 3 AND foo.a = bar.a AND foo.b = 'x' AND foo.a < 4",
        "foo.a + 1 = bar.a + 1 AND bar.c IS NULL",
        "foo.a = bar.a AND 1 = 2",
        "foo.a = bar.a AND foo.a + bar.c > 3",
        "foo.a = bar.a AND foo.a = bar.c",
        "foo.b = 'x'",
        "false",
    ],
)
def test_outer_joins_have_the_same_answer(
    con: mzsql.Connection, other: duckdb.DuckDBPyConnection, condition: str, lowering: str
) -> None:
    con.execute(f"ALTER SYSTEM SET enable_new_outer_join_lowering = {lowering}")
    try:
        for kind in ("LEFT", "RIGHT", "FULL"):
            query = f"SELECT foo.a, b, bar.a, c FROM foo {kind} JOIN bar ON {condition}"
            assert Counter(con.execute(query).fetchall()) == Counter(
                other.execute(query).fetchall()
            )
    finally:
        con.execute("ALTER SYSTEM RESET enable_new_outer_join_lowering")


def _plan(con: mzsql.Connection, text: str) -> str:
    ((plan,),) = con.execute(f"EXPLAIN {text}").fetchall()
    return str(plan)


def test_what_is_arranged_goes_first_where_that_is_asked_for(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE one (a int, b int); CREATE TABLE two (a int, b int, c int)")
    con.execute("CREATE INDEX one_a ON one (a); CREATE INDEX two_a ON two (a)")
    query = "FOR SELECT * FROM one, two WHERE one.a = two.a AND one.b = two.b"
    shown = {
        first: _plan(
            con,
            f"WITH (join implementations, enable join prioritize arranged = {first}) {query}",
        )
        for first in ("false", "true")
    }
    # A longer key against one that there is an index by.
    assert "%0:one[#0, #1]KK » %1:two[#0, #1]KK" in shown["false"]
    assert "%0:one[#0]KA » %1:two[#0]KA" in shown["true"]
    assert _plan(con, f"WITH (join implementations) {query}") == shown["false"]
    json = _plan(con, f"OPTIMIZED PLAN WITH (enable join prioritize arranged) AS JSON {query}")
    assert '"V2"' in json
    assert '"not_cross": true' in json


def test_a_recursion_is_followed_to_its_fixpoint_where_that_is_asked_for(
    con: mzsql.Connection,
) -> None:
    query = """FOR WITH MUTUALLY RECURSIVE r (x int, y int) AS (
            SELECT a, a FROM bar UNION SELECT x + 1, y + 1 FROM (SELECT x, x AS y FROM r) AS s WHERE x < 9
        ) SELECT x, y FROM r WHERE x = 3 AND y > 2"""
    shown = [
        _plan(con, f"OPTIMIZED PLAN WITH (enable letrec fixpoint analysis = {on}) {query}")
        for on in ("false", "true")
    ]
    assert shown[0] != shown[1]
    query = query.removeprefix("FOR")
    for on in ("off", "on"):
        con.execute(f"ALTER SYSTEM SET enable_letrec_fixpoint_analysis = {on}")
        assert con.execute(query).fetchall() == [(3, 3)]
    con.execute("ALTER SYSTEM RESET enable_letrec_fixpoint_analysis")


#: Stacks of left joins that are lowered together.
STACKS = (
    "foo LEFT JOIN bar x ON foo.a = x.a LEFT JOIN bar y ON foo.a = y.a",
    "foo LEFT JOIN bar x ON foo.a = x.a LEFT JOIN bar y ON y.a = x.c LEFT JOIN foo z ON z.a = y.c AND z.a = y.c",
    "bar x LEFT JOIN bar y ON x.a = y.c AND x.c = y.a LEFT JOIN foo ON foo.a = x.c",
    "(SELECT a, b FROM foo WHERE a > 1) foo LEFT JOIN (SELECT DISTINCT a FROM bar) x ON x.a = foo.a"
    " LEFT JOIN (SELECT c AS a, count(*) AS n FROM bar GROUP BY c) y ON foo.a = y.a",
    "foo LEFT JOIN foo x ON foo.b = x.b LEFT JOIN foo y ON x.a = y.a LEFT JOIN bar ON bar.a = x.a",
)
#: Those of which a join is none that is.
OTHERS = (
    "foo LEFT JOIN bar x ON foo.a = x.a",
    "foo LEFT JOIN bar x ON foo.a = x.a LEFT JOIN bar y ON foo.a = y.a AND y.c > 3",
    "foo LEFT JOIN bar x ON foo.a = x.a LEFT JOIN bar y ON foo.a = y.a AND x.c = y.c",
    "foo LEFT JOIN bar x ON foo.a = x.a LEFT JOIN bar y ON foo.a = y.a AND x.a = y.a",
    "foo LEFT JOIN bar x ON foo.a = x.a LEFT JOIN bar y ON foo.a + 1 = y.a",
    "foo LEFT JOIN bar x ON foo.a = x.a LEFT JOIN bar y ON true",
    "foo LEFT JOIN bar x ON foo.a = x.a RIGHT JOIN bar y ON foo.a = y.a",
    "(SELECT a::double AS a FROM foo) foo LEFT JOIN (SELECT a::double AS a FROM bar) x ON foo.a = x.a"
    " LEFT JOIN (SELECT a::double AS a FROM bar) y ON foo.a = y.a",
)


def _together(con: mzsql.Connection, query: str) -> list[str]:
    option = "enable variadic left join lowering"
    return [
        _plan(con, f"OPTIMIZED PLAN WITH ({option} = {on}) FOR {query}") for on in ("false", "true")
    ]


@pytest.mark.parametrize("stack", [*STACKS, *OTHERS])
def test_stacks_of_left_joins_have_the_same_answer(
    con: mzsql.Connection, other: duckdb.DuckDBPyConnection, stack: str
) -> None:
    query = f"SELECT * FROM {stack}"
    apart, together = _together(con, query)
    assert (apart != together) == (stack in STACKS)
    expected = Counter(other.execute(query).fetchall())
    for on in ("off", "on"):
        con.execute(f"ALTER SYSTEM SET enable_variadic_left_join_lowering = {on}")
        try:
            assert Counter(con.execute(query).fetchall()) == expected
        finally:
            con.execute("ALTER SYSTEM RESET enable_variadic_left_join_lowering")


def test_a_stack_of_left_joins_is_one_delta_join(con: mzsql.Connection) -> None:
    apart, together = _together(con, f"SELECT * FROM {STACKS[0]}")
    assert "type=delta" not in apart
    assert together.count("Join on=") == 1
    assert "Join on=(#0 = #2 = #5) type=delta" in together
    assert _plan(con, f"OPTIMIZED PLAN FOR SELECT * FROM {STACKS[0]}") == together


@pytest.mark.parametrize("stack", STACKS[:3])
def test_a_stack_of_left_joins_is_maintained(
    con: mzsql.Connection, other: duckdb.DuckDBPyConnection, stack: str
) -> None:
    query = f"SELECT count(*) AS n, * FROM {stack} GROUP BY ALL"
    columns = len(other.execute(query).fetchall()[0])
    names = ", ".join(f"c{i}" for i in range(columns))
    keys = ", ".join(str(i) for i in range(2, columns + 1))
    changes = (
        "INSERT INTO bar VALUES (5, 1), (5, NULL), (10, 3)",
        "DELETE FROM foo WHERE a = 1",
        "INSERT INTO foo VALUES (10, 'x'), (NULL, NULL)",
        "DELETE FROM bar WHERE a = 5 OR a IS NULL",
    )
    con.execute("ALTER SYSTEM SET enable_variadic_left_join_lowering = on")
    try:
        grouped = f"SELECT count(*) AS n, * FROM {stack} GROUP BY {keys}"
        con.execute(f"CREATE MATERIALIZED VIEW stacked ({names}) AS {grouped}")
        with other.cursor() as apart:
            apart.begin()
            for change in changes:
                con.execute(change)
                apart.execute(change)
                found = Counter(con.execute("SELECT * FROM stacked").fetchall())
                assert found == Counter(apart.execute(query).fetchall())
            apart.rollback()
    finally:
        con.execute("ALTER SYSTEM RESET enable_variadic_left_join_lowering")
        con.execute("DROP MATERIALIZED VIEW IF EXISTS stacked")
        con.execute(
            f"DELETE FROM foo; DELETE FROM bar; {TABLES.partition('INSERT')[1]}{TABLES.partition('INSERT')[2]}"
        )
