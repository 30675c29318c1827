"""The oracle that serves from memory: the contract within a process, ranges, fencing, crashes, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from mzsql.location import Determinate, Indeterminate, LocationError, open_consensus, waiting
from mzsql.location.mem import MemConsensus
from mzsql.oracle import InMemoryOracle, Ledger, OracleFenced, Serving
from mzsql.oracle.in_memory import LEAST_RANGE, RANGE_MS
from mzsql.testing import OracleContract

#: How long a busy machine may take to get to something, in seconds.
PATIENCE = 120


class TestInMemory(OracleContract):
    """Within one process, several handles included."""

    processes = False

    def open_oracle(self, place, timeline, now):
        consensus = open_consensus(f"sqlite:{place}/c.db")
        return _Closing(
            InMemoryOracle(f"{place}/{timeline}", Ledger(consensus, timeline), now, "here"),
            consensus,
        )


class _Closing:
    """An oracle that closes its Consensus too."""

    def __init__(self, oracle, consensus):
        self._oracle, self._consensus = oracle, consensus

    def __getattr__(self, name):
        return getattr(self._oracle, name)

    def close(self):
        self._oracle.close()
        self._consensus.close()


def _open(consensus, now=lambda: 0, *, who="here", serving=None, step=0):
    return InMemoryOracle(
        "e/t", Ledger(consensus, "t"), now, who, serving=serving or Serving(), step=step
    )


class _Counting(MemConsensus):
    """Counts what is asked; `fail` decides what becomes of the next compare_and_sets: "before", "after", or from here on "late"."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.fail = []
        self.late = []

    def compare_and_set(self, key, expected, new):
        self.asked.append("compare_and_set")
        how = self.fail.pop(0) if self.fail else None
        if how == "late":
            self.late.append((key, expected, new))
            self.fail.append("late")
            raise Determinate("not there")
        if how == "before":
            raise Indeterminate("lost on the way there")
        won = super().compare_and_set(key, expected, new)
        if how == "after":
            raise Indeterminate("lost on the way back")
        return won

    def truncate(self, key, through):
        self.asked.append("truncate")
        return super().truncate(key, through)

    def scan(self, key, from_seqno, limit):
        self.asked.append("scan")
        return super().scan(key, from_seqno, limit)

    def head(self, key):
        self.asked.append("head")
        return super().head(key)


def test_timestamps_come_from_memory_and_ranges_are_rarely_reserved():
    consensus = _Counting()
    clock = [1_000_000]
    oracle = _open(consensus, lambda: clock[0])
    opened = len(consensus.asked)
    for _ in range(10_000):
        oracle.apply_write(oracle.write_ts())
        oracle.read_ts()
        clock[0] += 1
    assert consensus.asked[opened:].count("compare_and_set") <= 10_000 / RANGE_MS + 1
    assert len(consensus.asked) - opened <= 10_000 / RANGE_MS + 2
    before = len(consensus.asked)
    for _ in range(1000):
        oracle.read_ts()
        oracle.peek_write_ts()
    assert len(consensus.asked) == before


def test_what_is_handed_out_is_within_the_durable_bound():
    consensus = MemConsensus()
    oracle = _open(consensus, lambda: 100)
    for _ in range(3 * LEAST_RANGE + RANGE_MS):
        ts = oracle.write_ts()
        assert Ledger(consensus, "t").newest()[1].bound >= ts
    oracle.apply_write(10**9)
    assert Ledger(consensus, "t").newest()[1].bound >= 10**9


def test_after_a_crash_all_that_was_handed_out_is_below():
    consensus = MemConsensus()
    first = _open(consensus, lambda: 5_000)
    handed_out = [first.write_ts() for _ in range(10)]
    first.apply_write(handed_out[-1])
    second = _open(consensus, lambda: 0)  # its clock is behind too
    assert second.read_ts() >= handed_out[-1]
    assert second.write_ts() > max(second.read_ts(), handed_out[-1])


def test_crashes_do_not_add_up():
    """A process that dies after each write leaves the timeline no further ahead of the clock than one that dies once."""
    consensus = MemConsensus()
    for _ in range(20):
        oracle = _open(consensus, lambda: 1_000)
        oracle.apply_write(oracle.write_ts())
    assert oracle.read_ts() <= 1_000 + RANGE_MS + 20 * (LEAST_RANGE + 1)


def test_the_second_to_open_fences_the_first():
    consensus = MemConsensus()
    first = _open(consensus, lambda: 100, who="alpha 1")
    first.apply_write(first.write_ts())
    first.confirm_leadership()
    second = _open(consensus, lambda: 100, who="beta 2")
    stale = first.read_ts()  # it cannot know yet …
    second.apply_write(second.write_ts())
    assert second.read_ts() > stale
    with pytest.raises(OracleFenced, match="process beta 2 serves") as fenced:
        first.confirm_leadership()  # … but finds out before the result is returned
    assert "ALTER SYSTEM SET timestamp_oracle" in fenced.value.hint
    for act in (first.read_ts, first.write_ts, first.peek_write_ts, first.confirm_leadership):
        with pytest.raises(OracleFenced):
            act()
    with pytest.raises(OracleFenced):
        first.apply_write(1)
    second.confirm_leadership()
    first.close()
    second.confirm_leadership()  # what was fenced leaves nothing behind when it closes
    assert second.write_ts() > second.read_ts()


def test_a_fenced_process_can_reserve_nothing():
    consensus = MemConsensus()
    clock = [100]
    first = _open(consensus, lambda: clock[0])
    first.write_ts()
    second = _open(consensus, lambda: clock[0])
    clock[0] += RANGE_MS + 1
    with pytest.raises(OracleFenced):
        first.write_ts()
    with pytest.raises(OracleFenced):
        first.apply_write(5)
    assert second.write_ts() == clock[0]


def test_confirmations_are_shared():
    class Gated(_Counting):
        gate, inside = threading.Event(), threading.Semaphore(0)

        def scan(self, key, from_seqno, limit):
            found = super().scan(key, from_seqno, limit)
            self.inside.release()
            assert self.gate.wait(PATIENCE)
            return found

    consensus = Gated()
    consensus.gate.set()
    oracle = _open(consensus)
    before = consensus.asked.count("scan")
    consensus.gate.clear()
    consensus.inside = threading.Semaphore(0)
    threads = [threading.Thread(target=oracle.confirm_leadership) for _ in range(18)]
    for thread in threads[:2]:  # as many looks as may be under way
        thread.start()
        assert consensus.inside.acquire(timeout=PATIENCE)
    for thread in threads[2:]:
        thread.start()
    end = time.monotonic() + PATIENCE
    while oracle._timestamps._confirms.gathered < 16:
        assert time.monotonic() < end
        time.sleep(0.001)
    consensus.gate.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert consensus.asked.count("scan") - before == 3


def test_two_handles_of_one_process_share():
    consensus, serving = MemConsensus(), Serving()
    one = _open(consensus, lambda: 10, serving=serving)
    two = _open(consensus, lambda: 20, serving=serving)
    assert (one.write_ts(), two.write_ts(), one.write_ts()) == (10, 20, 21)
    one.close()
    one.close()
    two.apply_write(21)
    assert two.read_ts() == 21
    two.close()
    with pytest.raises(LocationError, match="closed"):
        two.read_ts()
    three = _open(consensus, lambda: 0)
    assert (three.read_ts(), three.peek_write_ts()) == (21, 21)  # exactly: nobody crashed


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_reservation_whose_answer_is_lost_is_made_again_and_counted_once(how):
    consensus = _Counting()
    oracle = _open(consensus, lambda: 100)
    consensus.fail = [how, how, how]
    assert oracle.write_ts() == 100
    assert not consensus.fail or how == "after"
    oracle.confirm_leadership()
    assert oracle.write_ts() == 101
    assert Ledger(consensus, "t").newest()[1].epoch == 1


def test_a_late_reservation_of_its_own_fences_nobody():
    """The store fails past the caller's time, and what was lost arrives after all."""
    consensus = _Counting()
    oracle = _open(consensus, lambda: 100)
    consensus.fail = ["late"]
    with waiting(lambda: 0.0), pytest.raises(Determinate):
        oracle.write_ts()
    consensus.fail = []
    assert consensus.compare_and_set(*consensus.late[0])
    oracle.confirm_leadership()
    assert oracle.write_ts() == 100


def test_a_long_log_is_truncated_now_and_then():
    consensus = _Counting()
    oracle = _open(consensus)
    for ts in range(1, 100):
        oracle.apply_write(ts * 10 * RANGE_MS)
    oracle.confirm_leadership()
    assert len(consensus.scan(Ledger(consensus, "t").key, 0, 1000)) <= 20
    assert 4 <= consensus.asked.count("truncate") <= 10
    again = _open(consensus)
    assert again.read_ts() >= 99 * 10 * RANGE_MS


_SERVE = """
import sys, time
from mzsql.location import open_consensus
from mzsql.oracle import InMemoryOracle, Ledger
oracle = InMemoryOracle("e/t", Ledger(open_consensus(sys.argv[1]), "t"), lambda: 50, "child")
ts = oracle.write_ts()
oracle.apply_write(ts)
print(ts, flush=True)
sys.stdin.readline()
try:
    oracle.confirm_leadership()
    print("leads", flush=True)
except Exception as failure:
    print(type(failure).__name__, flush=True)
"""


@pytest.mark.parametrize("ends", ["fenced", "killed"])
def test_another_process(tmp_path, ends):
    url = f"sqlite:{tmp_path}/c.db"
    with subprocess.Popen(
        [sys.executable, "-c", _SERVE, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        handed_out = int(child.stdout.readline())
        if ends == "killed":
            child.send_signal(signal.SIGKILL)
            child.wait()
        consensus = open_consensus(url)
        oracle = _open(consensus)
        assert oracle.read_ts() >= handed_out
        if ends == "fenced":
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "OracleFenced\n"
        oracle.confirm_leadership()
        oracle.close()
        consensus.close()


def test_a_fork_serves_nothing():
    oracle = _open(MemConsensus(), lambda: 5)
    oracle.write_ts()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for act in (oracle.write_ts, oracle.read_ts, oracle.confirm_leadership):
                try:
                    act()
                except OracleFenced:
                    continue
                os._exit(2)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert oracle.write_ts() == 6
