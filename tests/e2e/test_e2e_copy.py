"""COPY FROM: what is loaded equals what DuckDB reads; what is wrong is named, and then nothing is loaded."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mzsql

DDL = "CREATE TABLE t (id int NOT NULL, name text, price numeric(12, 2), day date, ok boolean)"


@pytest.fixture
def con(env: str) -> Iterator[mzsql.Connection]:
    connection = mzsql.connect(env)
    connection.execute(DDL)
    yield connection
    connection.close()


def good(rows: int = 1000) -> pa.Table:
    return duckdb.sql(
        "SELECT i::INT AS id, CASE WHEN i % 7 = 0 THEN NULL ELSE 'n' || i END AS name, "
        "(i / 4)::DECIMAL(12, 2) AS price, DATE '2020-01-01' + i::INT AS day, i % 2 = 0 AS ok "
        f"FROM range({rows}) AS r(i)"
    ).to_arrow_table()


def everything(con: mzsql.Connection) -> list[tuple[object, ...]]:
    return con.execute("SELECT * FROM t ORDER BY id").fetchall()


def test_parquet_in_several_batches(con: mzsql.Connection, tmp_path: Path) -> None:
    table = good(150_000)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=40_000)
    cursor = con.execute(f"COPY t FROM '{tmp_path}/t.parquet' (FORMAT PARQUET)")
    assert (cursor.statusmessage, cursor.rowcount) == ("COPY 150000", 150_000)
    for query in (
        "SELECT count(*), sum(price), count(name) FROM t WHERE ok",
        "SELECT min(day), max(day) FROM t",
    ):
        other = duckdb.sql(query.replace("FROM t", f"FROM '{tmp_path}/t.parquet'")).fetchall()
        assert con.execute(query).fetchall() == other


def test_parquet_columns_go_by_name(con: mzsql.Connection, tmp_path: Path) -> None:
    pq.write_table(good(10).select(["ok", "day", "price", "name", "id"]), tmp_path / "t.parquet")
    con.execute(f"COPY t FROM '{tmp_path}/t.parquet' (FORMAT PARQUET)")
    assert everything(con)[4] == (4, "n4", decimal.Decimal("1.00"), dt.date(2020, 1, 5), True)


@pytest.mark.parametrize("header", [True, False])
def test_csv(con: mzsql.Connection, tmp_path: Path, header: bool) -> None:
    text = "id,name,price,day,ok\n" if header else ""
    text += (
        '1,"a ""quoted"", comma",1.5,2024-02-29,t\n2,"two\nlines",,1999-12-31,false\n3,"",-0.01,,\n'
    )
    (tmp_path / "t.csv").write_text(text)
    con.execute(f"COPY t FROM '{tmp_path}/t.csv' (FORMAT CSV, HEADER {str(header).lower()})")
    found = [(r[0], r[1], r[2], r[4]) for r in everything(con)]
    assert found == [
        (1, 'a "quoted", comma', decimal.Decimal("1.50"), True),
        (2, "two\nlines", None, False),
        (3, "", decimal.Decimal("-0.01"), None),
    ]


def test_a_column_list_fills_the_others_with_defaults(tmp_path: Path, env: str) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE d (a int, b text DEFAULT 'none', c int)")
        (tmp_path / "d.csv").write_text("7;1\n8;2\n")
        con.execute(f"COPY d (c, a) FROM '{tmp_path}/d.csv' (FORMAT CSV, DELIMITER ';')")
        assert sorted(con.execute("SELECT * FROM d").fetchall()) == [(1, "none", 7), (2, "none", 8)]


def _parquet(path: Path, table: pa.Table) -> str:
    pq.write_table(table, path)
    return f"COPY t FROM '{path}' (FORMAT PARQUET)"


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


BROKEN_PARQUET = {
    "missing column": (
        lambda t: t.drop_columns(["price"]),
        'column "price" of table "t" is missing in .*t.parquet',
    ),
    "extra column": (
        lambda t: t.append_column("more", t["id"]),
        'table "t" has no column "more", which .* has',
    ),
    "wrong type": (
        lambda t: _with(t, "day", t["name"]),
        'column "day" is of type date but .* has string there',
    ),
    "null": (
        lambda t: _with(t, "id", pa.array([*range(499), None, *range(500)], pa.int32())),
        'null value in column "id" violates not-null constraint(.|\n)*row 500 of',
    ),
    "value out of range": (
        lambda t: _with(t, "id", pa.array([*range(800), 2**40, *range(199)], pa.int64())),
        'a value of column "id" .* does not fit type integer, in row 801: 1099511627776',
    ),
}


@pytest.mark.parametrize("what", BROKEN_PARQUET)
def test_broken_parquet_names_what_and_loads_nothing(
    con: mzsql.Connection, tmp_path: Path, what: str
) -> None:
    change, message = BROKEN_PARQUET[what]
    before = blobs(con)
    with pytest.raises(mzsql.DatabaseError, match=message):
        con.execute(_parquet(tmp_path / "t.parquet", change(good())))
    assert everything(con) == []
    assert blobs(con) == before


def blobs(con: mzsql.Connection) -> set[str]:
    return {key for key, _ in con.coordinator.env.persist.blob.list_keys_and_metadata("")}


BROKEN_CSV = {
    "wrong type": (
        "1,a,1,2020-01-01,t\n2,b,x,2020-01-01,t\n",
        'numeric: "x"(.|\n)*line 2, column price: "x"',
    ),
    "too few columns": ("1,a,1,2020-01-01,t\n2,b\n", 'missing data for column "price"'),
    "too many columns": ("1,a,1,2020-01-01,t,9\n", "extra data after last expected column"),
    "null": (",a,1,2020-01-01,t\n", 'null value in column "id"(.|\n)*COPY t, line 1'),
    "bad date": ("1,a,1,2020-02-30,t\n", "column day"),
}


@pytest.mark.parametrize("what", BROKEN_CSV)
def test_broken_csv_names_what_and_loads_nothing(
    con: mzsql.Connection, tmp_path: Path, what: str
) -> None:
    text, message = BROKEN_CSV[what]
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(mzsql.DatabaseError, match=message) as caught:
        con.execute(f"COPY t FROM '{tmp_path}/t.csv' (FORMAT CSV)")
    assert not isinstance(caught.value, mzsql.InternalError)
    assert everything(con) == []


def test_no_such_file_and_no_parquet(con: mzsql.Connection, tmp_path: Path) -> None:
    with pytest.raises(mzsql.DatabaseError, match=r'could not open file ".*nope" for reading'):
        con.execute(f"COPY t FROM '{tmp_path}/nope' (FORMAT PARQUET)")
    (tmp_path / "junk").write_bytes(b"PAR1 not really")
    with pytest.raises(mzsql.DataError, match="is not a Parquet file"):
        con.execute(f"COPY t FROM '{tmp_path}/junk' (FORMAT PARQUET)")


def test_a_copy_in_a_transaction_commits_with_it(con: mzsql.Connection, tmp_path: Path) -> None:
    copy = _parquet(tmp_path / "t.parquet", good(10))
    con.execute("BEGIN")
    con.execute(copy)
    con.execute("INSERT INTO t (id) VALUES (99)")
    con.execute("ROLLBACK")
    assert everything(con) == []
    con.execute("BEGIN")
    con.execute(copy)
    con.execute("INSERT INTO t (id) VALUES (99)")
    con.execute("COMMIT")
    assert len(everything(con)) == 11
