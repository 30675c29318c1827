"""Expressions and queries by class, against PostgreSQL's answers; see `records_kit`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from records_kit import (
    EXPRESSIONS,
    FAILED,
    QUERIES,
    Record,
    differing,
    of_record,
    read,
    rows_shown,
    shown,
    tables,
)

import mzsql

pytestmark = pytest.mark.long

#: How many expressions are asked at once.
_TOGETHER = 25


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    home: Path = tmp_path_factory.mktemp("records")
    with mzsql.connect(str(home)) as con:
        for statement in tables():
            con.execute(statement)
        yield con


def _expected(path: Path) -> list[Record]:
    ours = differing()
    return [Record(r.text, ours.get(r.text, r.answer)) for r in read(path)]


def _of_expression(con: mzsql.Connection, expression: str) -> str:
    try:
        ((value,),) = con.execute(f"SELECT ({expression})::text").fetchall()
    except mzsql.InternalError:
        raise
    except mzsql.Error:
        return FAILED
    return shown(value)


def _of_query(con: mzsql.Connection, query: str) -> str:
    try:
        return rows_shown(con.execute(of_record(query)).fetchall())
    except mzsql.InternalError:
        raise
    except mzsql.Error:
        return FAILED


def _together(con: mzsql.Connection, records: list[Record]) -> list[str]:
    """The answers to several expressions, of which none should fail."""
    listed = ", ".join(f"({record.text})::text" for record in records)
    try:
        (row,) = con.execute(f"SELECT {listed}").fetchall()
    except mzsql.Error:
        return [_of_expression(con, record.text) for record in records]
    return [shown(value) for value in row]


@pytest.mark.parametrize("path", EXPRESSIONS, ids=lambda path: path.stem)
def test_expressions_have_postgresqls_values(con: mzsql.Connection, path: Path) -> None:
    records = _expected(path)
    failing = [r for r in records if r.answer == FAILED]
    others = [r for r in records if r.answer != FAILED]
    found = {r.text: _of_expression(con, r.text) for r in failing}
    for at in range(0, len(others), _TOGETHER):
        part = others[at : at + _TOGETHER]
        found |= zip((r.text for r in part), _together(con, part), strict=True)
    assert found == {r.text: r.answer for r in records}


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_queries_have_postgresqls_rows(con: mzsql.Connection, path: Path) -> None:
    records = _expected(path)
    found = {r.text: _of_query(con, r.text) for r in records}
    assert found == {r.text: r.answer for r in records}
