"""Frames in ROWS, RANGE and GROUPS from text to answer, compared with PostgreSQL's own windows over the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from rows_kit import rounded_rows

import mzsql
from mzsql.dbapi import Connection

_TABLE = "CREATE TABLE t (i int, g text, x int, n numeric(10, 2), f double precision, d date, s timestamp)"
_ROWS = """INSERT INTO t VALUES
(1, 'a', 3, 1.50, 0.5, '2024-01-31', '2024-01-31 10:00'), (2, 'a', NULL, NULL, NULL, NULL, NULL),
(3, 'a', 3, 2.25, 1.5, '2024-02-01', '2024-01-31 11:15'), (4, 'a', 1, -7.00, 4, '2024-02-29', '2024-02-01 09:00'),
(5, 'b', 7, 2.25, 1.5, '2024-03-01', '2024-01-31 10:00'), (6, 'b', NULL, 9.99, NULL, '2024-01-31', NULL),
(7, 'b', 2, 0.00, -3, '2023-12-31', '2024-03-31 00:00'), (8, NULL, 2, 2.00, 1.25, '2024-02-02', '2024-02-29 23:59:59')"""

_FRAMES = [
    "sum(i) OVER (ORDER BY x RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "sum(i) OVER (PARTITION BY g ORDER BY x DESC RANGE BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "count(*) OVER (ORDER BY x NULLS FIRST RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING)",
    "count(*) OVER (ORDER BY x RANGE BETWEEN 1 PRECEDING AND 2 PRECEDING)",
    "count(*) OVER (ORDER BY x DESC RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)",
    "sum(i) OVER (ORDER BY x RANGE 2 + 1 PRECEDING)",
    "sum(i) OVER (ORDER BY n RANGE BETWEEN 0.75 PRECEDING AND 0.25 FOLLOWING)",
    "sum(i) OVER (ORDER BY n RANGE BETWEEN UNBOUNDED PRECEDING AND 3 FOLLOWING)",
    "min(i) OVER (ORDER BY f RANGE BETWEEN 1 PRECEDING AND 2.5 FOLLOWING)",
    "sum(i) OVER (ORDER BY d RANGE BETWEEN '1 day' PRECEDING AND '1 month' FOLLOWING)",
    "sum(i) OVER (ORDER BY d DESC RANGE BETWEEN INTERVAL '1 day' PRECEDING AND INTERVAL '3 days' FOLLOWING)",
    "max(i) OVER (ORDER BY s RANGE BETWEEN '75 minutes' PRECEDING AND CURRENT ROW)",
    "count(x) OVER (ORDER BY s RANGE BETWEEN '1 month' PRECEDING AND '1 day 00:00:01' FOLLOWING)",
    "sum(i) OVER (ORDER BY x, i RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "sum(i) OVER (RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "sum(i) OVER (ORDER BY x GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "sum(i) OVER (PARTITION BY g ORDER BY x GROUPS BETWEEN 1 FOLLOWING AND 2 FOLLOWING)",
    "count(*) OVER (ORDER BY x GROUPS BETWEEN 1 PRECEDING AND 2 PRECEDING)",
    "sum(i) FILTER (WHERE i <> 4) OVER (ORDER BY x GROUPS CURRENT ROW)",
    "sum(i) OVER (ORDER BY x GROUPS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE GROUP)",
    "sum(i) OVER (ORDER BY x GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES)",
    "sum(i) OVER (ORDER BY i ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW)",
    "sum(i) OVER (ORDER BY x RANGE UNBOUNDED PRECEDING EXCLUDE TIES)",
    "sum(i) OVER (ORDER BY x RANGE UNBOUNDED PRECEDING EXCLUDE NO OTHERS)",
    "CAST(avg(n) OVER (ORDER BY x RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS double precision)",
    "first_value(i) OVER (ORDER BY d, i RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "last_value(x) OVER (ORDER BY i RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING)",
    "first_value(x) OVER (ORDER BY i GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)",
]


@pytest.fixture(scope="module")
def postgres(postgres: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    postgres.execute(_TABLE)
    postgres.execute(_ROWS)
    return postgres


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    con = mzsql.connect(str(tmp_path_factory.mktemp("frames")))
    con.execute(_TABLE)
    con.execute(_ROWS)
    yield con
    con.close()


@pytest.mark.parametrize("call", _FRAMES)
def test_a_frame_holds_the_rows_that_postgres_says(
    ours: Connection, postgres: psycopg.Connection[Any], call: str
) -> None:
    sql = f"SELECT i, {call} AS w FROM t ORDER BY i"
    assert rounded_rows(ours, sql) == rounded_rows(postgres, sql)


def test_the_first_of_equal_rows_is_the_same_whatever_the_frame(ours: Connection) -> None:
    # Peers are put in order by all their columns: of the rows with x = 3 the one with i = 1 comes first.
    sql = "SELECT i, first_value(i) OVER (ORDER BY x GROUPS CURRENT ROW) FROM t WHERE x = 3 ORDER BY i"
    assert rounded_rows(ours, sql) == [(1, 1), (3, 1)]


@pytest.mark.parametrize(
    ("call", "message", "sqlstate"),
    [
        (
            "sum(i) OVER (PARTITION BY g GROUPS 1 PRECEDING)",
            "GROUPS mode requires an ORDER BY",
            "42P20",
        ),
        (
            "sum(i) OVER (ORDER BY x, i RANGE 1 PRECEDING)",
            "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
            "42P20",
        ),
        (
            "sum(i) OVER (ORDER BY g RANGE 1 PRECEDING)",
            "RANGE with offset PRECEDING/FOLLOWING is not supported for column type text",
            "0A000",
        ),
        (
            "sum(i) OVER (ORDER BY x RANGE INTERVAL '1 day' PRECEDING)",
            "not supported for column type integer and offset type interval",
            "0A000",
        ),
        (
            "sum(i) OVER (ORDER BY x RANGE -1 PRECEDING)",
            "invalid preceding or following size in window function",
            "22013",
        ),
        (
            "sum(i) OVER (ORDER BY d RANGE '-1 day' PRECEDING)",
            "invalid preceding or following size in window function",
            "22013",
        ),
        (
            "sum(i) OVER (ORDER BY x RANGE i PRECEDING)",
            "argument of RANGE must not contain variables",
            "42P10",
        ),
        ("sum(i) OVER (ORDER BY x RANGE NULL PRECEDING)", "must not be null", "22004"),
        (
            "sum(i) OVER (ORDER BY x GROUPS BETWEEN 1 FOLLOWING AND CURRENT ROW)",
            "frame starting from following row cannot have preceding rows",
            "42P20",
        ),
        (
            "sum(i) OVER (ORDER BY x ROWS 1 PRECEDING EXCLUDE TIES)",
            "EXCLUDE TIES with a frame in ROWS is not supported",
            "0A000",
        ),
        ("sum(i) OVER w FROM t WINDOW w AS (), w AS ()", 'window "w" is already defined', "42P20"),
        (
            "sum(i) OVER (w) FROM t WINDOW w AS (ORDER BY x RANGE UNBOUNDED PRECEDING)",
            'cannot copy window "w" because it has a frame clause',
            "42P20",
        ),
    ],
)
def test_a_frame_that_cannot_be_is_refused_in_postgres_words(
    ours: Connection, call: str, message: str, sqlstate: str
) -> None:
    source = "" if " FROM " in call else " FROM t"
    with pytest.raises(mzsql.Error, match=message) as caught:
        ours.execute(f"SELECT {call}{source}")
    assert caught.value.sqlstate == sqlstate


@pytest.mark.parametrize("units", ["ROWS", "GROUPS"])
@pytest.mark.parametrize("offset", [1_000_001, 2**63, 2**64 - 1])
def test_an_offset_that_is_too_far_is_not_supported(
    ours: Connection, units: str, offset: int
) -> None:
    frame = f"ORDER BY i {units} BETWEEN {offset} PRECEDING AND CURRENT ROW"
    with pytest.raises(mzsql.NotSupportedError, match="greater than 1000000") as caught:
        ours.execute(f"SELECT sum(i) OVER ({frame}) FROM t")
    assert caught.value.sqlstate == "0A000"


def test_explain_shows_a_frame_as_it_was_meant(ours: Connection) -> None:
    sql = "SELECT sum(i) OVER (ORDER BY d RANGE BETWEEN '36 hours' PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM t"
    frame = "range between '36:00:00' preceding and current row exclude ties"
    for stage in ("RAW", "OPTIMIZED"):
        ((text,),) = ours.execute(f"EXPLAIN {stage} PLAN FOR {sql}").fetchall()
        assert frame in text
