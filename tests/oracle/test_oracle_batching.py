"""Shared reads: who shares a call with whom, whose time counts, and what an interrupt does."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import pytest

from mzsql.location import Determinate, Indeterminate, waiting
from mzsql.location.mem import MemOracle
from mzsql.oracle import BatchingOracle, OracleTimeout

#: How long a busy machine may take to get to something, in seconds.
PATIENCE = 120


class _Gated(MemOracle):
    """A MemOracle whose reads wait at a gate, so that callers gather."""

    def __init__(self):
        super().__init__(lambda: 0)
        self.calls = 0
        self.inside = threading.Semaphore(0)
        self.gate = threading.Event()
        self.failure = None

    def read_ts(self):
        self.calls += 1
        # Read before the gate: what comes in meanwhile must not be answered with it.
        ts = super().read_ts()
        self.inside.release()
        assert self.gate.wait(PATIENCE)
        if self.failure is not None:
            raise self.failure
        return ts


def _in_threads(count, act):
    results = []

    def run():
        try:
            results.append(act())
        except Exception as failure:
            results.append(failure)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, results


def _join(*threads):
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def _until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def _busy(oracle, gated):
    """Occupy both rounds that may be under way with one caller each; their threads and what they will get."""
    first, one = _in_threads(1, oracle.read_ts)
    assert gated.inside.acquire(timeout=PATIENCE)
    second, two = _in_threads(1, oracle.read_ts)
    assert gated.inside.acquire(timeout=PATIENCE)
    return first + second, (one, two)


def test_callers_share_a_call_but_never_an_old_one():
    gated = _Gated()
    sizes = []
    oracle = BatchingOracle(gated, observe=sizes.append)
    early, (one, two) = _busy(oracle, gated)
    oracle.apply_write(77)  # applied while two calls are under way
    late, results = _in_threads(20, oracle.read_ts)
    _until(lambda: oracle.gathered == 20)
    assert gated.calls == 2
    gated.gate.set()
    _join(*early, *late)
    assert one == two == [0]
    assert results == [77] * 20  # began after the write was applied, so they see it
    assert gated.calls == 3
    assert sorted(sizes) == [1, 1, 20]
    assert oracle.gathered == 0


def test_a_slow_call_is_not_waited_for_by_the_next():
    gated = _Gated()
    oracle = BatchingOracle(gated)
    first, _ = _in_threads(1, oracle.read_ts)
    assert gated.inside.acquire(timeout=PATIENCE)
    second, _ = _in_threads(1, oracle.read_ts)
    assert gated.inside.acquire(timeout=PATIENCE)  # beside the first one, which has not ended
    gated.gate.set()
    _join(*first, *second)


def test_a_failed_call_fails_all_its_callers_and_no_others():
    gated = _Gated()
    oracle = BatchingOracle(gated)
    early, _ = _busy(oracle, gated)
    late, results = _in_threads(5, oracle.read_ts)
    _until(lambda: oracle.gathered == 5)
    gated.failure = Indeterminate("lost")
    gated.gate.set()
    _join(*early, *late)
    assert [str(failure) for failure in results] == ["lost"] * 5
    assert (
        len({id(failure) for failure in results}) >= 4
    )  # each its own, but for the one that made the call
    gated.failure = None
    assert oracle.read_ts() == 0


def test_a_waiter_gives_up_at_its_own_time():
    gated = _Gated()
    oracle = BatchingOracle(gated)
    early, _ = _busy(oracle, gated)
    patient, results = _in_threads(2, oracle.read_ts)
    _until(lambda: oracle.gathered == 2)
    with waiting(lambda: 0.0), pytest.raises(OracleTimeout, match="did not come within 1"):
        oracle.read_ts()
    assert gated.calls == 2
    gated.gate.set()
    _join(*early, *patient)
    assert results == [0, 0]


def test_a_leader_whose_time_is_over_leaves_the_call_to_those_who_have_more():
    gated = _Gated()
    oracle = BatchingOracle(gated)
    early, _ = _busy(oracle, gated)

    def hurried():
        with waiting(lambda: 0.0):
            return oracle.read_ts()

    leader, hurry = _in_threads(1, hurried)
    _until(lambda: oracle.gathered == 1)
    rest, results = _in_threads(3, oracle.read_ts)
    _until(lambda: oracle.gathered == 4)
    _join(*leader)
    assert [type(one) for one in hurry] == [OracleTimeout]
    gated.gate.set()
    _join(*early, *rest)
    assert results == [0, 0, 0]


def test_a_call_that_failed_at_its_leaders_deadline_is_made_again():
    """The backend gave up because the leader's time was over; that is no answer for those who have more."""

    class Impatient(_Gated):
        def read_ts(self):
            super().read_ts()
            if threading.current_thread() in hurried_threads:
                raise Determinate("out of time")
            return 5

    hurried_threads = []
    gated = Impatient()
    oracle = BatchingOracle(gated)
    early, _ = _busy(oracle, gated)

    def hurried():
        with waiting(lambda: 0.5):
            return oracle.read_ts()

    leader, hurry = _in_threads(1, hurried)
    hurried_threads += leader
    _until(lambda: oracle.gathered == 1)
    rest, results = _in_threads(3, oracle.read_ts)
    _until(lambda: oracle.gathered == 4)
    gated.gate.set()
    _join(*early, *leader, *rest)
    assert [str(one) for one in hurry] == ["out of time"]
    assert results == [5, 5, 5]


class _Interrupt(BaseException):
    pass


def _interrupt(*_):
    raise _Interrupt


@pytest.fixture
def alarm():
    before = signal.signal(signal.SIGALRM, _interrupt)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_an_interrupted_leader_leaves_nobody_waiting(alarm):
    gated = _Gated()
    oracle = BatchingOracle(gated)
    early, _ = _busy(oracle, gated)

    def join_when_led():
        _until(lambda: oracle.gathered >= 1)
        return oracle.read_ts()

    late, results = _in_threads(2, join_when_led)
    alarm(0.1)
    with pytest.raises(_Interrupt):
        oracle.read_ts()
    alarm(0)
    gated.gate.set()
    _join(*early, *late)
    assert results == [0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_interrupts_at_any_moment_hang_and_fail_nobody_else(alarm, seed):
    rng = random.Random(seed)
    oracle = BatchingOracle(MemOracle(lambda: 0))
    stop = threading.Event()
    failures, counts = [], [0] * 4

    def read(who):
        while not stop.is_set():
            try:
                oracle.read_ts()
            except BaseException as failure:
                failures.append(failure)
                raise
            counts[who] += 1

    threads = [threading.Thread(target=read, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    interrupted = 0
    try:
        for _ in range(150):
            try:
                alarm(rng.uniform(1e-5, 2e-3))
                while True:
                    oracle.read_ts()
            except _Interrupt:
                interrupted += 1
        before = list(counts)
        _until(lambda: all(now > then for now, then in zip(counts, before, strict=True)))
    finally:
        alarm(0)
        stop.set()
        _join(*threads)
    assert interrupted == 150
    assert not failures


def test_a_child_of_a_fork_waits_for_no_round_of_its_parent():
    gated = _Gated()
    oracle = BatchingOracle(gated)
    early, _ = _busy(oracle, gated)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            gated.gate = threading.Event()
            gated.gate.set()
            status = 0 if oracle.read_ts() == 0 else 2
        finally:
            os._exit(status)
    end = time.monotonic() + PATIENCE
    while (found := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    gated.gate.set()
    _join(*early)
    assert os.waitstatus_to_exitcode(found[1]) == 0


def test_many_callers_make_few_calls():
    gated = _Gated()
    oracle = BatchingOracle(gated)
    for turn in range(1, 6):
        gated.gate.clear()
        early, _ = _busy(oracle, gated)
        late, results = _in_threads(512, oracle.read_ts)
        _until(lambda: oracle.gathered == 512)
        gated.gate.set()
        _join(*early, *late)
        assert gated.inside.acquire(timeout=PATIENCE)
        assert results == [0] * 512
        assert gated.calls == 3 * turn
