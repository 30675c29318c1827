"""The server that the other tests start."""

from __future__ import annotations

import contextlib

import psycopg
import pytest
from postgres_server import PostgresServer


def test_life() -> None:
    """It starts, crashes, comes back with what was committed, and leaves nothing behind."""
    with PostgresServer(tcp=True, max_connections=20) as server:
        assert server.execute("SHOW max_connections") == [("20",)]
        server.execute("CREATE TABLE t AS SELECT 1 AS x")
        # Not the connection's own context: it commits at its end, which fails where the first
        # statement failed while it was sent.
        with contextlib.closing(psycopg.connect(server.tcp_url())) as connection:
            server.kill_backends()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        server.restart(immediate=True)
        with psycopg.connect(server.url(application_name="a b")) as connection:
            assert connection.execute("SELECT x FROM t").fetchall() == [(1,)]
            assert connection.execute("SHOW application_name").fetchone() == ("a b",)
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            server.connect()
        server.start()
    assert not server.directory.exists()
