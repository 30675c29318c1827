"""The buffered writer: what was pushed is appended together, in time, once, and no error is lost."""

from __future__ import annotations

import random
import threading

import pyarrow as pa
import pytest

from mzsql.location import Determinate, Indeterminate
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    ExpiredHandle,
    InvalidBounds,
    KeySpec,
    PersistClient,
    SchemaMismatch,
    Settings,
    UpperMismatch,
)

SCHEMA = pa.schema([("a", pa.int64())])


class ManualClock:
    """Moves when it is told to; sleeping moves it."""

    def __init__(self):
        self.now = 1_000_000.0

    def now_ms(self):
        return int(self.now * 1000)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Failing(MemConsensus):
    """Fails compare-and-sets while it is told to."""

    def __init__(self):
        super().__init__()
        self.failure = None
        self.gate = threading.Event()
        self.gate.set()

    def compare_and_set(self, key, expected, new):
        self.gate.wait(30)
        if self.failure is not None:
            raise self.failure
        return super().compare_and_set(key, expected, new)


def rows(values, time):
    return pa.table(
        {
            "a": pa.array(values, pa.int64()),
            "mz_time": pa.array([time] * len(values), pa.int64()),
            "mz_diff": pa.array([1] * len(values), pa.int64()),
        }
    )


def shard(*, background=False, consensus=None, clock=None, key=None, **settings):
    client = PersistClient(
        MemBlob(),
        consensus or Failing(),
        clock=clock,
        rng=random.Random(1),
        settings=Settings(**settings),
        background=background,
    )
    write, read = client.open_shard(client.new_shard_id(), SCHEMA, key=key)
    return client, write, read


def batches(client, write):
    return [(b.lower, b.upper, b.rows) for b in client.inspect(write.shard_id).trace]


def test_one_batch_an_interval():
    clock = ManualClock()
    client, write, read = shard(clock=clock)
    with write.buffered(flush_interval=1.0) as buffered:
        for time in range(10):
            buffered.push(rows([time], time), upper=time + 1)
            clock.now += 0.25
        assert buffered.upper == 10
        assert buffered.durable_upper == write.upper == 8
        assert batches(client, write) == [(0, 4, 4), (4, 8, 4)]
    assert buffered.durable_upper == write.upper == 10
    found = read.snapshot_arrow(9)
    assert sorted(found["a"].to_pylist()) == list(range(10))
    client.close()


def test_a_full_buffer_is_flushed_before_its_time():
    client, write, _ = shard()
    buffered = write.buffered(flush_interval=1e9, flush_bytes=24 * 5)
    for time in range(10):
        buffered.push(rows([time], time), upper=time + 1)
    assert batches(client, write) == [(0, 5, 5), (5, 10, 5)]
    assert buffered.durable_upper == 10


def test_progress_alone_is_flushed_too():
    clock = ManualClock()
    client, write, _ = shard(clock=clock)
    buffered = write.buffered(flush_interval=1.0)
    buffered.push(None, upper=7)
    assert write.fetch_upper() == 0
    clock.now += 1
    buffered.push(None, upper=8)
    buffered.flush()
    assert write.fetch_upper() == 8
    assert batches(client, write) == []
    buffered.push(rows([1], 8), upper=None)
    buffered.close()
    assert write.fetch_upper() is None


def test_nothing_pushed_costs_nothing():
    client, write, _ = shard()
    before = client.inspect(write.shard_id).seqno
    with write.buffered() as buffered:
        buffered.flush()
    assert client.inspect(write.shard_id).seqno == before


def test_bad_pushes_are_refused_and_take_nothing():
    client, write, _ = shard()
    buffered = write.buffered(flush_interval=1e9)
    buffered.push(rows([1], 3), upper=5)
    for updates, upper, error in (
        (rows([1], 4), 6, InvalidBounds),  # before what is complete
        (rows([1], 6), 6, InvalidBounds),
        (None, 4, InvalidBounds),
        (None, "6", InvalidBounds),
        (rows([1], 5).drop_columns(["a"]), 6, SchemaMismatch),
        ({0: rows([1], 5)}, 6, SchemaMismatch),
    ):
        with pytest.raises(error):
            buffered.push(updates, upper=upper)
    assert buffered.upper == 5
    buffered.close()
    assert batches(client, write) == [(0, 5, 1)]
    with pytest.raises(ExpiredHandle):
        buffered.push(None, upper=9)
    with pytest.raises(ExpiredHandle):
        buffered.flush()
    buffered.close()


def test_an_append_that_failed_is_told_once_and_tried_again():
    client, write, read = shard(clock=ManualClock(), timeout=0.5)
    buffered = write.buffered(flush_interval=0.0)
    client.consensus.failure = Determinate("injected")
    buffered.push(rows([1], 0), upper=1)  # taken; its append fails, which the next call tells
    with pytest.raises(Determinate):
        buffered.push(rows([2], 1), upper=2)
    assert (buffered.upper, buffered.durable_upper) == (1, 0)
    client.consensus.failure = None
    buffered.push(rows([2], 1), upper=2)
    buffered.close()
    assert sorted(read.snapshot_arrow(1)["a"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("background", [False, True])
def test_an_upper_that_another_moved_ends_it(background):
    client, write, _ = shard(background=background)
    buffered = write.buffered(flush_interval=1e9)
    buffered.push(rows([1], 0), upper=1)
    other = client.open_writer(write.shard_id)
    other.compare_and_append(None, expected_upper=0, new_upper=4)
    for _ in range(2):
        with pytest.raises(UpperMismatch) as caught:
            buffered.flush()
        assert caught.value.current == 4
    with pytest.raises(UpperMismatch):
        buffered.push(None, upper=9)
    with pytest.raises(UpperMismatch):
        buffered.close()
    assert batches(client, write) == []
    client.close()


def test_doubt_ends_it():
    client, write, _ = shard(clock=ManualClock(), timeout=0.5)
    buffered = write.buffered(flush_interval=1e9)
    buffered.push(rows([1], 0), upper=1)
    client.consensus.failure = Indeterminate("injected")
    with pytest.raises(Indeterminate):
        buffered.flush()
    client.consensus.failure = None
    with pytest.raises(Indeterminate):
        buffered.push(None, upper=2)


def test_the_thread_flushes_without_calls():
    client, write, _ = shard(background=True)
    with write.buffered(flush_interval=0.01) as buffered:
        buffered.push(rows([1, 2], 0), upper=1)
        reader = client.open_reader(write.shard_id)
        assert reader.snapshot_arrow(0, timeout=30).num_rows == 2
        assert buffered.upper == 1
    client.close()


def test_a_full_buffer_makes_pushes_wait():
    client, write, _ = shard(background=True)
    consensus = client.consensus
    buffered = write.buffered(flush_interval=1e9, flush_bytes=24)
    consensus.gate.clear()
    buffered.push(rows([1], 0), upper=1)  # its append hangs

    def push_on():
        for time in range(1, 10):
            buffered.push(rows([1], time), upper=time + 1, timeout=0.05)

    with pytest.raises(Determinate, match="wait to be appended"):
        push_on()
    assert buffered.upper <= 3  # one under way, one buffered
    with pytest.raises(Determinate, match="under way"):
        buffered.flush(timeout=0.05)
    consensus.gate.set()
    top = buffered.upper
    buffered.push(rows([1], top), upper=top + 1, timeout=30)
    buffered.close()
    assert write.fetch_upper() == top + 1
    assert sum(n for _, _, n in batches(client, write)) == top + 1
    client.close()


def test_threads_push_what_the_shard_holds():
    client, write, read = shard(background=True)
    with write.buffered(flush_interval=0.001, flush_bytes=24 * 50) as buffered:
        turn = threading.Lock()

        def work(value):
            for _ in range(50):
                with turn:
                    time = buffered.upper
                    buffered.push(rows([value], time), upper=time + 1)

        workers = [threading.Thread(target=work, args=(value,)) for value in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert write.fetch_upper() == 200
    found = read.snapshot_arrow(199)
    assert found.num_rows == 4
    assert found["mz_diff"].to_pylist() == [50] * 4
    client.close()


def test_keyed_shards_of_several_workers():
    client, write, read = shard(key=KeySpec(("a",), workers=2))
    with write.buffered(flush_interval=1e9) as buffered:
        buffered.push({0: rows([3], 0), 1: rows([4], 0)}, upper=1)
        buffered.push({1: rows([2], 1)}, upper=2)
    [batch] = client.inspect(write.shard_id).trace
    assert sorted(part.worker for part in batch.parts) == [0, 1]
    assert sorted(read.snapshot_arrow(1)["a"].to_pylist()) == [2, 3, 4]
