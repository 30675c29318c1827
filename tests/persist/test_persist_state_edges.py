"""What doubt there is after an error, and what stays behind: exactly what may have been committed, and nothing else."""

from __future__ import annotations

import random

import pytest
from persist_model import (
    SCHEMA,
    ManualClock,
    blobs,
    counted,
    expected_at,
    referenced,
    updates,
)

from mzsql.location import Determinate, Indeterminate
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import CorruptPart, KeySpec, MissingPart, NewerVersion, PersistClient, Settings
from mzsql.persist.batch import Batch
from mzsql.repr.version import VERSION

NEWER = "99.0.0"


def client_of(blob, consensus, *, version=VERSION, seed=1, **settings):
    return PersistClient(
        blob,
        consensus,
        clock=ManualClock(),
        rng=random.Random(seed),
        settings=Settings(timeout=5.0, **settings),
        background=False,
        version=version,
    )


class Scripted(MemConsensus):
    """Before a compare-and-set of whose entry ``when`` says so, once, ``then(act)`` runs in its stead, if there is a ``then``."""

    when = staticmethod(lambda _: False)
    then = None
    blind = None
    """What scans raise, so many times."""

    def compare_and_set(self, key, expected, new):
        if self.then is not None and self.when(new.data):
            then, self.then = self.then, None
            return then(lambda: MemConsensus.compare_and_set(self, key, expected, new))
        return super().compare_and_set(key, expected, new)

    def scan(self, key, from_seqno, limit):
        if self.blind is not None:
            raise self.blind
        return super().scan(key, from_seqno, limit)


def world(**settings):
    consensus = Scripted()
    client = client_of(
        MemBlob(), consensus, inline_bytes=0, rollup_interval=4, compaction_fanout=3, **settings
    )
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    return client, write, read


def grow(write, upto, start=0):
    history = []
    for time in range(start, upto):
        history.append((time, f"v{time}", time, 1))
        write.compare_and_append(updates(history[-1:]), expected_upper=time, new_upper=time + 1)
    return history


def taken_over(client, shard_id):
    """A newer program changes what the shard holds."""
    newer = client_of(client.blob, client.consensus, version=NEWER, seed=2, maintenance="elsewhere")
    writer = newer.open_writer(shard_id)
    upper = writer.fetch_upper()
    writer.compare_and_append(None, expected_upper=upper, new_upper=upper + 1)
    writer.expire()


def state_of(client, shard_id):
    return client_of(client.blob, client.consensus, version=NEWER, seed=3).inspect(shard_id)


@pytest.mark.parametrize("kind", [b"v9", b"rollup-", b"removed"])
def test_a_newer_program_that_comes_before_the_commit_leaves_no_object_behind(kind):
    client, write, read = world()
    client.consensus.when = lambda data: kind in data

    def overtaken(act):
        taken_over(client, write.shard_id)
        return act()

    # Of objects the log knows names only, so the append is told by its time.
    if kind == b"v9":
        history = grow(write, 2)
        client.consensus.when = lambda _: True
        client.consensus.then = overtaken
        with pytest.raises(NewerVersion):
            grow(write, 3, start=2)
    else:
        elsewhere = client_of(
            client.blob,
            client.consensus,
            seed=4,
            inline_bytes=0,
            maintenance="elsewhere",
        )
        history = grow(elsewhere.open_writer(write.shard_id), 5)
        client.consensus.then = overtaken
        with pytest.raises(NewerVersion):
            client.maintain(write.shard_id)
    assert client.consensus.then is None
    state = state_of(client, write.shard_id)
    assert blobs(client) == referenced(state)
    assert sum(batch.rows for batch in state.trace) == len(history)
    assert read.shard_id == write.shard_id


@pytest.mark.parametrize("acts", [False, True])
def test_a_newer_program_that_comes_after_a_doubt_does_not_end_it(acts):
    client, write, _ = world()
    history = grow(write, 2)
    client.consensus.when = lambda _: True

    def lost(act):
        if acts:
            act()
        taken_over(client, write.shard_id)
        raise Indeterminate("lost the answer")

    client.consensus.then = lost
    with pytest.raises(Indeterminate):
        history += grow(write, 3, start=2)
    state = state_of(client, write.shard_id)
    assert state.upper == 2 + acts + 1
    assert referenced(state) <= blobs(client)


@pytest.mark.parametrize("acts", [False, True])
def test_objects_of_an_append_in_doubt_are_kept_or_collected_as_it_turns_out(acts):
    client, write, read = world()
    history = grow(write, 2)
    client.consensus.when = lambda _: True

    def lost(act):
        if acts:
            act()
        client.consensus.blind = Determinate("cannot look")
        raise Indeterminate("lost the answer")

    client.consensus.then = lost
    with pytest.raises(Indeterminate):
        grow(write, 3, start=2)
    client.consensus.blind = None
    if acts:
        history.append((2, "v2", 2, 1))
    history += grow(write, 4, start=write.fetch_upper())
    client.maintain(write.shard_id)
    read.heartbeat()
    client.maintain(write.shard_id)
    assert blobs(client) == referenced(client.inspect(write.shard_id))
    assert counted(read.snapshot_arrow(3)) == expected_at([*history], 3)


def test_a_look_that_times_out_is_no_doubt_about_an_append_that_lost_its_race():
    client, write, read = world()
    history = grow(write, 2)
    client.consensus.when = lambda _: True
    other = client_of(client.blob, client.consensus, seed=5, inline_bytes=0)

    def raced(act):
        grow(other.open_writer(write.shard_id), 3, start=2)
        client.consensus.blind = Indeterminate("no answer")
        return act()

    client.consensus.then = raced
    with pytest.raises(Determinate):
        grow(write, 3, start=2)
    client.consensus.blind = None
    assert blobs(client) == referenced(client.inspect(write.shard_id))
    assert counted(read.snapshot_arrow(2)) == expected_at([*history, (2, "v2", 2, 1)], 2)


class Lossy(MemBlob):
    """Writes objects of which ``lost`` says so, and loses the answer."""

    lost = staticmethod(lambda _: False)

    def set(self, key, data):
        super().set(key, data)
        if self.lost(key):
            raise Indeterminate("lost the answer")


def test_a_rollup_whose_write_is_not_confirmed_is_deleted():
    blob, consensus = Lossy(), Scripted()
    client = client_of(blob, consensus, inline_bytes=0, rollup_interval=4)
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    blob.lost = lambda key: "rollup-" in key
    grow(write, 6)  # maintenance puts it off, and the appends go on
    assert blobs(client) == referenced(client.inspect(write.shard_id))


def test_an_object_whose_write_is_not_confirmed_is_no_doubt_about_its_append():
    blob, consensus = Lossy(), Scripted()
    client = client_of(blob, consensus, inline_bytes=0)
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    grow(write, 1)
    blob.lost = lambda _: True
    with pytest.raises(Determinate, match="nothing was appended"):
        grow(write, 2, start=1)
    assert blobs(client) == referenced(client.inspect(write.shard_id))


def test_a_doubt_outlives_parts_that_cannot_be_written_out():
    """In doubt, then a merge leaves too little room for what is inline, then Blob fails: the other part may be live, and stays."""
    blob, consensus = Lossy(), Scripted()
    inline = {"inline_bytes": 8000, "inline_total_bytes": 5000}
    client = client_of(blob, consensus, **inline)
    key = KeySpec(("k",), workers=2)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA, key=key)
    filler = client_of(blob, consensus, seed=6, inline_bytes=0).open_writer(write.shard_id)
    for time in range(3):
        rows = updates([(i, "w" * 20, time, 1) for i in range(20)])
        filler.compare_and_append({0: rows}, expected_upper=time, new_upper=time + 1)
    merger = client_of(blob, consensus, seed=7, **inline)
    consensus.when = lambda _: True

    def lost(_):
        merger.maintain(write.shard_id, full=True)
        blob.lost = lambda _: True
        raise Indeterminate("lost the answer")

    consensus.then = lost
    big = updates([(i, "x" * 100, 3, 1) for i in range(100)])
    small = updates([(i, "s" * 40, 3, 1) for i in range(40)])
    before = blobs(client)
    with pytest.raises(Indeterminate, match=r"may have been committed: .*nothing was appended"):
        write.compare_and_append({0: big, 1: small}, expected_upper=3, new_upper=4)
    [kept] = blobs(client) - before - referenced(state_of(client, write.shard_id))
    blob.lost = lambda _: False
    write.compare_and_append(None, expected_upper=3, new_upper=4)
    read.heartbeat()
    client.maintain(write.shard_id)
    assert kept not in blobs(client)
    assert blobs(client) == referenced(client.inspect(write.shard_id))


def test_a_batch_that_travels_is_refused_once_any_byte_of_it_is_damaged():
    client, write, _ = world()
    batch = write.batch(updates([(1, "a", 0, 1)]), lower=0, upper=1)
    data = batch.to_bytes()
    assert Batch.from_bytes(data) == batch
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x11
        # A format that never was may be a newer one's.
        with pytest.raises((CorruptPart, NewerVersion)):
            Batch.from_bytes(bytes(damaged))
    with pytest.raises(CorruptPart):
        Batch.from_bytes(data[:-1])
    write.delete_batch(batch)
    assert client.inspect(write.shard_id).upper == 0


def test_an_old_batch_whose_objects_were_taken_for_leaks_is_refused():
    client, write, _ = world()
    one = write.batch(updates([(1, "a", 0, 1)]), lower=0, upper=1)
    other = write.batch(updates([(2, "b", 0, 1)]), lower=0, upper=1)
    list(client.find_leaks())
    client.clock.ms += 25 * 3600 * 1000
    found = list(client.find_leaks(delete=True, protected=other.blob_keys))
    assert {leak.key for leak in found if leak.deleted} == set(one.blob_keys())
    with pytest.raises(MissingPart):
        write.compare_and_append_batch([one, other], expected_upper=0, new_upper=1)
    assert write.fetch_upper() == 0
    write.compare_and_append_batch(other, expected_upper=0, new_upper=1)
    read = client.open_reader(write.shard_id)
    assert counted(read.snapshot_arrow(0)) == {(2, "b", 0): 1}
