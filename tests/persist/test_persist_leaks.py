"""The leak finder: what nobody refers to is found, what somebody does is spared, whatever happens meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest
from persist_model import SCHEMA, ManualClock, another, blobs, counted, referenced, updates

from mzsql.location import Unfinished, UsageError
from mzsql.location.file import FileBlob
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.location.sqlite import SqliteConsensus
from mzsql.persist import MissingPart, PersistClient, Settings
from mzsql.persist.ages import Ages
from mzsql.persist.leaks import DAY_MS
from mzsql.persist.location_maintenance import Wanted, maintain_location
from mzsql.persist.shard_reports import object_time


def client_on(blob, clock=None):
    return PersistClient(
        blob,
        MemConsensus(),
        clock=clock or ManualClock(),
        rng=random.Random(5),
        settings=Settings(inline_bytes=0, maintenance="elsewhere"),
        background=False,
    )


@pytest.fixture
def made():
    return client_on(MemBlob())


def pass_time(client, ms):
    """The client has looked for leaks, and for so long nothing else happens."""
    list(client.find_leaks())
    client._context.clock.ms += ms


def append(write, time):
    write.compare_and_append(
        updates([(time, "x", time, 1)]), expected_upper=time, new_upper=time + 1
    )


def found(client, **how):
    return {leak.key: leak for leak in client.find_leaks(**how)}


def test_only_what_no_state_names_and_is_old_is_a_leak(made):
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    for time in range(8):
        append(write, time)
    abandoned = write.batch(updates([(1, "y", 8, 1)]), lower=8, upper=9)
    read.downgrade_since(3)
    made.maintain(write.shard_id)
    append(write, 8)
    another(made, inline_bytes=0).maintain(write.shard_id, full=True)
    state = made.inspect(write.shard_id)
    assert state.rollups  # so that there is one to spare
    assert found(made) == {}  # all of it is young
    pass_time(made, DAY_MS)
    late = write.batch(updates([(1, "z", 9, 1)]), lower=9, upper=10)
    leaks = found(made)
    assert set(leaks) == set(abandoned.blob_keys())
    [leak] = leaks.values()
    assert (leak.kind, leak.deleted) == ("object", False)
    assert leak.age_ms >= DAY_MS
    assert leak.bytes == dict(made.blob.list_keys_and_metadata(""))[leak.key]
    [deleted] = found(made, delete=True).values()
    assert deleted.deleted
    assert blobs(made) == referenced(state) | set(late.blob_keys())
    fresh = made.open_reader(write.shard_id)
    assert len(counted(fresh.snapshot_arrow(8))) == 9


def test_garbage_that_a_reader_holds_is_no_leak(made):
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    for time in range(4):
        append(write, time)
    parts = read.parts(3)
    another(made, inline_bytes=0).maintain(write.shard_id, full=True)
    pass_time(made, 2 * DAY_MS)
    assert made.inspect(write.shard_id).garbage
    assert found(made, delete=True) == {}
    assert sum(part.to_arrow().num_rows for part in parts) == 4


def test_a_batch_appended_while_the_finder_lists_survives(made):
    """The page is listed first and the state fetched afterwards, which names the batch by then."""

    class SlowBlob(MemBlob):
        listed = staticmethod(lambda: None)

        def list_keys_and_metadata(self, prefix):
            found = list(super().list_keys_and_metadata(prefix))
            self.listed()
            yield from found

    made = client_on(SlowBlob())
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    batch = write.batch(updates([(1, "y", 0, 1)]), lower=0, upper=1)
    pass_time(made, 2 * DAY_MS)
    made.blob.listed = lambda: write.compare_and_append_batch(batch, expected_upper=0, new_upper=1)
    assert found(made, delete=True) == {}
    made.blob.listed = lambda: None
    assert counted(made.open_reader(write.shard_id).snapshot_arrow(0)) == {(1, "y", 0): 1}


def test_protected_batches_are_spared(made):
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    held = write.batch(updates([(1, "y", 0, 1)]), lower=0, upper=1)
    lost = write.batch(updates([(2, "y", 0, 1)]), lower=0, upper=1)
    pass_time(made, DAY_MS)
    assert set(found(made, protected=held.blob_keys, delete=True)) == set(lost.blob_keys())
    write.compare_and_append_batch(held, expected_upper=0, new_upper=1)


def test_objects_of_unknown_age_are_told_and_never_deleted(made):
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    key = f"{write.shard_id}/part-of-an-older-version.parquet"
    made.blob.set(key, b"12345")
    pass_time(made, 10 * DAY_MS)
    [leak] = found(made, delete=True, delete_of_no_shard=True).values()
    assert (leak.key, leak.age_ms, leak.bytes, leak.deleted) == (key, None, 5, False)
    assert key in blobs(made)


def test_objects_of_no_shard_are_deleted_only_when_that_is_asked_for(made):
    stranger = client_on(made.blob, made._context.clock)
    write, _ = stranger.open_shard(stranger.new_shard_id(), SCHEMA)
    append(write, 0)
    pass_time(made, DAY_MS)
    [leak] = found(made, delete=True).values()
    assert (leak.kind, leak.deleted) == ("of no shard", False)
    [gone] = found(made, delete=True, delete_of_no_shard=True).values()
    assert gone.deleted
    assert blobs(made) == set()


def test_what_spark_wrote_and_nobody_adopted_is_found(made):
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    keys = {f"{write.part_prefix()}/part-0000{n}-c000.snappy.parquet" for n in range(3)}
    for key in keys:
        made.blob.set(key, b"x")
    pass_time(made, DAY_MS)
    assert set(found(made, delete=True)) == keys
    assert blobs(made) == set()


def test_a_shards_leaks_are_looked_for_under_its_prefix_only(made):
    first, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    second, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    lost = first.batch(updates([(1, "y", 0, 1)]), lower=0, upper=1)
    second.batch(updates([(1, "y", 0, 1)]), lower=0, upper=1)
    pass_time(made, DAY_MS)
    assert set(found(made, shard_ids=[first.shard_id])) == set(lost.blob_keys())


def test_many_objects_in_many_pages(made):
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    keys = set()
    for _ in range(2500):
        keys.add(f"{write.part_prefix()}.parquet")
        made.blob.set(max(keys), b"")
    for key in keys:
        made.blob.set(key, b"")
    append(write, 0)
    pass_time(made, DAY_MS)
    live = referenced(made.inspect(write.shard_id))
    assert set(found(made, delete=True)) == keys
    assert blobs(made) == live


class UploadingBlob(MemBlob):
    """Knows of uploads under way, as an object store with multipart uploads does."""

    def __init__(self):
        super().__init__()
        self.uploads = []

    def list_unfinished(self):
        return iter(list(self.uploads))

    def abort_unfinished(self, unfinished):
        self.uploads.remove(unfinished)


def test_old_unfinished_uploads_are_given_up():
    made = client_on(UploadingBlob())
    now = made._context.clock.ms
    old = Unfinished("s/a.parquet", "1", now - 2 * DAY_MS, 70)
    young = Unfinished("s/b.parquet", "2", now + DAY_MS - 1000, 80)
    made.blob.uploads = [old]
    assert not any(leak.deleted for leak in made.find_leaks(delete=True))
    pass_time(made, DAY_MS)
    made.blob.uploads = [young, old]
    [leak] = made.find_leaks()
    assert (leak.kind, leak.key, leak.bytes, leak.age_ms) == (
        *("upload", "s/a.parquet", 70),
        3 * DAY_MS,
    )
    assert made.blob.uploads == [young, old]
    [leak] = made.find_leaks(delete=True)
    assert leak.deleted
    assert made.blob.uploads == [young]


def test_a_negative_age_is_refused(made):
    with pytest.raises(UsageError):
        made.find_leaks(older_than_ms=-1)


class OwnClock(ManualClock):
    """A machine's clock: its monotonic time is true, what it shows is wrong by ``off`` milliseconds."""

    def __init__(self, true, off):
        super().__init__()
        self.true = true
        self.off = off

    def now_ms(self):
        return self.true.ms + self.off

    def monotonic(self):
        return self.true.ms / 1000


@pytest.mark.parametrize("off", [-400 * DAY_MS, -2 * DAY_MS, 0, DAY_MS, 400 * DAY_MS])
def test_a_finder_whose_clock_is_wrong_takes_nothing_that_is_about_to_be_appended(off):
    made = client_on(MemBlob())
    true = made._context.clock
    true.ms += 1000 * DAY_MS
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    batch = write.batch(updates([(1, "y", 0, 1)]), lower=0, upper=1)
    lost = write.batch(updates([(2, "y", 1, 1)]), lower=1, upper=2)
    finder = PersistClient(made.blob, made.consensus, clock=OwnClock(true, off), background=False)
    assert not any(leak.deleted for leak in finder.find_leaks(delete=True))
    true.ms += DAY_MS - 1
    assert not any(leak.deleted for leak in finder.find_leaks(delete=True))
    write.compare_and_append_batch(batch, expected_upper=0, new_upper=1)
    true.ms += 1
    [leak] = finder.find_leaks(delete=True)
    assert (leak.key, leak.seen_ms, leak.deleted) == (lost.blob_keys()[0], DAY_MS, True)
    assert counted(made.open_reader(write.shard_id).snapshot_arrow(0)) == {(1, "y", 0): 1}


@pytest.mark.parametrize("off", [-400 * DAY_MS, 400 * DAY_MS])
def test_a_batch_of_another_process_whose_clock_is_wrong_is_looked_for_before_it_is_appended(off):
    made = client_on(MemBlob())
    true = made._context.clock
    true.ms += 1000 * DAY_MS
    shard_id = made.new_shard_id()
    write, _ = made.open_shard(shard_id, SCHEMA)
    theirs = PersistClient(
        made.blob,
        made.consensus,
        clock=OwnClock(true, off),
        settings=Settings(inline_bytes=0),
        background=False,
    )
    batch = theirs.open_writer(shard_id).batch(updates([(1, "y", 0, 1)]), lower=0, upper=1)
    pass_time(made, DAY_MS)
    [leak] = found(made, delete=True).values()
    assert leak.deleted
    with pytest.raises(MissingPart):
        write.compare_and_append_batch(batch, expected_upper=0, new_upper=1)
    assert write.fetch_upper() == 0


def test_what_is_waited_for_is_bounded_and_lets_the_first_reach_their_age():
    clock = ManualClock()
    ages = Ages(clock, names=2)
    for _ in range(3):
        this = ages.begin_round()
        assert {name: ages.meet(name, this) for name in ("a", "b", "c")}["c"] == 0
        ages.end_round(this, "")
        clock.ms += 10
    assert (ages.age_ms("a"), ages.age_ms("b"), ages.age_ms("c")) == (30, 30, None)
    this = ages.begin_round()
    assert (ages.meet("b", this), ages.meet("c", this)) == (30, 0)  # "a" is gone
    ages.end_round(this, "")
    assert ages.meet("c", ages.begin_round()) == 0
    assert ages.age_ms("a") is None
    ages.meet("d")  # of no search: the oldest gives way
    assert ages.age_ms("b") is None


def test_times_in_names():
    clock = ManualClock()
    clock.ms = 1_777_000_000_123
    made = client_on(MemBlob(), clock)
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    append(write, 0)
    made.maintain(write.shard_id, full=True)
    append(write, 1)
    made.maintain(write.shard_id, full=True)
    assert any("rollup-" in key for key in blobs(made))
    assert {object_time(key) for key in blobs(made)} == {clock.ms}
    for nothing in ("", "s", "s/x", f"{made.new_shard_id()}", "s/rollup-1", "x/y/z"):
        assert object_time(nothing) is None


_KILLED = """
import os, signal, sys
import pyarrow as pa
from mzsql.location.file import FileBlob
from mzsql.location.sqlite import SqliteConsensus
from mzsql.persist import PersistClient, Settings

class Killing(FileBlob):
    def set(self, key, value):
        super().set(key, value)
        os.kill(os.getpid(), signal.SIGKILL)

root, shard = sys.argv[1:]
client = PersistClient(
    Killing(root + "/blob"), SqliteConsensus(root + "/c.db"), settings=Settings(inline_bytes=0)
)
write = client.open_writer(shard)
table = pa.table({"k": [1], "v": ["lost"], "mz_time": [1], "mz_diff": [1]})
write.compare_and_append(table, expected_upper=1, new_upper=2)
"""


def test_what_a_killed_writer_left_is_found(tmp_path):
    clock = ManualClock()
    made = PersistClient(
        FileBlob(tmp_path / "blob"),
        SqliteConsensus(tmp_path / "c.db"),
        clock=clock,
        settings=Settings(inline_bytes=0),
        background=False,
    )
    write, _ = made.open_shard(made.new_shard_id(), SCHEMA)
    append(write, 0)
    before = blobs(made)
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path), write.shard_id],
        check=False,
        timeout=500,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert killed.returncode == -signal.SIGKILL
    [lost] = blobs(made) - before
    (tmp_path / "blob" / ".mzsql-tmp" / "half-written").write_bytes(b"half")
    clock.ms = object_time(lost) + DAY_MS + 60_000
    done = maintain_location(made, Wanted())
    assert (done.leaks_deleted, done.leaks_left, done.failures) == (0, 2, [])
    clock.ms += DAY_MS
    done = maintain_location(made, Wanted())
    assert (done.leaks_deleted, done.leaks_left, done.failures) == (2, 0, [])
    assert blobs(made) == before
    assert list(made.blob.list_unfinished()) == []
    made.close()


def test_upkeep_of_many_shards_reports_what_fails_and_goes_on(made):
    shards = sorted(made.new_shard_id() for _ in range(3))
    for shard in shards:
        write, read = made.open_shard(shard, SCHEMA)
        for time in range(6):
            append(write, time)
        read.downgrade_since(5)
    ended, broken, fine = shards
    made.finalize(ended)
    left = f"{ended}/left-by-spark.parquet"
    made.blob.set(left, b"x")
    kept = referenced(made.inspect(broken))
    lost = made.open_writer(fine).batch(updates([(1, "y", 6, 1)]), lower=6, upper=7)
    head = made.consensus.head(broken)
    made.consensus.compare_and_set(
        broken, head.seqno, type(head)(head.seqno + 1, b"not an entry of ours")
    )
    made._context.clock.ms += DAY_MS
    upkeeper = another(made, inline_bytes=0)
    assert maintain_location(upkeeper, Wanted(dry_run=True)).leaks_left > 0
    made._context.clock.ms += DAY_MS
    dry = maintain_location(upkeeper, Wanted(dry_run=True))
    assert (dry.shards, dry.merges, dry.objects_deleted) == (2, 0, 0)
    done = maintain_location(upkeeper, Wanted(full=True))
    assert [failure.shard_id for failure in done.failures] == [broken, "the search for leaks"]
    assert (done.shards, done.merges, done.leaks_deleted) == (2, 1, 1)
    assert lost.blob_keys()[0] not in blobs(made)
    assert kept <= blobs(made)
    assert len(upkeeper.inspect(fine).trace) == 1
    assert left not in blobs(made)
    assert maintain_location(upkeeper, Wanted(shard_ids=(fine,))).failures == []
    [gone] = maintain_location(upkeeper, Wanted(shard_ids=(made.new_shard_id(),))).failures
    assert "does not exist" in gone.error


def test_upkeep_stops_between_shards(made):
    for _ in range(3):
        made.open_shard(made.new_shard_id(), SCHEMA)
    asked = iter([False, True])
    done = maintain_location(made, Wanted(), stopped=lambda: next(asked))
    assert done.shards == 1


def test_upkeep_collects_the_little_that_is_left_in_a_quiet_shard(made):
    write, read = made.open_shard(made.new_shard_id(), SCHEMA)
    for time in range(6):
        append(write, time)
    held = read.parts(5)
    upkeeper = another(made, inline_bytes=0)
    upkeeper.maintain(write.shard_id, full=True)
    wanted = Wanted(only_due=True)
    assert made.inspect(write.shard_id).garbage
    assert (
        maintain_location(upkeeper, wanted).objects_deleted == 0
    )  # it is held, and the shard not quiet
    assert len(held) == 6
    pass_time(made, DAY_MS // 2)  # the reader's process is gone: its lease runs out
    done = maintain_location(upkeeper, wanted)
    assert (done.due, done.collectable, done.objects_deleted) == (1, 6, 7)  # and a rollup
    assert blobs(made) == referenced(made.inspect(write.shard_id))
    assert maintain_location(upkeeper, wanted).due == 0
