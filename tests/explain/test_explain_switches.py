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


def test_what_has_no_effect_is_refused(con: mzsql.Connection) -> None:
    with pytest.raises(mzsql.Error, match="is not supported"):
        _plan(con, "WITH (enable variadic left join lowering) SELECT * FROM foo")
