"""The cache of blobs: same answers, fewer reads of the store, whatever happens to the directory."""

from __future__ import annotations

import contextlib
import logging
import random
import resource
import shutil
import subprocess
import sys

import pytest
from persist_model import SCHEMA, ManualClock, counted, updates

from mzsql.location import protocols
from mzsql.location.file import FileBlob
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import CorruptPart, MissingPart, NewerVersion, PersistClient, Settings
from mzsql.persist.cache import BlobCache, CachedBlob
from mzsql.testing import BlobContract

ABILITIES = [
    protocols.RangeReadable,
    protocols.SparkReadable,
    protocols.Adoptable,
    protocols.ManyDeletable,
    protocols.UploadSweepable,
]


#: What a cache gives up: objects of a shard are written once, under names that never come again.
ONCE = "an object is kept as it was first seen by a handle, whatever another handle does to it"
NOT_MET = {"two_handles": ONCE}


class TestCachedFiles(BlobContract):
    not_met = NOT_MET
    # Threads fail for the same reason where they happen to read what another one had read before: that is as it comes.
    test_threads = None
    test_state_machine = None  # and shrinking what is known takes long

    def open_blob(self, place):
        return CachedBlob(FileBlob(place / "blob"), BlobCache(place / "cache"))


class TestCachedInLittle(BlobContract):
    """Where nearly nothing fits, everything is evicted all the time."""

    not_met = NOT_MET
    test_threads = None
    test_state_machine = None

    def open_blob(self, place):
        cache = BlobCache(place / "cache", directory_bytes=300, memory_bytes=100)
        return CachedBlob(FileBlob(place / "blob"), cache)


class Counting(MemBlob):
    """A store that tells how often it was read."""

    reads = 0

    def get(self, key):
        self.reads += 1
        return super().get(key)


def files(directory):
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("inner", ["file", "mem"])
def test_a_cached_blob_has_the_abilities_of_what_it_caches(inner, tmp_path):
    blob = FileBlob(tmp_path) if inner == "file" else MemBlob()
    cached = CachedBlob(blob, BlobCache())
    assert isinstance(cached, CachedBlob)
    for ability in ABILITIES:
        assert isinstance(cached, ability) == isinstance(blob, ability), ability
    known = {one for one in vars(protocols).values() if getattr(one, "_is_runtime_protocol", False)}
    others = {protocols.Blob, protocols.Consensus, protocols.ConsensusWait, protocols.ManyScannable}
    others |= {protocols.TimestampOracle, protocols.Clocked}
    assert known - others == set(ABILITIES)


def test_what_was_read_is_not_read_again():
    blob = Counting()
    cached = CachedBlob(blob, BlobCache())
    blob.set("a", b"0123456789")
    assert [cached.get_range("a", 2, 3) for _ in range(3)] == [b"234"] * 3
    assert blob.reads == 1
    assert [cached.get("a") for _ in range(3)] == [b"0123456789"] * 3
    assert blob.reads == 2
    assert cached.get_range("a", 8, 5) == b"89"  # from the whole
    assert cached.get_range("a", 20, 5) == b""
    assert blob.reads == 2
    stats = cached.cache.stats()
    assert (stats.memory_hits, stats.misses, stats.directory_hits) == (6, 2, 0)
    assert (stats.hit_bytes, stats.missed_bytes, stats.memory_bytes) == (28, 13, 10)
    assert cached.get("b") is None
    blob.set("b", b"now")
    assert cached.get("b") == b"now"  # that there is nothing is not kept
    cached.forget("a")
    cached.get("a")
    assert blob.reads == 5
    assert cached.delete("a") == 10
    assert cached.get("a") is cached.get_range("a", 0, 1) is None


def test_memory_is_bounded_by_the_least_recently_used():
    blob = Counting()
    cached = CachedBlob(blob, BlobCache(memory_bytes=1000))
    for name in "abcde":
        blob.set(name, name.encode() * 250)
    blob.set("huge", b"h" * 501)
    for name in "abcd":
        cached.get(name)
    cached.get("a")
    cached.get("e")  # b was used longest ago
    before = blob.reads
    for name in "acde":
        assert cached.get(name) == name.encode() * 250
    assert blob.reads == before
    cached.get("huge")
    cached.get("huge")
    assert blob.reads == before + 2
    cached.get("b")
    assert blob.reads == before + 3
    assert cached.cache.stats().memory_bytes == 1000


def test_the_directory_survives_and_is_told_apart_by_store(tmp_path):
    blob = Counting()
    value = random.Random(1).randbytes(200_000)
    blob.set("s/part", value)

    def fresh(namespace="one"):
        return CachedBlob(blob, BlobCache(tmp_path / "cache", memory_bytes=0, namespace=namespace))

    assert fresh().get("s/part") == value
    for offset, length in [(0, 10), (65_530, 20), (131_072, 65_536), (199_990, 50), (300_000, 5)]:
        assert fresh().get_range("s/part", offset, length) == value[offset : offset + length]
    assert fresh().get("s/part") == value
    assert blob.reads == 1
    assert fresh("other").get("s/part") == value
    assert blob.reads == 2
    fresh().delete("s/part")
    assert fresh().get("s/part") is None


def test_a_damaged_file_is_dropped_and_read_anew(tmp_path):
    blob = MemBlob()
    rng = random.Random(2)
    value = rng.randbytes(150_000)
    blob.set("k", value)

    def fresh():
        return CachedBlob(blob, BlobCache(tmp_path, memory_bytes=0))

    fresh().get("k")
    [path] = files(tmp_path)
    good = path.read_bytes()
    places = [*range(40), *(rng.randrange(len(good)) for _ in range(40))]
    for place in places:
        bad = bytearray(good)
        bad[place] ^= rng.randrange(1, 256)
        for act in (lambda c: c.get("k"), lambda c: c.get_range("k", 70_000, 1000)):
            path.write_bytes(bytes(bad))
            cached = fresh()
            assert act(cached) in (value, value[70_000:71_000])
            stats = cached.cache.stats()
            assert stats.damaged + stats.directory_hits == 1
    for cut in (0, 5, 20, 30, 100_000):
        path.write_bytes(good[:cut])
        assert fresh().get("k") == value
        assert path.read_bytes() == good


def test_the_directory_is_bounded(tmp_path):
    blob = MemBlob()
    one, other = (
        CachedBlob(blob, BlobCache(tmp_path, directory_bytes=100_000, memory_bytes=0))
        for _ in range(2)
    )
    for i in range(200):
        blob.set(f"k{i}", bytes([i]) * 3000)
        cached = one if i % 2 else other
        assert cached.get(f"k{i}") == bytes([i]) * 3000
        assert one.get("k0") == b"\x00" * 3000
        # Each looks at what the other one wrote after an eighth of the limit.
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 100_000 * 9 // 8
    assert one.cache.stats().evictions > 0
    hits = one.cache.stats().directory_hits
    assert one.get("k0") is not None
    assert one.cache.stats().directory_hits == hits + 1  # it was always in use


_SHARING = """
import sys
from mzsql.location.mem import MemBlob
from mzsql.persist.cache import BlobCache, CachedBlob
blob = MemBlob()
cached = CachedBlob(blob, BlobCache(sys.argv[1], directory_bytes=200_000, memory_bytes=0))
for i in range(60):
    blob.set(f"k{i}", bytes([i]) * 10_000)
for round in range(5):
    for i in range(60):
        assert cached.get(f"k{i}") == bytes([i]) * 10_000
        assert cached.get_range(f"k{i}", 50, 7) == bytes([i]) * 7
        if (i + round) % 7 == 0:
            cached.forget(f"k{i}")
stats = cached.cache.stats()
assert stats.damaged == stats.failures == 0, stats
assert stats.directory_hits and stats.evictions
"""


def test_processes_share_a_directory(tmp_path):
    command = [sys.executable, "-c", _SHARING, str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert not [path for path in files(tmp_path) if path.name.startswith(".")]


@contextlib.contextmanager
def small_files():
    """As on a full disk: no file may grow beyond a few bytes. Over before anything is reported, which may go to a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_directory_that_refuses_fails_no_read(tmp_path, caplog):
    blob = MemBlob()
    for i in range(5):
        blob.set(f"k{i}", b"v" * 1000)
    (tmp_path / "file").write_text("no directory")
    cached = CachedBlob(blob, BlobCache(tmp_path / "file", memory_bytes=0))
    full = CachedBlob(blob, BlobCache(tmp_path / "full", memory_bytes=0))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert [cached.get(f"k{i}") for i in range(5)] == [b"v" * 1000] * 5
        cached.delete("k4")
        assert len(caplog.records) == 1
        assert "blob cache" in caplog.text
        assert cached.cache.stats().failures > 5
        with small_files():
            for _ in range(2):
                assert [full.get(f"k{i}") for i in range(4)] == [b"v" * 1000] * 4
        assert full.cache.stats().failures == 8
    assert files(tmp_path / "full") == []
    assert len(caplog.records) == 2


def test_a_directory_removed_while_in_use_is_made_anew(tmp_path):
    blob = Counting()
    blob.set("k", b"v" * 1000)
    cached = CachedBlob(blob, BlobCache(tmp_path / "cache", memory_bytes=0))
    for _ in range(3):
        cached.get("k")
        shutil.rmtree(tmp_path / "cache")
    assert cached.get("k") == cached.get("k")
    assert (blob.reads, cached.cache.stats().failures) == (4, 0)


def test_a_read_that_a_deletion_overtakes_is_not_kept(tmp_path):
    blob = MemBlob()
    cached = CachedBlob(blob, BlobCache(tmp_path))
    blob.set("k", b"v")
    get = blob.get

    def slow(key):
        value = get(key)
        cached.delete(key)
        return value

    blob.get = slow
    assert cached.get("k") == b"v"
    blob.get = get
    assert cached.get("k") is None


def test_clients_read_through_the_cache(tmp_path):
    def opened(**more):
        return PersistClient.open(
            blob=f"file:{tmp_path}/blob",
            consensus=f"sqlite:{tmp_path}/c.db",
            settings=Settings(inline_bytes=0),
            background=False,
            cache=tmp_path / "cache",
            **more,
        )

    with opened() as client:
        write, read = client.open_shard(client.new_shard_id(), SCHEMA)
        write.compare_and_append(
            updates([(i, "a", 0, 1) for i in range(99)]), expected_upper=0, new_upper=1
        )
        answer = counted(read.snapshot_arrow(0))
        assert client.cache.stats().misses == 1
    with opened(cache_bytes=1 << 20, cache_memory_bytes=0) as client:
        read = client.open_reader(write.shard_id)
        for _ in range(3):
            assert counted(read.snapshot_arrow(0)) == answer
        assert (client.cache.stats().misses, client.cache.stats().directory_hits) == (0, 3)


def test_an_object_damaged_on_its_way_is_read_anew():
    """What came damaged from the store was cached, and the store has it right by now."""
    blob = MemBlob()
    client = PersistClient(
        blob,
        MemConsensus(),
        settings=Settings(inline_bytes=0),
        background=False,
        cache=BlobCache(),
    )
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    [ref] = read.parts(0)
    good = blob.get(ref.blob_key)
    blob.set(ref.blob_key, good[:20] + b"?" + good[21:])
    assert client._context.blob.get(ref.blob_key) != good
    blob.set(ref.blob_key, good)
    assert counted(read.snapshot_arrow(0)) == {(1, "a", 0): 1}


@pytest.mark.parametrize("damage", [b"?", b"\xff"])
def test_a_rollup_damaged_on_its_way_is_read_anew(damage):
    """Without it nobody here could open the shard any more: a copy in a directory outlives the process, too."""
    blob, consensus, cache = MemBlob(), MemConsensus(), BlobCache()
    settings = Settings(rollup_interval=2)

    def opened():
        return PersistClient(
            blob, consensus, settings=settings, background=False, cache=cache, rng=random.Random(3)
        )

    client = opened()
    write = client.open_writer(client.new_shard_id(), SCHEMA)
    for time in range(8):
        rows = updates([(time, "a", time, 1)])
        write.compare_and_append(rows, expected_upper=time, new_upper=time + 1)
    state = client.inspect(write.shard_id)
    key = state.rollups[state.latest_rollup]
    good = blob.get(key)
    for place in (5, 20):  # its format, its contents
        blob.set(key, good[:place] + damage + good[place + 1 :])
        cache.drop(key)
        for _ in range(2):
            with pytest.raises((CorruptPart, NewerVersion)):
                opened().open_reader(write.shard_id)
            assert cache.get(key) is None
        assert opened()._context.blob.get(key) != good
        blob.set(key, good)
        assert cache.get(key) != good
        assert opened().open_reader(write.shard_id).upper == 8


def test_a_batch_whose_objects_are_gone_is_refused_though_they_are_cached():
    blob, consensus, clock = MemBlob(), MemConsensus(), ManualClock()

    def opened(**cached):
        return PersistClient(
            blob,
            consensus,
            clock=clock,
            settings=Settings(inline_bytes=0),
            background=False,
            **cached,
        )

    client = opened(cache=BlobCache())
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    batch = write.batch(updates([(1, "a", 0, 1)]), lower=0, upper=1)
    [key] = batch.blob_keys()
    assert client._context.blob.get(key)
    finder = opened()
    list(finder.find_leaks())
    clock.ms += 25 * 3_600_000
    assert [leak.deleted for leak in finder.find_leaks(delete=True)] == [True]
    with pytest.raises(MissingPart):
        write.compare_and_append_batch([batch], expected_upper=0, new_upper=1)
    assert read.fetch_upper() == 0
