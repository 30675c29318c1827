"""Listening and leases: exact whatever happens beside, nothing kept, and no reader held up by another one's renewal."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from persist_model import (
    SCHEMA,
    ManualClock,
    another,
    blobs,
    counted,
    mem_client,
    referenced,
    updates,
)

from mzsql.location import Determinate, Indeterminate
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import ExpiredHandle, PersistClient, Settings, ShardFinalized, SinceViolation

STEPS = st.lists(
    st.sampled_from(
        ["append", "append", "take", "take", "downgrade", "compact", "maintain", "heartbeat"]
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, inline=st.booleans(), as_of=st.integers(0, 3))
def test_snapshot_and_listen_are_exactly_the_collection(steps, inline, as_of):
    client = mem_client(inline_bytes=65536 if inline else 0, compaction_fanout=2, row_group_rows=2)
    other = another(client, inline_bytes=0, compaction_fanout=2)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    history = []

    def append():
        time = write.upper
        rows = [(i % 3, f"v{time % 4}", time, -1 if i == 2 else 1) for i in range(time % 5)]
        history.extend(rows)
        write.compare_and_append(updates(rows), expected_upper=time, new_upper=time + 1)

    for _ in range(as_of + 1):
        append()
    heard = Counter(counted(read.snapshot_arrow(as_of)))
    listen, frontier = read.listen(as_of), as_of + 1
    for step in [*steps, "take"]:
        if step == "append":
            append()
        elif step == "take" and write.upper > frontier:
            table, frontier = next(listen)
            assert frontier == write.upper
            heard.update(counted(table))
        elif step == "downgrade":
            read.downgrade_since(max(frontier - 1, read.since))
        elif step == "compact":
            other.maintain(write.shard_id, full=True)
        elif step == "maintain":
            client.maintain(write.shard_id)
        else:
            read.heartbeat()
    late = Counter()
    for *row, time, diff in history:
        late[(*row, max(time, as_of))] += diff
    assert {r: d for r, d in heard.items() if d} == {r: d for r, d in late.items() if d}


def test_what_was_yielded_keeps_nothing():
    client = mem_client(inline_bytes=0, compaction_fanout=1000, max_batches=1000)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(None, expected_upper=0, new_upper=1)
    listen = read.listen(0)
    tables = []
    for time in range(1, 20):
        rows = [(time, "v" * 50, time, 1)]
        write.compare_and_append(updates(rows), expected_upper=time, new_upper=time + 1)
        tables.append(next(listen)[0])
    read.downgrade_since(19)
    client.maintain(write.shard_id, full=True)
    read.heartbeat()
    client.maintain(write.shard_id)
    state = client.inspect(write.shard_id)
    assert not any(state.garbage.values())
    assert blobs(client) == referenced(state)
    assert sum(table.num_rows for table in tables) == 19


def test_an_idle_listener_keeps_its_lease():
    """Nothing comes for several leases, and no thread but the listener's own is there to renew."""
    place, clock = (MemBlob(), MemConsensus()), ManualClock()
    short = Settings(reader_lease_ms=300)
    with (
        PersistClient(*place, settings=short, clock=clock, background=False) as client,
        PersistClient(*place, clock=clock, background=False) as other,
    ):
        write, read = client.open_shard(client.new_shard_id(), SCHEMA)
        got = []
        thread = threading.Thread(target=lambda: got.append(next(read.listen(0, timeout=30))))
        thread.start()
        beside = other.open_reader(write.shard_id)
        for _ in range(10):
            clock.ms += 100
            until(lambda now=clock.ms: last_heartbeat(client, read) >= now)
            beside.heartbeat()  # a change, by whose time leases run out
        write.compare_and_append(updates([(1, "a", 3, 1)]), expected_upper=0, new_upper=4)
        thread.join(60)
        assert [(counted(table), frontier) for table, frontier in got] == [({(1, "a", 3): 1}, 4)]


def last_heartbeat(client, read):
    return client.inspect(read.shard_id).readers[read.reader_id].heartbeat_ms


def until(true):
    pause = threading.Event()
    for _ in range(12_000):
        if true():
            return
        pause.wait(0.005)
    raise AssertionError("a minute has passed")


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda _, read: read.expire(), ExpiredHandle),
        (lambda client, read: client.finalize(read.shard_id), ShardFinalized),
        (lambda client, _: client.close(), ExpiredHandle),
    ],
    ids=["expired", "finalized", "closed"],
)
def test_a_listen_whose_reader_is_gone_ends(end, error):
    client = PersistClient(MemBlob(), MemConsensus(), background=False)
    _, read = client.open_shard(client.new_shard_id(), SCHEMA)
    outcome = []

    def listen():
        try:
            outcome.append(next(read.listen(0)))
        except Exception as failure:
            outcome.append(failure)

    thread = threading.Thread(target=listen)
    thread.start()
    threading.Event().wait(0.05)
    end(client, read)
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(outcome[0], error)


class Gate(MemConsensus):
    """Writes of the thread named ``gated`` wait, and then fail if they are to."""

    def __init__(self):
        super().__init__()
        self.entered, self.gate = threading.Event(), threading.Event()
        self.failure = None

    def compare_and_set(self, key, expected, new):
        if threading.current_thread().name == "gated":
            self.entered.set()
            assert self.gate.wait(60)
            if self.failure is not None:
                raise self.failure
        return super().compare_and_set(key, expected, new)


@pytest.mark.parametrize("failure", [None, Determinate("no"), Indeterminate("who knows")], ids=str)
def test_reads_go_on_beside_a_slow_downgrade(failure):
    consensus = Gate()
    consensus.failure = failure
    client = PersistClient(MemBlob(), consensus, background=False)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates([(1, "a", 4, 1)]), expected_upper=0, new_upper=20)
    outcome = []

    def downgrade():
        try:
            read.downgrade_since(10, timeout=0.1)
        except (Determinate, Indeterminate) as raised:
            outcome.append(raised)

    thread = threading.Thread(target=downgrade, name="gated")
    thread.start()
    assert consensus.entered.wait(60)
    assert read.since == 0
    assert counted(read.snapshot_arrow(12)) == {(1, "a", 12): 1}
    assert read.updates(11, 13).num_rows == 0
    with pytest.raises(SinceViolation, match="since is"):
        read.snapshot_arrow(5)  # it may be gone any moment
    consensus.gate.set()
    thread.join()
    if failure is None:
        assert (outcome, read.since) == ([], 10)
        return
    assert read.since == 0
    assert isinstance(outcome[0], type(failure))
    if isinstance(failure, Determinate):
        assert counted(read.snapshot_arrow(5)) == {(1, "a", 5): 1}
    else:
        with pytest.raises(SinceViolation):
            read.snapshot_arrow(5)
        consensus.failure = None
        read.downgrade_since(10)
        assert read.since == 10


class Failing(MemConsensus):
    """Takes no writes once told."""

    failing = False

    def compare_and_set(self, key, expected, new):
        if self.failing:
            raise Determinate("no writes")
        return super().compare_and_set(key, expected, new)


def test_reads_do_not_fail_by_a_renewal_that_can_wait():
    consensus, clock = Failing(), ManualClock()
    client = PersistClient(
        MemBlob(),
        consensus,
        clock=clock,
        settings=Settings(reader_lease_ms=40_000),
        background=False,
    )
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    consensus.failing = True
    clock.ms += 12_000
    for _ in range(3):
        before = clock.ms
        assert read.snapshot_arrow(0).num_rows == 1
    assert clock.ms == before  # tried once, and not again at once
    clock.ms += 10_000
    with pytest.raises(Determinate):
        read.snapshot_arrow(0, timeout=1)
    consensus.failing = False
    assert read.snapshot_arrow(0).num_rows == 1
    assert client.inspect(write.shard_id).readers[read.reader_id].heartbeat_ms == clock.ms
