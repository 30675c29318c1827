"""Types of users' own: made, named in casts, columns and definitions, renamed and dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mzsql
from mzsql.catalog.objects import Item, Type
from mzsql.dbapi import Connection
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import INTEGER

_TYPES = """CREATE TYPE ints AS LIST (ELEMENT TYPE = int4);
CREATE TYPE nested AS LIST (ELEMENT TYPE = ints);
CREATE TYPE "By Name" AS MAP (KEY TYPE = text, VALUE TYPE = public.ints);
CREATE TYPE point AS (x int, y double precision);
CREATE TYPE line AS (a point, b materialize.public.point)"""


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "env")


@pytest.fixture
def con(place: str) -> Iterator[Connection]:
    con = mzsql.connect(place)
    con.execute(_TYPES)
    yield con
    con.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """For what changes nothing."""
    con = mzsql.connect(str(tmp_path_factory.mktemp("types")))
    con.execute(_TYPES)
    yield con
    con.close()


def _rows(con: Connection, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in con.execute(sql).fetchall()]


def test_values_are_cast_to_them_and_stored_as_what_they_are_made_of(
    con: Connection, place: str
) -> None:
    assert _rows(
        con, "SELECT '{1,2}'::ints, LIST[LIST[1], LIST[2]]::nested, '{a=>{1}}'::\"By Name\" -> 'a'"
    ) == [([1, 2], [[1], [2]], [1])]
    assert _rows(
        con, "SELECT ints '{3}', (ROW(1, 2.5)::point).y, (ROW(ROW(1, 2), ROW(3, 4))::line).b.x"
    ) == [([3], 2.5, 3)]
    con.execute("CREATE TABLE t (i ints, p point DEFAULT ROW(1, 2)::point, n public.ints list)")
    con.execute("INSERT INTO t VALUES ('{1,2}', ROW(3, 4.5), LIST[LIST[1]])")
    con.execute("INSERT INTO t (i) VALUES (LIST[5])")
    expected = [(1, 3, [[1]]), (5, 1, None)]
    assert _rows(con, "SELECT i[1], (p).x, n FROM t ORDER BY i") == expected
    con.close()
    again = mzsql.connect(place)
    assert _rows(again, "SELECT i[1], (p).x, n FROM t ORDER BY i") == expected
    assert _rows(again, "SELECT '{7}'::ints") == [([7],)]
    again.close()


@pytest.mark.long
def test_the_catalog_lists_them(con: Connection) -> None:
    names = ["By Name", "ints", "line", "nested", "point"]
    assert [name for name, _ in _rows(con, "SHOW TYPES")] == names
    kinds = _rows(con, "SELECT name, category FROM mz_types WHERE id LIKE 'u%' ORDER BY name")
    assert kinds == list(zip(names, ["map", "list", "composite", "list", "composite"], strict=True))
    assert _rows(con, "SELECT count(*) FROM mz_objects WHERE type = 'type' AND id LIKE 'u%'") == [
        (5,)
    ]
    held = "SELECT t.name, e.name FROM {} AS h JOIN mz_types AS t USING (id) JOIN mz_types AS e ON e.id = {}"
    lists = _rows(con, held.format("mz_list_types", "element_id") + " ORDER BY 1")
    assert lists == [("ints", "int4"), ("nested", "ints")]
    assert _rows(con, held.format("mz_map_types", "value_id")) == [("By Name", "ints")]
    assert _rows(con, held.format("mz_map_types", "key_id")) == [("By Name", "text")]
    con.execute("COMMENT ON TYPE ints IS 'whole numbers'")
    assert ("ints", "whole numbers") in _rows(con, "SHOW TYPES")
    ((_, text),) = _rows(con, "SHOW CREATE TYPE line")
    whole = '"materialize"."public"."point"'
    assert text == f'CREATE TYPE "materialize"."public"."line" AS ("a" {whole}, "b" {whole})'


@pytest.mark.long
def test_what_a_definition_names_stays(con: Connection) -> None:
    con.execute("CREATE TABLE t (p point)")
    con.execute("CREATE VIEW v AS SELECT '{7}'::ints AS l")
    for name, by in (
        ("ints", 'type "nested", type "By Name", view "v"'),
        ("point", 'type "line", table "t"'),
    ):
        with pytest.raises(
            mzsql.Error, match=f'cannot drop type "{name}": still depended upon by {by}'
        ):
            con.execute(f"DROP TYPE {name}")
    con.execute('DROP VIEW v; DROP TYPE nested, "By Name"; DROP TYPE ints')
    con.execute("DROP TYPE point CASCADE")
    assert _rows(con, "SHOW TYPES") == _rows(con, "SHOW TABLES") == []


def test_definitions_follow_when_they_are_renamed(con: Connection) -> None:
    con.execute("CREATE TABLE t (i ints, p point DEFAULT ROW(1, 2)::point)")
    con.execute("CREATE VIEW v AS SELECT (ROW(1, 2)::point).x, '{1}'::ints AS i FROM t")
    con.execute("ALTER TYPE point RENAME TO dot")
    con.execute("ALTER SCHEMA public RENAME TO first")
    con.execute("SET search_path = first")
    ((_, text),) = _rows(con, "SHOW CREATE TABLE t")
    assert '"materialize"."first"."dot" DEFAULT ROW(1, 2)::"materialize"."first"."dot"' in text
    con.execute("INSERT INTO t (i) VALUES ('{2}')")
    assert _rows(con, "SELECT t.i, (p).y, x, v.i FROM t, v") == [([2], 2.0, 1, [1])]
    con.execute("ALTER TABLE t SET (RETAIN HISTORY FOR '5 min')")


@pytest.mark.long
def test_they_are_made_in_transactions_and_named_in_recursions(con: Connection) -> None:
    con.execute("BEGIN; CREATE TYPE late AS LIST (ELEMENT TYPE = ints); ROLLBACK")
    con.execute("BEGIN; CREATE TYPE later AS LIST (ELEMENT TYPE = ints); COMMIT")
    assert [name for name, _ in _rows(con, "SHOW TYPES WHERE name LIKE 'late%'")] == ["later"]
    sql = """WITH MUTUALLY RECURSIVE r (l ints) AS
        (SELECT LIST[1] UNION SELECT l || 1 FROM r WHERE list_length(l) < 3) SELECT * FROM r ORDER BY 1"""
    assert _rows(con, sql) == [([1],), ([1, 1],), ([1, 1, 1],)]
    con.execute("PREPARE p (ints) AS SELECT $1")
    assert _rows(con, "EXECUTE p ('{4}')") == [([4],)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE TYPE ints AS (a int)", 'type "materialize.public.ints" already exists'),
        ("CREATE TYPE e AS ENUM ('a')", "AS ENUM is not supported"),
        (
            "CREATE TYPE e AS MAP (KEY TYPE = int, VALUE TYPE = int)",
            "map key type must be text, got integer",
        ),
        ("CREATE TYPE e AS LIST (KEY TYPE = int)", "Expected ELEMENT TYPE"),
        ("CREATE TYPE e AS MAP (KEY TYPE = text)", "VALUE TYPE option is required"),
        ("CREATE TYPE e AS (a int, a int)", 'column "a" specified more than once'),
        ("CREATE TYPE e AS (a nowhere)", 'type "nowhere" does not exist'),
        ("SELECT 1::public.nowhere", 'type "public.nowhere" does not exist'),
        ("DROP TYPE nowhere", "unknown catalog item 'nowhere'"),
        ("DROP TABLE ints", "is not a table"),
        (
            "SELECT * FROM ints",
            "'materialize.public.ints' is a type and so cannot be depended upon",
        ),
        ("INSERT INTO ints VALUES (1)", "cannot insert into type"),
    ],
)
def test_what_cannot_be_is_refused(shared: Connection, sql: str, message: str) -> None:
    with pytest.raises(mzsql.Error, match=message):
        shared.execute(sql)


def test_arrays_and_lists_are_made_of_each_other(shared: Connection) -> None:
    assert _rows(
        shared, "SELECT NULL::int[] list, NULL::int list[] list, LIST[ARRAY[1]]::int[] list"
    ) == [(None, None, [[1]])]


def test_what_older_versions_wrote_is_read() -> None:
    written = b'{"id":"u1","name":"t","schema":"public","kind":"type","create_sql":"","typ":{"kind":"integer"},"as_of":0}'
    assert msgspec.json.decode(written, type=Item) == Type(
        GlobalId("u1"), "t", "public", "", typ=INTEGER
    )
