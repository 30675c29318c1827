"""Batches of updates that say themselves which worker each belongs to."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import KeySpec, PersistClient, SchemaMismatch, Settings

SCHEMA = pa.schema([pa.field("c0", pa.int64()), pa.field("c1", pa.string())])
KEY = KeySpec(columns=("c0",), workers=3)


def updates(rows: int, worker_of: list[int] | None = None) -> pa.Table:
    keys = [7 * n % 1000 for n in range(rows)]
    workers = [key % 3 for key in keys] if worker_of is None else worker_of
    return pa.table(
        {
            "c0": pa.array(keys, pa.int64()),
            "c1": [f"row {n}" for n in range(rows)],
            "mz_time": pa.array([0] * rows, pa.int64()),
            "mz_diff": pa.array([1] * rows, pa.int64()),
            "mz_worker": pa.array(workers, pa.int32()),
        }
    )


@pytest.fixture
def blob() -> MemBlob:
    return MemBlob()


@pytest.fixture
def client(blob: MemBlob):
    # parts so small that each worker has many
    settings = Settings(part_bytes=4096, inline_bytes=0)
    with PersistClient(blob, MemConsensus(), settings=settings, background=False) as made:
        yield made


@pytest.mark.parametrize("given", ["table", "reader"])
def test_each_worker_gets_its_rows_and_all_are_there_once(client, given) -> None:
    writer, reader = client.open_shard(client.new_shard_id(), SCHEMA, key=KEY)
    table = updates(2000)
    rows = table if given == "table" else table.to_reader(max_chunksize=128)
    batch = writer.batch_with_workers(rows, lower=0, upper=1)
    writer.compare_and_append_batch(batch, expected_upper=0, new_upper=1)
    assert len(batch.parts) > 2 * KEY.workers
    for part in reader.parts(0):
        keys = part.to_arrow(columns=["c0"]).column("c0").to_pylist()
        assert keys == sorted(keys)
        assert {key % 3 for key in keys} == {part.worker}
    found = reader.snapshot_arrow(0)
    wanted = Counter(zip(table["c0"].to_pylist(), table["c1"].to_pylist(), strict=True))
    assert Counter(zip(found["c0"].to_pylist(), found["c1"].to_pylist(), strict=True)) == wanted


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (updates(500, [n % 4 for n in range(500)]), "are of none of its 3 workers"),
        (updates(500, [None] * 500), "are of none of its 3 workers"),
        (updates(3).drop_columns(["mz_worker"]), "no column mz_worker"),
        (
            updates(3).set_column(4, "mz_worker", pa.array(["0", "1", "2"])),
            "workers are integers, not string",
        ),
    ],
    ids=["beyond", "null", "no column", "text"],
)
def test_what_belongs_to_no_worker_is_refused_and_leaves_nothing(
    client, blob, given, message
) -> None:
    writer, _ = client.open_shard(client.new_shard_id(), SCHEMA, key=KEY)
    with pytest.raises(SchemaMismatch, match=message):
        writer.batch_with_workers(given, lower=0, upper=1)
    assert list(blob.list_keys_and_metadata("")) == []


def test_a_shard_without_a_key_has_no_workers(client) -> None:
    writer, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    with pytest.raises(SchemaMismatch, match="has no key, so no workers either"):
        writer.batch_with_workers(updates(3), lower=0, upper=1)
