"""The states of many shards, read at once, and sums over their updates without leases."""

from __future__ import annotations

import pytest
from persist_model import SCHEMA, another, mem_client, updates

from mzsql.location import ManyScannable
from mzsql.location.around import consensus_around
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import BlobPart, CorruptPart, ExpiredHandle, PersistClient, logs

ERRORS = {"v": [("e", "f")]}


class Single:
    """A Consensus that scans one key at a time."""

    def __init__(self, inner: MemConsensus) -> None:
        for name in ("head", "compare_and_set", "scan", "truncate", "list_keys", "close"):
            setattr(self, name, getattr(inner, name))


class Seen:
    """The operations on a Consensus, in order."""

    def __init__(self) -> None:
        self.operations: list[str] = []

    def __call__(self, operation, act):
        self.operations.append(operation)
        return act()


def written(client: PersistClient, count: int, shard: str | None = None, start: int = 0) -> str:
    """A shard after so many appends, each of a row."""
    shard = shard or client.new_shard_id()
    write, read = client.open_shard(shard, SCHEMA)
    for t in range(start, start + count):
        write.compare_and_append(
            updates([(t, "e" if t % 3 == 0 else "a", t, 1)]), expected_upper=t, new_upper=t + 1
        )
    write.expire()
    read.expire()
    return shard


def beside(client: PersistClient, consensus=None, **more) -> PersistClient:
    """Another process at the same place, which knows nothing yet."""
    context = client._context
    return PersistClient(context.blob, consensus or context.consensus, background=False, **more)


@pytest.fixture
def client():
    with mem_client(rollup_interval=16) as made:
        yield made


def many(client: PersistClient) -> list[str]:
    """Shards of all kinds: just made, short, with a long log, compacted with rollups, ended."""
    found = [written(client, count) for count in (0, 1, 7, 40, 150)]
    compacted = written(client, 90)
    client.maintain(compacted, full=True)
    written(client, 5, compacted, start=90)
    ended = written(client, 3)
    client.finalize(ended)
    return [*found, compacted, ended]


@pytest.mark.parametrize("single", [False, True])
def test_many_states_are_those_of_each(client, single):
    shards = many(client)
    consensus = Single(client._context.consensus) if single else None
    other = beside(client, consensus)
    assert isinstance(other._context.consensus, ManyScannable) is not single
    asked = [other.new_shard_id(), *shards, shards[0], other.new_shard_id()]
    found = other.inspect_many(asked)
    assert found == {shard: beside(client).inspect(shard) for shard in shards}
    assert other.inspect_many() == found
    assert other.inspect_many([]) == {}


def test_states_that_are_known_go_on_from_there(client):
    other = beside(client)
    shards = [written(client, 4) for _ in range(3)]
    held = [other.open_reader(shard) for shard in shards]
    for shard in shards[:2]:
        written(client, 80 if shard == shards[0] else 2, shard, start=4)
    assert other.inspect_many(shards) == {s: beside(client).inspect(s) for s in shards}
    for read in held:
        read.expire()


def test_many_states_take_few_requests(client):
    shards = [written(client, 3) for _ in range(300)]
    seen = Seen()
    other = beside(client, consensus_around(client._context.consensus, seen))
    assert set(other.inspect_many(shards)) == set(shards)
    assert seen.operations == ["scan_many"] * 2


def test_a_log_that_is_truncated_meanwhile_is_read_anew(client, monkeypatch):
    shard = written(client, 90)
    client.maintain(shard, full=True)
    other = beside(client)
    wanted = beside(client).inspect(shard)
    blob = client._context.blob
    begun = logs._begun

    def late(context, shard_id, log, deadline):
        # Maintenance by another process removes the rollup that the log has named.
        entry = logs.decoded(context.version, shard_id, log[-1])
        if entry.rollup_key and blob.get(entry.rollup_key) is not None:
            kept = blob.get(entry.rollup_key)
            blob.delete(entry.rollup_key)
            assert begun(context, shard_id, log, deadline) is None
            blob.set(entry.rollup_key, kept)

    monkeypatch.setattr(logs, "_begun", late)
    assert other.inspect_many([shard]) == {shard: wanted}


def test_a_state_that_cannot_be_read_is_said(client):
    shard = written(client, 90)
    client.maintain(shard, full=True)
    state = client.inspect(shard)
    client._context.blob.set(state.rollups[state.latest_rollup], b"junk")
    with pytest.raises(CorruptPart, match=shard):
        beside(client).inspect_many([written(client, 1), shard])


def test_tallies_are_the_sums_of_what_passes(client):
    shards = many(client)[:-1]
    other = beside(client)
    states = other.inspect_many(shards)
    wanted = {}
    for shard, state in states.items():
        table = other.updates(shard, state, ["v"], filters=ERRORS)
        wanted[shard] = sum(table["mz_diff"].to_pylist())
    assert other.tallies(states, ERRORS) == wanted
    assert sorted(wanted.values()) == [0, 1, 3, 14, 32, 50]
    assert all(not state.readers for state in other.inspect_many(shards).values())


def test_a_shard_whose_part_is_gone_is_left_out_of_tallies():
    with mem_client(inline_bytes=0) as client:
        shards = [written(client, 4), written(client, 2)]
        states = client.inspect_many(shards)
        assert client.tallies(states, ERRORS) == {shards[0]: 2, shards[1]: 1}
        parts = [part for batch in states[shards[0]].trace for part in batch.parts]
        assert all(isinstance(part, BlobPart) for part in parts)
        client._context.blob.delete(parts[0].key)
        assert client.tallies(states, ERRORS) == {shards[1]: 1}


def test_a_closed_client_reads_none():
    client = PersistClient(MemBlob(), MemConsensus(), background=False)
    client.close()
    for ask in (lambda: client.inspect_many(), lambda: client.tallies({}, ERRORS)):
        with pytest.raises(ExpiredHandle, match="client is closed"):
            ask()


def test_another_client_sees_what_is_written_between(client):
    shard = written(client, 2)
    with another(client) as other:
        before = other.inspect_many([shard])[shard]
        written(client, 3, shard, start=2)
        after = other.inspect_many([shard])[shard]
    assert (before.upper, after.upper) == (2, 5)
