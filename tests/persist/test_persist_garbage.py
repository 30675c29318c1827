"""Collection cut off anywhere, twice and at once; ended shards; doubts; what a client keeps and how often it looks."""

from __future__ import annotations

import gc
import logging
import random
import threading

import msgspec
import pyarrow as pa
import pytest
from persist_model import (
    SCHEMA,
    ManualClock,
    another,
    blobs,
    counted,
    expected_at,
    mem_client,
    referenced,
    updates,
)

from mzsql.location import Determinate, Indeterminate, UsageError, blob_around, consensus_around
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    ExpiredHandle,
    InvalidBounds,
    KeySpec,
    MissingPart,
    PersistClient,
    SchemaMismatch,
    Settings,
    ShardFinalized,
    SinceViolation,
    UpperMismatch,
)
from mzsql.persist.parts import delete_objects
from mzsql.repr.errors import Fenced

TUNING = {"inline_bytes": 0, "compaction_fanout": 3, "rollup_interval": 5}


class Killed(BaseException):
    """The process ends here."""


class Killer:
    """Ends the process before or after its ``at``-th operation on a backend that changes something."""

    CHANGES = ("set", "delete", "delete_many", "compare_and_set", "truncate")

    def __init__(self, at, after):
        self.at, self.after, self.count = at, after, 0

    def __call__(self, operation, act):
        if operation not in self.CHANGES:
            return act()
        self.count += 1
        if self.count == self.at and not self.after:
            raise Killed
        if self.count > self.at:
            raise Killed
        result = act()
        if self.count == self.at:
            raise Killed
        return result


def doomed(client, at, after):
    """A process on the client's backends that is killed at its ``at``-th change, and its killer."""
    killer = Killer(at, after)
    return killer, PersistClient(
        blob_around(client.blob, killer),
        consensus_around(client.consensus, killer),
        clock=client._context.clock,
        rng=random.Random(5),
        settings=client.settings,
        background=False,
    )


def grown(client, count):
    """A shard with ``count`` batches and garbage, nothing of it maintained."""
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write._opened.changed = lambda *_: None
    history = []
    for i in range(count):
        rows = [(i % 4, "v", i, 1), (i % 3, "w", i, -1 if i % 2 else 1)]
        write.compare_and_append(updates(rows), expected_upper=i, new_upper=i + 1)
        history += rows
    read.downgrade_since(count // 2)
    return write, read, history


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_maintenance_killed_at_any_step_loses_nothing_and_is_made_up_for(after):
    at, done = 0, False
    while not done:
        at += 1
        client = mem_client(**TUNING)
        write, read, history = grown(client, 11)
        hold = client.open_critical_reader(write.shard_id, "hold")
        read.expire()
        killer, process = doomed(client, at, after)
        try:
            process.maintain(write.shard_id, full=at % 2 == 0)
        except Killed:
            pass
        else:
            done = True
            assert at > 10
        heir = another(client, **TUNING)
        read = heir.open_reader(write.shard_id)
        assert read.since == hold.since
        assert counted(read.snapshot_arrow(10)) == expected_at(history, 10)
        heir.maintain(write.shard_id)
        assert counted(read.snapshot_arrow(10)) == expected_at(history, 10)
        heir.maintain(write.shard_id)
        state = heir.inspect(write.shard_id)
        assert state.garbage == {}
        assert len(state.rollups) == 1
        assert len(client.consensus.scan(write.shard_id, 0, 1000)) <= 8
        # Only what was being written when the process ended is not accounted for, as nobody can know whether it still is at it.
        assert referenced(state) <= blobs(client)
        assert len(blobs(client) - referenced(state)) <= 1
    assert killer.count < at


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_finalization_killed_at_any_step_is_resumed_by_the_next_maintenance(after):
    at, done = 0, False
    while not done:
        at += 1
        client = mem_client(**TUNING)
        write, read, _ = grown(client, 4)
        read.expire()
        _, process = doomed(client, at, after)
        try:
            process.finalize(write.shard_id)
        except Killed:
            pass
        else:
            done = True

        heir = another(client, **TUNING)
        finalized = heir.inspect(write.shard_id).finalized
        assert finalized or at == 1
        heir.maintain(write.shard_id)
        if finalized:
            state = heir.inspect(write.shard_id)
            assert (state.garbage, state.rollups, blobs(client)) == ({}, {}, set())
            assert len(client.consensus.scan(write.shard_id, 0, 100)) == 1
            assert heir._shards.get(write.shard_id) is None
    assert at > 3


def test_collectors_at_once_delete_no_more_and_no_less():
    clients = [
        PersistClient(MemBlob(), MemConsensus(), settings=Settings(**TUNING), background=False)
    ]
    clients += [
        PersistClient(
            clients[0].blob, clients[0].consensus, settings=Settings(**TUNING), background=False
        )
        for _ in range(3)
    ]
    write, read, history = grown(clients[0], 30)
    failures = []

    def work(client):
        try:
            for _ in range(6):
                client.maintain(write.shard_id)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert counted(read.snapshot_arrow(29)) == expected_at(history, 29)
    read.heartbeat()
    clients[0].maintain(write.shard_id)
    state = clients[0].inspect(write.shard_id)
    assert blobs(clients[0]) == referenced(state)
    assert (state.garbage, len(state.rollups)) == ({}, 1)


class SlowlyDeleting(MemBlob):
    """Deletes wait for each other: so many at once are a must."""

    def __init__(self, at_once):
        super().__init__()
        self.barrier = threading.Barrier(at_once)

    def delete(self, key):
        if threading.current_thread().name.startswith("mzsql-persist-delete"):
            self.barrier.wait(20)
        return super().delete(key)


def test_objects_are_deleted_side_by_side_where_threads_are_allowed():
    blob = SlowlyDeleting(4)
    context = PersistClient(blob, MemConsensus(), background=False)._context
    keys = [f"s/{i}" for i in range(16)]
    for key in keys:
        blob.set(key, b"")
    delete_objects(msgspec.structs.replace(context, threads=True), keys)
    assert blob._objects == {}
    for key in keys:
        blob.set(key, b"")
    delete_objects(context, keys)  # one after the other, on this thread
    assert blob._objects == {}


# --- doubts -----------------------------------------------------------------------------------


def _losing_answers(client, kinds, *, acts):
    """From now on compare-and-sets of these kinds of change fail indeterminately, acting or not, and so do all looks after."""
    consensus = client.consensus
    compare_and_set, scan = consensus.compare_and_set, consensus.scan
    lost = []

    def lossy(key, expected, new):
        if lost or any(kind in new.data for kind in kinds):
            if acts and not lost:
                compare_and_set(key, expected, new)
            lost.append(new.seqno)
            raise Indeterminate("lost the answer")
        return compare_and_set(key, expected, new)

    def blind(key, from_seqno, limit):
        if lost:
            raise Determinate("cannot look")
        return scan(key, from_seqno, limit)

    consensus.compare_and_set, consensus.scan = lossy, blind

    def heal():
        del consensus.compare_and_set, consensus.scan

    return lost, heal


@pytest.mark.parametrize("acts", [False, True])
@pytest.mark.parametrize("kind", [b"rollup-", b"removed"])
def test_objects_of_a_change_in_doubt_are_kept_until_it_is_decided(kind, acts):
    client = mem_client(**TUNING)
    write, read, history = grown(client, 3)
    lost, heal = _losing_answers(client, [kind], acts=acts)
    with pytest.raises((Indeterminate, Determinate)):
        client.maintain(write.shard_id, timeout=1.0)
    assert lost
    heal()
    assert counted(read.snapshot_arrow(2)) == expected_at(history, 2)
    read.heartbeat()
    client.maintain(write.shard_id)
    client.maintain(write.shard_id)
    state = client.inspect(write.shard_id)
    assert blobs(client) == referenced(state)
    assert counted(read.snapshot_arrow(2)) == expected_at(history, 2)


def test_a_retried_append_is_applied_once_whatever_came_between():
    """After the answer is lost others append, maintenance runs, and the writer's state is cached nowhere."""
    client = mem_client(**TUNING)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    other = another(client, **TUNING)
    between = other.open_writer(write.shard_id)
    act = client.consensus.compare_and_set

    def lossy(key, expected, new):
        client.consensus.compare_and_set = act
        act(key, expected, new)
        for i in range(1, 12):
            between.compare_and_append(updates([(i, "o", i, 1)]), expected_upper=i, new_upper=i + 1)
        other.maintain(write.shard_id, full=True)
        raise Indeterminate("lost the answer")

    client.consensus.compare_and_set = lossy
    write.compare_and_append(updates([(0, "w", 0, 1)]), expected_upper=0, new_upper=1)
    found = counted(read.snapshot_arrow(11))
    assert found == {(0, "w", 11): 1, **{(i, "o", 11): 1 for i in range(1, 12)}}
    read.heartbeat()
    client.maintain(write.shard_id)
    assert blobs(client) == referenced(client.inspect(write.shard_id))


def test_a_lost_race_after_a_doubt_is_a_plain_mismatch():
    """The attempt in doubt did not act, another writer won: the writer, known to the shard, is told exactly."""
    client = mem_client()
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates([(0, "w", 0, 1)]), expected_upper=0, new_upper=1)
    between = another(client).open_writer(write.shard_id)
    act = client.consensus.compare_and_set

    def lossy(*_):
        client.consensus.compare_and_set = act
        between.compare_and_append(updates([(1, "o", 1, 1)]), expected_upper=1, new_upper=2)
        raise Indeterminate("lost the request")

    client.consensus.compare_and_set = lossy
    with pytest.raises(UpperMismatch) as caught:
        write.compare_and_append(updates([(1, "w", 1, 1)]), expected_upper=1, new_upper=2)
    assert caught.value.current == 2
    assert counted(read.snapshot_arrow(1)) == {(0, "w", 1): 1, (1, "o", 1): 1}


def test_the_doubt_survives_a_batch_that_must_be_written_out():
    """In doubt, then too much inline: the batch goes to Blob under the same token, and is there once."""
    client = mem_client(inline_total_bytes=1500)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    act = client.consensus.compare_and_set
    state = {"left": 1}

    def lossy(key, expected, new):
        done = act(key, expected, new)
        if b"big" in new.data and state["left"]:
            state["left"] -= 1
            raise Indeterminate("lost the answer")
        return done

    client.consensus.compare_and_set = lossy
    for i in range(6):
        rows = updates([(j, "big", i, 1) for j in range(5)])
        write.compare_and_append(rows, expected_upper=i, new_upper=i + 1)
    assert counted(read.snapshot_arrow(5)) == {(j, "big", 5): 6 for j in range(5)}


# --- critical readers -------------------------------------------------------------------------


def test_of_two_who_take_a_hold_over_from_one_owner_one_succeeds():
    client = mem_client()
    other = another(client)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(None, expected_upper=0, new_upper=20)
    first = client.open_critical_reader(write.shard_id, "hold", token="first")
    first.downgrade_since(3)
    read.expire()
    winner = client.open_critical_reader(
        write.shard_id, "hold", token="winner", expected_token="first"
    )
    with pytest.raises(Fenced, match="winner"):
        other.open_critical_reader(write.shard_id, "hold", token="loser", expected_token="first")
    assert winner.since == 3
    winner.downgrade_since(8)
    for act in (lambda: first.downgrade_since(9), first.release):
        with pytest.raises(Fenced):
            act()
    assert client.inspect(write.shard_id).since == 8
    with pytest.raises(InvalidBounds):
        winner.downgrade_since(7)
    # Without an expectation whoever comes takes it, from where it stands; releasing lets nothing go back.
    taken = other.open_critical_reader(write.shard_id, "hold", token="taker")
    assert taken.since == 8
    with pytest.raises(Fenced):
        winner.downgrade_since(9)
    taken.release()
    taken.release()
    with pytest.raises(ExpiredHandle):
        taken.downgrade_since(9)
    assert client.inspect(write.shard_id).since == 8


def test_owners_who_race_never_move_the_hold_past_each_other():
    client = PersistClient(MemBlob(), MemConsensus(), background=False)
    other = PersistClient(client.blob, client.consensus, background=False)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(None, expected_upper=0, new_upper=1000)
    client.open_critical_reader(write.shard_id, "hold", token="t")
    read.expire()
    moved = {"a": [], "b": []}

    def own(name, of):
        for i in range(40):
            hold = of.open_critical_reader(write.shard_id, "hold", token=f"{name}{i}")
            try:
                hold.downgrade_since(hold.since + 1)
                moved[name].append(hold.since)
            except Fenced:
                continue

    threads = [threading.Thread(target=own, args=args) for args in (("a", client), ("b", other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    steps = sorted(moved["a"] + moved["b"])
    # Each step was made once, by the one who owned the hold then.
    assert steps == list(range(1, len(steps) + 1))
    assert client.inspect(write.shard_id).since == len(steps)


def test_a_critical_hold_never_runs_out_and_leases_do():
    client = mem_client(reader_lease_ms=1000)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(None, expected_upper=0, new_upper=20)
    hold = client.open_critical_reader(write.shard_id, "hold")
    read.downgrade_since(7)
    client._context.clock.ms += 10**9
    write.compare_and_append(None, expected_upper=20, new_upper=21)
    state = client.inspect(write.shard_id)
    assert (state.readers, list(state.critical), state.since) == ({}, ["hold"], 0)
    with pytest.raises(ExpiredHandle):
        read.snapshot_arrow(20)
    hold.downgrade_since(5)
    assert client.inspect(write.shard_id).since == 5
    client._context.clock.ms += 10**9
    hold.downgrade_since(9)
    assert client.open_reader(write.shard_id).since == 9


# --- what a client keeps, and how often it looks ----------------------------------------------


def test_a_client_forgets_shards_nobody_has_handles_of():
    client = mem_client(open_shards=3)
    kept = client.open_shard(client.new_shard_id(), SCHEMA)
    for _ in range(20):
        shard_id = client.new_shard_id()
        write, read = client.open_shard(shard_id, SCHEMA)
        write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
        read.expire()
        write.expire()
        del write, read
        client.maintain(shard_id)
    gc.collect()
    assert len(client._shards) <= 4
    assert kept[0].shard_id in client._shards
    kept[0].compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    assert client.open_writer(kept[0].shard_id)._opened is kept[0]._opened
    # What was forgotten is opened anew.
    assert client.open_reader(shard_id).snapshot_arrow(0).num_rows == 1


class CountingConsensus(MemConsensus):
    """Counts looks; each takes until it is let go, where asked for."""

    def __init__(self):
        super().__init__()
        self.scans = []
        self.gate = None
        self.entered = threading.Semaphore(0)

    def scan(self, key, from_seqno, limit):
        if self.gate is not None:
            self.entered.release()
            assert self.gate.wait(20)
        found = super().scan(key, from_seqno, limit)
        self.scans.append((from_seqno, len(found)))
        return found


def test_threads_that_ask_at_once_share_a_look():
    consensus = CountingConsensus()
    client = PersistClient(MemBlob(), consensus, background=False)
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    shard = write._opened.shard
    turn, asked = shard._in_turn, threading.Semaphore(0)

    def counted_turn(deadline, act):
        asked.release()
        return turn(deadline, act)

    shard._in_turn = counted_turn
    gate = consensus.gate = threading.Event()
    before = len(consensus.scans)
    uppers = []
    threads = [
        threading.Thread(target=lambda: uppers.append(write.fetch_upper())) for _ in range(9)
    ]
    threads[0].start()
    assert consensus.entered.acquire(timeout=20)
    for thread in threads[1:]:
        thread.start()
    # The others' looks begin after the first one's did, so they need one of their own: one, for all of them.
    for _ in threads:
        assert asked.acquire(timeout=20)
    gate.set()
    for thread in threads:
        thread.join(20)
    assert uppers == [0] * 9
    assert len(consensus.scans) - before == 2


def test_a_lost_race_fetches_what_is_missing_and_no_more():
    consensus = CountingConsensus()
    clients = [
        PersistClient(
            MemBlob(), consensus, settings=Settings(compaction_fanout=1000), background=False
        )
        for _ in range(2)
    ]
    shard_id = clients[0].new_shard_id()
    writers = [client.open_writer(shard_id, SCHEMA) for client in clients]
    for upper in range(30):
        writers[0].compare_and_append(None, expected_upper=upper, new_upper=upper + 1)
    consensus.scans.clear()
    writers[1].append(None, lower=30, upper=31)
    assert [count for _, count in consensus.scans] == [30]
    consensus.scans.clear()
    # A writer who is alone asks for nothing at all.
    for upper in range(31, 40):
        writers[1].compare_and_append(None, expected_upper=upper, new_upper=upper + 1)
    assert consensus.scans == []
    writers[0].fetch_upper()
    assert [count for _, count in consensus.scans] == [10]


class HangingConsensus(MemConsensus):
    """Calls of the maintenance thread hang once told."""

    def __init__(self):
        super().__init__()
        self.hang = False
        self.entered = threading.Event()
        self.gate = threading.Event()

    def scan(self, key, from_seqno, limit):
        if self.hang and "maintenance" in threading.current_thread().name:
            self.entered.set()
            self.gate.wait(30)
        return super().scan(key, from_seqno, limit)


def test_close_does_not_wait_for_a_backend_that_hangs(monkeypatch, caplog):
    monkeypatch.setattr("mzsql.persist.client._CLOSE_SECONDS", 0.2)
    consensus = HangingConsensus()
    client = PersistClient(MemBlob(), consensus, settings=Settings(compaction_fanout=2))
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    consensus.hang = True
    for i in range(2):
        write.compare_and_append(updates([(i, "v", i, 1)]), expected_upper=i, new_upper=i + 1)
    assert consensus.entered.wait(20)
    closing = threading.Thread(target=client.close)
    with caplog.at_level(logging.WARNING, "mzsql.persist.background_work"):
        closing.start()
        closing.join(20)
    assert not closing.is_alive()
    assert any("does not answer" in record.getMessage() for record in caplog.records)
    consensus.gate.set()


def test_a_wait_ends_by_the_clients_clock():
    clock = ManualClock()
    client = PersistClient(MemBlob(), MemConsensus(), clock=clock, background=False)
    _, read = client.open_shard(client.new_shard_id(), SCHEMA)
    with pytest.raises(Exception, match="not complete within"):
        read.wait_for_upper(3, timeout=0.2)


# --- bad input --------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_and_changes_nothing(client):
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates([(1, "a", 4, 1)]), expected_upper=0, new_upper=5)
    read.downgrade_since(3)
    ended = client.open_shard(client.new_shard_id(), SCHEMA)
    client.finalize(ended[0].shard_id)
    unknown = client.new_shard_id()
    before = {s: client.consensus.head(s) for s in (write.shard_id, ended[0].shard_id)}
    other = pa.schema([("k", pa.int32()), ("v", pa.string())])
    cases = [
        (lambda: client.open_shard(write.shard_id, other), SchemaMismatch),
        (lambda: client.open_writer(write.shard_id, SCHEMA, key=KeySpec(("k",))), SchemaMismatch),
        (lambda: client.open_reader("not a shard"), UsageError),
        (lambda: client.open_reader(unknown), MissingPart),
        (lambda: client.open_critical_reader(unknown, "hold"), MissingPart),
        (lambda: client.maintain(unknown), MissingPart),
        (lambda: client.finalize(unknown), MissingPart),
        (lambda: read.downgrade_since(2), InvalidBounds),
        (lambda: read.downgrade_since(2**63), InvalidBounds),
        (lambda: read.snapshot_arrow(2), SinceViolation),
        (lambda: read.updates(1, 3), SinceViolation),
        (lambda: next(read.listen(1)), SinceViolation),
        (lambda: client.open_reader(ended[0].shard_id), ShardFinalized),
        (lambda: client.open_critical_reader(ended[0].shard_id, "hold"), ShardFinalized),
        (lambda: ended[1].snapshot_arrow(0), ShardFinalized),
        (
            lambda: ended[0].compare_and_append(None, expected_upper=0, new_upper=1),
            UpperMismatch,
        ),
    ]
    for act, error in cases:
        with pytest.raises(error) as caught:
            act()
        assert str(caught.value)
    assert client.inspect(unknown) is None
    assert not client.exists(unknown)
    assert {s: client.consensus.head(s) for s in before} == before
