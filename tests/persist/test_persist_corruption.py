"""Bytes that are not as they were written: found on every path, named, and never part of an answer."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from persist_model import counted, updates

from mzsql.location.file import FileBlob
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    CorruptPart,
    KeySpec,
    MissingPart,
    PersistClient,
    Settings,
    SnapshotSplit,
)
from mzsql.repr.errors import SqlError

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.float64())])
ROWS = [(i // 2, f"row {i % 97}" * 3, i / 7, i % 5, 1) for i in range(1200)]
SETTINGS = Settings(inline_bytes=0, keyed_row_group_rows=300, row_group_rows=300, page_rows=100)


def opened(blob, consensus):
    return PersistClient(blob, consensus, settings=SETTINGS, background=False)


def made(blob, key=None):
    """A client, and a shard of one part in ``blob``."""
    client = opened(blob, MemConsensus())
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA, key=key)
    write.compare_and_append(updates(ROWS, SCHEMA), expected_upper=0, new_upper=5)
    return client, write.shard_id


def split_table(read, blob, stream):
    """The one split of a filtered snapshot, as another process reads it."""
    [split] = read.snapshot(4, columns=["s", "k"], filters={"k": [(100, 250)]})
    received = SnapshotSplit.from_bytes(split.to_bytes(), blob=blob)
    return received.to_reader().read_all() if stream else received.to_arrow()


PATHS = {
    "whole": lambda read, _: read.snapshot_arrow(4),
    "columns": lambda read, _: read.snapshot_arrow(4, columns=["s", "x"]),
    "filters": lambda read, _: read.snapshot_arrow(4, filters={"k": [(100, 250)], "x": [(0, 99)]}),
    "updates": lambda read, _: read.updates(2, 4, columns=["k"]),
    "reader": lambda read, _: read.snapshot_reader(4, columns=["k", "x"]).read_all(),
    "consolidated reader": lambda read, _: read.snapshot_reader(4, consolidate=True).read_all(),
    "part": lambda read, _: read.parts(4)[0].to_arrow(filters={"k": [(0, 9)]}),
    "split": lambda read, blob: split_table(read, blob, stream=False),
    "streamed split": lambda read, blob: split_table(read, blob, stream=True),
    "listen": lambda read, _: next(read.listen(1, columns=["s"]))[0],
}
KEYED_PATHS = {"key ranges": lambda read, _: read.snapshot_arrow(4, key_ranges=[(100, 250)])}


def flip_everywhere(client, shard_id, paths, *, samples, seed):
    """Read along each path with one byte changed at a time; how many reads found that out, and how many answered rightly."""
    rng = random.Random(seed)
    [part] = [p for b in client.inspect(shard_id).trace for p in b.parts]
    good = client.blob.get(part.key)
    footer = len(good) - part.footer_size
    places = rng.sample(range(footer), samples) + rng.sample(range(footer, len(good)), samples)
    found, right = 0, 0
    for name, act in paths.items():
        with opened(client.blob, client.consensus) as other:
            answer = counted(act(other.open_reader(shard_id), client.blob))
        for place in places:
            bad = bytearray(good)
            bad[place] ^= rng.randrange(1, 256)
            client.blob.set(part.key, bytes(bad))
            # A client of its own each time: one that read the part before knows its footer.
            with opened(client.blob, client.consensus) as other:
                try:
                    table = act(other.open_reader(shard_id), client.blob)
                except CorruptPart as failure:
                    assert shard_id in str(failure), (name, place)
                    assert part.key in str(failure), (name, place)
                    found += 1
                else:
                    assert counted(table) == answer, (name, place)
                    right += 1
        client.blob.set(part.key, good)
    return found, right


@pytest.mark.parametrize("key", [None, KeySpec(("k",))], ids=["plain", "keyed"])
def test_a_flipped_byte_anywhere_is_found_or_does_not_matter(key):
    client, shard_id = made(MemBlob(), key)
    paths = PATHS if key is None else KEYED_PATHS | PATHS
    found, right = flip_everywhere(client, shard_id, paths, samples=25, seed=1)
    assert found > right > 0
