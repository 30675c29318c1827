"""COPY: out as PostgreSQL writes it byte for byte, into files, and in again."""

from __future__ import annotations

import datetime as dt
import io
import math
import os
import random
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from s3_server import S3Server

import mzsql
from mzsql.location import default_registry

#: Columns with values that both engines read alike.
COLUMNS = {
    "i": ("int", ["0", "-7", "2147483647"]),
    "b": ("bigint", ["9223372036854775807", "-1", "0"]),
    "s": ("smallint", ["1", "-32768", "7"]),
    "n": ("numeric(12, 3)", ["1.5", "-0.125", "123456789.001"]),
    "f": ("double precision", ["1.5", "'-Infinity'", "'NaN'"]),
    "g": ("double precision", ["0.1", "'1e300'", "'1e-10'"]),
    "t": ("text", ["''", "'plain'", "'null'"]),
    "o": ("boolean", ["true", "false", "true"]),
    "d": ("date", ["'2024-02-29'", "'1969-12-31'", "'2000-01-01'"]),
    "p": ("timestamp", ["'2024-02-29 12:34:56.789'", "'1970-01-01'", "'2000-01-01 00:00:01'"]),
    "z": (
        "timestamptz",
        ["'2024-02-29 12:34:56.789+00'", "'1970-01-01 00:00:00+00'", "'2000-01-01 00:00:00+00'"],
    ),
    "e": ("time", ["'12:34:56.5'", "'00:00:00'", "'23:59:59'"]),
    "v": ("interval", ["'1 day 02:03:04'", "'-40 days'", "'1 year 00:00:00.5'"]),
    "y": ("bytea", ["'\\x00ff'", "'\\x'", "'\\x5c0a'"]),
    "u": (
        "uuid",
        [
            "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
            "'00000000-0000-0000-0000-000000000000'",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        ],
    ),
}
ODD = ["\t", "\n", "\r", "\\", "\\N", '"', ",", "|", "\b\f\v", "\\.", "é", "'", " a ", "", "NULL"]


@pytest.fixture(scope="module")
def postgres(postgres):
    postgres.execute("SET intervalstyle = 'postgres'")
    postgres.execute("SET standard_conforming_strings = on; SET bytea_output = 'hex'")
    return postgres


@pytest.fixture
def con(tmp_path):
    with mzsql.connect(tmp_path / "env") as connection:
        yield connection


@pytest.fixture
def s3_url(monkeypatch):
    with S3Server() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server.fresh_url()


def copied(connection, sql):
    with connection.cursor().copy(sql) as copy:
        return b"".join(bytes(data) for data in copy)


SELDOM = [
    "WITH (FORMAT csv)",
    "WITH (FORMAT csv, HEADER)",
    "WITH (FORMAT csv, ESCAPE '\\')",
    "WITH (FORMAT text, HEADER)",
]
OPTIONS = [
    "",
    "WITH (DELIMITER '|', NULL 'nothing')",
    "WITH (FORMAT csv, DELIMITER ';', NULL 'NULL', QUOTE '''')",
    *(pytest.param(options, marks=pytest.mark.long) for options in SELDOM),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_bytes_are_postgres_bytes(con, postgres, options):
    names = ", ".join(COLUMNS)
    types = ", ".join(f"{name} {typ}" for name, (typ, _) in COLUMNS.items())
    rows = [
        ", ".join(f"CAST({values[i]} AS {typ})" for typ, values in COLUMNS.values())
        for i in range(3)
    ]
    rows.append(", ".join("NULL" for _ in COLUMNS))
    for one in (con, postgres):
        one.execute("DROP TABLE IF EXISTS c")
        one.execute(f"CREATE TABLE c ({types})")
        one.execute(f"INSERT INTO c VALUES ({'), ('.join(rows)})")
    sql = f"COPY (SELECT {names} FROM c ORDER BY i, b) TO STDOUT {options}"
    assert copied(con, sql) == copied(postgres, sql)


@pytest.mark.parametrize("options", OPTIONS)
def test_odd_texts_are_escaped_as_postgres_does(con, postgres, options):
    rng = random.Random(7)
    texts = ODD + ["".join(rng.choices(ODD, k=3)) for _ in range(60)]
    for one in (con, postgres):
        one.execute("DROP TABLE IF EXISTS x")
        one.execute("CREATE TABLE x (n int, a text, b text)")
        places = ", ".join(["(%s, %s, NULL)"] * len(texts))
        values = [value for row in enumerate(texts) for value in row]
        with one.cursor() as cursor:
            cursor.execute(f"INSERT INTO x VALUES {places}", values)
    sql = f"COPY (SELECT n, a, b, a FROM x ORDER BY n) TO STDOUT {options}"
    theirs = copied(postgres, sql)
    assert copied(con, sql) == theirs
    one_column = f"COPY (SELECT a FROM x ORDER BY n) TO STDOUT {options}"
    assert copied(con, one_column) == copied(postgres, one_column)
    if "HEADER" not in options and "ESCAPE" not in options:
        # What PostgreSQL has written is read back as what it was.
        con.execute("CREATE TABLE again (n int, a text, b text, c text)")
        with con.cursor().copy(f"COPY again FROM STDIN {options}") as copy:
            copy.write(theirs)
        found = con.execute("SELECT n, a, b, c FROM again ORDER BY n").fetchall()
        assert found == [(n, a, None, a) for n, a in enumerate(texts)]


def test_rows_go_in_and_out_again(con):
    con.execute(
        "CREATE TABLE r (i int, t text, n numeric, d timestamptz, y bytea, f float8, b bool)"
    )
    rows = [
        (
            1,
            "a\tb\\c\nd",
            Decimal("1.5"),
            dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
            b"\x00\\",
            0.1,
            True,
        ),
        (2, None, None, None, None, None, None),
        (3, "", Decimal(-3), dt.datetime(1969, 7, 20, 20, 17, tzinfo=dt.UTC), b"", math.inf, False),
    ]
    with con.cursor().copy("COPY r FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    assert con.execute("SELECT * FROM r ORDER BY i").fetchall() == rows
    data = copied(con, "COPY r TO STDOUT")
    con.execute("DELETE FROM r")
    with con.cursor().copy("COPY r FROM STDIN") as copy:
        for at in range(0, len(data), 7):
            copy.write(data[at : at + 7])
    assert con.execute("SELECT * FROM r ORDER BY i").fetchall() == rows


def test_a_failed_block_loads_nothing(con):
    con.execute("CREATE TABLE r (i int)")

    def stop():
        with con.cursor().copy("COPY r FROM STDIN") as copy:
            copy.write("1\n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stop()
    with pytest.raises(mzsql.DataError) as broken, con.cursor().copy("COPY r FROM STDIN") as copy:
        copy.write("1\nx\n")
    assert "invalid input syntax for type integer" in str(broken.value)
    assert 'COPY r, line 2, column i: "x"' in str(broken.value)
    assert con.execute("SELECT count(*) FROM r").fetchall() == [(0,)]


def test_copy_in_a_transaction_is_part_of_it(con):
    con.execute("CREATE TABLE r (i int)")
    con.execute("BEGIN")
    with con.cursor().copy("COPY r FROM STDIN") as copy:
        copy.write("1\n2\n")
    con.execute("ROLLBACK")
    assert con.execute("SELECT * FROM r").fetchall() == []


def test_a_subscribe_can_be_copied(con):
    con.execute("CREATE TABLE r (i int)")
    con.execute("INSERT INTO r VALUES (1)")
    ts = con.execute("SELECT * FROM r").timestamp
    assert (
        copied(con, f"COPY (SUBSCRIBE r AS OF {ts} UP TO {ts + 1}) TO STDOUT")
        == f"{ts}\t1\t1\n".encode()
    )
    with con.cursor().copy("COPY (SUBSCRIBE r) TO STDOUT") as copy:
        assert copy.read().endswith(b"\t1\t1\n")
        con.execute("INSERT INTO r VALUES (2)")
        assert copy.read().endswith(b"\t1\t2\n")
    assert con.coordinator.subscriptions == 0


def test_order_by_is_the_order_of_the_lines(con):
    sql = "COPY (SELECT x FROM generate_series(1, 50000) AS g(x) ORDER BY x DESC) TO STDOUT"
    assert copied(con, sql) == "".join(f"{x}\n" for x in range(50000, 0, -1)).encode()


# --- files ----------------------------------------------------------------------------------------


def test_files_are_read_back_as_they_were_written(con, tmp_path):
    con.execute("CREATE TABLE r (i int, t text, n numeric(10, 2))")
    con.execute("INSERT INTO r VALUES (1, 'a,\"b', 1.5), (2, NULL, NULL), (3, '', -2)")
    rows = con.execute("SELECT * FROM r ORDER BY i").fetchall()
    for name in ("r.parquet", "r.csv"):
        assert con.execute(f"COPY r TO '{tmp_path / name}'").statusmessage == "COPY 3"
        con.execute("DROP TABLE IF EXISTS again")
        con.execute("CREATE TABLE again (i int, t text, n numeric(10, 2))")
        assert con.execute(f"COPY again FROM '{tmp_path / name}'").statusmessage == "COPY 3"
        assert con.execute("SELECT * FROM again ORDER BY i").fetchall() == rows
    assert pq.read_table(tmp_path / "r.parquet").column_names == ["i", "t", "n"]
    con.execute(f"COPY r (t, i) TO '{tmp_path / 'part.csv'}' WITH (FORMAT csv, HEADER)")
    assert (tmp_path / "part.csv").read_text().startswith("t,i\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["env", "part.csv", "r.csv", "r.parquet"]


def test_a_file_is_whole_or_not_there(con, tmp_path):
    con.execute("CREATE TABLE r (i int)")
    con.execute("INSERT INTO r VALUES (0)")
    with pytest.raises(mzsql.DataError):
        con.execute(f"COPY (SELECT 1 / i FROM r) TO '{tmp_path / 'x.csv'}'")
    with pytest.raises(mzsql.ProgrammingError, match="distinct column names"):
        con.execute(f"COPY (SELECT 1 AS a, 2 AS a) TO '{tmp_path / 'x.parquet'}'")
    assert [p.name for p in tmp_path.iterdir()] == ["env"]


@pytest.mark.parametrize(
    ("sql", "state", "message"),
    [
        ("COPY nothing TO STDOUT", "42P01", "unknown catalog item 'nothing'"),
        (
            "COPY r (x) TO STDOUT",
            "42703",
            'column "x" of relation "materialize.public.r" does not exist',
        ),
        ("COPY r TO STDOUT WITH (FORMAT parquet)", "22023", 'COPY format "parquet" not recognized'),
        ("COPY r TO STDOUT WITH (QUOTE '\"')", "0A000", "COPY QUOTE requires CSV mode"),
        ("COPY r TO STDOUT WITH (DELIMITER 'ab')", "22023", "must be a single one-byte character"),
        ("COPY r TO STDOUT WITH (DELIMITER 'x')", "22023", 'COPY delimiter cannot be "x"'),
        (
            "COPY r TO STDOUT (FORMAT csv, DELIMITER '\"')",
            "22023",
            "delimiter and quote must be diff",
        ),
        (
            "COPY r TO STDOUT (FORMAT csv, QUOTE ',')",
            "22023",
            "delimiter and quote must be different",
        ),
        ("COPY r TO STDOUT (FORMAT csv, NULL 'a,b')", "0A000", "COPY delimiter must not appear in"),
        (
            "COPY r TO STDOUT (NULL '|', DELIMITER '|')",
            "0A000",
            "COPY delimiter must not appear in",
        ),
        ("COPY r TO STDOUT (FORMAT csv, NULL 'a\"')", "0A000", "CSV quote character must not app"),
        ("COPY r TO '/nowhere/at/all.csv'", "58P01", "could not open file"),
        ("COPY (SUBSCRIBE r) TO '/tmp/x.csv'", "0A000", "can only go TO STDOUT"),
        ("COPY r FROM", "42601", "Expected literal string"),
    ],
)
def test_errors_are_postgres(con, sql, state, message):
    con.execute("CREATE TABLE r (i int)")
    with pytest.raises(mzsql.Error) as failure:
        con.execute(sql)
    assert failure.value.sqlstate == state
    assert message in str(failure.value)


def test_data_needs_copy_and_copy_needs_data(con):
    con.execute("CREATE TABLE r (i int)")
    for sql in ("COPY r TO STDOUT", "COPY r FROM STDIN"):
        with pytest.raises(mzsql.Error, match="cannot be used with this method"):
            con.execute(sql)
    with pytest.raises(mzsql.ProgrammingError, match="copy\\(\\) is for"):
        con.cursor().copy("SELECT 1").__enter__()
    with con.cursor().copy("COPY r FROM STDIN") as copy, pytest.raises(mzsql.ProgrammingError):
        copy.read()
    with con.cursor().copy("COPY r TO STDOUT") as copy, pytest.raises(mzsql.ProgrammingError):
        copy.write(b"1\n")


def test_a_store_gets_files_of_bounded_size(con, s3_url, monkeypatch):
    monkeypatch.setattr("mzsql.adapter.statements.copy_to.FILE_ROWS", 40)
    con.execute("CREATE TABLE r (i int)")
    con.execute("INSERT INTO r SELECT x FROM generate_series(1, 100) AS g(x)")
    assert con.execute(f"COPY r TO '{s3_url}' WITH (FORMAT parquet)").statusmessage == "COPY 100"
    blob = default_registry().open_blob(s3_url)
    keys = sorted(key for key, _ in blob.list_keys_and_metadata(""))
    assert keys == ["part-0000.parquet", "part-0001.parquet", "part-0002.parquet"]
    values = [
        v for k in keys for v in pq.read_table(io.BytesIO(blob.get(k))).column("i").to_pylist()
    ]
    assert sorted(values) == list(range(1, 101))
    blob.close()
    with pytest.raises(mzsql.Error, match="is not empty"):
        con.execute(f"COPY r TO '{s3_url}' WITH (FORMAT parquet)")


def test_copy_to_a_file_keeps_its_links_and_mode_and_writes_into_pipes(tmp_path):
    with mzsql.connect(tmp_path / "env") as con:
        real, link, pipe = (tmp_path / name for name in ("real.csv", "link.csv", "pipe"))
        real.write_text("old")
        real.chmod(0o600)
        link.symlink_to(real)
        con.execute(f"COPY (SELECT 1) TO '{link}' WITH (FORMAT csv)")
        assert link.is_symlink()
        assert real.read_text() == "1\n"
        assert real.stat().st_mode & 0o777 == 0o600
        os.mkfifo(pipe)
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            con.execute(f"COPY (SELECT 2) TO '{pipe}' WITH (FORMAT csv)")
            assert os.read(reading, 10) == b"2\n"
        finally:
            os.close(reading)
        assert pipe.is_fifo()
        with pytest.raises(mzsql.Error, match="could not open file") as raised:
            con.execute(f"COPY (SELECT 1) TO '{tmp_path / ('x' * 250)}' WITH (FORMAT csv)")
        assert raised.value.sqlstate == "58030"


def test_reset_all_in_a_transaction_leaves_what_is_at_its_default(tmp_path):
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (a int)")
        con.execute("BEGIN; SELECT * FROM t; RESET ALL; COMMIT")
