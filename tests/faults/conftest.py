"""The servers of the fault matrix, one of each for a run, and the line that runs a failed row again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fault_place import MAX_CONNECTIONS, Place
from postgres_server import PostgresServer
from s3_proxy import S3Proxy
from s3_server import S3Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(tcp=True, max_connections=MAX_CONNECTIONS) as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[tuple[S3Server, S3Proxy]]:
    with S3Server() as server, S3Proxy(server.endpoint) as proxy:
        yield server, proxy


@pytest.fixture
def place(postgres: PostgresServer, s3: tuple[S3Server, S3Proxy]) -> Iterator[Place]:
    """A schema and a prefix of its own, behind cables of its own."""
    postgres.start()
    with Place(*s3, postgres) as place:
        yield place
        place.heal()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.failed:
        seed = getattr(item, "callspec", None) and item.callspec.params.get("seed")
        again = f".venv/bin/python -m pytest {item.nodeid!r} -m 'long or not long'"
        again = again if seed is None else f"MZSQL_FAULT_SEED={seed} {again}"
        report.sections.append(("run it again", again))
    return report
