"""COPY FROM STDIN: what is loaded, and the line that is at fault, are PostgreSQL's."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mzsql

CSV = "WITH (FORMAT csv)"
OTHER_ESCAPE = "WITH (FORMAT csv, ESCAPE '\\')"

#: Data and options for a table (a text, b int).
TWO = {
    "end": ("a\t1\nb\t2\n\\.\n", ""),
    "end, then more": ("a\t1\n\\.\nb\t2\n", ""),
    "end of lines of two": ("a\t1\r\n\\.\r\n", ""),
    "no end: more on the line": ("a\\.\t1\n", ""),
    "escaped newline": ("a\\\nb\t1\n\\\n\\\n\t2\n\\.\n", ""),
    "escaped tab": ("a\\\tb\t1\n", ""),
    "codes": ("\\101\\x42\\x4g\\1012\t1\n\\12\\x9\\\\x41\t2\n\\134N\t3\n", ""),
    "codes that are delimiters": ("a\\174b\\x7c|1\n\\x09|2\n", "WITH (DELIMITER '|')"),
    "tab by its escape": ("a\t1\n", "WITH (DELIMITER E'\\t')"),
    "tab by its escape in CSV": ('"a\tb"\t1\n', "WITH (FORMAT csv, DELIMITER E'\\t')"),
    "long": ("a" * 3_000_000 + "\t1\nb\t2\n", ""),
    "long, later": ("a\t1\n" * 10 + "b" * 5_000_000 + "\t2\nc\t3\n", ""),
    "long in CSV": ("a,1\n" * 10 + '"' + '""\n' * 1_000_000 + '",2\nc,3\n', CSV),
    "escape": ('"a\\"b\\\\c\\d,\n\\",",1\nx\\y\\\\,2\n"",3\n,4\n', OTHER_ESCAPE),
    "escape and quotes side by side": ('"a""b",1\nx"a,\\"b"c,2\n"\\","d,3\n', OTHER_ESCAPE),
    "escape in a long value": ('a,1\n"' + '\\"\n' * 1_200_000 + '",2\nc,3\n', OTHER_ESCAPE),
    "escape that is never closed": ('a,1\n"b\\",2\n', OTHER_ESCAPE),
    "never closed": ('a,1\n"b,2\n', CSV),
    "empty line": ("a\t1\n\nb\t2\n", ""),
    "empty line in CSV": ('a,1\n"b\n\nc",2\n\nd,3\n', CSV),
    "empty line at the end of CSV": ("a,1\n\n", CSV),
    "too few": ("a\t1\nb\nc\t3\n", ""),
    "too many": ("a\t1\nb\t2\t3\n", ""),
    "too few behind a header and lines in quotes": (
        'a,b\n"x\n\ny",1\nb\n',
        "WITH (FORMAT csv, HEADER)",
    ),
    "no number": ('a,b\n"x\ny",1\nb,zz\n', "WITH (FORMAT csv, HEADER)"),
    "no number before too few": ("a\t1\nb\tzz\nc\n", ""),
    "the first of several faults": ("a\t1\nb\tyy\nc\tzz\n", ""),
    "no UTF-8": (b"a\t1\nb\xffc\t2\n", ""),
    "no UTF-8 in CSV": (b"a,1\nc\xfe,2\n", CSV),
    "no UTF-8 by a code": ("a\t1\n\\377\t2\n", ""),
    "a null character": (b"a\t1\nb\0c\t2\n", ""),
    "a null character in CSV": (b"a,1\n\0,2\n", CSV),
    "nothing": ("", ""),
    "nothing but the end": ("\\.\n", ""),
    "nothing but a header": ("a,b\n", "WITH (FORMAT csv, HEADER)"),
    "options without parentheses": (
        "a;b\n'x;y';1\n-;2\n",
        "WITH CSV HEADER DELIMITER ';' NULL AS '-' QUOTE ''''",
    ),
    "text without parentheses": ("x|1\n-|2\n", "DELIMITER '|' NULL '-'"),
    "options without parentheses twice": ("x,1\n", "CSV CSV"),
    "a header of several lines": ('"a\nb",c\nx,1\n', "WITH (FORMAT csv, HEADER)"),
    "a header with another number of columns": ("a\nx,1\n", "WITH (FORMAT csv, HEADER)"),
}


@pytest.fixture(scope="module")
def postgres(postgres: psycopg.Connection) -> psycopg.Connection:
    postgres.execute("SET intervalstyle = 'postgres'; CREATE TABLE t (a text, b int)")
    return postgres


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("copy") / "env") as connection:
        connection.execute("CREATE TABLE t (a text, b int)")
        yield connection


def loaded(con: Any, data: str | bytes, options: str) -> Any:
    """The rows, or the SQLSTATE and where the fault is."""
    con.execute("DELETE FROM t")
    raw = data.encode() if isinstance(data, str) else data
    try:
        with con.cursor() as cursor, cursor.copy(f"COPY t FROM STDIN {options}") as copy:
            for start in range(0, len(raw), 1 << 16):
                copy.write(raw[start : start + (1 << 16)])
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, error.diag.context
    except mzsql.Error as error:
        return error.sqlstate, str(error).partition("\n")[0], error.detail
    return sorted(con.execute("SELECT a, b FROM t").fetchall(), key=repr)


@pytest.mark.parametrize("what", TWO)
def test_what_is_loaded_is_what_postgresql_loads(
    con: mzsql.Connection, postgres: psycopg.Connection, what: str
) -> None:
    theirs, ours = (loaded(one, *TWO[what]) for one in (postgres, con))
    if isinstance(theirs, list):
        assert ours == theirs
        return
    assert not isinstance(ours, list), ours
    state, message, context = theirs
    assert ours[0] == state
    if state != "22P02":  # whose words are Materialize's
        assert ours[1] == message
    if not any(word in message for word in ("unterminated", "marker")) and "code" not in what:
        assert ours[2] == context


@pytest.mark.parametrize("row", ["abc\tx", "a\txyz", "ab  \txy  ", "a\tx"])
def test_what_is_too_long_is_refused(
    con: mzsql.Connection, postgres: psycopg.Connection, row: str
) -> None:
    found = []
    for one in (con, postgres):
        one.execute("DROP TABLE IF EXISTS short")
        one.execute("CREATE TABLE short (v varchar(2), c char(2))")
        try:
            with one.cursor() as cursor, cursor.copy("COPY short FROM STDIN") as copy:
                copy.write(row + "\n")
        except psycopg.Error as error:
            found.append((error.sqlstate, error.diag.message_primary, error.diag.context))
        except mzsql.Error as error:
            found.append((error.sqlstate, str(error).partition("\n")[0], error.detail))
        else:
            found.append(one.execute("SELECT * FROM short").fetchall())
    assert found[0] == found[1]


def test_a_line_that_ends_the_data_of_a_file(con: mzsql.Connection, tmp_path: Path) -> None:
    for data in ("x,1\n\\.\n", "x,1\r\n\\.\r\n", "x,1\n\\."):
        con.execute("DELETE FROM t")
        (tmp_path / "t").write_text(data)
        con.execute(f"COPY t FROM '{tmp_path / 't'}' {CSV}")
        assert con.execute("SELECT a, b FROM t").fetchall() == [("x", 1)]


def test_rows_before_a_long_one_are_loaded_once(con: mzsql.Connection) -> None:
    """The reader begins anew at a row that is longer than what it looks at."""
    con.execute("DELETE FROM t")
    with con.cursor() as cursor, cursor.copy("COPY t FROM STDIN") as copy:
        for n in range(3):
            copy.write("".join(f"{'y' * 100}\t{n * 100_000 + i}\n" for i in range(100_000)))
            copy.write(f"{'x' * 2_500_000}\t{1_000_000 + n}\n")
    found = con.execute("SELECT count(*), count(DISTINCT b), max(length(a)) FROM t").fetchall()
    assert found == [(300_003, 300_003, 2_500_000)]


SPANS = [
    dt.timedelta(days=1, hours=2),
    dt.timedelta(days=-1, seconds=5, microseconds=7),
    dt.timedelta(days=400),
    dt.timedelta(seconds=-5),
    dt.timedelta(0),
]


def test_a_double_beyond_real_is_refused_and_not_made_infinite(
    con: mzsql.Connection, tmp_path: Path
) -> None:
    path = tmp_path / "doubles.parquet"
    pq.write_table(pa.table({"x": pa.array([0.5, float("inf"), 1e300, None])}), path)
    con.execute("CREATE TABLE reals (x real)")
    with pytest.raises(mzsql.DataError, match=r'"x".*does not fit type real, in row 3: 1e\+300'):
        con.execute(f"COPY reals FROM '{path}' (FORMAT parquet)")
    assert con.execute("SELECT count(*) FROM reals").fetchall() == [(0,)]
    pq.write_table(pa.table({"x": pa.array([0.5, float("inf"), None])}), path)
    con.execute(f"COPY reals FROM '{path}' (FORMAT parquet)")
    found = con.execute("SELECT x FROM reals ORDER BY x").fetchall()
    assert found == [(0.5,), (float("inf"),), (None,)]


def test_spans_of_days_are_written_as_intervals(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE spans (n int, v interval)")
    with con.cursor() as cursor, cursor.copy("COPY spans FROM STDIN") as copy:
        for n, span in enumerate(SPANS):
            copy.write_row((n, span))
    rows = con.execute("SELECT v FROM spans ORDER BY n").fetchall()
    found = [dt.timedelta(days=v.days, microseconds=v.microseconds) for (v,) in rows]
    assert found == SPANS
