"""Reads at their edges: bounds between values, types that engines change, damage in the middle of a stream, caches gone wrong."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from persist_model import SCHEMA, ManualClock, counted, mem_client, updates

from mzsql.location import Determinate
from mzsql.location.file import FileBlob
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import KeySpec, PersistClient, SchemaMismatch, Settings, SnapshotSplit
from mzsql.persist.cache import BlobCache, CachedBlob
from mzsql.persist.errors import CorruptPart, NewerVersion
from mzsql.persist.stats import Lookup
from mzsql.repr.errors import DataError, Unsupported

DAY = dt.datetime(2020, 1, 1)


@pytest.mark.parametrize(
    ("type_", "between", "exact"),
    [
        (pa.int64(), 1.5, 1.0),
        (pa.int32(), decimal.Decimal("1.5"), decimal.Decimal(1)),
        (pa.timestamp("s"), DAY.replace(microsecond=1), DAY),
        (pa.timestamp("ms", "UTC"), DAY.replace(microsecond=1), DAY.replace(microsecond=1000)),
        (pa.date32(), DAY.replace(hour=12), DAY),
        (pa.date64(), DAY.replace(hour=12), DAY),
        (pa.date32(), pa.scalar(DAY.replace(hour=12)), pa.scalar(DAY)),
        (pa.time32("s"), dt.time(1, 2, 3, 4), dt.time(1, 2, 3)),
        (pa.duration("s"), dt.timedelta(microseconds=1), dt.timedelta(seconds=1)),
        (pa.float32(), 1e300, float("inf")),
    ],
    ids=str,
)
def test_a_bound_between_two_values_does_not_become_one_of_them(type_, between, exact):
    with pytest.raises(SchemaMismatch, match="v"):
        Lookup("v", type_, [(between, None)])
    [(lo, hi)] = Lookup("v", type_, [(exact, None)]).ranges
    assert (lo.type, hi) == (type_, None)


@pytest.mark.parametrize("places", [2, 12])
def test_short_decimals_are_filtered_by(places):
    type_ = (pa.decimal32 if places == 2 else pa.decimal64)(places + 5, places)
    client = mem_client(inline_bytes=0)
    write, read = client.open_shard(client.new_shard_id(), pa.schema([("v", type_)]))
    one, two = decimal.Decimal("1.01"), decimal.Decimal("-2.5")
    write.compare_and_append(
        updates([(one, 0, 1), (two, 0, 1), (None, 0, 1)], read.schema),
        expected_upper=0,
        new_upper=1,
    )
    for ranges, found in [
        ([(one, one)], {one}),
        ([(None, one)], {one, two}),
        ([(None, None)], {None}),
        ([(one, None), (None, None)], {one, None}),
    ]:
        table = read.snapshot_arrow(0, filters={"v": ranges})
        assert set(table["v"].to_pylist()) == found


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("unit", ["s", "ns"])
def test_durations_beside_what_needs_duckdb(unit, additive):
    """DuckDB takes durations for intervals, which are something else."""
    duration = pa.duration(unit)
    deep = pa.struct([("d", duration), ("m", pa.map_(pa.string(), pa.list_(duration)))])
    schema = pa.schema([("k", duration), ("a", pa.int64()), *([] if additive else [("n", deep)])])
    client = mem_client()
    key = KeySpec(("k",), additive=("a",)) if additive else None
    write, read = client.open_shard(client.new_shard_id(), schema, key=key)
    for time, diffs in enumerate([(1, 1), (1, -1)]):
        columns = {
            "k": pa.array([7, 40 * 86400], pa.int64()).cast(duration),
            "a": pa.array([5 if diff > 0 else -5 for diff in diffs], pa.int64()),
            "mz_time": pa.array([time] * 2, pa.int64()),
            "mz_diff": pa.array(diffs, pa.int64()),
        }
        if not additive:
            columns["a"] = pa.array([5, 5], pa.int64())
            one = {"d": dt.timedelta(seconds=3), "m": [("x", [dt.timedelta(seconds=4), None])]}
            columns["n"] = pa.array([one, None], deep)
        write.compare_and_append(pa.table(columns), expected_upper=time, new_upper=time + 1)
    [split] = [SnapshotSplit.from_bytes(s.to_bytes(), blob=client.blob) for s in read.snapshot(1)]
    read.downgrade_since(1)
    answers = [
        read.snapshot_arrow(1),
        read.snapshot_reader(1, consolidate=True).read_all(),
        split.to_arrow(),
    ]
    client.maintain(write.shard_id, full=True)
    answers.append(read.snapshot_arrow(1))
    for answer in answers:
        assert answer["k"].cast(pa.int64()).to_pylist() == [7]
        assert (answer["a"].to_pylist(), answer["mz_diff"].to_pylist()) == (
            [10 if additive else 5],
            [2],
        )
        if additive:
            continue
        [nested] = answer["n"].to_pylist()
        assert nested["d"] == dt.timedelta(seconds=3)


@pytest.mark.parametrize(
    "type_",
    [pa.decimal256(60, 5), pa.decimal128(5, -2), pa.uuid(), pa.list_(pa.decimal256(3, 1))],
    ids=str,
)
def test_types_that_would_not_come_back_are_refused(type_):
    """Engines read long decimals as floats, Parquet has none of negative scale, and nothing groups by extension types."""
    client = mem_client()
    shard_id = client.new_shard_id()
    with pytest.raises(SchemaMismatch, match="cannot be stored"):
        client.open_shard(shard_id, pa.schema([("v", type_)]))
    assert not client.exists(shard_id)


class Glitching(MemBlob):
    """Damages what is read of a range that begins in the second half of an object, so many times."""

    def __init__(self):
        super().__init__()
        self.size = None
        self.glitches = 0

    def get_range(self, key, offset, length):
        data = super().get_range(key, offset, length)
        if self.glitches and self.size // 2 < offset < self.size * 3 // 4:
            self.glitches -= 1
            return data[:-1] + bytes([data[-1] ^ 1])
        return data


@pytest.mark.parametrize("glitches", [1, 2])
def test_damage_in_the_middle_of_a_stream_does_not_stay_cached(monkeypatch, glitches):
    """A copy damaged on its way is gotten anew once, and forgotten for good: it fails at most the read that met it."""
    monkeypatch.setattr("mzsql.persist.fetch._WHOLE_BYTES", 1024)
    blob = Glitching()
    client = PersistClient(
        blob,
        MemConsensus(),
        settings=Settings(inline_bytes=0, row_group_rows=500, compression="none"),
        background=False,
        cache=BlobCache(),
    )
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    rows = [(i, f"{i * 7919 % 10007}", 0, 1) for i in range(10_000)]
    write.compare_and_append(updates(rows), expected_upper=0, new_upper=1)
    [ref] = read.parts(0)
    blob.size, blob.glitches = ref.bytes, glitches
    if glitches > 1:
        with pytest.raises(Exception, match="checksum"):
            read.snapshot_reader(0).read_all()
    assert counted(read.snapshot_reader(0).read_all()) == {row[:3]: 1 for row in rows}
    assert blob.glitches == 0


def test_a_disk_that_takes_no_copy_is_told(monkeypatch, tmp_path):
    client = mem_client()
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(DataError, match="cannot be consolidated"):
        read.snapshot_reader(0, consolidate=True).read_all()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("mzsql.persist.streams.Path", lambda _: _Full())
    with pytest.raises(DataError, match="cannot be consolidated"):
        read.snapshot_reader(0, consolidate=True).read_all()
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert read.snapshot_reader(0, consolidate=True).read_all().num_rows == 1
    assert list(tmp_path.iterdir()) == []


def test_a_cached_file_under_the_name_of_another_is_damaged(tmp_path):
    blob = MemBlob()
    keys = ["a", "b"]
    for key in keys:
        blob.set(key, key.encode() * 100)
    cached = CachedBlob(blob, BlobCache(tmp_path, memory_bytes=0))
    assert [cached.get(key) for key in keys] == [b"a" * 100, b"b" * 100]
    one, other = (path for path in tmp_path.rglob("*") if path.is_file())
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)
    assert [cached.get(key) for key in keys] == [b"a" * 100, b"b" * 100]
    assert cached.cache.stats().damaged == 2


def test_what_is_no_file_in_a_cache_is_neither_waited_for_nor_in_the_way(tmp_path):
    blob = MemBlob()
    for number in range(20):
        blob.set(f"k{number}", bytes([number]) * 1000)
    cached = CachedBlob(blob, BlobCache(tmp_path, memory_bytes=0, directory_bytes=5000))
    cached.get("k0")
    [path] = [path for path in tmp_path.rglob("*") if path.is_file()]
    path.unlink()
    os.mkfifo(path)
    stray = path.parent / "stray"
    stray.mkdir()
    os.utime(stray, (0, 0))
    for number in range(20):
        assert cached.get(f"k{number}") == bytes([number]) * 1000
    assert cached.cache.stats().evictions > 0
    before = cached.cache.stats().directory_hits
    assert cached.get("k19") == bytes([19]) * 1000
    assert cached.cache.stats().directory_hits == before + 1
    assert stray.is_dir()


def test_a_damaged_split_is_refused():
    """A split says at which time it is read, so any other byte in it would be another answer."""
    client = mem_client()
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    [split] = read.snapshot(0, filters={"k": [(0, 5)]}, columns=["v"])
    whole = split.to_bytes()
    assert SnapshotSplit.from_bytes(whole, blob=client.blob).to_arrow().equals(split.to_arrow())
    for place in range(len(whole)):
        damaged = whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]
        with pytest.raises((CorruptPart, NewerVersion)):
            SnapshotSplit.from_bytes(damaged, blob=client.blob)


def test_ranges_that_can_be_gone_through_once_are_refused():
    """A split would have none of them left."""
    client = mem_client()
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    with pytest.raises(SchemaMismatch, match="only once"):
        read.snapshot(0, filters={"k": iter([(0, 5)])})


@pytest.mark.parametrize("keyed", [False, True])
def test_no_statistics_where_there_is_a_nan(keyed):
    """Statistics leave NaN out, so whoever takes it for the greatest number, as Spark does, would miss it by them."""
    client = mem_client(inline_bytes=0, row_group_rows=2)
    schema = pa.schema(
        [
            ("f", pa.float64()),
            ("g", pa.float32()),
            ("s", pa.struct([("h", pa.float64()), ("i", pa.int64())])),
        ]
    )
    key = KeySpec(("f", "g")) if keyed else None
    write, read = client.open_shard(client.new_shard_id(), schema, key=key)
    rows = [(f, 1.0, {"h": f, "i": 1}, 0, 1) for f in (0.5, 1.0, float("nan"), -1.0)]
    write.compare_and_append(updates(rows, schema), expected_upper=0, new_upper=1)
    [ref] = read.parts(0)
    metadata = pq.read_metadata(io.BytesIO(client.blob.get(ref.blob_key)))
    told = {
        column.path_in_schema
        for number in range(metadata.num_row_groups)
        for place in range(metadata.num_columns)
        if (column := metadata.row_group(number).column(place)).statistics is not None
    }
    assert told == {"g", "mz_time"} | (set() if keyed else {"s.i", "mz_diff"})
    table = read.snapshot_arrow(0, filters={"f": [(0.75, None)]})
    assert sorted(map(str, table["f"].to_pylist())) == ["1.0", "nan"]


class Refusing(MemConsensus):
    """Takes no writes while it is told so."""

    refuses = False

    def compare_and_set(self, key, expected, new):
        if self.refuses:
            raise Determinate("refused")
        return super().compare_and_set(key, expected, new)


def test_a_reader_that_could_not_be_expired_can_be_expired_again():
    consensus = Refusing()
    client = PersistClient(MemBlob(), consensus, clock=ManualClock(), background=False)
    _, read = client.open_shard(client.new_shard_id(), SCHEMA)
    consensus.refuses = True
    with pytest.raises(Determinate):
        read.expire(timeout=0.1)
    consensus.refuses = False
    assert len(client.inspect(read.shard_id).readers) == 1
    read.expire()
    read.expire()
    assert client.inspect(read.shard_id).readers == {}


class _Full:
    """A directory on a disk without space."""

    def __truediv__(self, name):
        return "/dev/full"


@pytest.mark.spark
def test_spark_finds_what_arrow_finds_of_nan_and_old_dates(spark, tmp_path):
    from mzsql.spark import shard_dataframe

    client = PersistClient(
        FileBlob(tmp_path), MemConsensus(), settings=Settings(inline_bytes=0), background=False
    )
    schema = pa.schema([("f", pa.float64()), ("d", pa.date32())])
    write, read = client.open_shard(client.new_shard_id(), schema)
    first, nan = dt.date(1, 1, 1), float("nan")
    rows = [(0.5, first, 0, 1), (nan, None, 0, 1), (None, dt.date(2020, 1, 1), 0, 1)]
    write.compare_and_append(updates(rows, schema), expected_upper=0, new_upper=1)
    for filters in (
        {"f": [(1.0, None)]},
        {"f": [(nan, nan)]},
        {"f": [(None, nan)]},
        {"f": [(0.75, nan), (None, None)]},
        {"d": [(None, first)]},
    ):
        frame = shard_dataframe(spark, read, 0, filters=filters)
        wanted = read.snapshot_arrow(0, filters=filters)
        assert wanted.num_rows
        assert sorted(map(str, frame.toArrow()["f"].to_pylist())) == sorted(
            map(str, wanted["f"].to_pylist())
        )
    # Any other condition is Spark's own, by the statistics that the parts have.
    assert shard_dataframe(spark, read, 0).where("f > 1").count() == 1
    with pytest.raises(SchemaMismatch, match="twice"):
        shard_dataframe(spark, read, 0, columns=["f", "f"])
    nanoseconds = pa.schema([("t", pa.struct([("n", pa.timestamp("ns"))]))])
    _, read = client.open_shard(client.new_shard_id(), nanoseconds)
    with pytest.raises(Unsupported, match="no type"):
        shard_dataframe(spark, read, 0)


HISTORY = [(k, "x", time, 1) for k in range(40) for time in (0, 2)] + [(0, "x", 5, -2)]


@pytest.mark.parametrize("as_of", [0, 2, 5])
@pytest.mark.parametrize("since", [0, 2, 5])
@pytest.mark.parametrize("columns", [None, ["v"], ["v", "k"]])
def test_a_split_is_consolidated_whatever_its_batches_are(as_of, since, columns):
    """One compacted batch at one time has nothing to add up; one at several times, several batches and fewer columns have."""
    client = mem_client(inline_bytes=0, part_bytes=600, max_batches=64)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    for lower, upper in ((0, 1), (1, 3), (3, 6)):
        rows = updates([row for row in HISTORY if lower <= row[2] < upper])
        write.compare_and_append(rows, expected_upper=lower, new_upper=upper)
    if since:
        read.downgrade_since(min(since, as_of))
        client.maintain(read.shard_id, full=True)
    names = SCHEMA.names if columns is None else columns
    wanted = counted(
        updates([(*(dict(zip("kv", r, strict=False))[n] for n in names), as_of, r[3])
                 for r in HISTORY if r[2] <= as_of], pa.schema([SCHEMA.field(n) for n in names]))
    )  # fmt: skip
    [split] = read.snapshot(as_of, columns=columns)
    there = SnapshotSplit.from_bytes(split.to_bytes(), blob=client.blob)
    for table in (
        split.to_arrow(),
        there.to_arrow(),
        there.to_reader(consolidate=True).read_all(),
        read.snapshot_arrow(as_of, columns=columns),
        read.snapshot_reader(as_of, columns=columns, consolidate=True).read_all(),
    ):
        assert table.num_rows == len(wanted)
        assert counted(table) == wanted


def test_a_large_read_has_no_chunk_without_rows():
    """Large parts are not copied into one chunk; and some readers of Arrow stop at an empty one."""
    client = mem_client(inline_bytes=0, part_bytes=4_000_000)
    schema = pa.schema([("k", pa.int64())])
    write, read = client.open_shard(client.new_shard_id(), schema)
    many = 400_000
    rows = pa.table({"k": range(many), "mz_time": [0] * many, "mz_diff": [1] * many})
    write.compare_and_append(rows, expected_upper=0, new_upper=1)
    few = updates([(k, 1, 1) for k in range(3)], schema)
    write.compare_and_append(few, expected_upper=1, new_upper=2)
    tables = [read.snapshot_arrow(as_of, consolidate=False) for as_of in (0, 1)]
    tables += [split.to_arrow() for split in read.snapshot(0)]
    tables += [part.to_arrow() for part in read.parts(1)]
    tables += [read.updates(0, 2), read.snapshot_arrow(1, filters={"k": [(many - 1, None)]})]
    for table in tables:
        assert table.num_rows
        assert all(len(chunk) for column in table.columns for chunk in column.chunks)
    assert [table.num_rows for table in tables[:2]] == [many, many + 3]
    assert tables[0]["k"].num_chunks > 1
    assert tables[-1]["k"].to_pylist() == [many - 1]


def test_few_long_values_are_not_copied_into_one_chunk():
    """As many small ones are not: plans kept of ten thousand views are a hundred megabytes."""
    client = mem_client(inline_bytes=0)
    schema = pa.schema([("k", pa.string())])
    write, read = client.open_shard(client.new_shard_id(), schema)
    for at in range(2):
        rows = pa.table({"k": [str(at) * 12_000_000], "mz_time": [at], "mz_diff": [1]})
        write.compare_and_append(rows, expected_upper=at, new_upper=at + 1)
    few = read.snapshot_arrow(0, consolidate=False)
    many = read.snapshot_arrow(1, consolidate=False)
    assert few["k"].num_chunks == 1
    assert many["k"].num_chunks == 2
    assert sorted(text[0] for text in many["k"].to_pylist()) == list("01")
