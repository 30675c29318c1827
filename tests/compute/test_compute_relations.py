"""Arrow tables and Parquet parts reach Spark whole and typed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from compute_kit import ForeignPaths, Pathless

from mzsql.compute.engines import relations
from mzsql.compute.engines.relations import arrow_frame, parts_frame, rows_at, spark_schema
from mzsql.compute.engines.spark_session import step_session
from mzsql.compute.replica.target import with_time
from mzsql.location import open_blob
from mzsql.location.mem import MemConsensus
from mzsql.persist import PersistClient, Settings

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark):
    return step_session(spark)


@pytest.mark.parametrize("sizes", [[3, 0, 2], [0, 0, 1], [0], [], [1, 0], [0, 4], [2, 0, 0, 1]])
def test_no_row_is_lost_behind_an_empty_chunk(session, sizes):
    chunks, start = [], 0
    for size in sizes:
        chunks.append(pa.array(range(start, start + size), pa.int64()))
        start += size
    table = pa.table({"c0": pa.chunked_array(chunks, pa.int64())})
    assert sorted(arrow_frame(session, table).toArrow()["c0"].to_pylist()) == list(range(start))


VALUES = pa.table(
    {
        "b": pa.array([True, None], pa.bool_()),
        "i2": pa.array([1, None], pa.int16()),
        "i4": pa.array([2**31 - 1, None], pa.int32()),
        "i8": pa.array([-(2**63), None], pa.int64()),
        "f4": pa.array([1.5, None], pa.float32()),
        "f8": pa.array([float("inf"), None], pa.float64()),
        "n": pa.array([Decimal("-12.500000000000000001"), None], pa.decimal128(38, 18)),
        "u8": pa.array([Decimal(2**64 - 1), None], pa.decimal128(20, 0)),
        "t": pa.array(["ä\x00b", None]),
        "by": pa.array([b"\x00\xff", None], pa.binary()),
        "d": pa.array([dt.date(1, 1, 1), None], pa.date32()),
        "ts": pa.array([dt.datetime(2026, 2, 3, 4, 5, 6, 7), None], pa.timestamp("us")),
        "tz": pa.array(
            [dt.datetime(2026, 2, 3, tzinfo=dt.UTC), None], pa.timestamp("us", tz="UTC")
        ),
        "iv": pa.array(
            [{"months": 1, "days": 2, "micros": 3}, None],
            pa.struct([("months", pa.int32()), ("days", pa.int32()), ("micros", pa.int64())]),
        ),
        "l": pa.array([[1, None], None], pa.list_(pa.int32())),
        "mz_time": pa.array([5, 7], pa.int64()),
        "mz_diff": pa.array([1, -2], pa.int64()),
    }
)


@pytest.mark.parametrize("inline_rows", [100, 1])
def test_every_type_survives(session, tmp_path, inline_rows):
    frame = arrow_frame(session, VALUES, scratch=tmp_path, inline_rows=inline_rows)
    assert bool(list(tmp_path.iterdir())) == (inline_rows == 1)
    assert frame.schema == spark_schema(VALUES.schema)
    found = frame.orderBy("mz_time").toArrow()
    assert found.cast(VALUES.schema).to_pylist() == VALUES.to_pylist()


@pytest.fixture(
    params=["path", "driver", pytest.param("executors", marks=pytest.mark.long), "no file system"]
)
def client(request, tmp_path, monkeypatch):
    """A location whose parts are read by path, through the driver, by executors, and by executors as Spark has no such file system."""
    url = f"file:{tmp_path}/blob"
    blob = open_blob(url)
    if request.param != "path":
        blob = Pathless(blob) if request.param != "no file system" else ForeignPaths(blob)
    if request.param in ("executors", "no file system"):
        monkeypatch.setattr(relations, "DRIVER_ROWS", 0)
    settings = Settings(inline_bytes=0, inline_total_bytes=0)
    with PersistClient(
        blob, MemConsensus(), settings=settings, background=False, blob_url=url
    ) as opened:
        yield opened


def test_parts_are_read_as_written(session, client):
    schema = VALUES.drop_columns(["mz_time", "mz_diff"]).schema
    writer, reader = client.open_shard(client.new_shard_id(), schema)
    writer.compare_and_append(VALUES, expected_upper=0, new_upper=8)
    parts = reader.parts_between(0, 8)
    assert not any(part.inline for part in parts)
    found = parts_frame(session, parts, schema, between=(0, 8)).orderBy("mz_time").toArrow()
    assert found.cast(VALUES.schema).to_pylist() == VALUES.to_pylist()
    assert parts_frame(session, parts, schema, between=(6, 8)).count() == 1
    assert parts_frame(session, parts, schema, between=(0, 5)).count() == 0
    for as_of, count in ((4, 0), (5, 1), (6, 1), (7, 2)):
        at = parts_frame(session, reader.parts(as_of), schema, as_of=as_of).toArrow()
        assert at["mz_time"].to_pylist() == [as_of] * count
        here = rows_at(reader.parts(as_of), with_time(schema), as_of)
        assert here.num_rows == count


def test_a_batch_moved_to_its_timestamp_is_read_there(session, client):
    schema = pa.schema([("c0", pa.int64())])
    writer, reader = client.open_shard(client.new_shard_id(), schema)
    table = pa.table({"c0": [1, 2], "mz_time": [0, 0], "mz_diff": [1, 1]})
    early = writer.batch(table, lower=0, upper=1)
    writer.compare_and_append_batch(early.rewrite_ts(9), expected_upper=0, new_upper=10)
    parts = reader.parts_between(0, 10)
    assert parts_frame(session, parts, schema, between=(0, 9)).count() == 0
    late = parts_frame(session, parts, schema, between=(9, 10)).toArrow()
    assert late["mz_time"].to_pylist() == [9, 9]
    assert parts_frame(session, reader.parts(8), schema, as_of=8).count() == 0
    assert parts_frame(session, reader.parts(9), schema, as_of=9).count() == 2


def test_ranges_select_keys_and_nulls(session, client):
    schema = pa.schema([("c0", pa.int64())])
    writer, reader = client.open_shard(client.new_shard_id(), schema)
    values = [*range(10), None]
    table = pa.table({"c0": pa.array(values, pa.int64()), "mz_time": [0] * 11, "mz_diff": [1] * 11})
    writer.compare_and_append(table, expected_upper=0, new_upper=1)
    ranges = [(None, None), (2, 3), (7, 7), (9, None)]
    frame = parts_frame(session, reader.parts(0), schema, as_of=0, key_ranges=ranges)
    found = frame.toArrow()["c0"].to_pylist()
    assert sorted(found, key=lambda v: (v is None, v)) == [2, 3, 7, 9, None]
    none = parts_frame(session, reader.parts(0), schema, as_of=0, key_ranges=[])
    assert none.count() == 0


@pytest.mark.parametrize("type_", [pa.float64(), pa.decimal128(12, 2), pa.string(), pa.date32()])
def test_ranges_of_other_types_select_the_same(session, client, type_):
    schema = pa.schema([("c0", type_), ("c1", pa.int64())])
    writer, reader = client.open_shard(client.new_shard_id(), schema)
    of = {
        pa.float64(): lambda n: float("nan") if n == 9 else n / 2,
        pa.decimal128(12, 2): lambda n: Decimal(n) / 4,
        pa.string(): lambda n: f"k{n}",
        pa.date32(): lambda n: dt.date(2000, 1, 1) + dt.timedelta(n),
    }[type_]
    for first in (0, 5):
        keys = pa.array([*map(of, range(first, first + 5)), None], type_)
        rows = [keys, [*list(range(first, first + 5)), 99], [first] * 6, [1] * 6]
        table = pa.table(rows, names=["c0", "c1", "mz_time", "mz_diff"])
        writer.compare_and_append(table, expected_upper=first, new_upper=first + 5)
    ranges = [(of(2), of(3)), (of(8), of(8)), (of(9), None)]
    frame = parts_frame(session, reader.parts(9), schema, as_of=9, key_ranges=ranges)
    assert sorted(frame.toArrow()["c1"].to_pylist()) == [2, 3, 8, 9]
    early = parts_frame(session, reader.parts(9), schema, between=(0, 5), key_ranges=[(None, None)])
    assert early.toArrow().select(["c1", "mz_time"]).to_pylist() == [{"c1": 99, "mz_time": 0}]


def test_nothing_appended_is_an_empty_frame(session, client):
    schema = pa.schema([("c0", pa.int64())])
    writer, reader = client.open_shard(client.new_shard_id(), schema)
    writer.compare_and_append(None, expected_upper=0, new_upper=3)
    assert parts_frame(session, reader.parts(2), schema, as_of=2).count() == 0
