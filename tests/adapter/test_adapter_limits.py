"""Limits that are computed: what fails, or is negative, where it is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql
from mzsql.dbapi import Connection

_TOP = (
    "SELECT g.a, q.b FROM (SELECT DISTINCT a FROM t) g, LATERAL (SELECT b FROM t ORDER BY b LIMIT"
)


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    made = mzsql.connect(str(tmp_path_factory.mktemp("limits")))
    made.execute("CREATE TABLE t (a int, b int)")
    made.execute("INSERT INTO t VALUES (1, 10), (1, 11), (2, 20)")
    yield made
    made.close()


def test_a_limit_is_each_groups_own(con: Connection) -> None:
    found = con.execute(f"{_TOP} g.a) q ORDER BY 1, 2").fetchall()
    assert found == [(1, 10), (2, 10), (2, 11)]
    unlimited = con.execute(f"{_TOP} nullif(g.a, 2)) q ORDER BY 1, 2").fetchall()
    assert unlimited == [(1, 10), (2, 10), (2, 11), (2, 20)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (f"{_TOP} g.a - 2) q", "LIMIT must not be negative"),
        (f"{_TOP} 6 / (2 - g.a)) q", "division by zero"),
        ("SELECT a FROM t LIMIT (SELECT -max(a) FROM t)", "LIMIT must not be negative"),
    ],
)
def test_a_limit_that_cannot_be_is_an_error(con: Connection, sql: str, message: str) -> None:
    with pytest.raises(mzsql.DataError, match=message):
        con.execute(sql).fetchall()


@pytest.mark.parametrize("limit", ["-1", "'-1'", "3 - 4", "ALL OFFSET -1"])
@pytest.mark.parametrize("kind", ["VIEW", "MATERIALIZED VIEW"])
def test_a_negative_limit_is_refused_where_a_view_is_made(
    con: Connection, kind: str, limit: str
) -> None:
    with pytest.raises(mzsql.Error, match="must not be negative"):
        con.execute(f"CREATE {kind} refused AS SELECT a FROM t LIMIT {limit}")
    assert con.execute("SELECT count(*) FROM mz_objects WHERE name = 'refused'").fetchall() == [
        (0,)
    ]


def test_a_limit_that_turns_out_to_be_a_negative_constant_is_an_error(con: Connection) -> None:
    lateral = "FROM (VALUES (-1)) x(n), LATERAL (SELECT b FROM t LIMIT n) q"
    with pytest.raises(mzsql.DataError, match="LIMIT must not be negative"):
        con.execute(f"SELECT * {lateral}").fetchall()
    # Nobody asks for a row of no rows.
    assert (
        con.execute(f"SELECT * {lateral.replace('FROM t', 'FROM t WHERE a > 9')}").fetchall() == []
    )


def test_a_maintained_limit_fails_where_it_becomes_negative(tmp_path: Path) -> None:
    with mzsql.connect(str(tmp_path)) as con, mzsql.connect(str(tmp_path)) as other:
        con.execute("CREATE TABLE g (n int)")
        con.execute("CREATE TABLE t (b int)")
        con.execute("INSERT INTO g VALUES (1)")
        con.execute("INSERT INTO t VALUES (10), (11)")
        con.execute("BEGIN")
        con.execute(
            "DECLARE c CURSOR FOR SUBSCRIBE"
            " (SELECT n, b FROM g, LATERAL (SELECT b FROM t ORDER BY b LIMIT n) q)"
        )
        found = con.execute("FETCH 1 c WITH (timeout = '30s')").fetchall()
        assert [tuple(row[1:]) for row in found] == [(1, 1, 10)]
        other.execute("UPDATE g SET n = -1")
        with pytest.raises(mzsql.DataError, match="LIMIT must not be negative"):
            _follow(con)


def _follow(con: Connection) -> None:
    while con.execute("FETCH 1 c WITH (timeout = '30s')").fetchall():
        pass
