"""The functions and operators as relations: every overload once, with the types that PostgreSQL gives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgres_server import PostgresServer

import mzsql
from mzsql.frontend.scalar.coerce import plain_name
from mzsql.frontend.scalar.system_functions import DEFINITIONS

pytestmark = pytest.mark.long

#: What ids of the system's types are above their numbers.
_TYPES_FROM = 100_000
#: PostgreSQL's `name` is a text here, and so is what `pg_typeof` gives.
_AS_TEXT = {"name": "text", "_name": "_text", "inet": "text"}
_TEXTS = {"pg_typeof"}


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    """An environment without anything in it."""
    connection = mzsql.connect(tmp_path_factory.mktemp("functions") / "env")
    yield connection
    connection.close()


def test_functions_have_numbers_and_types_of_their_own(con: mzsql.Connection) -> None:
    """No two overloads share a number; each gives a type that there is."""
    ((count, numbers, typed),) = con.execute(
        "SELECT count(*), count(DISTINCT f.oid), count(t.id) FROM mz_functions AS f"
        " LEFT JOIN mz_types AS t ON t.id = f.return_type_id"
    ).fetchall()
    assert count == numbers == typed > 400


def test_each_view_shows_what_it_is_for(con: mzsql.Connection) -> None:
    """PostgreSQL's and the standard's view of the same functions."""
    asked = {
        "SELECT count(DISTINCT prorettype) FROM pg_proc WHERE proname = 'max'": [(22,)],
        "SELECT DISTINCT n.nspname FROM pg_proc JOIN pg_namespace AS n ON n.oid = pronamespace"
        " WHERE proname LIKE 'list_%' OR proname = 'lower' ORDER BY 1": [
            ("mz_catalog",),
            ("pg_catalog",),
        ],
        "SELECT DISTINCT proname FROM pg_aggregate JOIN pg_proc ON oid = aggfnoid"
        " WHERE proname LIKE 'bo%' ORDER BY 1": [("bool_and",), ("bool_or",)],
        "SELECT count(*) FROM information_schema.routines WHERE routine_name = 'quote_ident'": [
            (1,)
        ],
        "SELECT t.name FROM mz_pseudo_types JOIN mz_types AS t USING (id) WHERE name LIKE 'any%' ORDER BY 1": [
            ("any",),
            ("anyarray",),
            ("anyelement",),
            ("anyrange",),
        ],
    }
    for query, rows in asked.items():
        assert con.execute(query).fetchall() == rows, query


def test_results_are_of_the_types_that_postgresql_says(con: mzsql.Connection) -> None:
    """Every function and every operator that PostgreSQL has of the same arguments."""
    rows = con.execute(
        "SELECT f.name, argument_type_ids, t.name, 'f' FROM mz_functions AS f JOIN mz_types AS t ON t.id = return_type_id"
        " WHERE variadic_argument_type_id IS NULL"
        " UNION ALL SELECT o.name, argument_type_ids, t.name, 'o' FROM mz_operators AS o JOIN mz_types AS t ON t.id = return_type_id"
    ).fetchall()
    compared = {"f": 0, "o": 0}
    with PostgresServer() as server, server.connect() as postgres:
        for name, ids, result, kind in rows:
            numbers = [int(gid[1:]) - _TYPES_FROM for gid in ids]
            theirs = (
                postgres.execute(
                    "SELECT t.typname FROM pg_proc JOIN pg_type AS t ON t.oid = prorettype"
                    " WHERE proname = %s AND proargtypes::text = %s",
                    (name, " ".join(map(str, numbers))),
                )
                if kind == "f"
                else postgres.execute(
                    "SELECT t.typname FROM pg_operator JOIN pg_type AS t ON t.oid = oprresult"
                    " WHERE oprname = %s AND oprleft = %s AND oprright = %s",
                    (name, *([0] * (2 - len(numbers))), *numbers),
                )
            ).fetchone()
            if theirs is not None:
                compared[kind] += 1
                said = "text" if name in _TEXTS else _AS_TEXT.get(theirs[0], theirs[0])
                assert said == result, (name, numbers)
    assert compared["f"] > 300
    assert compared["o"] > 200


def test_calls_over_the_catalog_have_the_type_that_is_listed(con: mzsql.Connection) -> None:
    """Each overload of a function that is defined over the catalog, called with NULLs."""
    for name, several in DEFINITIONS.items():
        for one in several:
            nulls = ", ".join(f"NULL::{plain_name(arg)}" for arg in one.args)
            ((kind,),) = con.execute(f"SELECT pg_typeof({name}({nulls}))").fetchall()
            assert kind == plain_name(one.result), (name, one.args)
