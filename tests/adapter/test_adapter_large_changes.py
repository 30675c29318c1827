"""Transactions of so many rows that what is asked of them is asked of several pieces at once."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import mzsql

_PIECES, _ROWS = 12, 30_000


@pytest.fixture
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path_factory.mktemp("large") / "env")) as connection:
        connection.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        yield connection


def test_a_condition_is_asked_of_each_row_of_a_large_change(con: mzsql.Connection) -> None:
    """Each of the pieces in which the rows come is filtered by what holds for its own rows."""
    con.execute("CREATE TABLE t (a bigint, b bigint)")
    views = {
        "few": "SELECT a FROM t WHERE b = 0",
        "sums": "SELECT b, count(*), sum(a) FROM t WHERE b IN (1, 3) GROUP BY b",
        "odd": "SELECT count(*) FROM t WHERE a % 2 = 1 AND b > 4",
    }
    for name, query in views.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        con.execute(f"SELECT count(*) FROM {name}").fetchall()
    changes = [
        f"INSERT INTO t SELECT g, (g % 7)::bigint FROM generate_series({n * _ROWS}, {(n + 1) * _ROWS - 1}) AS s(g)"
        for n in range(_PIECES)
    ]
    with duckdb.connect() as duck:
        duck.execute("CREATE TABLE t (a bigint, b bigint)")
        for statements in (changes, ["DELETE FROM t WHERE a % 5 = 1"]):
            con.execute("BEGIN")
            for statement in statements:
                con.execute(statement)
                duck.execute(statement)
            con.execute("COMMIT")
            for name, query in views.items():
                found = con.execute(f"SELECT * FROM {name}").fetchall()
                assert sorted(found) == sorted(duck.execute(query).fetchall()), name
