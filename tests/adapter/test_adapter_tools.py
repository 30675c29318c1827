"""What tools ask of the system catalog is answered: `tool_statements` has what each sends, a statement a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mzsql

if TYPE_CHECKING:
    import psycopg

_FILES = sorted((Path(__file__).parent / "tool_statements").glob("*.sql"))


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("tools")) as made:
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        made.execute("CREATE TABLE t (a int NOT NULL, b text DEFAULT 'x')")
        made.execute("CREATE VIEW v AS SELECT a FROM t; CREATE INDEX i ON t (a, b)")
        yield made


def _ask(con: mzsql.Connection, text: str) -> list[tuple[Any, ...]]:
    return con.execute(text).fetchall()


@pytest.mark.long
@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_every_statement_of_a_tool_is_answered(con: mzsql.Connection, file: Path) -> None:
    ((oid,),) = _ask(con, "SELECT oid FROM mz_tables WHERE name = 't'")
    refused: list[str] = []
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("--"):
            continue
        try:
            answer = con.execute(line.replace("{oid}", str(oid)))
            if answer.description is not None:  # tools make and describe things, too
                answer.fetchall()
        except mzsql.Error as error:
            refused.append(f"{error}: {line}")
    assert not refused, "\n".join(refused)


def test_the_answers_are_about_what_is_there(con: mzsql.Connection) -> None:
    found = (
        "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^(t)$'"
        " COLLATE pg_catalog.default AND pg_catalog.pg_table_is_visible(c.oid)"
    )
    assert _ask(con, found) == [("t",)]
    made_of = (
        "SELECT o.relname, r.relname FROM pg_depend d JOIN pg_class o ON o.oid = d.objid"
        " JOIN pg_class r ON r.oid = d.refobjid ORDER BY 1"
    )
    assert _ask(con, made_of) == [("i", "t"), ("v", "t")]
    keys = "SELECT indnatts, indnkeyatts FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE c.relname = 'i'"
    assert _ask(con, keys) == [(2, 2)]
    function = (
        "SELECT DISTINCT pg_get_function_arguments(oid), pg_get_function_result(oid), pg_function_is_visible(oid)"
        " FROM pg_proc WHERE proname = 'split_part'"
    )
    assert _ask(con, function) == [("text, text, integer", "text", True)]
    kinds = "SELECT DISTINCT prokind FROM pg_proc WHERE proname IN ('sum', 'split_part') ORDER BY 1"
    assert _ask(con, kinds) == [("a",), ("f",)]
    assert _ask(con, "SELECT to_regtype('integer')::text, to_regtype('nothing')") == [
        ("integer", None)
    ]


def test_operators_by_name_and_the_one_collation(con: mzsql.Connection) -> None:
    asked = (
        "SELECT 1 OPERATOR(pg_catalog.+) 2, 'abc' OPERATOR(pg_catalog.!~) '^b', 2 OPERATOR(pg_catalog.<>) 2,"
        " 'a' < 'B' COLLATE \"C\""
    )
    assert _ask(con, asked) == [(3, True, False, False)]
    with pytest.raises(mzsql.ProgrammingError, match=r"operator does not exist: mine\.~"):
        _ask(con, "SELECT 'a' OPERATOR(mine.~) 'b'")
    with pytest.raises(
        mzsql.ProgrammingError, match="collations are not supported by type integer"
    ):
        _ask(con, 'SELECT 1 COLLATE "C"')
    with pytest.raises(mzsql.NotSupportedError, match='COLLATE "de_DE" is not supported'):
        _ask(con, "SELECT 'a' COLLATE \"de_DE\"")


def test_keywords_are_those_of_postgresql_and_ours(
    con: mzsql.Connection, postgres: psycopg.Connection[Any]
) -> None:
    asked = "SELECT word, catcode::text, barelabel, catdesc, baredesc FROM pg_get_keywords() ORDER BY word"
    ours = {word: rest for word, *rest in _ask(con, asked)}
    theirs = {word: rest for word, *rest in postgres.execute(asked).fetchall()}
    older = {word: rest for word, rest in theirs.items() if word in ours}
    assert {word: ours[word] for word in older} == older
    # Each release has a few more; none has our statements' own.
    assert len(older) >= 450
    assert ours["materialized"][0] == ours["cluster"][0] == ours["retain"][0] == "U"
    joined = "SELECT v.column1, k.word FROM (VALUES (1)) AS v, pg_catalog.pg_get_keywords() AS k WHERE k.word = 'select'"
    assert _ask(con, joined) == [(1, "select")]
    assert _ask(con, "SELECT k.w FROM pg_get_keywords() AS k (w) ORDER BY 1 LIMIT 1") == [
        ("abort",)
    ]
    for refused in ("pg_get_keywords(1)", "public.pg_get_keywords()"):
        with pytest.raises(mzsql.ProgrammingError, match="does not exist"):
            _ask(con, f"SELECT * FROM {refused}")


def test_relations_that_postgresql_has_as_functions_too(con: mzsql.Connection) -> None:
    for name in ("pg_timezone_names", "pg_timezone_abbrevs"):
        counted = "SELECT count(*), min({0}.abbrev) FROM pg_catalog.{0}"
        assert _ask(con, f"{counted.format(name)}()") == _ask(con, counted.format(name))


def test_a_database_has_the_size_of_what_it_stores(con: mzsql.Connection) -> None:
    con.execute("CREATE DATABASE sized; CREATE DATABASE bare; SET database = sized")
    try:
        con.execute("CREATE TABLE s (a int, b text)")
        con.execute("INSERT INTO s SELECT g, 'text ' || g FROM generate_series(1, 20000) g")
        con.execute("CREATE MATERIALIZED VIEW m AS SELECT b, count(*) AS n FROM s GROUP BY b")
        assert _ask(con, "SELECT count(*) FROM m") == [(20000,)]
        stored = (
            "SELECT sum(u.size_bytes)::bigint FROM mz_recent_storage_usage AS u JOIN mz_relations AS r ON r.id = u.object_id"
            " WHERE r.name IN ('m', 's')"
        )
        ((total,),) = _ask(con, stored)
        assert total > 20_000
        sizes = (
            "SELECT pg_database_size('sized'), pg_database_size(d.oid), pg_database_size('bare'), pg_database_size('none')"
            " FROM mz_databases AS d WHERE d.name = 'sized'"
        )
        assert _ask(con, sizes) == [(total, total, 0, None)]
    finally:
        con.execute("RESET database; DROP DATABASE sized; DROP DATABASE bare")


def test_names_of_relations_that_rows_have_are_found(con: mzsql.Connection) -> None:
    named = "(VALUES ('t'), ('public.t'), ('pg_class'), ('-'), ('7'), (NULL)) AS n (name)"
    found = _ask(con, f"SELECT name, name::regclass::text FROM {named}")
    expected = {"t": "t", "public.t": "t", "pg_class": "pg_class", "-": "-", "7": "7", None: None}
    assert dict(found) == expected
    with pytest.raises(mzsql.Error, match='relation "nowhere" does not exist'):
        _ask(con, "SELECT n::regclass FROM (VALUES ('nowhere'), ('t')) AS v (n)")
    asked = (
        "SELECT has_any_column_privilege(current_user, n, 'select') FROM (VALUES ('t')) AS v (n)"
    )
    assert _ask(con, asked) == [(True,)]


def test_a_kept_plan_is_of_the_session_that_asks(con: mzsql.Connection) -> None:
    asked = (
        "SELECT current_database(), current_schema(), table_name FROM information_schema.tables"
        " WHERE table_schema = 'public' ORDER BY table_name LIMIT 1"
    )
    moment = "SELECT now(), current_database() FROM mz_databases LIMIT 1"
    for _ in range(2):
        assert _ask(con, asked) == [("materialize", "public", "t")]
    ((before, _),) = _ask(con, moment)
    con.execute("CREATE DATABASE other; CREATE TABLE other.public.a (x int); SET database = other")
    try:
        for _ in range(2):
            assert _ask(con, asked) == [("other", "public", "a")]
        con.execute("CREATE SCHEMA s; SET search_path = s, public")
        assert _ask(con, asked) == [("other", "s", "a")]
        ((after, database),) = _ask(con, moment)
        assert after > before
        assert database == "other"
    finally:
        con.execute("RESET database; RESET search_path; DROP DATABASE other")
    assert _ask(con, asked) == [("materialize", "public", "t")]
