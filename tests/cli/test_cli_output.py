"""What the terminal shows is what psql would show."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mzsql.cli.output import error_lines, print_csv, print_table, text_of
from mzsql.dbapi.errors import from_sql
from mzsql.repr.errors import SqlSyntaxError, UndefinedColumn


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    print_table(names, rows, out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "t"),
        (False, "f"),
        (1.0, "1"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (Decimal("1E+3"), "1000"),
        (Decimal("0.10"), "0.10"),
        (b"\x00\xff", "\\x00ff"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02 03:04:05"),
        (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "2026-01-02 03:04:05+00"),
        ([1, None, 3], "{1,NULL,3}"),
        (["a b", "", 'q"', "null", [1]], '{"a b","","q\\"","null",{1}}'),
    ],
)
def test_values(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_a_table_lines_up() -> None:
    assert _table(["n", "name"], [(1, "a"), (10, None), (None, "long name")]) == (
        " n  |   name\n----+-----------\n  1 | a\n 10 |\n    | long name\n(3 rows)\n\n"
    )


def test_one_row_and_none() -> None:
    assert _table(["a"], [(1,)]).endswith("(1 row)\n\n")
    assert _table(["a"], []) == " a\n---\n(0 rows)\n\n"


def test_a_plan_is_shown_as_it_is() -> None:
    assert _table(["Physical Plan"], [("Get\n  raw=true\n",)]) == (
        "Physical Plan\n-------------\nGet\n  raw=true\n\n"
    )


@given(
    st.lists(
        st.lists(
            st.one_of(
                st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"))
            ),
            min_size=2,
            max_size=2,
        ),
        max_size=5,
    )
)
def test_csv_reads_back(rows: list[list[str | None]]) -> None:
    out = io.StringIO()
    print_csv(["a", "b"], rows, out)
    read = list(csv.reader(io.StringIO(out.getvalue(), newline="")))
    assert read[0] == ["a", "b"]
    assert read[1:] == [["" if v is None else v for v in row] for row in rows]


def test_an_error_shows_where() -> None:
    error = UndefinedColumn('column "x" does not exist', position=17, hint="Did you mean y?")
    assert error_lines(error, "SELECT 1,\n      x\nFROM t") == (
        'ERROR:  column "x" does not exist\nLINE 2:       x\n              ^\nHINT:  Did you mean y?\n'
    )


def test_an_error_at_the_end_of_the_text() -> None:
    error = SqlSyntaxError("Expected an expression, found end of input", position=7)
    assert error_lines(error, "SELECT").splitlines()[1:] == ["LINE 1: SELECT", " " * 14 + "^"]


def test_details_are_told_once() -> None:
    error = from_sql(UndefinedColumn("no such", detail="Where.", hint="Why."))
    assert error_lines(error) == "ERROR:  no such\nDETAIL:  Where.\nHINT:  Why.\n"


def test_an_error_without_a_place() -> None:
    assert error_lines(ValueError("no"), "SELECT 1") == "ERROR:  no\n"


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        ((1, "a b", None, True), "ROW(1, 'a b', NULL, true)"),
        (("", 'say "x"', "a\\b", "(1,2)"), "ROW('', 'say \"x\"', E'a\\\\b', '(1,2)')"),
        ((1, (2, "c,d"), [1, None]), "ROW(1, ROW(2, 'c,d'), ARRAY[1, NULL])"),
        ([(1, "a"), None, ()], "ARRAY[ROW(1, 'a'), NULL, ROW()]"),
    ],
)
def test_records_print_as_in_postgresql(
    postgres: psycopg.Connection[Any], value: object, sql: str
) -> None:
    assert postgres.execute(f"SELECT ({sql})::text".encode()).fetchall() == [(text_of(value),)]
