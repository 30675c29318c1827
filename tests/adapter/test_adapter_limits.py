"""Limits that are computed: what fails, or is negative, where it is used."""

from __future__ import annotations

from collections.abc import Iterator

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
        (f"{_TOP} 6 / (g.a - 2)) q", "division by zero"),
        ("SELECT a FROM t LIMIT (SELECT -max(a) FROM t)", "LIMIT must not be negative"),
    ],
)
def test_a_limit_that_cannot_be_is_an_error(con: Connection, sql: str, message: str) -> None:
    with pytest.raises(mzsql.DataError, match=message):
        con.execute(sql).fetchall()
