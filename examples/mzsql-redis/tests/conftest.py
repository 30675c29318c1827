"""One server for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis_server import RedisServer


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running
