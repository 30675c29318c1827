"""What tests share that ask PostgreSQL for the right answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mzsql

if TYPE_CHECKING:
    import psycopg
    from postgres_server import PostgresServer


def make_database(server: PostgresServer, name: str) -> psycopg.Connection[Any]:
    """A session in autocommit, in UTC, in a new database: texts sort by their bytes, letters are those of Unicode."""
    server.execute(
        f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"
    )
    session = server.connect(name)
    session.execute("SET timezone = 'UTC'")
    return session


@contextmanager
def set_up(
    home: Path, postgres: psycopg.Connection[Any], statements: Iterable[str]
) -> Iterator[mzsql.Connection]:
    """A connection to a new environment in which statements were run, and in PostgreSQL, too."""
    with mzsql.connect(str(home)) as con:
        for statement in statements:
            con.execute(statement)
            postgres.execute(statement.encode())
        yield con


def rows_of(con: mzsql.Connection, query: str) -> list[tuple[Any, ...]]:
    """The rows of our answer."""
    return [tuple(row) for row in con.execute(query).fetchall()]


def expected(postgres: psycopg.Connection[Any], query: str) -> list[tuple[Any, ...]]:
    """The rows of PostgreSQL's answer."""
    return postgres.execute(query.encode()).fetchall()


def check_same(con: mzsql.Connection, postgres: psycopg.Connection[Any], query: str) -> None:
    """Both answers have the same rows in the same order."""
    assert rows_of(con, query) == expected(postgres, query), query


def check_same_rows(con: mzsql.Connection, postgres: psycopg.Connection[Any], query: str) -> None:
    """Both answers have the same rows, in any order."""
    ours, theirs = rows_of(con, query), expected(postgres, query)
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), query
