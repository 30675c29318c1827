"""The timeout of a call reaches the backends that the call asks."""

from __future__ import annotations

import random

import pytest
from persist_model import SCHEMA, updates
from prometheus_client import CollectorRegistry

from mzsql.location import blob_around, consensus_around, seconds_left
from mzsql.location.deadlines import LEAST_SECONDS
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, Settings

SECONDS = 7.0


@pytest.fixture
def asked():
    """Each operation of a backend and what it was told."""
    return []


@pytest.fixture
def client(asked):
    def around(operation, act):
        asked.append((operation, seconds_left()))
        return act()

    made = PersistClient(
        blob_around(MemBlob(), around),
        consensus_around(MemConsensus(), around),
        rng=random.Random(1),
        settings=Settings(inline_bytes=300, rollup_interval=2, timeout=1000.0),
        background=False,
        registry=CollectorRegistry(),
    )
    yield made
    made.close()


def write_and_read(client, shard, seconds):
    """Every kind of call, with rows inline and in objects."""
    write, read = client.open_shard(shard, SCHEMA, timeout=seconds)
    long = "x" * 2000
    for at, value in enumerate(["a", long, "b", long]):
        write.compare_and_append(
            updates([(at, value, at, 1)]), expected_upper=at, new_upper=at + 1, timeout=seconds
        )
    assert read.fetch_upper(timeout=seconds) == 4
    [*splits] = read.snapshot(3, timeout=seconds)
    assert sum(split.to_arrow(timeout=seconds).num_rows for split in splits) == 4
    read.downgrade_since(3, timeout=seconds)
    client.maintain(shard, full=True, timeout=seconds)
    assert client.report(shard, timeout=seconds) is not None
    write.expire(timeout=seconds)
    read.expire(timeout=seconds)


def test_backends_are_told_how_long_a_call_waits(client, asked):
    write_and_read(client, client.new_shard_id(), SECONDS)
    told = dict(asked)
    assert {"get", "set", "delete_many", "list_keys_and_metadata"} & told.keys()
    assert {"compare_and_set", "scan", "truncate"} <= told.keys()
    for operation, left in asked:
        assert left is not None, operation
        assert LEAST_SECONDS <= left <= SECONDS, operation


def test_a_call_without_a_timeout_has_that_of_the_settings(client, asked):
    write_and_read(client, client.new_shard_id(), None)
    assert all(left is not None and SECONDS < left <= 1000.0 for _, left in asked)
