"""How parts are compressed: those of keyed shards, which are written anew and looked into often, otherwise than others."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import KeySpec, PersistClient, Settings

SCHEMA = pa.schema([pa.field("c0", pa.int64())])
ROWS = pa.table({"c0": range(1000), "mz_time": [0] * 1000, "mz_diff": [1] * 1000})


@pytest.mark.parametrize(
    ("key", "settings", "codec"),
    [
        (None, {}, "ZSTD"),
        (KeySpec(columns=("c0",)), {}, "SNAPPY"),
        (KeySpec(columns=("c0",)), {"keyed_compression": "zstd"}, "ZSTD"),
        (None, {"keyed_compression": "gzip"}, "ZSTD"),
    ],
    ids=["rows", "keyed", "keyed as asked", "rows as ever"],
)
def test_parts_are_compressed_as_their_shards_are_read(key, settings, codec) -> None:
    blob = MemBlob()
    client = PersistClient(
        blob, MemConsensus(), settings=Settings(inline_bytes=0, **settings), background=False
    )
    writer, _ = client.open_shard(client.new_shard_id(), SCHEMA, key=key)
    writer.compare_and_append(ROWS, expected_upper=0, new_upper=1)
    [(name, _)] = blob.list_keys_and_metadata("")
    found = pq.read_metadata(pa.BufferReader(blob.get(name))).row_group(0)
    assert {found.column(at).compression for at in range(found.num_columns)} == {codec}
    client.close()
