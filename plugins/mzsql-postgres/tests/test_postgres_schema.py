"""Schemas: made once by whoever comes first, apart from each other, and used with no more rights than they need."""

from __future__ import annotations

import contextlib
import multiprocessing
from urllib.parse import urlsplit

import psycopg
import pytest
from mzsql_postgres import PostgresConsensus, read_options
from mzsql_postgres.migrations import LATEST
from postgres_server import USER, PostgresServer

from mzsql.location import Determinate, Versioned, open_consensus, open_oracle


def _first(url: str, number: int) -> bool:
    """In a process of its own: open, and race for the first entry."""
    consensus = open_consensus(url)
    oracle = open_oracle(url, f"t{number % 2}", lambda: number)
    try:
        oracle.apply_write(number)
        return consensus.compare_and_set("k", None, Versioned(0, b"%d" % number))
    finally:
        consensus.close()
        oracle.close()


def test_first_opened_by_many_processes(server: PostgresServer, url: str) -> None:
    """All succeed, each migration happens once, and one wins the first entry."""
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        won = pool.starmap(_first, [(url, n) for n in range(8)])
    assert won.count(True) == 1
    with contextlib.closing(open_consensus(url)) as consensus:
        assert consensus.head("k") == Versioned(0, b"%d" % won.index(True))
    schema = read_options(urlsplit(url)).schema
    query = psycopg.sql.SQL("SELECT version FROM {}").format(
        psycopg.sql.Identifier(schema, "mzsql_migrations")
    )
    versions = server.execute(query)  # type: ignore[arg-type]
    assert versions == [(n,) for n in range(1, LATEST + 1)]


def test_schemas_are_apart(server: PostgresServer) -> None:
    """Environments in one database, under names that need quoting."""
    names = ['we"ird; DROP', "UPPER", "upper", "größe % {x}", "mzsql"]
    handles = [open_consensus(server.url(schema=name)) for name in names]
    for number, handle in enumerate(handles):
        assert list(handle.list_keys()) == []
        assert handle.compare_and_set("k", None, Versioned(0, b"%d" % number))
    for number, handle in enumerate(handles):
        assert handle.head("k") == Versioned(0, b"%d" % number)
        handle.close()
    with contextlib.closing(open_consensus(server.url())) as consensus:
        assert consensus.head("k") == Versioned(0, b"4")  # the default schema is mzsql


def test_newer_schema_refused(server: PostgresServer) -> None:
    """What a newer version has migrated is left alone."""
    url = server.url(schema="newer")
    open_consensus(url).close()
    server.execute(f"INSERT INTO newer.mzsql_migrations (version) VALUES ({LATEST + 1})")
    with pytest.raises(Determinate, match=f"version {LATEST + 1}") as caught:
        open_consensus(url)
    assert "Upgrade" in (caught.value.hint or "")


def test_migration_is_whole_or_not_at_all(server: PostgresServer) -> None:
    """A table in the way fails the migration, and leaves nothing of it; once it is out of the way, it goes through."""
    server.execute("CREATE SCHEMA half")
    server.execute("CREATE TABLE half.timestamp_oracle (mine int)")
    with pytest.raises(Determinate, match="already exists"):
        open_consensus(server.url(schema="half"))
    there = "SELECT relname FROM pg_class WHERE relnamespace = 'half'::regnamespace"
    assert server.execute(there) == [("timestamp_oracle",)]
    server.execute("DROP TABLE half.timestamp_oracle")
    open_consensus(server.url(schema="half")).close()


def as_user(server: PostgresServer, schema: str, user: str) -> str:
    return server.url(schema=schema).replace(f"{USER}@", f"{user}@")


def test_rights(server: PostgresServer) -> None:
    """A user who may not create a schema is told what to have done; and then needs no more rights."""
    server.execute('CREATE ROLE "plain {user}" LOGIN')
    quoted = "plain%20%7Buser%7D"
    with pytest.raises(Determinate, match="may not set up the schema 'granted'") as caught:
        open_consensus(as_user(server, "granted", quoted))
    hint = caught.value.hint or ""
    create, _, grants = hint.partition("; or, ")
    statement = create.partition("run: ")[2]
    assert statement == 'CREATE SCHEMA IF NOT EXISTS "granted" AUTHORIZATION "plain {user}"'
    # The other way: somebody else has set it up, and the hint's grants are all that is needed.
    open_consensus(server.url(schema="granted")).close()
    with pytest.raises(Determinate, match="may not read the schema 'granted'"):
        open_consensus(as_user(server, "granted", quoted))
    for grant in grants.partition("up: ")[2].split(";"):
        if grant.strip():
            server.execute(grant)
    use(as_user(server, "granted", quoted))
    server.execute(statement.replace("granted", "owned"))
    use(as_user(server, "owned", quoted))


def use(url: str) -> None:
    with contextlib.closing(open_consensus(url)) as consensus:
        for n in range(3):
            assert consensus.compare_and_set("k", n - 1 if n else None, Versioned(n, b""))
        assert consensus.truncate("k", 1) == 1
        assert list(consensus.list_keys()) == ["k"]
        assert consensus.wait("k", 1, 1.0)
    with contextlib.closing(open_oracle(url, "t", lambda: 5)) as oracle:
        oracle.apply_write(oracle.write_ts())
        assert oracle.read_ts() == 5


def test_tables_gone(server: PostgresServer) -> None:
    """A table or a row that somebody removed under an open handle is an error that names it, not a fresh start."""
    url = server.url(schema="gone")
    with (
        contextlib.closing(open_consensus(url)) as consensus,
        contextlib.closing(open_oracle(url, "t", lambda: 5)) as oracle,
    ):
        server.execute("DELETE FROM gone.timestamp_oracle")
        for call in (oracle.read_ts, oracle.write_ts, oracle.peek_write_ts):
            with pytest.raises(Determinate, match="row of timeline 't' is gone"):
                call()
        with pytest.raises(Determinate, match="row of timeline 't' is gone"):
            oracle.apply_write(9)
        server.execute("DROP TABLE gone.timestamp_oracle, gone.consensus")
        with pytest.raises(Determinate, match=r"timestamp_oracle.* does not exist"):
            oracle.read_ts()
        with pytest.raises(Determinate, match=r"consensus.* does not exist"):
            consensus.compare_and_set("k", 0, Versioned(1, b""))


def test_durable_and_read_committed_whatever_the_default(server: PostgresServer) -> None:
    """A role's defaults neither weaken a commit nor change the isolation the statements are proved for."""
    server.execute("CREATE ROLE lax LOGIN SUPERUSER")
    server.execute("ALTER ROLE lax SET synchronous_commit = off")
    server.execute("ALTER ROLE lax SET default_transaction_isolation = 'repeatable read'")
    options = read_options(urlsplit(as_user(server, "lax", "lax")))
    with contextlib.closing(PostgresConsensus(options)) as consensus:
        session = consensus._database.take(float("inf"))
        for setting, value in (
            ("synchronous_commit", b"on"),
            ("transaction_isolation", b"read committed"),
        ):
            assert session.script(f"SHOW {setting}").rows == [(value,)]
        consensus._database.give_back(session)
