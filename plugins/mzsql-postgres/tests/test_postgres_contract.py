"""The kits of Consensus and oracle against a PostgreSQL server, in both ways of compare-and-set, and against a server of one's own."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from mzsql_postgres import PostgresConsensus, read_options
from mzsql_postgres.dialects import GuardedPostgres
from postgres_server import PostgresServer
from psycopg import sql

from mzsql.location import Consensus
from mzsql.testing import ConsensusContract, OracleContract

_GIVEN = os.environ.get("MZSQL_TEST_POSTGRES_URL")


class OnServer:
    """Each place is a schema of the shared server."""

    fresh = True

    @pytest.fixture(autouse=True)
    def _on_server(self, server: PostgresServer) -> None:
        self._server = server

    def url(self, place: Path) -> str:
        return self._server.url(schema=str(place)[-60:], pool_max_size=4)


class TestConsensus(OnServer, ConsensusContract):
    """Consensus by the statements for PostgreSQL."""


@pytest.mark.long
class TestGuardedConsensus(OnServer, ConsensusContract):
    """Consensus by the statement for CockroachDB, which is valid on PostgreSQL too."""

    processes = False

    def open_consensus(self, place: Path) -> Consensus:
        return PostgresConsensus(read_options(urlsplit(self.url(place))), GuardedPostgres())


class TestOracle(OnServer, OracleContract):
    """The oracle."""


class OnGiven:
    """Each test has a schema of its own on the server at MZSQL_TEST_POSTGRES_URL, dropped afterwards."""

    fresh = True

    @pytest.fixture(autouse=True)
    def _on_given(self) -> Iterator[None]:
        if not _GIVEN:
            pytest.skip("MZSQL_TEST_POSTGRES_URL is not set")
        self._schema = f"mzsql_test_{uuid.uuid4().hex}"
        yield
        options = read_options(urlsplit(self.url(Path())))
        with contextlib.closing(options.connect(30.0)) as connection:
            name = sql.Identifier(self._schema)
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(name))

    def url(self, place: Path) -> str:  # noqa: ARG002 - the schema is the test's
        assert _GIVEN
        return f"{_GIVEN}{'&' if '?' in _GIVEN else '?'}schema={quote(self._schema)}"


class TestGivenConsensus(OnGiven, ConsensusContract):
    """Consensus on a server of one's own."""


class TestGivenOracle(OnGiven, OracleContract):
    """The oracle on a server of one's own."""
