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


def outcome_of(act, read, blob):
    """The table, or what kept from it because of the object."""
    try:
        return act(read, blob)
    except (CorruptPart, MissingPart) as failure:
        return failure


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
                outcome = outcome_of(act, other.open_reader(shard_id), client.blob)
            if isinstance(outcome, CorruptPart):
                assert shard_id in str(outcome), (name, place)
                assert part.key in str(outcome), (name, place)
                found += 1
            else:
                assert counted(outcome) == answer, (name, place)
                right += 1
        client.blob.set(part.key, good)
    return found, right


@pytest.mark.parametrize("key", [None, KeySpec(("k",))], ids=["plain", "keyed"])
def test_a_flipped_byte_anywhere_is_found_or_does_not_matter(key):
    client, shard_id = made(MemBlob(), key)
    paths = PATHS if key is None else KEYED_PATHS | PATHS
    found, right = flip_everywhere(client, shard_id, paths, samples=12, seed=1)
    assert found > right > 0


def test_adopted_objects_are_checked_by_pages_and_footer(tmp_path):
    blob = FileBlob(tmp_path)
    client = opened(blob, MemConsensus())
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    prefix = write.part_prefix()
    (tmp_path / prefix).mkdir(parents=True)
    table, path = updates(ROWS, SCHEMA), tmp_path / prefix / "one.parquet"
    pq.write_table(table, path, write_page_checksum=True, row_group_size=300)
    batch = write.adopt_parts([f"{prefix}/one.parquet"], lower=0, upper=5)
    write.compare_and_append_batch(batch, expected_upper=0, new_upper=5)
    paths = {name: PATHS[name] for name in ("whole", "columns", "filters", "streamed split")}
    found, right = flip_everywhere(client, write.shard_id, paths, samples=20, seed=2)
    assert found > right > 0


def test_objects_of_older_versions_are_read_without_the_checksums_they_lack(monkeypatch):
    """No blocks in the footer, and nothing of the footer in the part."""
    monkeypatch.setattr("mzsql.persist.blocks.Sink.seal", lambda *_: None)
    monkeypatch.setattr("mzsql.persist.parts.footer_of", lambda _: (0, None))
    client, shard_id = made(MemBlob())
    [part] = [p for b in client.inspect(shard_id).trace for p in b.parts]
    assert (part.footer_size, part.footer_checksum) == (0, None)
    good = client.blob.get(part.key)
    rng = random.Random(5)
    for name in ("columns", "whole", "filters", "reader"):
        with opened(client.blob, client.consensus) as other:
            answer = counted(PATHS[name](other.open_reader(shard_id), client.blob))
        found = 0
        for place in rng.sample(range(len(good) // 2), 30):
            bad = bytearray(good)
            bad[place] ^= 0x55
            client.blob.set(part.key, bytes(bad))
            with opened(client.blob, client.consensus) as other:
                outcome = outcome_of(PATHS[name], other.open_reader(shard_id), client.blob)
            if isinstance(outcome, CorruptPart):
                found += 1
            else:
                assert counted(outcome) == answer, (name, place)
        client.blob.set(part.key, good)
        assert found > 5, name


@pytest.mark.parametrize("name", PATHS)
def test_what_is_not_the_part_is_told(name):
    client, shard_id = made(MemBlob())
    act = PATHS[name]
    [part] = [p for b in client.inspect(shard_id).trace for p in b.parts]
    good = client.blob.get(part.key)
    answer = counted(act(client.open_reader(shard_id), client.blob))
    other_client, other_id = made(MemBlob(), KeySpec(("k",)))
    [foreign] = [p for b in other_client.inspect(other_id).trace for p in b.parts]
    objects = {
        "nothing": (b"", CorruptPart),
        "cut": (good[: len(good) // 2], CorruptPart),
        "cut by one": (good[:-1], CorruptPart),
        "longer": (good + b"?", CorruptPart),
        "of another shard": (other_client.blob.get(foreign.key), CorruptPart),
        "no Parquet": (b"x" * len(good), CorruptPart),
        "gone": (None, MissingPart),
    }
    for what, (data, error) in objects.items():
        client.blob.delete(part.key)
        if data is not None:
            client.blob.set(part.key, data)
        for warm in (False, True):
            with opened(client.blob, client.consensus) as other:
                read = other.open_reader(shard_id)
                if warm:  # it knows the footer
                    client.blob.set(part.key, good)
                    act(read, client.blob)
                    client.blob.delete(part.key)
                    if data is not None:
                        client.blob.set(part.key, data)
                outcome = outcome_of(act, read, client.blob)
            if isinstance(outcome, error):
                assert shard_id in str(outcome), what
                assert part.key in str(outcome), what
                assert outcome.hint, what
            else:
                # Who reads ranges, and knows the footer, does not see what else is missing or too much.
                assert warm or what == "longer"
                assert counted(outcome) == answer, what
    client.blob.set(part.key, good)


def test_a_damaged_inline_part_is_told():
    client = PersistClient(MemBlob(), MemConsensus(), background=False)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates(ROWS[:5], SCHEMA), expected_upper=0, new_upper=5)
    [ref] = read.parts(4)
    good = ref.part.data
    for place in range(0, len(good), 3):
        bad = bytearray(good)
        bad[place] ^= 0x10
        ref.part = type(ref.part)(
            bytes(bad), ref.part.rows, 0, 4, ref.part.checksum, None, ref.part.stats
        )
        with pytest.raises(CorruptPart, match=f"shard {write.shard_id}: an inline part"):
            ref.to_arrow()
