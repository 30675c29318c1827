"""Snapshots larger than memory: streams of pieces, consolidated or not."""

from __future__ import annotations

import gc
import subprocess
import sys

import pyarrow as pa
import pytest
from persist_model import SCHEMA, counted, expected_at, mem_client, referenced, updates

from mzsql.location import Determinate
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import CorruptPart, KeySpec, MissingPart, PersistClient, Settings, SnapshotSplit
from mzsql.repr.errors import DataError

HISTORY = [(i % 40, f"v{i % 7}", i // 10, 1 if i % 9 else -1) for i in range(300)]


def filled(client, key=None, history=HISTORY):
    write, read = client.open_shard(client.new_shard_id(), SCHEMA, key=key)
    for time in range(30):
        rows = [row for row in history if row[2] == time]
        write.compare_and_append(updates(rows), expected_upper=time, new_upper=time + 1)
    return write, read


@pytest.mark.parametrize("inline_bytes", [0, 65536])
@pytest.mark.parametrize("key", [None, KeySpec(("k",))], ids=["plain", "keyed"])
def test_streams_have_what_tables_have(inline_bytes, key):
    client = mem_client(inline_bytes=inline_bytes, row_group_rows=4, compaction_fanout=1000)
    _, read = filled(client, key)
    for as_of in (0, 13, 29):
        wanted = expected_at(HISTORY, as_of)
        loose = read.snapshot_reader(as_of)
        assert loose.schema == read.snapshot_arrow(as_of).schema
        table = loose.read_all()
        assert counted(table) == wanted
        assert set(table["mz_time"].to_pylist()) <= {as_of}
        tight = read.snapshot_reader(as_of, consolidate=True).read_all()
        assert counted(tight) == wanted
        assert tight.num_rows == len(wanted)
        if key is not None:
            assert tight["k"].to_pylist() == sorted(tight["k"].to_pylist())
        [split] = read.snapshot(as_of)
        received = SnapshotSplit.from_bytes(split.to_bytes(), blob=client.blob)
        assert counted(received.to_reader().read_all()) == wanted
        assert received.to_reader(consolidate=True).read_all().num_rows == len(wanted)
    narrow = read.snapshot_reader(29, columns=["v"], filters={"k": [(3, 5)]}, consolidate=True)
    rows = [row[1:] for row in HISTORY if 3 <= row[0] <= 5]
    assert counted(narrow.read_all()) == expected_at(rows, 29)
    empty = read.snapshot_reader(29, filters={"k": [(100, None)]}, consolidate=True).read_all()
    assert (empty.num_rows, empty.column_names) == (0, ["k", "v", "mz_time", "mz_diff"])


def test_errors_come_out_of_the_reader_as_they_are():
    client = mem_client(inline_bytes=0)
    _, read = filled(client)
    key = next(ref.blob_key for ref in read.parts(29))
    good = client.blob.get(key)
    for bad, error in ((None, MissingPart), (good[:50] + b"?" + good[51:], CorruptPart)):
        readers = [read.snapshot_reader(29), read.snapshot_reader(29, consolidate=True)]
        [split] = read.snapshot(29)
        readers += [split.to_reader(), split.to_reader(consolidate=True)]
        client.blob.delete(key)
        if bad is not None:
            client.blob.set(key, bad)
        for reader in readers:
            with pytest.raises(error, match=key):
                reader.read_all()
        client.blob.set(key, good)
    half = 2**62
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(
        updates([(1, "a", 0, half), (1, "a", 0, half)]), expected_upper=0, new_upper=1
    )
    with pytest.raises(DataError, match="cannot be consolidated"):
        read.snapshot_reader(0, consolidate=True).read_all()


class Stuck(MemBlob):
    """Reads fail once told."""

    stuck = False

    def get(self, key):
        if self.stuck:
            raise Determinate("no reads")
        return super().get(key)


def test_every_read_ends_in_time():
    blob = Stuck()
    client = PersistClient(
        blob, MemConsensus(), settings=Settings(inline_bytes=0), background=False
    )
    _, read = filled(client)
    [split], [ref, *_] = read.snapshot(29), read.parts(29)
    blob.stuck = True
    for act in (
        lambda: split.to_arrow(timeout=0.05),
        lambda: split.to_reader(timeout=0.05).read_all(),
        lambda: split.inline_table(timeout=0.05),
        lambda: ref.to_arrow(timeout=0.05),
        lambda: read.snapshot_arrow(29, timeout=0.05),
        lambda: read.snapshot_reader(29, timeout=0.05).read_all(),
        lambda: read.updates(3, 9, timeout=0.05),
        lambda: next(read.listen(3, timeout=0.05)),
    ):
        with pytest.raises(Determinate, match="no reads"):
            act()


def test_a_stream_keeps_its_objects_until_it_ends():
    client = mem_client(inline_bytes=0)
    write, read = filled(client)
    stream = read.snapshot_reader(29)
    first = stream.read_next_batch()
    read.downgrade_since(29)
    client.maintain(write.shard_id, full=True)
    read.heartbeat()
    client.maintain(write.shard_id)
    rest = stream.read_all()
    table = pa.concat_tables([pa.Table.from_batches([first]), rest])
    assert counted(table) == expected_at(HISTORY, 29)
    del stream
    gc.collect()
    read.heartbeat()
    client.maintain(write.shard_id)
    state = client.inspect(write.shard_id)
    assert {key for key, _ in client.blob.list_keys_and_metadata("")} == referenced(state)
    assert not any(state.garbage.values())


_MEASURED = r"""
import re, sys
import pyarrow as pa
from mzsql.persist import PersistClient, SnapshotSplit
client = PersistClient.open(blob=sys.argv[1], consensus=sys.argv[2], background=False)
read = client.open_reader(sys.argv[3])
# The peak that getrusage tells begins with that of the process which started this one.
peak = lambda: int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) >> 10
for reader in (
    read.snapshot_reader(0, filters={"b": [(1, 5)]}, columns=["a"]),
    read.snapshot_reader(0),
    SnapshotSplit.from_bytes(read.snapshot(0)[0].to_bytes()).to_reader(),
):
    rows, before = reader.read_next_batch().num_rows, peak()
    for batch in reader:
        rows += batch.num_rows
    print(rows, peak() - before)
table = read.snapshot_arrow(0, consolidate=False)
print(table.num_rows, peak() - before)
"""


def test_memory_does_not_grow_with_the_shard(tmp_path):
    """2.6 million updates, 100 MiB in Arrow, take about a quarter of that to stream."""
    blob, consensus = f"file:{tmp_path}/blob", f"sqlite:{tmp_path}/c.db"
    settings = Settings(part_bytes=16 << 20, row_group_rows=1 << 16)
    schema = pa.schema([(name, pa.int64()) for name in "abc"])
    with PersistClient.open(
        blob=blob, consensus=consensus, settings=settings, background=False
    ) as client:
        write, _ = client.open_shard(client.new_shard_id(), schema)
        one = pa.array(range(1 << 17), pa.int64())
        zero, ones = (pa.array([v] * len(one), pa.int64()) for v in (0, 1))
        columns = [one, pa.compute.bit_wise_and(one, 7), zero, zero, ones]
        names = ["a", "b", "c", "mz_time", "mz_diff"]
        table = pa.table(columns, names=names)
        batches = (batch for _ in range(20) for batch in table.to_batches())
        reader = pa.RecordBatchReader.from_batches(table.schema, batches)
        write.compare_and_append(reader, expected_upper=0, new_upper=1)
        command = [sys.executable, "-c", _MEASURED, blob, consensus, write.shard_id]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    *streams, whole = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    total = 20 << 17
    assert [rows for rows, _ in [*streams, whole]] == [total * 5 // 8, total, total, total]
    assert whole[1] > 90
    assert all(grown < 25 for _, grown in streams), streams
