"""Numerics through a connection: constants with all their digits, columns without invented zeros, typed errors for what cannot be kept."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import mzsql


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    home: Path = tmp_path_factory.mktemp("numerics")
    with mzsql.connect(str(home)) as connection:
        connection.execute("CREATE TABLE n (v numeric, p numeric(10, 2), k uint8)")
        connection.execute("INSERT INTO n VALUES (2.5, 1.20, 3), (-1, 12, 18446744073709551615)")
        yield connection


def texts(con: mzsql.Connection, sql: str) -> list[tuple[str, ...]]:
    return [tuple(str(value) for value in row) for row in con.execute(sql).fetchall()]


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("1 / 3.0", "0.333333333333333333333333333333333333333"),
        ("1e38 + 1", "100000000000000000000000000000000000001"),
        ("-0.0", "0.0"),
        ("'NaN'::numeric * 2", "NaN"),
        ("2.0 / 1", "2"),
        ("round(2.675, 2)", "2.680"),
        ("(0.12 + 0.2)::numeric(39, 1)", "0.3"),
        ("sqrt(2::numeric)", "1.41421356237309504880168872420969807857"),
        ("greatest(1.5, 'NaN')", "NaN"),
        ("length((1 / 3.0)::text)", "41"),
    ],
)
def test_constants_have_all_their_digits(
    con: mzsql.Connection, expression: str, shown: str
) -> None:
    (row,) = texts(con, f"SELECT {expression}")
    assert row == (shown,)


def test_columns_print_without_invented_zeros(con: mzsql.Connection) -> None:
    found = texts(con, "SELECT v, v + 1, v * 2, v / 4, p, p * 2, coalesce(v, 0) FROM n ORDER BY v")
    assert found == [
        ("-1", "0", "-2", "-0.25", "12.00", "24.00", "-1"),
        ("2.5", "3.5", "5", "0.625", "1.20", "2.40", "2.5"),
    ]
    assert texts(con, "SELECT sum(v), avg(p), max(v) FROM n") == [("1.5", "6.6", "2.5")]
    assert texts(con, "SELECT v FROM n UNION SELECT 1.25 ORDER BY 1") == [
        ("-1",),
        ("1.25",),
        ("2.5",),
    ]


def test_rows_are_stored_with_all_their_digits(con: mzsql.Connection) -> None:
    """Whatever the first row's digits are."""
    con.execute("CREATE TABLE stored (v numeric, w numeric)")
    con.execute("INSERT INTO stored VALUES (0.5, 1), (2.25, '0.125'), (3, 1.0000000000000000004)")
    con.execute("INSERT INTO stored SELECT '1.2e-20'::numeric, v FROM stored WHERE v = 3")
    found = texts(con, "SELECT v, w FROM stored ORDER BY v")
    assert found == [("0", "3"), ("0.5", "1"), ("2.25", "0.125"), ("3", "1")]
    con.execute("DROP TABLE stored")


def test_quoted_numbers_keep_their_digits_beside_others(con: mzsql.Connection) -> None:
    sql = "SELECT coalesce(NULL, 1.5, '2.25'), CASE WHEN false THEN 1.5 ELSE '2.25' END"
    assert [Decimal(v) for v in texts(con, sql)[0]] == [Decimal("1.5"), Decimal("2.25")]


def test_columns_are_compared_with_what_none_holds(con: mzsql.Connection) -> None:
    sql = (
        "SELECT v FROM n WHERE v <> 'NaN' AND v < 1e38 AND -1e38 < v AND NOT v >= 'NaN' ORDER BY v"
    )
    assert texts(con, sql) == [("-1",), ("2.5",)]
    assert texts(con, "SELECT v FROM n WHERE v = 'NaN' OR v > 1e38 OR v <= -1e38") == []


def test_constants_that_no_column_holds_are_put_in_order(con: mzsql.Connection) -> None:
    sql = "SELECT x FROM (VALUES (1.5), ('NaN'), (-7), (NULL), (1e38)) AS t (x) ORDER BY x DESC LIMIT 4"
    assert texts(con, sql) == [("None",), ("NaN",), (f"1{'0' * 38}",), ("1.5",)]


def test_arrow_holds_numbers_and_refuses_nan(con: mzsql.Connection) -> None:
    table = con.execute("SELECT 1 / 3.0 AS x").arrow()
    assert table.schema.field("x").type == pa.decimal128(38, 18)
    assert table.column("x")[0].as_py() == Decimal("0.333333333333333333")
    with pytest.raises(mzsql.NotSupportedError, match="NaN cannot be kept in a column"):
        con.execute("SELECT 'NaN'::numeric").arrow()


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSERT INTO n (v) VALUES ('NaN')", "NaN cannot be kept in a column of type numeric"),
        ("INSERT INTO n (v) VALUES (1e38)", "numeric field overflow"),
        ("CREATE MATERIALIZED VIEW broken AS SELECT 'NaN'::numeric AS x", "NaN cannot be kept in a column of type numeric"),
        ("SELECT 9876543210987654321098765432109876543210", "exceeds maximum precision 39"),
        ("SELECT 999999999999999999999999999999999999999 + 1::numeric", "value out of range: overflow"),
        ("SELECT 1::numeric / (-1::numeric + 1.0)", "division by zero"),
        ("SELECT '2147483648'::numeric::int4", '"2147483648" integer out of range'),
        ("SELECT 18446744073709553665::float8::uint8", '"18446744073709556000" uint8 out of range'),
        ("SELECT 12::numeric(39, 38)", "numeric field overflow"),
    ],
)  # fmt: skip
def test_errors(con: mzsql.Connection, sql: str, message: str) -> None:
    before = con.execute("SELECT count(*) FROM n").fetchall()
    with pytest.raises(mzsql.Error) as caught:
        con.execute(sql).fetchall()
    assert message in str(caught.value)
    assert con.execute("SELECT count(*) FROM n").fetchall() == before


@pytest.mark.parametrize("column", ["v", "p", "(k % 1000::uint8)"])
def test_several_variances_in_one_query(con: mzsql.Connection, column: str) -> None:
    names = ["variance", "var_pop", "var_samp", "stddev", "stddev_pop", "stddev_samp"]
    together = con.execute(
        f"SELECT {', '.join(f'{name}({column})' for name in names)} FROM n"
    ).fetchall()[0]
    alone = [con.execute(f"SELECT {name}({column}) FROM n").fetchall()[0][0] for name in names]
    assert list(together) == alone
    assert all(value is not None for value in alone)


def test_unsigned_bits(con: mzsql.Connection) -> None:
    sql = "SELECT k & 5::uint8, k | 8::uint8, k # 1::uint8, ~k, k << 4::uint4, k >> 1::uint4 FROM n ORDER BY k"
    expected = []
    for k in (3, 2**64 - 1):
        expected.append((k & 5, k | 8, k ^ 1, 2**64 - 1 - k, (k << 4) % 2**64, k >> 1))
    assert con.execute(sql).fetchall() == expected
