"""What a part's metadata tells of a shard without key, of parts written here and of adopted ones; how adoption reads."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mzsql.location.file import FileBlob
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import KeySpec, PersistClient, Settings

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("f", pa.float64())])
N = 3000


def rows(n=N):
    return pa.table(
        {
            "a": pa.array([(i * 7919) % n - 5 for i in range(n)], pa.int64()),
            "b": pa.array([None if i % 10 == 0 else f"text {i % 97:02}" for i in range(n)]),
            "f": pa.array([i / 3 for i in range(n)]),
            "mz_time": pa.array([i % 4 for i in range(n)], pa.int64()),
            "mz_diff": pa.array([1] * n, pa.int64()),
        }
    )


class OnlyWhole:
    """A Blob that reads no ranges."""

    def __init__(self):
        self.blob = MemBlob()
        for name in ("get", "set", "delete", "list_keys_and_metadata", "close"):
            setattr(self, name, getattr(self.blob, name))

    def get(self, key):
        return self.blob.get(key)

    def set(self, key, value):
        self.blob.set(key, value)

    def delete(self, key):
        return self.blob.delete(key)

    def list_keys_and_metadata(self, prefix):
        return self.blob.list_keys_and_metadata(prefix)

    def close(self):
        self.blob.close()


class Counting(FileBlob):
    """Counts reads of whole objects."""

    wholes = 0

    def get(self, key):
        self.wholes += 1
        return super().get(key)


def opened(blob, key=None, **settings):
    client = PersistClient(
        blob, MemConsensus(), settings=Settings(inline_bytes=0, **settings), background=False
    )
    write, read = client.open_shard(client.new_shard_id(), SCHEMA, key=key)
    return client, write, read


def test_every_part_tells_its_bounds():
    client, write, read = opened(MemBlob(), part_bytes=20_000, row_group_rows=100)
    write.compare_and_append(rows(), expected_upper=0, new_upper=10)
    refs = read.parts(9)
    assert len(refs) > 3
    for ref in refs:
        table = pq.read_table(pa.BufferReader(client.blob.get(ref.part.key)))
        by_name = {stats.column: stats for stats in ref.part.stats}
        assert list(by_name) == ["a", "b", "f"]
        for name in ("a", "b"):
            bounds = pc.min_max(table[name]).as_py()
            assert (by_name[name].lo, by_name[name].hi) == (bounds["min"], bounds["max"])
            assert by_name[name].nulls == table[name].null_count
        assert not by_name["f"].known
        times = pc.min_max(table["mz_time"]).as_py()
        assert (ref.part.time_min, ref.part.time_max) == (times["min"], times["max"])
        assert ref.part.rows == table.num_rows


def test_as_many_columns_as_the_settings_say():
    _, write, read = opened(MemBlob(), stats_columns=1)
    write.compare_and_append(rows(), expected_upper=0, new_upper=10)
    [ref] = read.parts(9)
    assert [stats.column for stats in ref.part.stats] == ["a"]


@pytest.mark.parametrize("statistics", [True, False, ["a"]])
@pytest.mark.parametrize("key", [None, KeySpec(("b",))])
@pytest.mark.parametrize("blob", ["stretches", "whole", "file"])
def test_adopted_parts_are_as_those_written_here(tmp_path, monkeypatch, blob, key, statistics):
    monkeypatch.setattr("mzsql.persist.adoption._STRETCH_BYTES", 1000)
    store = {"stretches": MemBlob, "whole": OnlyWhole, "file": lambda: Counting(tmp_path)}[blob]()
    client, write, read = opened(store, key)
    table = rows() if key is None else rows().sort_by("b")
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=700, write_statistics=statistics, store_schema=False)
    data = sink.getvalue().to_pybytes()
    name = f"{write.part_prefix()}/part-0.parquet"
    store.set(name, data)
    batch = write.adopt_parts([name], lower=0, upper=10)
    [part] = batch.parts
    assert (part.size, part.checksum, part.rows) == (len(data), zlib.crc32(data), N)
    assert (part.time_min, part.time_max) == (0, 3)
    by_name = {stats.column: stats for stats in part.stats}
    assert list(by_name) == (["a", "b", "f"] if key is None else ["b"])
    if key is not None or statistics is True:
        assert (by_name["b"].lo, by_name["b"].hi) == ("text 00", "text 96")
        assert by_name["b"].nulls == N // 10
    else:
        assert not by_name["b"].known
    if key is None:
        assert by_name["a"].known == bool(statistics)
    if blob == "file":
        assert store.wholes == 0
    write.compare_and_append_batch(batch, expected_upper=0, new_upper=10)
    assert read.snapshot_arrow(9).num_rows == N
    client.close()


def test_columns_that_hardly_repeat_have_no_dictionary():
    client, write, read = opened(MemBlob())
    n = 20_000
    table = pa.table(
        {
            "a": pa.array(range(n), pa.int64()),
            "b": pa.array([f"text {i % 97}" for i in range(n)]),
            "f": pa.array([float(i) for i in range(n)]),
            "mz_time": pa.array([0] * n, pa.int64()),
            "mz_diff": pa.array([1] * n, pa.int64()),
        }
    )
    write.compare_and_append(table, expected_upper=0, new_upper=1)
    [ref] = read.parts(0)
    group = pq.read_metadata(pa.BufferReader(client.blob.get(ref.part.key))).row_group(0)
    encoded = {
        group.column(place).path_in_schema: group.column(place).has_dictionary_page
        for place in range(5)
    }
    assert encoded == {"a": False, "b": True, "f": False, "mz_time": True, "mz_diff": True}


def test_row_groups_are_even():
    client, write, read = opened(MemBlob(), row_group_rows=1000)
    write.compare_and_append(rows(2100), expected_upper=0, new_upper=10)
    [ref] = read.parts(9)
    footer = pq.read_metadata(pa.BufferReader(client.blob.get(ref.part.key)))
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [700] * 3
