"""The kit, on a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis_server import RedisServer

from mzsql.testing import BlobContract, ConsensusContract, OracleContract


class OnRedis:
    @pytest.fixture(autouse=True)
    def _on(self, server: RedisServer) -> None:
        self.server = server

    def url(self, place: Path) -> str:
        return self.server.url(prefix=place.name)


class TestRedisBlob(OnRedis, BlobContract):
    pass


class TestRedisConsensus(OnRedis, ConsensusContract):
    pass


class TestRedisOracle(OnRedis, OracleContract):
    pass
