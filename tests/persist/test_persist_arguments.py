"""Arguments of wrong types: a usage error that says what is wanted, and a shard that everybody can still read."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from mzsql.location import UsageError
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    ExpiredHandle,
    InvalidBounds,
    KeySpec,
    PersistClient,
    SchemaMismatch,
    Settings,
)

SCHEMA = pa.schema([("item", pa.string()), ("price", pa.int64())])


def updates():
    return pa.table({"item": ["tea"], "price": [4], "mz_time": [0], "mz_diff": [1]})


@pytest.mark.parametrize(
    "wrong",
    [
        {"part_bytes": -1},
        {"inline_bytes": "1k"},
        {"reader_lease_ms": 60e3},
        {"writer_lease_ms": 0},
        {"reader_lease_ms": None},
        {"reader_lease_ms": 2**70},
        {"compaction_fanout": 1},
        {"max_batches": True},
        {"timeout": "60"},
        {"timeout": float("nan")},
        {"poll_seconds": -0.1},
        {"compression": "zip"},
        {"keyed_compression": "zip"},
        {"maintenance": "elsewere"},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(UsageError, match=name.replace("_seconds", "")) as refused:
        Settings(**wrong)
    assert repr(wrong[name]) in refused.value.message
    with pytest.raises(UsageError):
        msgspec.structs.replace(Settings(), **wrong)


UNREADABLE = {
    "a hold without name": lambda client, shard: client.open_critical_reader(shard, None),
    "a hold of a number": lambda client, shard: client.open_critical_reader(shard, 5),
    "a token that is no text": lambda client, shard: client.open_critical_reader(
        shard, "hold", token=5
    ),
    "no purpose of a reader": lambda client, shard: client.open_reader(shard, purpose=None),
    "a purpose in bytes": lambda client, shard: client.open_reader(shard, purpose=b"report"),
    "a purpose that is no Unicode": lambda client, shard: client.open_reader(
        shard, purpose="\ud800"
    ),
    "no purpose of a writer": lambda client, shard: client.open_writer(
        shard, purpose=None
    ).compare_and_append(updates(), expected_upper=0, new_upper=1),
}


@pytest.mark.parametrize("act", UNREADABLE.values(), ids=UNREADABLE)
def test_nothing_is_committed_that_could_not_be_read_back(act):
    """Once in the log, it kept every process from the shard."""
    blob, consensus = MemBlob(), MemConsensus()
    with PersistClient(blob, consensus, background=False) as client:
        shard = client.new_shard_id()
        write, _ = client.open_shard(shard, SCHEMA)
        with pytest.raises(UsageError):
            act(client, shard)
        write.compare_and_append(updates(), expected_upper=0, new_upper=1)
    with PersistClient(blob, consensus, background=False) as other:
        assert other.open_reader(shard).snapshot_arrow(0).num_rows == 1


@pytest.mark.parametrize("as_of", ["1", None, 1.0, True], ids=repr)
def test_times_of_wrong_types_are_refused_as_such(client, as_of):
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates(), expected_upper=0, new_upper=2)
    for ask in (
        lambda: read.snapshot(as_of),
        lambda: read.snapshot_arrow(as_of),
        lambda: read.snapshot_reader(as_of),
        lambda: read.parts(as_of),
        lambda: read.listen(as_of),
        lambda: read.updates(0, as_of),
        lambda: read.parts_between(as_of, 2),
        lambda: read.small_updates(as_of, 2, rows=10, size=10_000),
        lambda: read.wait_for_upper(as_of),
    ):
        with pytest.raises(InvalidBounds, match="not a time"):
            ask()
    if as_of is not None:
        hold = client.open_critical_reader(read.shard_id, "hold")
        for downgrade in (read.downgrade_since, hold.downgrade_since):
            with pytest.raises(InvalidBounds, match="not a frontier"):
                downgrade(as_of)
    assert read.since == 0


def test_workers_that_a_shard_lacks_are_refused_rather_than_empty(client):
    for key in (None, KeySpec(columns=("item",), workers=2)):
        write, read = client.open_shard(client.new_shard_id(), SCHEMA, key=key)
        rows = updates() if key is None else {1: updates()}
        write.compare_and_append(rows, expected_upper=0, new_upper=1)
        assert read.snapshot_arrow(0).num_rows == 1
        for workers in ([2], [-1], ["1"]):
            with pytest.raises(SchemaMismatch, match="worker"):
                read.snapshot_arrow(0, workers=workers)
            with pytest.raises(SchemaMismatch, match="worker"):
                read.snapshot_reader(0, workers=workers)


def test_a_key_given_as_a_list_is_the_same_key_when_opened_again():
    blob, consensus = MemBlob(), MemConsensus()
    for _ in range(2):
        with PersistClient(blob, consensus, background=False) as client:
            key = KeySpec(columns=["item"], workers=2)
            client.open_shard("s00000000-0000-4000-8000-00000000000a", SCHEMA, key=key)
    for wrong in (
        {"columns": "item"},
        {"columns": (1,)},
        {"columns": ("item",), "additive": "price"},
    ):
        with pytest.raises(UsageError, match="names of columns"):
            KeySpec(**wrong)
    with pytest.raises(UsageError, match="whole number"):
        KeySpec(columns=("item",), workers=2.0)


def test_a_schema_of_another_kind_is_told_what_it_should_be(client):
    for schema in ({"item": "string"}, [("item", pa.string())]):
        with pytest.raises(SchemaMismatch, match="pyarrow Schema") as refused:
            client.open_shard(client.new_shard_id(), schema)
        assert "pa.schema" in refused.value.hint
    with pytest.raises(SchemaMismatch, match="KeySpec"):
        client.open_shard(client.new_shard_id(), SCHEMA, key="item")
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates(), expected_upper=0, new_upper=1)
    with pytest.raises(SchemaMismatch, match="list of names"):
        read.snapshot_arrow(0, columns="item")


def test_a_closed_client_says_so_whatever_it_is_asked():
    client = PersistClient(MemBlob(), MemConsensus(), background=False)
    shard = client.new_shard_id()
    client.open_shard(shard, SCHEMA)
    client.close()
    for ask in (
        lambda: client.open_shard(shard, SCHEMA),
        lambda: client.report(shard),
        lambda: list(client.reports()),
        lambda: list(client.find_leaks()),
        lambda: client.orphans(),
        lambda: client.shard_ids(),
        lambda: client.peek(shard),
        lambda: client.maintain(shard),
    ):
        with pytest.raises(ExpiredHandle, match="client is closed"):
            ask()


def test_ids_and_timeouts_of_wrong_types_are_refused(client):
    for shard in (None, 5, b"s", "orders"):
        with pytest.raises(UsageError, match="not a shard id"):
            client.open_shard(shard, SCHEMA)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    with pytest.raises(UsageError, match="number of seconds"):
        write.compare_and_append(updates(), expected_upper=0, new_upper=1, timeout="10")
    with pytest.raises(UsageError, match="number of seconds"):
        read.snapshot_arrow(0, timeout="10")
    assert write.fetch_upper() == 0
    assert Settings(timeout=float("inf")).timeout == float("inf")
