"""A server for the whole run; each test has a schema of its own on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer

_SELDOM = {"test_forked", "test_killed_processes", "test_processes"}
"""Cases of the kit that start many processes."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the kit's heavy cases to the long run."""
    for item in items:
        kit = item.path.name == "test_postgres_contract.py"
        if kit and isinstance(item, pytest.Function) and item.originalname in _SELDOM:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """Shared by tests that leave it running."""
    with PostgresServer(tcp=True) as server:
        yield server


@pytest.fixture
def url(server: PostgresServer, tmp_path: Path) -> str:
    """A schema that is not there yet, on the shared server."""
    return server.url(schema=str(tmp_path)[-60:])
