"""Names of types as `pg_typeof` has them: those that users have made, PostgreSQL's short texts, and records with what may be NULL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mzsql


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    """An environment with types of a user's, and a table of them."""
    with mzsql.connect(str(tmp_path_factory.mktemp("named") / "env")) as con:
        for statement in (
            "CREATE TYPE ints AS LIST (ELEMENT TYPE = int4)",
            "CREATE TYPE other_ints AS LIST (ELEMENT TYPE = int4)",
            "CREATE TYPE lists AS LIST (ELEMENT TYPE = ints)",
            "CREATE TYPE counts AS MAP (KEY TYPE = text, VALUE TYPE = int4)",
            "CREATE TYPE pair AS (a int, b text)",
            "CREATE TABLE t (p pair, i ints, l lists, n int NOT NULL)",
            "INSERT INTO t VALUES (ROW(1, 'x'), LIST[1, 2], LIST[LIST[1]], 1)",
        ):
            con.execute(statement)
        yield con


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("'{1}'::ints", "ints"),
        ("NULL::ints", "ints"),
        ("LIST[1]::ints", "ints"),
        ("'{1}'::ints || 2", "ints"),
        ("2 || '{1}'::ints", "ints"),
        ("'{1}'::ints || '{2}'::int4 list", "ints"),
        ("'{1}'::int4 list || '{2}'::ints", "ints"),
        ("'{1}'::ints::other_ints", "other_ints"),
        ("'{1}'::ints::int4 list", "integer list"),
        ("'{{1}}'::lists", "lists"),
        ("('{{1}}'::lists)[1]", "ints"),
        ("LIST['{1}'::ints]", "ints list"),
        ("'{a=>1}'::counts", "counts"),
        ("'{a=>1}'::counts -> 'a'", "integer"),
        ("ROW(1, 'a')::pair", "pair"),
        ("(ROW(1, 'a')::pair).b", "text"),
        ("ROW(1, NULL)", "record(f1: integer,f2: text?)"),
        ("(SELECT ROW(n, i) FROM t)", "record(f1: integer,f2: ints?)"),
        ("(SELECT p FROM t)", "pair"),
        ("(SELECT l FROM t)", "lists"),
        ("'x'::name", "name"),
        ("'x'::\"char\"", '"char"'),
    ],
)
def test_a_type_has_the_name_that_it_was_given(
    con: mzsql.Connection, expression: str, name: str
) -> None:
    """Of constants, columns and what functions make of them."""
    assert con.execute(f"SELECT pg_typeof({expression})").fetchall() == [(name,)]


def test_a_name_follows_the_type(con: mzsql.Connection) -> None:
    """A renamed type is shown by its new name, in views too; one in another schema with that."""
    con.execute("CREATE TYPE before AS LIST (ELEMENT TYPE = text)")
    con.execute("CREATE TABLE renamed (x before)")
    con.execute("INSERT INTO renamed VALUES ('{a,b}')")
    con.execute("CREATE MATERIALIZED VIEW kept AS SELECT x || 'c'::text AS x FROM renamed")
    con.execute("ALTER TYPE before RENAME TO after")
    assert con.execute("SELECT pg_typeof(x), x FROM kept").fetchall() == [
        ("after", ["a", "b", "c"])
    ]
    con.execute("CREATE SCHEMA elsewhere")
    con.execute("CREATE TYPE elsewhere.far AS LIST (ELEMENT TYPE = text)")
    assert con.execute("SELECT pg_typeof('{a}'::elsewhere.far)").fetchall() == [("elsewhere.far",)]


@pytest.mark.parametrize(
    "expression",
    ["ROW('a', 2)::pair", "LIST[ROW('a', 1)]::pair list", "ARRAY[ROW('a', 1)::pair]"],
)
def test_a_field_that_cannot_be_read_is_an_error(con: mzsql.Connection, expression: str) -> None:
    """It was NULL, silently."""
    with pytest.raises(mzsql.DataError, match="invalid input syntax for type integer"):
        con.execute(f"SELECT {expression}").fetchall()


def test_columns_of_short_texts_cut_what_is_stored(con: mzsql.Connection) -> None:
    """They group as texts do."""
    con.execute('CREATE TABLE short (a name, b "char")')
    con.execute("INSERT INTO short VALUES (repeat('x', 100), 'bar'), ('foo', 'b')")
    con.execute(
        "CREATE MATERIALIZED VIEW of_short AS SELECT b, count(*) AS n FROM short GROUP BY b"
    )
    assert con.execute("SELECT * FROM of_short").fetchall() == [("b", 2)]
    assert con.execute("SELECT length(a) FROM short ORDER BY 1").fetchall() == [(3,), (63,)]


def test_a_named_type_has_a_number_and_is_shown_by_its_name(con: mzsql.Connection) -> None:
    con.execute("CREATE SCHEMA shop; CREATE TYPE shop.pair AS (a int, b ints)")
    asked = (
        "SELECT 'ints'::regtype::text, 'materialize.public.ints'::regtype::text, 'shop.pair'::regtype::text,"
        " 'ints'::regtype::oid = (SELECT oid FROM mz_types WHERE name = 'ints')"
    )
    assert con.execute(asked).fetchall() == [("ints", "ints", "shop.pair", True)]


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        ("ROW(1)::pair", "record(f1: integer)", "pair"),
        ("'{1}'::ints::boolean", "ints", "boolean"),
        ("LIST['{1}'::ints]::integer", "ints list", "integer"),
        ("1::ints", "integer", "ints"),
    ],
)
def test_a_cast_that_there_is_not_is_told_by_the_names_of_types(
    con: mzsql.Connection, value: str, source: str, target: str
) -> None:
    with pytest.raises(mzsql.Error) as refused:
        con.execute(f"SELECT {value}")
    assert str(refused.value) == f"CAST does not support casting from {source} to {target}"
