"""Windows over constants, ordered by values that hold others, compared with PostgreSQL's order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import mzsql
from mzsql.dbapi import Connection


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    con = mzsql.connect(str(tmp_path_factory.mktemp("orders")))
    yield con
    con.close()


@pytest.mark.parametrize(
    ("typ", "values"),
    [
        ("int[]", ["{10}", "{9}", "{9,1}", "{9,NULL}", "{-3,5}", "{}", "{100}"]),
        ("numeric[]", ["{1.5}", "{12}", "{-7.25}", "{NULL}"]),
        (
            "int4range",
            ["[10,20)", "[9,30)", "[9,100)", "(,5)", "(,)", "empty", "[9,)", "[100,101)"],
        ),
        ("numrange", ["[1,2]", "[1,2)", "(1,2]", "(1,2)", "[10,11]", "(,2]", "[1,)"]),
        ("daterange", ["[2024-01-01,2024-02-01)", "(,2023-01-01)", "[1999-01-01,)"]),
    ],
)
def test_constants_are_ordered_as_postgres_orders_them(
    ours: Connection, postgres: psycopg.Connection[Any], typ: str, values: list[str]
) -> None:
    rows = ", ".join(f"({i}, '{value}'::{typ})" for i, value in enumerate(values))
    sql = f"SELECT i, rank() OVER (ORDER BY v), rank() OVER (ORDER BY v DESC) FROM (VALUES {rows}) AS t (i, v) ORDER BY i"
    expected = postgres.execute(sql).fetchall()
    assert [tuple(row) for row in ours.execute(sql).fetchall()] == expected


def test_rows_and_lists_are_ordered_part_by_part(ours: Connection) -> None:
    sql = "SELECT i, row_number() OVER (ORDER BY v) FROM (VALUES {}) AS t (i, v) ORDER BY i"
    rows = sql.format(
        "(1, ROW(10, 'a')), (2, ROW(9, 'b')), (3, ROW(9, NULL::text)), (4, ROW(NULL::int, 'a'))"
    )
    assert [r for _, r in ours.execute(rows).fetchall()] == [3, 1, 2, 4]
    lists = sql.format("(1, LIST[LIST[10]]), (2, LIST[LIST[9], LIST[1]]), (3, LIST[LIST[9, 1]])")
    assert [r for _, r in ours.execute(lists).fetchall()] == [3, 1, 2]
