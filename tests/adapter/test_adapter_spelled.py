"""Rows that an INSERT spells out: what is stored is what PostgreSQL's casts say, in and outside of transactions, without a plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.repr.errors import SqlError

COLUMNS = "k integer NOT NULL, n numeric(10, 2), d date, b bigint, t varchar(3), f double precision"
#: More rows of one shape than are computed one by one, with what casts change: rounding, NULLs, dates as texts.
VALUES = ", ".join(
    f"({i}, {i}.125, '2024-02-{i % 28 + 1:02d}', {i if i % 3 else 'NULL'}, 'a{i % 9}', {i}.5)"
    for i in range(50)
)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    env = Environment.open(locate(tmp_path / "env"))
    opened = Coordinator(env, spark=None)
    opened.execute(Session(), f"CREATE TABLE t ({COLUMNS})")
    yield opened
    opened.close()
    env.close()


def stored(coordinator: Coordinator) -> list[tuple[Any, ...]]:
    found = coordinator.execute(Session(), "SELECT * FROM t ORDER BY k")[-1].rows
    assert found is not None
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def expected(values: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as duck:
        duck.execute(f"CREATE TABLE t ({COLUMNS})")
        duck.execute(f"INSERT INTO t VALUES {values}")
        return duck.execute("SELECT * FROM t ORDER BY k").fetchall()


@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_rows_are_cast_and_not_planned(
    coordinator: Coordinator, count: int, in_transaction: bool
) -> None:
    values = "), ".join(VALUES.split("), ")[:count]).rstrip(")") + ")"
    plans, session = coordinator._queries.plans, Session()
    before = plans.hits + plans.misses
    for text in ("BEGIN",) * in_transaction + (f"INSERT INTO t VALUES {values}",):
        coordinator.execute(session, text)
    assert plans.hits + plans.misses == before
    if in_transaction:
        assert stored(coordinator) == []
        coordinator.execute(session, "COMMIT")
    assert stored(coordinator) == expected(values)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("(1, 1, NULL, 99999999999999999999, NULL, NULL)", "bigint out of range"),
        ("(1, 1, '2024-02-30', NULL, NULL, NULL)", "2024-02-30"),
        ("(1, 1, NULL, NULL, 'long', NULL)", "value too long for type character varying"),
        ("(NULL, 1, NULL, NULL, NULL, NULL)", 'null value in column "k"'),
    ],
)
@pytest.mark.parametrize("beside", ["", "(2, 2, '2024-01-01', 2, 'b', 2), "])
def test_what_cannot_be_cast_is_said_and_nothing_is_stored(
    coordinator: Coordinator, row: str, message: str, beside: str
) -> None:
    with pytest.raises(SqlError, match=message):
        coordinator.execute(Session(), f"INSERT INTO t VALUES {beside}{row}")
    assert stored(coordinator) == []


def test_calls_of_the_session_and_of_rows_are_still_computed(coordinator: Coordinator) -> None:
    text = "INSERT INTO t (k, t, n) VALUES (1, left(current_user, 3), 1), (2, upper('b') || 'c', 1 / 3.0)"
    coordinator.execute(Session(), text)
    found = [(row[0], str(row[1]), row[4]) for row in stored(coordinator)]
    assert found == [(1, "1.00", "mzs"), (2, "0.33", "Bc")]


def test_what_a_row_returns_is_what_is_stored(coordinator: Coordinator) -> None:
    session = Session()
    coordinator.execute(session, "BEGIN")
    text = "INSERT INTO t (k, n) VALUES (1, 1.005), (2, 2) RETURNING k, n"
    returned = coordinator.execute(session, text)[-1].rows
    assert returned is not None
    assert [str(n) for n in returned.column(1).to_pylist()] == ["1.01", "2.00"]
    coordinator.execute(session, "COMMIT")
    assert [row[0] for row in stored(coordinator)] == [1, 2]
