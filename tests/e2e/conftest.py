"""Where the end-to-end tests make their environments: in a directory, and, among the long ones, on S3 and PostgreSQL.

The servers are real ones, one of each for the run. Each test has a bucket's prefix and a schema of its own, named by a profile as a user
would, so that the same string opens the environment here and in the processes that a test starts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from postgres_server import PostgresServer
    from s3_server import S3Server

BACKENDS = ("files", pytest.param("s3-postgres", marks=pytest.mark.long))
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server, whose credentials are in the environment's variables meanwhile."""
    from s3_server import S3Server

    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    from postgres_server import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture(params=BACKENDS)
def env(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `mzsql.connect` takes for a place where nothing is yet."""
    if request.param == "files":
        return str(tmp_path / "env")
    name = f"e2e{next(_numbers)}"
    stores: S3Server = request.getfixturevalue("s3")
    server: PostgresServer = request.getfixturevalue("postgres")
    urls = {
        "BLOB": stores.url(name),
        "CONSENSUS": server.url(schema=name),
        "ORACLE": server.url(schema=name),
    }
    for kind, url in urls.items():
        monkeypatch.setenv(f"MZSQL_PROFILE_{name.upper()}_{kind}", url)
    return f"profile:{name}"
