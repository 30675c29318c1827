"""Functions of Materialize's own: items of ACLs, names of objects, rows repeated, statements that wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    """An environment with a table of rows and how often each is wanted."""
    connection = mzsql.connect(tmp_path_factory.mktemp("own") / "env")
    connection.execute("CREATE TABLE wanted (a int, n int)")
    connection.execute("INSERT INTO wanted VALUES (1, 2), (2, 0), (3, 1), (4, NULL)")
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("expressions", "row"),
    [
        (
            "mz_internal.make_mz_aclitem('u1', 'u2', 'select, INSERT'), mz_internal.make_mz_aclitem('p', 's1', 'USAGE'),"
            " makeaclitem(0, 7, 'DELETE', false)",
            ("u1=ar/u2", "=U/s1", "=d/7"),
        ),
        (
            "'=rw/u2'::mz_aclitem, pg_typeof('u1=/u2'::mz_aclitem), mz_internal.mz_aclitem_grantee('=r/u2'::mz_aclitem),"
            " mz_internal.mz_aclitem_grantor('=r/u2'::mz_aclitem), mz_internal.mz_aclitem_privileges('=wr/u2'::mz_aclitem)",
            ("=rw/u2", "mz_aclitem", "p", "u2", "rw"),
        ),
        (
            "mz_internal.mz_format_privileges('dr'), mz_internal.mz_validate_privileges('CREATE'),"
            " mz_internal.mz_validate_role_privilege('createdb'), mz_internal.mz_validate_privileges(NULL)",
            (["SELECT", "DELETE"], True, True, None),
        ),
        (
            "' 1  2 -3'::int2vector, ''::int2vector, '4294967295'::oidvector, pg_typeof('1'::oidvector)",
            ("1 2 -3", "", "4294967295", "oidvector"),
        ),
        (
            "mz_internal.mz_global_id_to_name('u1'), mz_internal.mz_normalize_object_name('a.\"B\"')",
            ("materialize.public.wanted", [None, "a", "B"]),
        ),
        (
            "mz_internal.mz_session_id() = (SELECT id FROM mz_internal.mz_sessions), 'x' || mz_internal.mz_session_id() LIKE 'x%-%'",
            (True, True),
        ),
        (
            "mz_unsafe.mz_error_if_null(5, ''), mz_unsafe.mz_sleep(NULL), mz_unsafe.mz_sleep(0.001 + 0)",
            (5, None, None),
        ),
        ("pg_table_size('wanted'::regclass), pg_get_partkeydef(1)", (-1, None)),
    ],
)  # fmt: skip
def test_they_answer(con: mzsql.Connection, expressions: str, row: tuple[object, ...]) -> None:
    """One row of several answers."""
    assert con.execute(f"SELECT {expressions}").fetchall() == [row]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("mz_internal.make_mz_aclitem('u1', 'p', 'SELECT')", "grantor cannot be PUBLIC role"),
        ("mz_internal.make_mz_aclitem('x', 'u1', 'SELECT')", "couldn't parse role id: x"),
        ("mz_internal.make_mz_aclitem('u1', 'u2', 'SEE')", 'unrecognized privilege type: "SEE"'),
        ("makeaclitem(1, 2, 'SELECT', true)", "GRANT OPTION not yet supported"),
        ("'u1/u2'::mz_aclitem", 'invalid input syntax for type mz_aclitem: "u1/u2"'),
        ("'1 40000'::int2vector", 'invalid input syntax for type int2vector: "1 40000"'),
        ("'1.4 2.6'::int2vector", 'invalid input syntax for type int2vector: "1.4 2.6"'),
        ("'1e2'::int2vector", 'invalid input syntax for type int2vector: "1e2"'),
        ("'1_0'::oidvector", 'invalid input syntax for type oidvector: "1_0"'),
        ("'0x10'::oidvector", 'invalid input syntax for type oidvector: "0x10"'),
        ("mz_internal.mz_global_id_to_name('u77')", "global ID u77 does not exist"),
        ("mz_internal.mz_normalize_object_name('a.b.c.d')", "too many dotted names"),
        ("mz_unsafe.mz_error_if_null(NULL, 'it is missing')", "it is missing"),
        ("mz_unsafe.mz_error_if_null(NULL, NULL)", "unexpected NULL"),
        ("mz_unsafe.mz_sleep(n) FROM wanted", "not a constant"),
        ("mz_unsafe.mz_sleep('NaN')", "finite number of seconds"),
        ("mz_unsafe.mz_sleep()", r"function mz_unsafe.mz_sleep\(\) does not exist"),
        ("mz_unsafe.mz_panic('x')", 'function "mz_unsafe.mz_panic" does not exist'),
        ("1 FROM repeat_row(-1)", "Negative multiplicity in constant result: -1"),
    ],
)
def test_they_refuse(con: mzsql.Connection, expression: str, message: str) -> None:
    """The error says why."""
    with pytest.raises(mzsql.Error, match=message):
        con.execute(f"SELECT {expression}").fetchall()


def test_rows_are_repeated(con: mzsql.Connection) -> None:
    """As often as a column says; in a maintained view as well."""
    repeated = "SELECT a FROM wanted, repeat_row(n)"
    con.execute(f"CREATE MATERIALIZED VIEW repeated AS {repeated}")
    assert sorted(con.execute(repeated).fetchall()) == [(1,), (1,), (3,)]
    assert sorted(con.execute("SELECT * FROM repeated").fetchall()) == [(1,), (1,), (3,)]


def test_a_statement_waits_as_long_as_it_may(con: mzsql.Connection) -> None:
    """Its timeout ends it; a switch forbids it."""
    con.execute("SET statement_timeout = '100ms'")
    with pytest.raises(mzsql.Error, match="canceling statement due to statement timeout"):
        con.execute("SELECT mz_unsafe.mz_sleep(3600)").fetchall()
    con.execute("RESET statement_timeout")
    con.execute("ALTER SYSTEM SET unsafe_enable_unsafe_functions = false")
    with pytest.raises(mzsql.Error, match="executing potentially dangerous functions"):
        con.execute("SELECT mz_unsafe.mz_sleep(0)")
    con.execute("ALTER SYSTEM RESET unsafe_enable_unsafe_functions")


def test_what_is_there_goes_on_where_new_statements_are_forbidden(tmp_path: Path) -> None:
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        con.execute("CREATE VIEW v AS SELECT mz_unsafe.mz_error_if_null(a, 'none') AS x FROM t")
        con.execute("CREATE MATERIALIZED VIEW m AS SELECT x + 1 AS y FROM v")
        con.execute("ALTER SYSTEM SET unsafe_enable_unsafe_functions = off")
        # Plans are made anew for it.
        con.execute("ALTER SYSTEM SET enable_eager_delta_joins = off")
    with mzsql.connect(tmp_path / "env") as con:
        assert con.execute("SELECT y FROM m").fetchall() == [(2,)]
        assert con.execute("SELECT x FROM v").fetchall() == [(1,)]
        with pytest.raises(mzsql.Error, match="executing potentially dangerous functions"):
            con.execute("SELECT mz_unsafe.mz_error_if_null(a, 'none') FROM t")


@pytest.mark.parametrize(
    "call",
    [
        "mz_internal.make_mz_aclitem('u1', 'u2', NULL)",
        "makeaclitem(1, 2, NULL, false)",
        "makeaclitem(1, 2, 'SELECT', NULL)",
        "mz_internal.mz_aclitem_grantee(NULL)",
    ],
)
def test_no_item_is_made_of_what_is_not_known(con: mzsql.Connection, call: str) -> None:
    assert con.execute(f"SELECT {call}").fetchall() == [(None,)]
