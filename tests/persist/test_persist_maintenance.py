"""Compaction, rollups, collection: bounded state, nothing lost, nothing left behind."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from persist_model import (
    SCHEMA,
    another,
    blobs,
    counted,
    expected_at,
    mem_client,
    referenced,
    updates,
)

from mzsql.persist import Settings
from mzsql.persist.batch import InlinePart
from mzsql.persist.columns import physical
from mzsql.persist.shard_maintenance import choose
from mzsql.persist.state import ShardState, TraceBatch


def grown(client, count, per_batch=1, start=0):
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    history = []
    for i in range(start, start + count):
        rows = [(i % 7, f"v{j}", i, 1) for j in range(per_batch)]
        write.compare_and_append(updates(rows), expected_upper=i, new_upper=i + 1)
        history += rows
    return write, read, history


def test_state_stays_small_over_many_appends():
    client = mem_client(rollup_interval=32)
    write, read, history = grown(client, 600)
    state = client.inspect(write.shard_id)
    assert len(state.trace) <= 4 * 6
    entries = client.consensus.scan(write.shard_id, 0, 10_000)
    assert len(entries) <= 2 * 32
    assert counted(read.snapshot_arrow(599)) == expected_at(history, 599)
    fresh = another(client)
    assert fresh.inspect(write.shard_id) == client.inspect(write.shard_id)
    assert blobs(client) == referenced(state)


def test_logical_compaction_forgets_history():
    client = mem_client()
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    for i in range(50):
        rows = [(1, f"v{i}", i, 1)] + ([(1, f"v{i - 1}", i, -1)] if i else [])
        write.compare_and_append(updates(rows), expected_upper=i, new_upper=i + 1)
    client.maintain(write.shard_id, full=True)
    assert client.inspect(write.shard_id).trace[0].rows == 99
    read.downgrade_since(49)
    client.maintain(write.shard_id, full=True)
    [batch] = client.inspect(write.shard_id).trace
    assert (batch.rows, batch.since, batch.lower, batch.upper) == (1, 49, 0, 50)
    assert counted(read.snapshot_arrow(49)) == {(1, "v49", 49): 1}
    write.compare_and_append(updates([(1, "v49", 50, -1)]), expected_upper=50, new_upper=51)
    read.downgrade_since(50)
    client.maintain(write.shard_id, full=True)
    assert client.inspect(write.shard_id).trace == ()  # nothing is left of it
    assert read.snapshot_arrow(50).num_rows == 0


def test_objects_stay_while_a_reader_may_need_them():
    client = mem_client(inline_bytes=0)
    write, read, history = grown(client, 3)
    other = another(client)
    elsewhere = other.open_reader(write.shard_id)
    held = elsewhere.parts(2)
    client.maintain(write.shard_id, full=True)
    state = client.inspect(write.shard_id)
    assert len(state.trace) == 1
    assert {ref.blob_key for ref in held} <= blobs(client)
    rows = pa.concat_tables([ref.to_arrow() for ref in held])
    assert counted(rows) == {(k, v, t): d for k, v, t, d in history}
    elsewhere.heartbeat()  # the parts are still held by `held`
    client.maintain(write.shard_id)
    assert {ref.blob_key for ref in held} <= blobs(client)
    gone = {ref.blob_key for ref in held}
    del held
    elsewhere.heartbeat()
    client.maintain(write.shard_id)
    assert not gone & blobs(client)
    state = client.inspect(write.shard_id)
    assert state.garbage == {}
    assert blobs(client) == referenced(state)
    assert counted(read.snapshot_arrow(2)) == expected_at(history, 2)
    assert counted(elsewhere.snapshot_arrow(2)) == expected_at(history, 2)


def test_losers_of_a_merge_clean_up():
    client = mem_client(inline_bytes=0)
    write, read, history = grown(client, 3)
    other = another(client, inline_bytes=0)
    apply = other.open_writer(write.shard_id)._opened.shard.apply

    def late(command, deadline):
        if type(command).__name__ == "ApplyMerge":
            client.maintain(write.shard_id, full=True)
        return apply(command, deadline)

    other.open_writer(write.shard_id)._opened.shard.apply = late
    other.maintain(write.shard_id)  # nothing is due, so ask for all of it
    other.maintain(write.shard_id, full=True)
    state = client.inspect(write.shard_id)
    assert len(state.trace) == 1
    assert blobs(client) == referenced(state)
    assert counted(read.snapshot_arrow(2)) == expected_at(history, 2)


def test_large_merges_spill():
    """Past a part's size the merge streams through DuckDB; the answer is the same."""
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("v", pa.string()),
            ("l", pa.list_(pa.int32())),
            ("t", pa.timestamp("us", "UTC")),
            ("d", pa.decimal128(38, 4)),
        ]
    )
    client = mem_client(part_bytes=20_000, inline_bytes=0)
    write, read = client.open_shard(client.new_shard_id(), schema)
    rng = random.Random(3)
    for i in range(6):
        rows = [
            (
                rng.choice([None, *range(30)]),
                "x" * rng.randrange(3),
                [1, None],
                None,
                rng.randrange(5),
                i,
                rng.choice([-1, 1, 2]),
            )
            for _ in range(1500)
        ]
        write.compare_and_append(updates(rows, schema), expected_upper=i, new_upper=i + 1)
    read.downgrade_since(3)

    def contents(as_of):
        found = read.snapshot_arrow(as_of)
        keys = [repr(tuple(row.values())) for row in found.drop_columns(["mz_diff"]).to_pylist()]
        return dict(zip(keys, found["mz_diff"].to_pylist(), strict=True))

    before = contents(3), contents(5)
    client.maintain(write.shard_id, full=True)
    assert len(client.inspect(write.shard_id).trace) == 1
    assert (contents(3), contents(5)) == before
    assert read.snapshot_arrow(5).schema.equals(physical(schema))


def _state(sizes):
    trace = tuple(
        TraceBatch(i, i, i + 1, 0, (InlinePart(b"", rows, i, i, 0),))
        for i, rows in enumerate(sizes)
    )
    return ShardState(
        shard_id="s", seqno=1, walltime_ms=1, schema=b"", upper=len(sizes), trace=trace
    )


@pytest.mark.parametrize("seed", range(5))
def test_batches_stay_logarithmic_and_merges_amortized(seed):
    """Whatever the sizes, few batches stay, and each row is rewritten few times."""
    rng = random.Random(seed)
    settings = Settings()
    sizes, written, total = [], 0, 0
    for _ in range(3000):
        rows = rng.choice([1, 1, 1, 10, 300, 5000]) if seed else 1
        total += rows
        sizes.append(rows)
        while merge := choose(_state(sizes), settings):
            run = merge.run
            start, merged = run[0].id, sum(b.rows for b in run)
            sizes[start : start + len(run)] = [merged]
            written += merged
        assert len(sizes) <= settings.max_batches
    assert written <= 16 * total


def test_rollups_of_two_processes_do_not_leak():
    client = mem_client(rollup_interval=8)
    write, read, history = grown(client, 30)
    other = another(client, rollup_interval=8)
    for i in range(10):
        (client if i % 2 else other).maintain(write.shard_id)
        write.compare_and_append(None, expected_upper=30 + i, new_upper=31 + i)
    client.maintain(write.shard_id)
    state = client.inspect(write.shard_id)
    assert blobs(client) == referenced(state)
    assert len(state.rollups) == 1
    assert counted(read.snapshot_arrow(35)) == expected_at(history, 35)
