"""Opens a schema on a server: detects the dialect, sets up sessions, creates the tables."""

from __future__ import annotations

from mzsql.location import Determinate, UsageError
from mzsql_postgres.connections import Database
from mzsql_postgres.dialects import Cockroach, Dialect, Postgres
from mzsql_postgres.migrations import migrate
from mzsql_postgres.options import Options
from mzsql_postgres.sessions import Session

_OLDEST = 120000


def encoded(name: str, what: str) -> bytes:
    """``name`` as a text parameter.

    Args:
        name: the name.
        what: what it names, for the error.

    Raises:
        UsageError: PostgreSQL's text cannot hold it.
    """
    try:
        if "\0" not in name:
            return name.encode()
    except UnicodeEncodeError:
        pass
    raise UsageError(f"{what} on PostgreSQL is text without NUL, got {name!r}")


def open_database(options: Options, dialect: Dialect | None = None) -> tuple[Database, Dialect]:
    """The connections to the server, with the schema up to date, and the dialect.

    Args:
        options: the server and the schema.
        dialect: the server's dialect; detected by default.

    Raises:
        Determinate: the server cannot be reached, refuses the user, or the schema cannot be used.
    """
    found: list[Dialect] = [] if dialect is None else [dialect]

    def prepare(session: Session) -> None:
        if not found:
            found.append(_dialect(session, options))
        session.script(found[0].settings(options.limits))

    database = Database(options, prepare)
    try:
        database.first(lambda session: migrate(session, found[0], options.schema))
    except BaseException:
        database.close()
        raise
    return database, found[0]


def _dialect(session: Session, options: Options) -> Dialect:
    if session.is_cockroach:
        return Cockroach()
    if session.pgconn.server_version < _OLDEST:
        raise Determinate(
            f"postgres {options.place}: the server is older than PostgreSQL 12",
            hint="Upgrade the server.",
        )
    return Postgres()
