"""The schema and its tables: created on first use, upgraded by numbered migrations.

Promise: any number of processes may open a new schema at the same time; each migration happens once, atomically. An
up-to-date schema needs no rights beyond reading and writing its tables. A schema migrated by a newer version of this
plugin is refused. On CockroachDB, which has no advisory locks and changes schemas outside transactions, every step has
IF NOT EXISTS and may be repeated.
"""

from __future__ import annotations

from psycopg import sql

from mzsql.location import Determinate
from mzsql_postgres.dialects import Cockroach, Dialect, quoted
from mzsql_postgres.failures import Failed
from mzsql_postgres.sessions import INT8, TEXT, Session, Statement, from_int8, int8

LATEST = 1
_NO_RIGHTS = "42501"
_NOT_THERE = ("42P01", "3F000")
_LOCK_CLASS = "mzsql"


def _steps(dialect: Dialect) -> dict[int, tuple[str, ...]]:
    """By version, the statements that lead there from the version before."""
    tables: tuple[str, ...] = (dialect.keys_table, dialect.consensus_table, dialect.oracle_table)
    if isinstance(dialect, Cockroach):
        zone = f"CONFIGURE ZONE USING gc.ttlseconds = {dialect.gc_seconds}"
        tables += tuple(f"ALTER TABLE {{{t}}} {zone}" for t in ("consensus", "oracle"))
    return {1: tables}


def migrate(session: Session, dialect: Dialect, schema: str) -> None:
    """Bring ``schema`` up to date, creating it if it does not exist.

    Args:
        session: the connection.
        dialect: the server's dialect.
        schema: the schema.

    Raises:
        Determinate: the user lacks the rights, or a newer version has migrated the schema.
        Failed: the server failed.
    """
    if _version(session, schema) == LATEST:
        return
    try:
        if dialect.locks:
            _migrate_locked(session, dialect, schema)
        else:
            _migrate_by_steps(session, dialect, schema)
    except Failed as failure:
        if failure.sqlstate != _NO_RIGHTS:
            raise
        raise Determinate(
            f"{session.place}: the user may not set up the schema {schema!r}: {failure.message}",
            hint=_for_an_administrator(session, schema),
        ) from failure


def _version(session: Session, schema: str) -> int:
    statement = Statement(
        "migrate", quoted("SELECT max(version) FROM {migrations}", schema), reads=True
    )
    try:
        newest = session.run(statement, ()).rows[0][0]
    except Failed as failure:
        if failure.sqlstate in _NOT_THERE:
            return 0
        if failure.sqlstate == _NO_RIGHTS:
            raise Determinate(
                f"{session.place}: the user may not read the schema {schema!r}: {failure.message}",
                hint=_for_an_administrator(session, schema),
            ) from failure
        raise
    version = 0 if newest is None else from_int8(newest)
    if version > LATEST:
        raise Determinate(
            f"{session.place}: the schema has version {version}, and this mzsql-postgres knows none beyond {LATEST}",
            hint="Upgrade mzsql-postgres here; a newer one has set up or upgraded the schema.",
        )
    return version


def _migrate_locked(session: Session, dialect: Dialect, schema: str) -> None:
    """Migrate in one transaction, under a lock; an error leaves nothing behind."""
    session.script("BEGIN ISOLATION LEVEL READ COMMITTED")
    try:
        lock = Statement(
            "migrate", "SELECT pg_advisory_xact_lock(hashtext($1), hashtext($2))", (TEXT, TEXT)
        )
        session.run(lock, (_LOCK_CLASS.encode(), schema.encode()))
        # CREATE SCHEMA IF NOT EXISTS requires the right to create one even if it exists.
        there = Statement("migrate", "SELECT 1 FROM pg_namespace WHERE nspname = $1", (TEXT,))
        if not session.run(there, (schema.encode(),)).rows:
            session.script(quoted("CREATE SCHEMA {schema}", schema))
        # A missing right to create tables surfaces in the first statement that needs it.
        exists = Statement("migrate", "SELECT to_regclass($1)::text", (TEXT,))
        table = quoted("{migrations}", schema).encode()
        version = 0
        if session.run(exists, (table,)).rows[0][0] is None:
            session.script(quoted(_MIGRATIONS_TABLE, schema))
        else:
            version = _version(session, schema)
        for number in range(version + 1, LATEST + 1):
            for step in _steps(dialect)[number]:
                session.script(quoted(step, schema))
            _record(session, schema, number)
    except BaseException:
        if not session.closed:
            session.script("ROLLBACK")
        raise
    # After a commit with unknown outcome, the next attempt looks again.
    session.script("COMMIT")


def _migrate_by_steps(session: Session, dialect: Dialect, schema: str) -> None:
    session.script(quoted("CREATE SCHEMA IF NOT EXISTS {schema}", schema))
    session.script(
        quoted(_MIGRATIONS_TABLE.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"), schema)
    )
    for number in range(_version(session, schema) + 1, LATEST + 1):
        for step in _steps(dialect)[number]:
            session.script(quoted(step, schema))
        _record(session, schema, number)


_MIGRATIONS_TABLE = "CREATE TABLE {migrations} (version bigint PRIMARY KEY, migrated_at timestamptz NOT NULL DEFAULT now())"


def _record(session: Session, schema: str, number: int) -> None:
    text = "INSERT INTO {migrations} (version) VALUES ($1) ON CONFLICT DO NOTHING"
    session.run(Statement("migrate", quoted(text, schema), (INT8,)), (int8(number),))


def _for_an_administrator(session: Session, schema: str) -> str:
    user = sql.Identifier(session.user).as_string(None)
    return quoted(
        f"Have an administrator run: CREATE SCHEMA IF NOT EXISTS {{schema}} AUTHORIZATION {user.replace('{', '{{').replace('}', '}}')};"
        " or, where somebody else has set the schema up:"
        f" GRANT USAGE ON SCHEMA {{schema}} TO {user.replace('{', '{{').replace('}', '}}')};"
        f" GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {{schema}} TO {user.replace('{', '{{').replace('}', '}}')};",
        schema,
    )
