"""What of a plan goes to the executors that read parts."""

from __future__ import annotations

import base64
import os
import pickle
import zlib

import msgspec
from pyspark.sql.types import LongType, StructField, StructType

from mzsql.compute.engines.executors import PartsPartition, PartsReader, PartsSource

SCHEMA = StructType([StructField("a", LongType())])


def test_a_task_takes_its_own_share_along_and_no_others() -> None:
    """Spark gives each task the reader and its data source: with all shares in them a scan would cost the square of its tasks."""
    shares = [os.urandom(1000) for _ in range(100)]
    text = base64.b85encode(zlib.compress(msgspec.msgpack.encode(shares))).decode()
    source = pickle.loads(pickle.dumps(PartsSource({"partitions": text})))
    reader = source.reader(SCHEMA)
    assert isinstance(reader, PartsReader)
    assert len(pickle.dumps((reader, source))) < 2000
    # and the driver, which asks for them afterwards, still has them, also a second time
    for again in (reader, source.reader(SCHEMA)):
        found = again.partitions()
        assert [one.data for one in found if isinstance(one, PartsPartition)] == shares
