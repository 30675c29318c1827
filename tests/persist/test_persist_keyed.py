"""Keyed shards: workers, sorted parts, lookups that read little, additive columns."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from persist_model import counted, updates

from mzsql.location import UsageError
from mzsql.location.file import FileBlob
from mzsql.location.mem import MemConsensus
from mzsql.persist import KeySpec, PersistClient, ReadStats, SchemaMismatch, Settings
from mzsql.persist.stats import Lookup
from mzsql.repr.errors import DataError

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
KEY = KeySpec(columns=("k",), workers=2)
N = 40_000


@pytest.fixture
def client(tmp_path):
    with PersistClient(FileBlob(tmp_path), MemConsensus(), background=False) as made:
        yield made


class Requests(FileBlob):
    """Files that count how often a stretch of one is asked for."""

    ranges = 0

    def get_range(self, key, offset, length):
        self.ranges += 1
        return super().get_range(key, offset, length)


def test_another_process_reads_a_footer_once_and_neighbours_at_once(tmp_path):
    blob, consensus = Requests(tmp_path), MemConsensus()
    with (
        PersistClient(blob, consensus, background=False) as writing,
        PersistClient(blob, consensus, background=False) as reading,
    ):
        write, _ = writing.open_shard(writing.new_shard_id(), SCHEMA, key=KEY)
        write.compare_and_append({0: table(range(N // 4))}, expected_upper=0, new_upper=1)
        read = reading.open_reader(write.shard_id)
        cold, warm = ReadStats(), ReadStats()
        for stats, requests in ((cold, 2), (warm, 1)):
            blob.ranges = 0
            found = read.snapshot_arrow(0, key_ranges=[(900, 3100)], stats=stats)
            assert found["k"].to_pylist() == list(range(900, 3101))
            assert stats.row_groups == 4
            assert blob.ranges == requests
        [ref] = read.parts(0)
        assert cold.bytes == warm.bytes + ref.part.footer_size


def table(ks, time=0, schema=SCHEMA):
    ks = pa.array(ks, schema.field("k").type)
    n = len(ks)
    return pa.table(
        {
            "k": ks,
            "s": pa.array([f"row {i}" for i in range(n)]),
            "mz_time": pa.array([time] * n, pa.int64()),
            "mz_diff": pa.array([1] * n, pa.int64()),
        }
    )


def test_parts_are_sorted_by_worker_with_pages_and_statistics(client):
    write, read = client.open_shard(client.new_shard_id(), SCHEMA, key=KEY)
    evens, odds = table(range(N, 0, -2)), table([*range(1, N, 2), None])
    write.compare_and_append({1: odds, 0: evens}, expected_upper=0, new_upper=1)
    refs = read.parts(0)
    assert [r.worker for r in refs] == [0, 1]
    assert [(r.stats[0].lo, r.stats[0].hi, r.stats[0].nulls) for r in refs] == [
        (2, N, 0),
        (1, N - 1, 1),
    ]
    for ref in refs:
        stored = pq.read_table(ref.spark_path)["k"].to_pylist()
        assert stored == sorted(stored, key=lambda k: (k is None, k))
        footer = pq.read_metadata(ref.spark_path)
        assert footer.num_row_groups == N // 2 // 1000 + (ref.rows % 1000 > 0)
        assert footer.row_group(0).column(0).has_column_index
        assert footer.row_group(0).column(1).statistics is None
    client.maintain(write.shard_id, full=True)
    assert read.snapshot_arrow(0, workers=[1]).num_rows == N // 2 + 1


def test_lookups_read_little_and_exactly(client):
    write, read = client.open_shard(client.new_shard_id(), SCHEMA, key=KEY)
    write.compare_and_append(
        {0: table(range(N)), 1: table([*range(N, 2 * N), None])}, expected_upper=0, new_upper=1
    )
    whole = ReadStats()
    everything = read.snapshot_arrow(0, stats=whole)
    assert whole.rows == everything.num_rows == 2 * N + 1

    def lookup(ranges, **kwargs):
        stats = ReadStats()
        found = read.snapshot_arrow(0, key_ranges=ranges, stats=stats, **kwargs)
        return found, stats

    found, stats = lookup([(7, 7), (100, 102)])
    assert found["k"].to_pylist() == [7, 100, 101, 102]
    assert stats.row_groups == 1
    assert stats.parts_skipped == 1
    assert stats.bytes < whole.bytes / 2
    assert lookup([(7, 7), (100, 102)])[1] == stats  # who wrote the footers knows them
    assert lookup([(2 * N - 2, None)])[0]["k"].to_pylist() == [2 * N - 2, 2 * N - 1]
    assert lookup([(None, 1)])[0]["k"].to_pylist() == [0, 1]
    found, stats = lookup([(None, None)])
    assert found["k"].to_pylist() == [None]
    assert stats.parts == 1
    assert lookup([])[0].num_rows == 0
    assert lookup([(5 * N, 6 * N)])[1].bytes == 0
    found, _ = lookup([(10, 10)], columns=["s"])
    assert found.column_names == ["s", "mz_time", "mz_diff"]
    assert found["s"].to_pylist() == ["row 10"]
    assert lookup([(N // 2, N // 2)])[0].num_rows == 1
    with pytest.raises(SchemaMismatch, match="does not fit"):
        lookup([("x", "y")])
    points = [(i, i) for i in range(0, 2 * N, 701)]
    found, _ = lookup(points)  # more than are looked up one by one
    assert found["k"].to_pylist() == [i for i, _ in points]
    narrow = read.updates(0, 1, columns=["s"], key_ranges=[(3, 4)])
    assert narrow["s"].to_pylist() == ["row 3", "row 4"]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.string(), ["a", "b" * 100, "ü", "zz"]),
        (pa.binary(), [b"\x00", b"b" * 100, b"\xff"]),
        (pa.date32(), [dt.date(1969, 1, 1), dt.date(2020, 5, 5), dt.date(2100, 1, 1)]),
        (pa.timestamp("us"), [dt.datetime(1960, 1, 1), dt.datetime(2020, 1, 1, 1, 1, 1, 5)]),
        (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, i, tzinfo=dt.UTC) for i in (1, 2, 3)]),
        (
            pa.decimal128(38, 3),
            [
                decimal.Decimal("-1.5"),
                decimal.Decimal("2"),
                decimal.Decimal("99999999999999999999999.125"),
            ],
        ),
        (pa.float64(), [float("-inf"), -1.0, 2.5, float("nan")]),
        (pa.bool_(), [False, True]),
        (pa.time64("us"), [dt.time(1), dt.time(2, 3, 4, 5)]),
    ],
)
def test_lookups_by_every_type(tmp_path, type_, values):
    """Whatever the key's type, pruning loses nothing: one row group a value."""
    settings = Settings(inline_bytes=0, keyed_row_group_rows=1, page_rows=1)
    client = PersistClient(FileBlob(tmp_path), MemConsensus(), settings=settings, background=False)
    schema = pa.schema([("k", type_), ("n", pa.int64())])
    write, read = client.open_shard(client.new_shard_id(), schema, key=KeySpec(("k",)))
    rows = [*values, None]
    write.compare_and_append(
        updates([(v, i, 0, 1) for i, v in enumerate(rows)], schema), expected_upper=0, new_upper=1
    )
    for i, value in enumerate(rows):
        if value != value:  # noqa: PLR0124 - NaN equals nothing, so ask for all numbers
            assert i in read.snapshot_arrow(0)["n"].to_pylist()
            continue
        stats = ReadStats()
        found = read.snapshot_arrow(0, key_ranges=[(value, value)], stats=stats)
        assert found["n"].to_pylist() == [i]
        if not pa.types.is_floating(type_):
            assert stats.row_groups < len(rows)


BOUNDS = st.none() | st.integers(-20, 20)


@given(st.lists(st.tuples(BOUNDS, BOUNDS)), st.integers(-25, 25), st.integers(0, 8))
def test_a_group_is_read_if_and_only_if_a_range_meets_it(ranges, lo, width):
    lookup = Lookup("k", pa.int64(), ranges)
    hi = lo + width
    wanted = any(
        (a is None or a <= key) and (b is None or key <= b)
        for a, b in ranges
        if (a, b) != (None, None)
        for key in range(lo, hi + 1)
    )
    assert lookup.may_hold(lo, hi, nulls=False) == wanted
    assert lookup.may_hold(lo, hi, nulls=True) == (wanted or (None, None) in ranges)


def test_workers_are_checked(client):
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA, key=KEY)
    for bad in (table([1]), {2: table([1])}, {-1: table([1])}):
        with pytest.raises(SchemaMismatch):
            write.compare_and_append(bad, expected_upper=0, new_upper=1)
    plain, reader = client.open_shard(client.new_shard_id(), SCHEMA)
    with pytest.raises(SchemaMismatch):
        plain.compare_and_append({0: table([1])}, expected_upper=0, new_upper=1)
    with pytest.raises(SchemaMismatch, match="no key"):
        reader.snapshot_arrow(0, key_ranges=[(1, 1)], timeout=0)
    with pytest.raises(SchemaMismatch, match="another key"):
        client.open_shard(write.shard_id, SCHEMA, key=KeySpec(("s",), workers=2))
    with pytest.raises(SchemaMismatch, match="not a column"):
        client.open_shard(client.new_shard_id(), SCHEMA, key=KeySpec(("x",)))
    with pytest.raises(SchemaMismatch, match="integer or a decimal"):
        client.open_shard(client.new_shard_id(), SCHEMA, key=KeySpec(("k",), additive=("s",)))
    with pytest.raises(UsageError):
        KeySpec(("k",), workers=0)


ACCS = pa.schema([("k", pa.int64()), ("total", pa.decimal128(38, 2)), ("n", pa.int64())])
ACC_KEY = KeySpec(("k",), workers=1, additive=("total", "n"))


def d(text):
    return decimal.Decimal(text)


@pytest.mark.parametrize("inline_bytes", [0, 65536])
def test_additive_columns_add_up(tmp_path, inline_bytes):
    client = PersistClient(
        FileBlob(tmp_path),
        MemConsensus(),
        settings=Settings(inline_bytes=inline_bytes),
        background=False,
    )
    write, read = client.open_shard(client.new_shard_id(), ACCS, key=ACC_KEY)
    steps = [
        [(1, d("1.50"), 1, 0, 1), (None, d("2.00"), 1, 0, 1), (2, d("5.00"), 1, 0, 1)],
        [(1, d("-0.50"), 1, 1, 1), (None, d("1.00"), 0, 1, 0), (2, d("-5.00"), -1, 1, -1)],
        [(3, d("0.00"), 0, 2, 0)],
    ]
    for i, rows in enumerate(steps):
        write.compare_and_append(updates(rows, ACCS), expected_upper=i, new_upper=i + 1)
    wanted = [
        {"k": 1, "total": d("1.00"), "n": 2, "mz_time": 2, "mz_diff": 2},
        {"k": None, "total": d("3.00"), "n": 1, "mz_time": 2, "mz_diff": 1},
    ]
    assert read.snapshot_arrow(2).to_pylist() == wanted
    read.downgrade_since(2)
    client.maintain(write.shard_id, full=True)
    [batch] = client.inspect(write.shard_id).trace
    assert batch.rows == 2
    assert read.snapshot_arrow(2, consolidate=False).to_pylist() == wanted


def test_additive_overflow_is_an_error_not_a_wrap(client):
    write, read = client.open_shard(client.new_shard_id(), ACCS, key=ACC_KEY)
    rows = [(1, d("0.00"), 2**62, t, 1) for t in (0, 1)]
    write.compare_and_append(updates(rows, ACCS), expected_upper=0, new_upper=2)
    with pytest.raises(DataError):
        read.snapshot_arrow(1)
    assert counted(read.snapshot_arrow(1, consolidate=False)) == {(1, d("0.00"), 2**62, 1): 2}


def test_gaps_between_row_groups_read_none(client):
    """A key inside a part's bounds but between its row groups costs a footer, no rows."""
    write, read = client.open_shard(client.new_shard_id(), SCHEMA, key=KEY)
    ks = [*range(16_000), *range(100_000, 116_000)]
    write.compare_and_append({0: table(ks)}, expected_upper=0, new_upper=1)
    stats = ReadStats()
    assert read.snapshot_arrow(0, key_ranges=[(50_000, 50_001)], stats=stats).num_rows == 0
    assert (stats.row_groups, stats.row_groups_skipped, stats.rows) == (0, 32, 0)
