"""Arrays of several dimensions: a column has those of its type; where others are to be stored, that is refused as what it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.dbapi import DataError, NotSupportedError

_DEEP = "'{{1,2},{3,4}}'"
_INTO_A_COLUMN: tuple[tuple[str, list[Any]], ...] = (
    (f"INSERT INTO t VALUES ({_DEEP})", []),
    (f"INSERT INTO t VALUES ('{{1}}'), ({_DEEP})", []),
    (f"INSERT INTO t VALUES ({_DEEP}::int[])", []),
    ("INSERT INTO t VALUES (ARRAY[[1, 2], [3, 4]])", []),
    ("INSERT INTO t VALUES (array_fill(1, ARRAY[2, 2]))", []),
    ("INSERT INTO t VALUES (%s)", [[[1, 2], [3, 4]]]),
    ("INSERT INTO t VALUES (%s)", ["{{1,2},{3,4}}"]),
    ("INSERT INTO t SELECT ARRAY[[1, 2]]", []),
    (f"INSERT INTO t SELECT {_DEEP}::int[] FROM s", []),
    ("INSERT INTO t SELECT x::int[] FROM s", []),
    ("INSERT INTO t SELECT a FROM deep", []),
    (f"UPDATE t SET a = {_DEEP}", []),
    ("UPDATE t SET a = ARRAY[a, a]", []),
    ("UPDATE t SET a = (SELECT ARRAY[[1, 2]])", []),
    ("UPDATE t SET a = %s", [[[1, 2], [3, 4]]]),
    (f"INSERT INTO t VALUES ('{{1}}') RETURNING a || {_DEEP}", []),
    ("INSERT INTO l VALUES (LIST[ARRAY[[1]]])", []),
    ("INSERT INTO m VALUES (MAP['a' => ARRAY[[1]]])", []),
    (f"CREATE TABLE d (a integer[] DEFAULT {_DEEP})", []),
    ("CREATE TABLE d (a integer[] DEFAULT ARRAY[[1]])", []),
    (f"EXECUTE into_t ({_DEEP})", []),
    ("EXECUTE into_t (ARRAY[[1, 2]])", []),
)
_BESIDE_ANOTHER = (
    f"SELECT a = {_DEEP} FROM t",
    f"SELECT a IN ({_DEEP}) FROM t",
    f"SELECT coalesce(a, {_DEEP}) FROM t",
    "SELECT coalesce(a, ARRAY[[1]]) FROM t",
    f"SELECT greatest(a, {_DEEP}), nullif(a, {_DEEP}) FROM t",
    f"SELECT CASE WHEN a IS NULL THEN a ELSE {_DEEP} END FROM t",
    f"SELECT a || {_DEEP} FROM t",
    f"SELECT a @> {_DEEP} FROM t",
    "SELECT ARRAY[[1, 2]] || '{3,4}'",
    "SELECT ARRAY[[1, 2]] = '{1,2}'",
    f"SELECT * FROM (VALUES (ARRAY[1]), ({_DEEP})) AS v",
    f"SELECT * FROM (VALUES ({_DEEP}), (ARRAY[1])) AS v",
    "SELECT a FROM t UNION ALL SELECT ARRAY[[1]]",
)


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("dimensions") / "env") as connection:
        connection.execute("CREATE TABLE t (a integer[])")
        connection.execute("CREATE TABLE l (a integer[] list)")
        connection.execute("CREATE TABLE m (a map[text => integer[]])")
        connection.execute("CREATE TABLE s (x text)")
        connection.execute("INSERT INTO s VALUES ('{{1,2},{3,4}}')")
        connection.execute("INSERT INTO t VALUES ('{1,2}'), ('{}'), ('{{}}')")
        connection.execute("CREATE VIEW deep AS SELECT ARRAY[[1, 2], [3, 4]] AS a FROM s")
        connection.execute("PREPARE into_t (int[]) AS INSERT INTO t VALUES ($1)")
        yield connection


@pytest.mark.parametrize(("statement", "values"), _INTO_A_COLUMN)
def test_several_dimensions_are_not_stored(
    con: mzsql.Connection, statement: str, values: list[Any]
) -> None:
    with pytest.raises(NotSupportedError, match="dimensions") as refused:
        con.execute(statement, values)
    assert refused.value.sqlstate == "0A000"
    assert con.execute("SELECT a FROM t ORDER BY a").fetchall() == [([],), ([],), ([1, 2],)]


@pytest.mark.parametrize("statement", _BESIDE_ANOTHER)
def test_arrays_of_other_dimensions_are_not_one_type(con: mzsql.Connection, statement: str) -> None:
    with pytest.raises(NotSupportedError, match="dimensions"):
        con.execute(statement)


def test_copy_says_the_same(con: mzsql.Connection, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('"{{1,2},{3,4}}"\n')
    with pytest.raises(NotSupportedError, match="several dimensions"):
        con.execute(f"COPY t FROM '{path}' (FORMAT csv)")


def test_uneven_dimensions_are_malformed(con: mzsql.Connection) -> None:
    for text in ("{{1,2},{3}}", "{{1},2}", "{1,{2}}"):
        with pytest.raises(DataError) as refused:
            con.execute("INSERT INTO t VALUES (%s)", [text])
        assert refused.value.sqlstate == "22P02"


def test_queries_and_views_have_them(con: mzsql.Connection) -> None:
    assert con.execute("SELECT a, a[2][1] FROM deep").fetchall() == [([[1, 2], [3, 4]], 3)]
    assert con.execute("SELECT ARRAY[[1, 2]] || '{{3,4}}'").fetchall() == [([[1, 2], [3, 4]],)]
    found = con.execute("SELECT ARRAY[[1]] = '{}', coalesce(ARRAY[[1]], '{}')").fetchall()
    assert found == [(False, [[1]])]


def test_a_column_declared_so_has_them(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE square (a integer[][])")
    con.execute(f"INSERT INTO square VALUES ({_DEEP}), ('{{}}'), (ARRAY[[5]])")
    con.execute("UPDATE square SET a = '{{6}}' WHERE a = '{{5}}'")
    con.execute("INSERT INTO square SELECT a FROM deep")
    with pytest.raises(NotSupportedError, match="an array of 1 dimension"):
        con.execute("INSERT INTO square VALUES ('{1,2}')")
    found = con.execute("SELECT a FROM square ORDER BY a").fetchall()
    assert found == [([],), ([[1, 2], [3, 4]],), ([[1, 2], [3, 4]],), ([[6]],)]
