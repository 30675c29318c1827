"""Statements of many columns: what is asked comes, from every kind of statement, and twice as many cost twice as much.

The growth is told by counting the calls of Python that a statement makes, which is the same on any machine under any load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

import mzsql
from mzsql.expr.engines import WIDE_SETTINGS, is_wide, locked_connection

COLUMNS = 200
MANY = 2000


def _open(folder: Path, columns: int) -> Iterator[mzsql.Connection]:
    """An environment with a table w of so many columns and one row, in which each is its number."""
    with mzsql.connect(str(folder / "env")) as connection:
        names = ", ".join(f"c{i} bigint" for i in range(columns))
        values = ", ".join(str(i) for i in range(columns))
        connection.execute(f"CREATE TABLE w ({names})")
        connection.execute(f"INSERT INTO w VALUES ({values})")
        yield connection


def _sums(columns: int, more: int = 0) -> str:
    return f"SELECT {', '.join(f'c{i} + {i + more}' for i in range(columns))} FROM w"


def _calls(act: Callable[[], object]) -> int:
    """How many functions this thread calls while it acts."""
    count = 0

    def seen(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    yield from _open(tmp_path_factory.mktemp("wide"), COLUMNS)


def test_a_query_computes_many_columns(wide: mzsql.Connection) -> None:
    cursor = wide.execute(_sums(COLUMNS))
    assert cursor.fetchall() == [tuple(2 * i for i in range(COLUMNS))]
    assert len(cursor.description) == COLUMNS


def test_an_error_in_one_of_many_columns_is_told(wide: mzsql.Connection) -> None:
    items = ", ".join(f"c{i} / (c{i} - {COLUMNS - 1})" for i in range(COLUMNS - 50, COLUMNS))
    with pytest.raises(mzsql.DataError, match="division by zero"):
        wide.execute(f"SELECT {items} FROM w")


def test_twice_the_columns_take_twice_the_calls(wide: mzsql.Connection) -> None:
    wide.execute(_sums(10))
    # Numbers that no other statement has, so that nothing kept of one serves another and makes it look cheaper.
    one, two, four = (
        _calls(partial(wide.execute, _sums(n, more=1000 * n)))
        for n in (COLUMNS // 4, COLUMNS // 2, COLUMNS)
    )
    # What a statement costs whatever its width drops out of the differences. Each of the columns is worth many calls, or none were seen.
    assert two - one > 100 * COLUMNS // 4
    # Twice as much when it is linear, four times when it is quadratic.
    assert four - two < 2.3 * (two - one)


def test_a_statement_of_a_very_long_text_runs_without_those_passes(wide: mzsql.Connection) -> None:
    long_text = "x" * 200_000
    ((found,),) = wide.execute(f"SELECT c7::text || '{long_text}' FROM w").fetchall()
    assert found == f"7{long_text}"


@pytest.mark.long
def test_a_query_computes_two_thousand_columns(tmp_path: Path) -> None:
    for connection in _open(tmp_path, MANY):
        cursor = connection.execute(_sums(MANY))
        assert cursor.fetchall() == [tuple(2 * i for i in range(MANY))]
        assert len(cursor.description) == MANY


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
