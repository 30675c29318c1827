"""What a call that ran out of time says: the backend's last error, also to those who waited for their turn."""

from __future__ import annotations

import contextlib
import random
import threading

import pyarrow as pa
import pytest

from mzsql.location import Determinate, Indeterminate
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, Settings

SCHEMA = pa.schema([("a", pa.int64())])


def updates(time):
    return pa.table({"a": [1], "mz_time": [time], "mz_diff": [1]})


class FailingConsensus(MemConsensus):
    """Raises ``failure`` from every compare_and_set and look while it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.failed = threading.Event()

    def _act(self) -> None:
        if self.failure is not None:
            self.failed.set()
            raise self.failure

    def compare_and_set(self, key, expected, new):
        self._act()
        return super().compare_and_set(key, expected, new)

    def scan(self, key, from_seqno, limit):
        self._act()
        return super().scan(key, from_seqno, limit)


class Clock:
    """Time passes by sleeping alone."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += max(seconds, 0.001)


@pytest.mark.parametrize("kind", [Determinate, Indeterminate])
def test_a_call_out_of_time_tells_the_last_error_of_the_backend(kind):
    consensus = FailingConsensus()
    client = PersistClient(
        MemBlob(), consensus, clock=Clock(), rng=random.Random(1), background=False
    )
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    consensus.failure = kind("the database is full")
    with pytest.raises(kind, match="the database is full"):
        write.compare_and_append(updates(0), expected_upper=0, new_upper=1, timeout=2)
    consensus.failure = None
    client.close()


def test_who_waits_in_vain_for_another_call_is_told_what_that_one_met():
    consensus = FailingConsensus()
    with PersistClient(MemBlob(), consensus, background=False) as client:
        shard = client.new_shard_id()
        write, read = client.open_shard(shard, SCHEMA)
        consensus.failure = Determinate("the database is full")

        def append() -> None:
            with contextlib.suppress(Determinate):  # the backend may be back in time
                write.compare_and_append(updates(0), expected_upper=0, new_upper=1, timeout=30)

        stuck = threading.Thread(target=append)
        stuck.start()
        assert consensus.failed.wait(30)
        with pytest.raises(Determinate, match=r"another call .* the database is full"):
            read.fetch_upper(timeout=0)
        consensus.failure = None
        stuck.join()
        assert read.fetch_upper() in (0, 1)


class FailingBlob(MemBlob):
    """Fails to write rollups while it is told to."""

    failing = False

    def set(self, key, value):
        if self.failing and "rollup" in key:
            raise Determinate("no space is left")
        super().set(key, value)


def test_maintenance_inside_a_call_takes_little_more_time_than_the_call_has():
    blob, clock = FailingBlob(), Clock()
    client = PersistClient(
        blob,
        MemConsensus(),
        clock=clock,
        rng=random.Random(1),
        settings=Settings(rollup_interval=2),
        background=False,
    )
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    blob.failing = True
    for time in range(6):
        before = clock.seconds
        write.compare_and_append(updates(time), expected_upper=time, new_upper=time + 1, timeout=2)
        assert clock.seconds - before < 5
    assert clock.seconds > 1  # it was tried
    blob.failing = False
    write.compare_and_append(updates(6), expected_upper=6, new_upper=7)
    state = client.inspect(write.shard_id)
    assert state.rollups
    client.close()
