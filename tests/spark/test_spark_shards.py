"""A shard as a DataFrame has what the shard has, at any time it can be read at, however its updates came to lie."""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import io
import random
import re
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from mzsql.compute.engines.relations import DRIVER_ROWS
from mzsql.location import UsageError
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import KeySpec, PersistClient, ReadTimeout, SchemaMismatch, Settings
from mzsql.persist.columns import physical
from mzsql.repr.errors import Unsupported
from mzsql.spark.shards import shard_dataframe

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("n", pa.decimal128(20, 3)),
        ("l", pa.list_(pa.int32())),
    ]
)
ADDITIVE = pa.schema([("k", pa.int64()), ("g", pa.string()), ("total", pa.int64())])
BIT = pa.schema([("k", pa.int64())])


@pytest.fixture(scope="module")
def session(spark):
    return spark.newSession()


@pytest.fixture
def client(tmp_path):
    with PersistClient.open(
        blob=f"file:{tmp_path}/a [b]*{{c}} %20 ö/blob",
        consensus="mem:",
        settings=Settings(inline_bytes=3200, compression="none", part_bytes=4096),
        background=False,
    ) as opened:
        yield opened


def _table(rows, schema):
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in physical(schema)]
    return pa.table(
        [pa.array(list(c), f.type) for c, f in zip(columns, physical(schema), strict=True)],
        schema=physical(schema),
    )


def _as_sql(row):
    """A row that equals another where SQL says so: one zero, one NaN, NULLs alike."""
    return tuple(repr(v + 0.0 if isinstance(v, float) else v) for v in row)


def _counts(table):
    """{row and time: diff}; a row must not come twice."""
    counts = {}
    for *row, diff in zip(*(c.to_pylist() for c in table.columns), strict=True):
        key = _as_sql(row)
        assert key not in counts
        counts[key] = diff
    return counts


def _read(session, reader, as_of, **how):
    columns = how.get("columns")
    frame = shard_dataframe(session, reader, as_of, **how)
    names = [*(reader.schema.names if columns is None else columns), "mz_time", "mz_diff"]
    assert frame.columns == names
    return frame.toArrow()


def _plain_row(rng):
    k = rng.choice([None, *range(12)])
    return (
        k,
        rng.choice([None, "", "é", "x" * rng.randrange(40)]),
        rng.choice([None, 0.0, -0.0, float("nan"), float("inf"), 1.5]),
        rng.choice([None, Decimal("1.500"), Decimal("-99999999999999999.999")]),
        rng.choice([None, [], [1, None]]),
    )


def _fill(client, schema, key, rng, draw, times):
    """A shard of random updates: deletions, multiplicities, batches moved to their time, compaction in between, since following behind."""
    write, read = client.open_shard(client.new_shard_id(), schema, key=key)
    live, history = [], []
    upper = 0
    for _ in range(times):
        size = rng.choice([0, 1, 3, 60, 300])
        new_upper = upper + rng.randrange(1, 4)
        rows = []
        for _ in range(size):
            if live and rng.random() < 0.4:
                row, diff = live.pop(rng.randrange(len(live))), -1
            else:
                row, diff = draw(rng), rng.choice([1, 1, 1, 2, -1])
                live.append(row)
            rows.append((*row, rng.randrange(upper, new_upper), diff))
        if key is None and rng.random() < 0.3:
            rows = [(*row[:-2], new_upper - 1, row[-1]) for row in rows]
            early = _table([(*row[:-2], 0, row[-1]) for row in rows], schema)
            batch = write.batch(early, lower=0, upper=1).rewrite_ts(new_upper - 1)
            write.compare_and_append_batch(batch, expected_upper=upper, new_upper=new_upper)
        else:
            table = _table(rows, schema)
            by_worker = table
            if key is not None:
                owner = [hash(row[0]) % key.workers for row in rows]
                by_worker = {
                    w: table.filter(pa.array([o == w for o in owner], pa.bool_()))
                    for w in range(key.workers)
                }
            write.compare_and_append(by_worker, expected_upper=upper, new_upper=new_upper)
        history += rows
        upper = new_upper
        if rng.random() < 0.2:
            read.downgrade_since(max(read.since, upper - rng.randrange(1, 6)))
        if rng.random() < 0.15:
            client.maintain(read.shard_id, full=rng.random() < 0.5)
    return read, upper, history


def _model(history, as_of, schema, additive=()):
    """{row and time: diff}, by adding up in Python."""
    groups = [i for i, name in enumerate(schema.names) if name not in additive]
    sums = {}
    for *row, time, diff in history:
        if time <= as_of:
            total = sums.setdefault(_as_sql(row[i] for i in groups), [0] * (len(additive) + 1))
            for place, name in enumerate(additive):
                total[place] += row[schema.get_field_index(name)] or 0
            total[-1] += diff
    assert set(groups) == set(range(len(groups)))  # additive columns come last
    return {
        (*row, *map(repr, total[:-1]), repr(as_of)): total[-1]
        for row, total in sums.items()
        if any(total)
    }


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("layout", ["plain", "keyed", "additive"])
def test_every_time_reads_as_a_model_says(session, client, layout, seed):
    rng = random.Random(f"{layout} {seed}")
    key = {
        "plain": None,
        "keyed": KeySpec(("k",), workers=2),
        "additive": KeySpec(("k",), workers=2, additive=("total",)),
    }[layout]
    schema, draw = SCHEMA, _plain_row
    if layout == "additive":
        schema = ADDITIVE

        def draw(rng):
            return (rng.randrange(9), rng.choice("ab"), rng.choice([None, -2, 0, 2, 5]))

    read, upper, history = _fill(client, schema, key, rng, draw, 14)
    additive = () if key is None else key.additive
    some = ["s", "k"] if layout != "additive" else ["total", "k"]
    for as_of in {read.since, rng.randrange(read.since, upper), upper - 1}:
        expected = read.snapshot_arrow(as_of)
        model = _model(history, as_of, schema, additive)
        assert _counts(expected) == model
        assert _counts(_read(session, read, as_of)) == model
        raw = _read(session, read, as_of, consolidate=False)
        if layout != "additive":
            assert _summed(raw) == model
            fewer = _read(session, read, as_of, columns=some)
            assert _summed(fewer) == _summed(expected.select([*some, "mz_time", "mz_diff"]))
        else:
            fewer = _read(session, read, as_of, columns=some)
            by_hand = read.snapshot_arrow(as_of, columns=some)
            assert _totals(fewer) == _totals(by_hand)
    client.maintain(read.shard_id, full=True)
    read.downgrade_since(upper - 1)
    client.maintain(read.shard_id, full=True)
    model = _model(history, upper - 1, schema, additive)
    assert _counts(_read(session, read, upper - 1)) == model


def _summed(table):
    counts = Counter()
    for *row, diff in zip(*(c.to_pylist() for c in table.columns), strict=True):
        counts[_as_sql(row)] += diff
    return {row: diff for row, diff in counts.items() if diff}


def _totals(table):
    """What each k adds up to, where that is anything."""
    grouped = table.group_by("k").aggregate([("total", "sum"), ("mz_diff", "sum")])
    rows = grouped.to_pylist()
    return {r["k"]: r for r in rows if r["total_sum"] or r["mz_diff_sum"]}


TYPED = pa.table(
    {
        "k": pa.array([1, 2, None, 4], pa.int32()),
        "s": pa.array(["a", "b", None, "dé"]),
        "f": pa.array([-0.0, 2.5, None, float("nan")], pa.float32()),
        "n": pa.array(
            [Decimal("1.50"), Decimal("2.50"), None, Decimal("4.00")], pa.decimal128(9, 2)
        ),
        "d": pa.array([dt.date(2024, 1, d) for d in (1, 2, 4)] + [None], pa.date32()),
        "ts": pa.array(
            [dt.datetime(2024, 1, d, 12) for d in (1, 2, 4)] + [None], pa.timestamp("us")
        ),
        "tz": pa.array(
            [dt.datetime(2024, 1, d, 12, tzinfo=dt.UTC) for d in (1, 2, 4)] + [None],
            pa.timestamp("us", "UTC"),
        ),
        "b": pa.array([b"a", b"b", None, b"\xff"], pa.binary()),
        "u": pa.array([1, 2, None, 2**64 - 1], pa.uint64()),
        "mz_time": pa.array([0] * 4, pa.int64()),
        "mz_diff": pa.array([1] * 4, pa.int64()),
    }
)


@pytest.mark.parametrize(
    ("times", "each"),
    [
        (1, 4),
        pytest.param(1, 1, marks=pytest.mark.soak),
        pytest.param(80, 3, marks=pytest.mark.long),
        pytest.param(80, 1, marks=pytest.mark.soak),
    ],
)
def test_a_filter_keeps_what_it_keeps_in_arrow(session, client, times, each):
    here = session.newSession()
    here.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    write, read = client.open_shard(
        client.new_shard_id(), TYPED.drop_columns(["mz_time", "mz_diff"]).schema
    )
    write.compare_and_append(pa.concat_tables([TYPED] * times), expected_upper=0, new_upper=1)
    assert read.parts(0)[0].inline == (times == 1)
    for name in read.schema.names[::each]:
        one, two = TYPED[name][0].as_py(), TYPED[name][1].as_py()
        for ranges in ([(one, one)], [(two, None)], [(None, one), (None, None)], [], [(one, two)]):
            kept = read.snapshot_arrow(0, filters={name: ranges})
            found = _read(here, read, 0, filters={name: ranges})
            assert _counts(found.cast(kept.schema)) == _counts(kept), (name, ranges)
            fewer = _read(here, read, 0, columns=["d"], filters={name: ranges, "k": [(0, 2)]})
            assert set(fewer["mz_diff"].to_pylist()) <= {times}
    with pytest.raises(SchemaMismatch, match="does not fit"):
        shard_dataframe(here, read, 0, filters={"k": [("x", None)]})
    with pytest.raises(UsageError, match="65 ranges"):
        shard_dataframe(here, read, 0, filters={"k": [(n, n) for n in range(65)]})


def test_parts_without_such_rows_are_not_read(session, client):
    write, read = client.open_shard(client.new_shard_id(), BIT, key=KeySpec(("k",)))
    rows = [(k, 0, 1) for k in range(1000)]
    write.compare_and_append(_table(rows, BIT), expected_upper=0, new_upper=1)
    everything = shard_dataframe(session, read, 0)
    some = shard_dataframe(session, read, 0, filters={"k": [(10, 12)]})
    assert 0 < len(some.mz_parts) < len(everything.mz_parts)
    assert sorted(some.toArrow()["k"].to_pylist()) == [10, 11, 12]
    assert some.where("k > 11").count() == 1


def _plan(frame):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain()
    return shown.getvalue()


def test_only_what_compaction_has_not_summed_up_is_summed_up(session, client):
    write, read = client.open_shard(client.new_shard_id(), BIT)
    for time in range(3):
        rows = [(k, time, 1) for k in range(400)]
        write.compare_and_append(_table(rows, BIT), expected_upper=time, new_upper=time + 1)
    assert "Exchange" in _plan(shard_dataframe(session, read, 2))
    assert "Exchange" not in _plan(shard_dataframe(session, read, 2, consolidate=False))
    client.maintain(read.shard_id, full=True)
    # its times still lie apart
    assert "Exchange" in _plan(shard_dataframe(session, read, 2))
    assert "Exchange" not in _plan(shard_dataframe(session, read, 0))
    read.downgrade_since(2)
    client.maintain(read.shard_id, full=True)
    compacted = shard_dataframe(session, read, 2)
    assert "Exchange" not in _plan(compacted)
    assert "Exchange" not in _plan(shard_dataframe(session, read, 2, ["k"], {"k": [(3, 3)]}))
    assert _counts(compacted.toArrow()) == {(f"{k}", "2"): 3 for k in range(400)}
    write.compare_and_append(_table([(1, 3, -3)], BIT), expected_upper=3, new_upper=4)
    assert "Exchange" not in _plan(shard_dataframe(session, read, 2))
    assert "Exchange" in _plan(shard_dataframe(session, read, 3))
    assert _read(session, read, 3).num_rows == 399


def test_one_appended_batch_may_hold_a_row_twice(session, client):
    write, read = client.open_shard(client.new_shard_id(), BIT)
    rows = [(1, 0, 1)] * 300 + [(2, 0, 1), (2, 0, -1)]
    write.compare_and_append(_table(rows, BIT), expected_upper=0, new_upper=1)
    assert _read(session, read, 0).to_pylist() == [{"k": 1, "mz_time": 0, "mz_diff": 300}]


def test_an_empty_shard_and_no_columns(session, client):
    write, read = client.open_shard(client.new_shard_id(), BIT)
    write.compare_and_append(None, expected_upper=0, new_upper=1)
    assert _read(session, read, 0).schema.names == ["k", "mz_time", "mz_diff"]
    assert _read(session, read, 0, columns=[]).num_rows == 0
    for time in (1, 2):
        rows = [(k, time, 1) for k in range(5)]
        write.compare_and_append(_table(rows, BIT), expected_upper=time, new_upper=time + 1)
    assert _read(session, read, 2, columns=[]).to_pylist() == [{"mz_time": 2, "mz_diff": 10}]


def test_a_damaged_page_fails_the_query(session, client):
    write, read = client.open_shard(client.new_shard_id(), BIT)
    rows = [(k, 0, 1) for k in range(150)]
    write.compare_and_append(_table(rows, BIT), expected_upper=0, new_upper=1)
    [part] = read.parts(0)
    data = bytearray(client.blob.get(part.blob_key))
    column = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(0).column(0)
    data[column.dictionary_page_offset + 200] ^= 1
    client.blob.set(part.blob_key, bytes(data))
    careless = session.newSession()
    careless.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    # nothing but the checksum tells
    path = re.sub(r"[\[\]{}*]", r"\\\g<0>", part.spark_path)
    [[total]] = careless.read.parquet(path).agg(F.sum("k")).collect()
    assert total != sum(range(150))
    with pytest.raises(Exception, match=r"(?i)crc|checksum|corrupt"):
        shard_dataframe(careless, read, 0).toArrow()
    client.blob.delete(part.blob_key)
    with pytest.raises(Exception, match=r"(?i)not.exist"):
        shard_dataframe(careless, read, 0).toArrow()


def test_objects_stay_while_the_frame_does(session, client):
    write, read = client.open_shard(client.new_shard_id(), BIT)
    for time in range(3):
        rows = [(k, time, 1) for k in range(300)]
        write.compare_and_append(_table(rows, BIT), expected_upper=time, new_upper=time + 1)
    read.downgrade_since(2)
    frame = shard_dataframe(session, read, 2)
    keys = [part.blob_key for part in frame.mz_parts]
    client.maintain(read.shard_id, full=True)
    assert all(client.blob.get(key) is not None for key in keys)
    assert frame.count() == 300
    del frame
    gc.collect()
    client.maintain(read.shard_id)
    assert all(client.blob.get(key) is None for key in keys)


def test_many_parts_are_read_without_a_listing_job_and_settings_stay(session, client):
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    before = session.conf.get(name)
    write, read = client.open_shard(client.new_shard_id(), BIT)
    rows = [(k, 0, 1) for k in range(8000)]
    write.compare_and_append(_table(rows, BIT), expected_upper=0, new_upper=1)
    assert len(read.parts(0)) > 32
    tracker = session.sparkContext.statusTracker()
    session.sparkContext.setJobGroup("shards", "make a frame")
    try:
        frame = shard_dataframe(session, read, 0)
        assert list(tracker.getJobIdsForGroup("shards")) == []
    finally:
        session.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        session.sparkContext.setLocalProperty("spark.job.description", None)
    assert session.conf.get(name) == before
    assert frame.count() == 8000


def test_memory_comes_through_the_driver_up_to_a_bound(session):
    client = PersistClient(MemBlob(), MemConsensus(), background=False)
    write, read = client.open_shard(client.new_shard_id(), BIT)
    rows = [(k % 7, 0, 1) for k in range(70_000)]
    write.compare_and_append(_table(rows, BIT), expected_upper=0, new_upper=1)
    assert _counts(_read(session, read, 0)) == {(f"{k}", "0"): 10_000 for k in range(7)}
    more = pa.table(
        [pa.repeat(pa.scalar(value, pa.int64()), DRIVER_ROWS) for value in (1, 1, 1)],
        schema=physical(BIT),
    )
    write.compare_and_append(more, expected_upper=1, new_upper=2)
    with pytest.raises(UsageError, match="1070000 updates") as raised:
        shard_dataframe(session, read, 1)
    assert "snapshot" in raised.value.hint
    assert _read(session, read, 0).num_rows == 7


def test_what_cannot_be_read_is_said_before_anything_is_read(session, client):
    odd = pa.schema([("k", pa.int64()), ("K", pa.int64()), ("t", pa.time64("us"))])
    write, read = client.open_shard(client.new_shard_id(), odd)
    write.compare_and_append(_table([(1, 2, None, 0, 1)], odd), expected_upper=0, new_upper=1)
    with pytest.raises(SchemaMismatch, match='no column "x"'):
        shard_dataframe(session, read, 0, ["x"])
    with pytest.raises(Unsupported, match='column "t" of type time64'):
        shard_dataframe(session, read, 0)
    lax, strict = session.newSession(), session.newSession()
    lax.conf.set("spark.sql.caseSensitive", "false")
    strict.conf.set("spark.sql.caseSensitive", "true")
    with pytest.raises(SchemaMismatch, match="k, K"):
        shard_dataframe(lax, read, 0, ["k", "K"])
    assert _read(lax, read, 0, columns=["K"])["K"].to_pylist() == [2]
    both = _read(strict, read, 0, columns=["k", "K"])
    assert both.select(["k", "K"]).to_pylist() == [{"k": 1, "K": 2}]
    with pytest.raises(ReadTimeout):
        shard_dataframe(session, read, 5, ["k"], timeout=0.01)


@pytest.mark.parametrize("rows", [1, 600])
def test_unsigned_numbers_are_read_as_wider_ones(session, client, rows):
    types = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    schema = pa.schema([(f"u{t.bit_width}", t) for t in types])
    write, read = client.open_shard(client.new_shard_id(), schema)
    largest = [2**t.bit_width - 1 for t in types]
    table = _table([(*largest, 0, 1)] * rows, schema)
    write.compare_and_append(table, expected_upper=0, new_upper=1)
    assert read.parts(0)[0].inline == (rows == 1)
    [found] = _read(session, read, 0).to_pylist()
    assert list(found.values()) == [*largest, 0, rows]


def test_a_sum_that_does_not_fit_fails_the_query(session, client):
    write, read = client.open_shard(client.new_shard_id(), BIT)
    rows = [(1, 0, 2**62), (1, 0, 2**62)]
    write.compare_and_append(_table(rows, BIT), expected_upper=0, new_upper=1)
    lax = session.newSession()
    lax.conf.set("spark.sql.ansi.enabled", "false")
    with pytest.raises(Exception, match="do not fit"):
        shard_dataframe(lax, read, 0).toArrow()
