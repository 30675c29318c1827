"""What is another expression (OVERLAPS, SIMILAR TO, `div`, …) over columns, against PostgreSQL, asked once and kept in a view."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from answers_kit import check_same_rows, expected, rows_of, set_up

import mzsql

SETUP = (
    "CREATE TABLE words (s text, a int, b int)",
    "CREATE TABLE spans (a date, b date, c date, d date)",
    "INSERT INTO words VALUES ('foobar', 7, 2), ('a_c', -7, 2), ('', 0, 5), ('a,b,c', 12, -18), (NULL, 3, NULL), ('Abc', NULL, 4)",
    "INSERT INTO spans VALUES ('2024-01-01', '2024-01-05', '2024-01-03', '2024-01-09'), "
    "('2024-01-05', '2024-01-01', '2024-01-05', '2024-01-09'), ('2024-01-01', NULL, '2023-01-01', '2025-01-01'), "
    "('2024-01-01', NULL, '2024-01-01', NULL), ('2024-01-01', NULL, '2023-01-01', '2023-01-02'), "
    "(NULL, NULL, '2024-01-01', '2024-01-02'), ('2024-01-01', '2024-01-01', '2024-01-01', '2024-01-01'), "
    "('2024-01-01', '2024-01-02', '2024-01-02', NULL)",
)
EXPRESSIONS = (
    "s SIMILAR TO '%(o|c)'",
    "s NOT SIMILAR TO '[a-f]+o?%'",
    "s SIMILAR TO 'a#_c' ESCAPE '#'",
    "substring(s FROM 'o(.)b')",
    "substring(s SIMILAR '%#\"(o|b)+#\"%' ESCAPE '#')",
    "substring(s FROM '[a-f]*#\"%#\"_' FOR '#')",
    "s IS NORMALIZED",
    "s IS NOT NFC NORMALIZED",
    "substring(s FROM '[b-z]+')",
    "regexp_like(s, '^a', 'i')",
    "s ^@ 'foo'",
    "split_part(s, ',', -2)",
    "num_nulls(s, a, b)",
    "num_nonnulls(s, a, b)",
    "div(a, b)",
    "width_bucket(a, -8, 13, 3)",
    "width_bucket(a::numeric, 13, -8, 3)",
    "width_bucket(a::float8, 0, 10, 5)",
    "to_hex(a)",
    "to_hex(a::bigint)",
    "gcd(a, b)",
    "lcm(a, b)",
    "factorial(abs(a))",
    "make_date(2024, abs(b) % 12 + 1, 28)",
    "make_date(-44, 3, 15)::text",
    "isfinite(make_date(2024, 1, b + 20))",
    "|/ (a * a)::float8",
)


@pytest.fixture(scope="module")
def con(
    tmp_path_factory: pytest.TempPathFactory, postgres: psycopg.Connection
) -> Iterator[mzsql.Connection]:
    with set_up(tmp_path_factory.mktemp("standard"), postgres, SETUP) as con:
        yield con


def _sorted(rows: list[tuple[object, ...]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_values_are_those_of_postgresql(
    con: mzsql.Connection, postgres: psycopg.Connection, expression: str
) -> None:
    query = f"SELECT s, a, b, ({expression})::text FROM words"
    check_same_rows(con, postgres, query)


@pytest.mark.parametrize("ends", ["(a, b) OVERLAPS (c, d)", "(c, d) OVERLAPS (a, b)"])
def test_spans_overlap_as_in_postgresql(
    con: mzsql.Connection, postgres: psycopg.Connection, ends: str
) -> None:
    query = f"SELECT a, b, c, d, {ends} FROM spans"
    check_same_rows(con, postgres, query)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("div(1, 0)", "division by zero"),
        ("width_bucket(1, 2, 2, 3)", "lower bound cannot equal upper bound"),
        ("width_bucket(1, 2, 3, 0)", "count must be greater than zero"),
        ("factorial(-1)", "factorial of a negative number is undefined"),
        ("lcm(2147483647, 2147483646)", "integer out of range"),
        ("'a' SIMILAR TO 'a' ESCAPE 'ab'", "invalid escape string"),
        ("substring('a' SIMILAR 'a' ESCAPE 'ab')", "invalid escape string"),
        ("substring('a' SIMILAR '#\"a#\"#\"' ESCAPE '#')", "more than two escape-double-quote"),
        ("substring('a' SIMILAR '#\"a' ESCAPE '#')", "must contain two escape-double-quote"),
        ("substring('a' SIMILAR lower('A') ESCAPE '#')", "not a literal is not supported"),
        ("(1, 2) OVERLAPS (3, 4)", "does not exist"),
        ("make_date(0, 1, 1)", "date field value out of range"),
    ],
)
def test_what_is_refused(con: mzsql.Connection, expression: str, message: str) -> None:
    with pytest.raises(mzsql.Error, match=message):
        con.execute(f"SELECT {expression}").fetchall()


def test_a_view_keeps_them(con: mzsql.Connection, postgres: psycopg.Connection) -> None:
    query = "SELECT s, div(a, b) AS d, num_nulls(a, b) AS n, to_hex(a) AS h FROM words WHERE s SIMILAR TO '%b%'"
    con.execute(f"CREATE MATERIALIZED VIEW with_b AS {query}")
    change = "INSERT INTO words VALUES ('b', 255, 7)"
    con.execute(change)
    postgres.execute(change.encode())
    kept = rows_of(con, "SELECT s, d::int, n, h FROM with_b")
    wanted = expected(postgres, f"SELECT s, d::int, n, h FROM ({query}) AS q")
    assert _sorted(kept) == _sorted(wanted)
