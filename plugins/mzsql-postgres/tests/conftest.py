"""A server for the whole run; each test has a schema of its own on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """Shared by tests that leave it running."""
    with PostgresServer(tcp=True) as server:
        yield server


@pytest.fixture
def url(server: PostgresServer, tmp_path: Path) -> str:
    """A schema that is not there yet, on the shared server."""
    return server.url(schema=str(tmp_path)[-60:])
