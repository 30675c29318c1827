"""Statements of two thousand columns: what is asked comes, from every kind of statement that is about columns."""

from __future__ import annotations

from pathlib import Path

import pytest

import mzsql
from mzsql.expr.engines import WIDE_SETTINGS, is_wide, locked_connection

COLUMNS = 2000


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> mzsql.Connection:
    folder: Path = tmp_path_factory.mktemp("wide")
    with mzsql.connect(str(folder / "env")) as connection:
        names = ", ".join(f"c{i} bigint" for i in range(COLUMNS))
        values = ", ".join(str(i) for i in range(COLUMNS))
        connection.execute(f"CREATE TABLE w ({names})")
        connection.execute(f"INSERT INTO w VALUES ({values})")
        yield connection


def test_a_query_computes_two_thousand_columns(wide: mzsql.Connection) -> None:
    items = ", ".join(f"c{i} + {i}" for i in range(COLUMNS))
    cursor = wide.execute(f"SELECT {items} FROM w")
    assert cursor.fetchall() == [tuple(2 * i for i in range(COLUMNS))]
    assert len(cursor.description) == COLUMNS


def test_an_error_in_one_of_two_thousand_columns_is_told(wide: mzsql.Connection) -> None:
    items = ", ".join(f"c{i} / (c{i} - 1999)" for i in range(1800, COLUMNS))
    with pytest.raises(mzsql.DataError, match="division by zero"):
        wide.execute(f"SELECT {items} FROM w")


def test_wide_statements_leave_out_passes_of_the_optimizer() -> None:
    assert not is_wide("SELECT 1")
    assert is_wide("x" * 200_000)
    with locked_connection(settings=WIDE_SETTINGS) as duck:
        ((off,),) = duck.execute("SELECT current_setting('disabled_optimizers')").fetchall()
        passes = {
            name for (name,) in duck.execute("SELECT name FROM duckdb_optimizers()").fetchall()
        }
    text = off if isinstance(off, str) else ",".join(off)
    assert set(text.split(",")) == set(WIDE_SETTINGS["disabled_optimizers"].split(","))
    assert set(text.split(",")) <= passes
