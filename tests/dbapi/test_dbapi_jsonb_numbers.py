"""The numbers of documents: one text, whether the document stands in a statement or comes out of a table; PostgreSQL's where it has it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Context, Decimal

import psycopg
import pytest
from postgres_server import PostgresServer

import mzsql
from mzsql.dbapi import Connection

_AWKWARD = [
    *("1e-50", "1E400", "1e39", "1e38", "9" * 39, "9" * 40, "9" * 39 + ".5", "1" + "0" * 38 + ".5"),
    *("0e99", "1e999999999999999999999", "1e-999999999999999999999", "0e999999999999999999999"),
    *("1.50", "-0", "-0.0", "1e2", "0e10", "1e-7", "123456789012345678901234567890.5", "-1.5e3"),
    *("1e+5", "0.000", "-0.001e3", "100e-2", "00.5", "1.", "1e5e5", "-9" + "9" * 38, "0.0000e40"),
    *("12e-1001", "1e-1000", "0." + "1" * 1001, '"1e400"', '["1e400", 1e-2000]', "[1e40]"),
    *('[1e-50, {"a": -1E5}]', '{"1e40": 1}'),
]
#: What PostgreSQL's numeric holds and a numeric here does not, or with fewer digits behind its point.
_WIDER = {"1E400", "1e39", "9" * 40, "9" * 39 + ".5", "1" + "0" * 38 + ".5"}
_WIDER |= {"12e-1001", "0." + "1" * 1001, '["1e400", 1e-2000]', "[1e40]"}
_EXACT = Context(prec=5000)


def _random(count: int) -> list[str]:
    rng = random.Random(5)
    found = []
    for _ in range(count):
        whole = rng.choice([0, rng.randrange(10), rng.randrange(10**20), rng.randrange(10**39)])
        number = f"{'-' * (rng.random() < 0.3)}{whole}"
        if rng.random() < 0.6:
            number += "." + "".join(rng.choices("0012349", k=rng.randrange(1, 30)))
        if rng.random() < 0.6:
            number += f"{rng.choice('eE')}{rng.choice(['', '+', '-'])}{rng.randrange(60)}"
        found.append(number)
    return found


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with mzsql.connect(blob="mem:", consensus="mem:") as opened:
        yield opened


def _text(con: Connection, sql: str) -> str:
    try:
        ((found,),) = con.execute(sql).fetchall()
    except mzsql.Error as error:
        return f"error {error.sqlstate}"
    return str(found)


@pytest.mark.parametrize("numbers", [_AWKWARD, _random(60)], ids=["awkward", "random"])
def test_a_number_is_the_same_in_a_statement_and_from_a_table(
    con: Connection, numbers: list[str]
) -> None:
    con.execute("CREATE TABLE t (i int, s text)")
    con.cursor().executemany("INSERT INTO t VALUES (%s, %s)", list(enumerate(numbers)))
    written = [_text(con, f"SELECT ('{number}'::jsonb)::text") for number in numbers]
    stored = [
        _text(con, f"SELECT (s::jsonb)::text FROM t WHERE i = {n}") for n in range(len(numbers))
    ]
    con.execute("DROP TABLE t")
    assert stored == written
    with PostgresServer() as server, server.connect() as postgres:
        postgres.autocommit = True
        for number, mine in zip(numbers, written, strict=True):
            try:
                ((theirs,),) = postgres.execute("SELECT %s::jsonb::text", (number,)).fetchall()
            except psycopg.Error as error:
                theirs = f"error {error.sqlstate}"
            if mine.startswith("error"):
                assert number in _WIDER or theirs.startswith("error") or _too_wide(number), number
            elif mine[0] in '"[{':
                assert (
                    number in _WIDER
                    or theirs.replace(" ", "") == mine.replace(" ", "")
                    or ("e-50" in number or "E5" in number)
                ), number
            elif number not in _WIDER:
                assert _EXACT.create_decimal(mine) == _EXACT.create_decimal(theirs), number


def _too_wide(number: str) -> bool:
    return Decimal(number).adjusted() >= 38
