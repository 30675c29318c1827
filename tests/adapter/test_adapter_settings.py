"""One table of variables: what SET, SHOW, ALTER SYSTEM and pg_settings say of them is the same, in this session and in new ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql
from mzsql.catalog.change import Change
from mzsql.catalog.settings import SESSION_VARIABLES, VARIABLES, is_foreign, spelled
from mzsql.dbapi import Connection


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Connection]:
    with mzsql.connect(tmp_path / "env") as opened:
        yield opened


def _shown(con: Connection, name: str) -> str:
    ((value,),) = con.execute(f"SHOW {name}").fetchall()
    return str(value)


@pytest.mark.parametrize(
    ("sql", "message", "sqlstate"),
    [
        (
            "ALTER SYSTEM SET no_such_thing = 1",
            'unrecognized configuration parameter "no_such_thing"',
            "42704",
        ),
        (
            "ALTER SYSTEM RESET no_such_thing",
            'unrecognized configuration parameter "no_such_thing"',
            "42704",
        ),
        ("SHOW no_such_thing", 'unrecognized configuration parameter "no_such_thing"', "42704"),
        (
            "ALTER SYSTEM SET enable_eager_delta_joins = perhaps",
            "requires a Boolean value",
            "22023",
        ),
        (
            "ALTER SYSTEM SET persist_fast_path_limit = many",
            'invalid value for parameter "persist_fast_path_limit": "many"',
            "22023",
        ),
        (
            "ALTER SYSTEM SET statement_timeout = soon",
            'invalid value for parameter "statement_timeout"',
            "22023",
        ),
        (
            "ALTER SYSTEM SET server_version = '10'",
            'parameter "server_version" cannot be changed',
            "55P02",
        ),
        ("SET timestamp_oracle = 'in-memory'", "cannot be changed now", "55P02"),
        ("SET enable_eager_delta_joins = off", "cannot be changed now", "55P02"),
    ],
)
def test_what_cannot_be_is_refused_and_stored_nowhere(
    con: Connection, sql: str, message: str, sqlstate: str
) -> None:
    with pytest.raises(mzsql.Error, match=message) as refused:
        con.execute(sql)
    assert refused.value.sqlstate == sqlstate
    assert not con.coordinator.env.catalog.state.settings


def test_what_means_nothing_here_is_told_and_stored_nowhere(con: Connection) -> None:
    con.execute("ALTER SYSTEM SET enable_alter_swap = true")
    assert [n.message for n in con.notices] == ["enable_alter_swap has no effect"]
    con.execute("ALTER SYSTEM RESET enable_alter_swap")
    assert not con.notices
    assert not con.coordinator.env.catalog.state.settings


def test_the_system_says_what_new_sessions_begin_with(con: Connection, tmp_path: Path) -> None:
    con.execute("ALTER SYSTEM SET statement_timeout = 5000")
    con.execute("ALTER SYSTEM SET search_path = 'Odd', public")
    assert _shown(con, "statement_timeout") == "1 min"
    with mzsql.connect(tmp_path / "env") as new:
        assert _shown(new, "statement_timeout") == "5 s"
        assert _shown(new, "search_path") == '"Odd", public'
        new.execute("SET statement_timeout = 7000")
        new.execute("RESET statement_timeout")
        assert _shown(new, "statement_timeout") == "5 s"
    con.execute("RESET ALL")
    assert _shown(con, "statement_timeout") == "5 s"
    con.execute("ALTER SYSTEM RESET ALL")
    con.execute("RESET ALL")
    assert _shown(con, "statement_timeout") == "1 min"


def test_a_setting_of_the_system_is_shown_as_it_is_now(con: Connection) -> None:
    assert _shown(con, "persist_fast_path_limit") == "25"
    con.execute("ALTER SYSTEM SET persist_fast_path_limit = 7")
    con.execute("ALTER SYSTEM SET enable_reduce_reduction = yes")
    assert _shown(con, "persist_fast_path_limit") == "7"
    assert _shown(con, "enable_reduce_reduction") == "on"
    assert con.execute("SELECT current_setting('persist_fast_path_limit')").fetchall() == [("7",)]


def test_every_way_to_ask_answers_the_same(con: Connection) -> None:
    con.execute("SET application_name = 'a \"b\" c'")
    con.execute("ALTER SYSTEM SET enable_reduce_reduction = on")
    shown = {str(name): str(value) for name, value, _ in con.execute("SHOW ALL").fetchall()}
    assert set(shown) == set(map(spelled, VARIABLES))
    assert all(_shown(con, name) == value for name, value in shown.items())
    asked = dict(con.execute("SELECT name, setting FROM pg_catalog.pg_settings").fetchall())
    assert asked.pop("max_index_keys") == "1000"
    assert asked == shown


def test_what_an_older_version_stored_unasked_does_no_harm(con: Connection, tmp_path: Path) -> None:
    junk = {"statement_timeout": "soon", "no_such_thing": "1", "persist_fast_path_limit": "many"}
    con.coordinator.env.catalog.transact(lambda _: (Change(settings=junk), None))
    with mzsql.connect(tmp_path / "env") as new:
        assert _shown(new, "statement_timeout") == "1 min"
        assert _shown(new, "persist_fast_path_limit") == "25"
        assert new.execute("SELECT 1").fetchall() == [(1,)]
        new.execute("ALTER SYSTEM RESET no_such_thing")
        assert set(con.coordinator.env.catalog.sync().settings) == set(junk) - {"no_such_thing"}


def test_no_variable_of_ours_passes_for_a_foreign_one() -> None:
    assert not any(map(is_foreign, VARIABLES))
    assert not is_foreign("no_such_thing")
    assert is_foreign("unsafe_enable_table_foreign_key")
    assert all(not VARIABLES[name].of_system for name in SESSION_VARIABLES)


def test_every_variable_is_as_the_catalog_describes_it(con: Connection) -> None:
    described = con.execute(
        "SELECT name, vartype, min_val, max_val, enumvals, boot_val, context, heeded"
        " FROM mz_internal.mz_variables"
    ).fetchall()
    assert {row[0] for row in described} == set(VARIABLES)
    for name, vartype, least, most, values, default, context, heeded in described:
        assert _shown(con, name) == default
        change = "ALTER SYSTEM SET" if context == "sighup" else "SET"
        if context == "internal":
            with pytest.raises(mzsql.Error, match="cannot be changed"):
                con.execute(f"SET {name} = '{default}'")
            continue
        good = {"bool": ["on", "off"], "enum": values, "string": ["public"], "integer": []}[vartype]
        bad = {"bool": ["maybe"], "enum": ["none of them"], "string": [], "integer": ["many"]}
        good += [one for one in (least, most) if one is not None]
        wrong = [*bad[vartype], *(str(int(least) - 1) for _ in [0] if least is not None)]
        wrong += [str(int(most) + 1) for _ in [0] if most is not None]
        for value in good:
            con.execute(f"{change} {name} = '{value}'")
            told = [one.message for one in con.notices if "has no effect" in one.message]
            assert not told if heeded else told in ([], [f"{name} has no effect"]), name
            assert heeded or told or _shown(con, name) == default
            if context != "sighup":
                con.execute(f"ALTER ROLE mzsql SET {name} = '{value}'")
                told = [one.message for one in con.notices if "has no effect" in one.message]
                assert told == ([] if heeded else [f"{name} has no effect"]), name
                con.execute(f"ALTER ROLE mzsql RESET {name}")
                assert not con.notices
        for value in wrong:
            with pytest.raises(mzsql.Error) as refused:
                con.execute(f"{change} {name} = '{value}'")
            assert refused.value.sqlstate == "22023", (name, value)
        con.execute(f"{change.replace('SET', 'RESET')} {name}")
        assert _shown(con, name) == default


def test_settings_have_what_postgresql_tells_of_them(con: Connection) -> None:
    asked = con.execute(
        "SELECT vartype, context, min_val, max_val, boot_val FROM pg_settings WHERE name = 'extra_float_digits'"
    ).fetchall()
    assert asked == [("integer", "user", "-15", "3", "3")]


def test_a_role_has_what_its_sessions_begin_with(tmp_path: Path) -> None:
    home = str(tmp_path / "env")
    with mzsql.connect(home) as con:
        con.execute("CREATE ROLE other; ALTER ROLE other SET search_path TO x")
        con.execute("ALTER ROLE mzsql SET statement_timeout = '7s'")
        con.execute('ALTER ROLE mzsql SET search_path = a, "B c"')
        assert con.execute("SHOW statement_timeout").fetchall() == [("1 min",)]
        asked = """
            SELECT r.name, p.parameter_name, p.parameter_value FROM mz_role_parameters AS p
            JOIN mz_roles AS r ON r.id = p.role_id ORDER BY 1, 2"""
        assert con.execute(asked).fetchall() == [
            ("mzsql", "search_path", 'a, "B c"'),
            ("mzsql", "statement_timeout", "7 s"),
            ("other", "search_path", "x"),
        ]
    with mzsql.connect(home) as con:
        assert con.execute("SHOW statement_timeout").fetchall() == [("7 s",)]
        con.execute("SET statement_timeout = 1; RESET statement_timeout")
        assert con.execute("SHOW statement_timeout").fetchall() == [("7 s",)]
        con.execute("SET search_path TO public; ALTER ROLE mzsql RESET search_path")
        con.execute("ALTER ROLE mzsql SET statement_timeout TO DEFAULT; ALTER ROLE other RESET ALL")
        assert con.execute("SELECT * FROM mz_role_parameters").fetchall() == []
        con.execute("RESET statement_timeout")
        assert con.execute("SHOW statement_timeout").fetchall() == [("1 min",)]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("ALTER ROLE mzsql SET nope = 1", 'unrecognized configuration parameter "nope"'),
        ("ALTER ROLE mzsql RESET nope", 'unrecognized configuration parameter "nope"'),
        ("ALTER ROLE mzsql SET server_version = '1'", "cannot be changed"),
        ("ALTER ROLE mzsql SET step_engine = spark", "cannot be changed now"),
        ("ALTER ROLE mzsql SET extra_float_digits = 200", "outside the valid range"),
        ("ALTER ROLE mzsql SET transaction_isolation = 'bogus'", "Available values"),
        ("ALTER ROLE nobody SET cluster = x", "unknown role 'nobody'"),
    ],
)
def test_a_role_cannot_have_what_a_session_could_not(
    tmp_path: Path, statement: str, error: str
) -> None:
    with mzsql.connect(str(tmp_path / "env")) as con:
        with pytest.raises(mzsql.Error, match=re.escape(error)):
            con.execute(statement)
        assert con.execute("SELECT * FROM mz_role_parameters").fetchall() == []


def test_a_boolean_is_read_alike_wherever_one_stands(con: Connection) -> None:
    con.execute("CREATE TABLE t (a int)")
    con.execute("CREATE CLUSTER c (SIZE '1')")
    words = {"yes": True, "'t'": True, "1": True, "no": False, "oFf": False, "maybe": None}
    for word, value in words.items():
        for statement, refusal in (
            ("SET emit_timestamp_notice = {}", "requires a Boolean value"),
            ("ALTER SYSTEM SET enable_eager_delta_joins = {}", "requires a Boolean value"),
            ("EXPLAIN OPTIMIZED PLAN WITH (types = {}) FOR SELECT 1", "TRUE or FALSE"),
            ("COPY (SELECT 1) TO STDOUT (FORMAT csv, HEADER = {})", "TRUE or FALSE"),
            (
                "BEGIN; DECLARE d CURSOR FOR SUBSCRIBE t WITH (SNAPSHOT = {}); COMMIT",
                "TRUE or FALSE",
            ),
            ("ALTER CLUSTER c SET (MANAGED = {})", "cannot use value as boolean"),
        ):
            if value is None:
                with pytest.raises(mzsql.Error, match=refusal):
                    con.execute(statement.format(word))
            elif "COPY" not in statement:
                con.execute(statement.format(word))
        if value is not None:
            copied = f"COPY (SELECT 1 AS a) TO STDOUT (FORMAT csv, HEADER = {word})"
            with con.cursor().copy(copied) as copy:
                assert b"".join(copy).startswith(b"a\n") is value


def test_strings_conform_to_the_standard_always(con: Connection) -> None:
    for word in ("on", "true", "yes", "1"):
        con.execute(f"SET standard_conforming_strings = {word}")
        assert _shown(con, "standard_conforming_strings") == "on"
    with pytest.raises(mzsql.Error, match="invalid value for parameter"):
        con.execute("SET standard_conforming_strings = off")


@pytest.mark.parametrize(
    "text",
    [
        "SHOW ALL",
        "SHOW TABLES",
        "SHOW CLUSTERS",
        "SHOW COLUMNS FROM t",
        "SHOW CREATE TABLE t",
        "SELECT name FROM (SHOW TABLES)",
        "SELECT name FROM mz_tables WHERE name = 't'",
    ],
)
def test_who_looks_for_a_wrong_setting_is_answered(con: Connection, text: str) -> None:
    """The system catalog has a cluster of its own: the replica that a session names is no matter of it."""
    con.execute("CREATE TABLE t (a int)")
    wanted = con.execute(text).fetchall()
    con.execute("SET cluster_replica = nope")
    found = con.execute(text).fetchall()
    if text == "SHOW ALL":
        assert [(row, was) for row, was in zip(found, wanted, strict=True) if row != was] == [
            (("cluster_replica", "nope", found[0][2]), ("cluster_replica", "", found[0][2]))
        ]
    else:
        assert found == wanted != []


def test_a_replica_that_is_not_there_answers_nothing_else(con: Connection) -> None:
    con.execute("CREATE TABLE t (a int)")
    con.execute("SET cluster_replica = nope")
    for text in ("SELECT a FROM t", "SELECT 1", "EXPLAIN SELECT a FROM t"):
        with pytest.raises(mzsql.Error, match=r"unknown cluster replica 'quickstart\.nope'"):
            con.execute(text)
    con.execute("SET auto_route_catalog_queries = off")
    with pytest.raises(mzsql.Error, match="unknown cluster replica"):
        con.execute("SELECT name FROM mz_tables")
    assert con.execute("SHOW TABLES").fetchall()
