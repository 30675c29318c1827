"""Spark reads our parts by path, and we adopt the parts it writes."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pytest
from persist_model import counted, updates

from mzsql.location.file import FileBlob
from mzsql.location.mem import MemConsensus
from mzsql.persist import KeySpec, PersistClient, Settings
from mzsql.persist.columns import physical

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("d", pa.decimal128(38, 4)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("b", pa.binary()),
        ("l", pa.list_(pa.int32())),
    ]
)


def _rows(n, time):
    at = dt.datetime(2024, 2, 29, 12, 30, 1, 5)
    return [
        (
            i,
            f"s{i}",
            decimal.Decimal(i) / 8,
            at.date(),
            at,
            at.replace(tzinfo=dt.UTC),
            b"\x00%d" % i,
            [i, None],
            time,
            1 if i % 3 else -1,
        )
        for i in range(n)
    ] + [(None,) * 8 + (time, 2)]


def test_there_and_back(spark, tmp_path):
    client = PersistClient(
        FileBlob(tmp_path), MemConsensus(), settings=Settings(inline_bytes=0), background=False
    )
    key = KeySpec(("k",), workers=1)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA, key=key)
    table = updates(_rows(3000, 0), SCHEMA)
    write.compare_and_append({0: table}, expected_upper=0, new_upper=1)
    refs = read.parts(0)
    found = spark.read.parquet(*[ref.spark_path for ref in refs])
    assert found.count() == 3001
    assert found.where("k BETWEEN 100 AND 102").select("s").orderBy("k").toArrow()[
        "s"
    ].to_pylist() == ["s100", "s101", "s102"]
    prefix = write.part_prefix()
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    paths = [ref.spark_path for ref in refs]
    frame = session.read.parquet(*paths).selectExpr(
        *SCHEMA.names, "mz_time + 5 AS mz_time", "mz_diff"
    )
    frame.repartition(1).sortWithinPartitions("k").write.parquet(client.blob.spark_path(prefix))
    keys = [
        k for k, _ in client.blob.list_keys_and_metadata(prefix + "/") if k.endswith(".parquet")
    ]
    batch = write.adopt_parts(keys, lower=1, upper=6)
    assert (batch.rows, batch.parts[0].time_min, batch.parts[0].time_max) == (3001, 5, 5)
    assert (batch.parts[0].stats[0].lo, batch.parts[0].stats[0].hi) == (0, 2999)
    write.compare_and_append_batch(batch, expected_upper=1, new_upper=6)
    snapshot = read.snapshot_arrow(5)
    assert snapshot.schema.equals(physical(SCHEMA))
    once = _count(updates(_rows(3000, 5), SCHEMA))
    assert _count(snapshot) == {row: 2 * diff for row, diff in once.items()}
    found = read.snapshot_arrow(5, key_ranges=[(7, 8)], columns=["k"])
    assert counted(found) == {(7, 5): 2, (8, 5): 2}


def _count(table):
    counts = {}
    for *row, diff in zip(*(c.to_pylist() for c in table.columns), strict=True):
        key = tuple(repr(v) for v in row)
        counts[key] = counts.get(key, 0) + diff
    return counts
