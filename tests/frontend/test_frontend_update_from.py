"""UPDATE … FROM, compared with PostgreSQL statement by statement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import mzsql
from mzsql.dbapi import Connection

_TABLES = """CREATE TABLE t (i int, s text, x int[]);
CREATE TABLE u (i int, s text);
INSERT INTO t VALUES (1, 'a', NULL), (1, 'a', NULL), (2, NULL, '{1,NULL}'), (3, 'c', '{}'), (NULL, 'd', '{4}'), (4, 'e', '{5}');
INSERT INTO u VALUES (1, 'one'), (2, 'two'), (3, NULL), (NULL, 'none')"""

#: Run one after the other on both sides.
_STATEMENTS = [
    "UPDATE t SET s = u.s FROM u WHERE t.i = u.i AND u.i < 3 RETURNING t.i, t.s, x, u.s",
    "UPDATE t AS a SET i = a.i + 10, s = b.s || c.s FROM u AS b JOIN u AS c ON b.i = c.i + 1 WHERE a.i = b.i RETURNING *",
    "UPDATE t SET x = v.x FROM (VALUES (3, ARRAY[9]), (4, NULL)) AS v (i, x) WHERE t.i = v.i RETURNING t.i, t.x",
    "UPDATE t SET s = u.s FROM u, (SELECT max(i) AS i FROM u) AS m WHERE m.i = u.i AND t.i IS NULL RETURNING t.*, m.i",
    "UPDATE t SET (i, s) = (u.i, upper(u.s)) FROM u WHERE t.i = u.i + 9 OR t.s = u.s",
    "UPDATE t SET s = 'every' FROM u WHERE u.i = 2",
    "UPDATE t SET s = 'no' FROM u WHERE false RETURNING t.i",
    "DELETE FROM t USING u AS a, u AS b WHERE a.i = b.i + 1 AND t.i = a.i + 8",
    "SELECT * FROM t",
]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    con = mzsql.connect(str(tmp_path_factory.mktemp("update_from")))
    con.execute(_TABLES)
    yield con
    con.close()


def _answer(con: Any, sql: str) -> tuple[int, list[str]]:
    cur = con.execute(sql)
    rows = cur.fetchall() if cur.description else []
    return cur.rowcount, sorted(repr(list(row)) for row in rows)


@pytest.mark.long
def test_rows_change_as_postgres_changes_them(
    ours: Connection, postgres: psycopg.Connection[Any]
) -> None:
    postgres.execute(_TABLES)
    for sql in _STATEMENTS:
        assert _answer(ours, sql) == _answer(postgres, sql), sql


def test_a_row_changes_once_and_always_alike(ours: Connection) -> None:
    ours.execute("CREATE TABLE m (i int, s text); CREATE TABLE n (i int, s text)")
    ours.execute("INSERT INTO m VALUES (1, ''), (1, ''), (2, '')")
    ours.execute("INSERT INTO n VALUES (1, 'b'), (1, 'a'), (2, 'c'), (2, 'c')")
    assert _answer(ours, "UPDATE m SET s = n.s FROM n WHERE m.i = n.i") == (3, [])
    assert _answer(ours, "SELECT * FROM m ORDER BY i") == (
        3,
        ["[1, 'a']", "[1, 'a']", "[2, 'c']"],
    )


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "UPDATE t SET s = u.s FROM u, t WHERE t.i = u.i",
            'table name "t" specified more than once',
        ),
        ("UPDATE t SET s = s FROM u", 'column reference "s" is ambiguous'),
        ("UPDATE t SET s = u.nope FROM u", 'column "u.nope" does not exist'),
        ("UPDATE t SET s = u.s FROM nowhere AS u", "unknown catalog item 'nowhere'"),
        ("UPDATE t SET s = u.s FROM", "Expected"),
    ],
)
def test_what_cannot_be_is_refused(ours: Connection, sql: str, message: str) -> None:
    with pytest.raises(mzsql.Error, match=message):
        ours.execute(sql)
