"""Fixtures for the tests of shards."""

from __future__ import annotations

import pytest

from mzsql.location.file import FileBlob
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.location.sqlite import SqliteConsensus
from mzsql.persist import PersistClient


@pytest.fixture(params=["mem", "file+sqlite"])
def client(request, tmp_path):
    if request.param == "mem":
        made = PersistClient(MemBlob(), MemConsensus(), background=False)
    else:
        made = PersistClient(
            FileBlob(tmp_path / "blob"),
            SqliteConsensus(tmp_path / "consensus.db"),
            background=False,
        )
    yield made
    made.close()
    made.consensus.close()
