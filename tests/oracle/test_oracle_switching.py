"""Switching implementations: at start, while running, with crashes in between and clocks that go back."""

from __future__ import annotations

import contextlib
import random
import threading
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from switching_kit import Environment, Process

from mzsql.location import LocationError
from mzsql.oracle import (
    IMPLEMENTATIONS,
    InMemoryOracle,
    OracleClosed,
    OracleFenced,
    OracleReadOnly,
    Serving,
    SwitchingOracle,
)
from mzsql.oracle.errors import OutdatedSetting
from mzsql.oracle.reservation import Ledger, Reservation
from mzsql.testing.linearizability import Operation, check_history

DISTRIBUTED, IN_MEMORY = IMPLEMENTATIONS

#: How long a busy machine may take to get to something, in seconds.
PATIENCE = 120


def test_each_implementation_begins_at_the_highest_timestamp_of_all():
    env = Environment()
    p = Process(env)
    for implementation in (IN_MEMORY, DISTRIBUTED, IN_MEMORY, DISTRIBUTED):
        env.clock += 7
        allocated = p.oracle.write_ts()
        applied = p.oracle.write_ts()
        p.oracle.apply_write(applied)
        further = p.oracle.write_ts()
        env.clock -= 500_000  # and the clock goes back
        env.alter(implementation)
        p.sync()
        assert p.oracle.alone == (implementation == IN_MEMORY)
        assert p.oracle.read_ts() >= applied > allocated
        assert p.oracle.write_ts() > further
        env.clock += 500_000


def test_a_new_process_begins_with_what_the_setting_says():
    env = Environment()
    first = Process(env)
    first.oracle.apply_write(first.oracle.write_ts())
    env.alter(IN_MEMORY)
    second = Process(env)
    assert second.oracle.alone
    assert second.oracle.read_ts() >= env.timestamps.read > 0
    written = second.oracle.write_ts()
    second.oracle.apply_write(written)
    # It dies; the setting is reset while nobody runs.
    env.alter(DISTRIBUTED)
    third = Process(env)
    assert not third.oracle.alone
    assert third.oracle.read_ts() >= written
    assert env.timestamps.read >= written


def test_nothing_is_asked_of_consensus_with_the_distributed_oracle_alone():
    env = Environment()
    p = Process(env)
    p.oracle.read_ts()
    asked = []
    env.consensus.scan = lambda *given: asked.append(given) or []
    env.consensus.head = lambda *given: asked.append(given)
    for _ in range(10):
        p.sync()
        p.oracle.apply_write(p.oracle.write_ts())
        p.oracle.read_ts()
        p.oracle.confirm_leadership(p.oracle.term)
    assert not asked
    assert not list(env.consensus.list_keys())


def test_leadership_is_confirmed_as_long_as_there_is_a_way_back():
    env = Environment()
    env.alter(DISTRIBUTED, way_back=True)
    one, two = Process(env, "one"), Process(env, "two")
    one.oracle.read_ts()
    one.oracle.confirm_leadership()
    env.alter(IN_MEMORY, way_back=True)
    two.sync()
    two.oracle.apply_write(two.oracle.write_ts())
    # One's statement began before the switch.
    one.oracle.read_ts()
    with pytest.raises(OracleFenced, match="was switched while the statement ran") as switched:
        one.oracle.confirm_leadership()
    assert switched.value.sqlstate == "40001"


def test_a_statement_that_read_from_a_memory_that_was_taken_over_is_not_confirmed_by_a_later_switch():
    env = Environment()
    env.alter(IN_MEMORY)
    one, two = Process(env, "one"), Process(env, "two")
    term = one.oracle.term
    one.oracle.read_ts()
    two.oracle.apply_write(two.oracle.write_ts())  # takes over
    env.alter(DISTRIBUTED)
    one.sync()
    one.oracle.read_ts()  # another statement of the process follows the setting
    with pytest.raises(OracleFenced):
        one.oracle.confirm_leadership(term)
    one.oracle.confirm_leadership(one.oracle.term)


def test_of_two_processes_that_serve_from_memory_the_second_takes_over():
    env = Environment()
    env.alter(IN_MEMORY)
    one, two = Process(env, "one"), Process(env, "two")
    one.oracle.apply_write(one.oracle.write_ts())
    two.oracle.apply_write(two.oracle.write_ts())
    one.oracle.read_ts()
    with pytest.raises(OracleFenced, match="process two serves") as fenced:
        one.oracle.confirm_leadership()
    assert "'distributed'" in fenced.value.hint
    with pytest.raises(OracleFenced):
        one.oracle.read_ts()
    env.alter(DISTRIBUTED)  # what the hint says
    one.sync()
    assert one.oracle.read_ts() >= two.oracle.peek_write_ts()
    one.oracle.confirm_leadership(one.oracle.term)


def test_a_process_that_saw_an_old_setting_undoes_no_switch():
    env = Environment()
    env.alter(IN_MEMORY)
    slow = Process(env, "slow")
    slow.seen = env.wish
    env.alter(DISTRIBUTED)
    other = Process(env, "other")
    other.oracle.apply_write(other.oracle.write_ts())
    epochs = list(env.consensus.list_keys())
    assert slow.oracle.read_ts() == other.oracle.read_ts()
    assert not slow.oracle.alone
    assert list(env.consensus.list_keys()) == epochs


def test_back_and_forth_while_a_process_looked_away():
    env = Environment()
    env.alter(IN_MEMORY)
    one, two = Process(env, "one"), Process(env, "two")
    one.oracle.read_ts()
    env.alter(DISTRIBUTED)
    two.sync()
    two.oracle.apply_write(two.oracle.write_ts())
    env.alter(IN_MEMORY)
    one.sync()
    term = one.oracle.term
    assert one.oracle.read_ts() >= two.oracle.read_ts()  # not from the memory that it had before
    one.oracle.confirm_leadership(term)


def test_a_switch_there_and_back_that_a_process_did_not_see_is_carried_out_by_it():
    env = Environment()
    one, two = Process(env, "one"), Process(env, "two")
    two.oracle.read_ts()
    env.alter(IN_MEMORY)
    one.sync()
    written = one.oracle.write_ts()
    one.oracle.apply_write(written)
    env.alter(DISTRIBUTED)
    two.sync()
    assert two.oracle.read_ts() >= written


def test_a_crash_in_the_middle_of_a_switch_loses_nothing():
    """The distributed oracle was brought forward, and the process died before the log was told; or the other way round of the way there."""
    env = Environment()
    env.alter(IN_MEMORY)
    one = Process(env, "one")
    written = one.oracle.write_ts()
    one.oracle.apply_write(written)
    env.alter(DISTRIBUTED)

    class Died(BaseException):
        pass

    def die(*_):
        raise Died

    two = Process(env, "two")
    two.oracle._ledger.append = die
    with pytest.raises(Died):
        two.oracle.read_ts()
    later = one.oracle.write_ts()  # one has not noticed, and goes on within its range
    one.oracle.apply_write(later)
    three = Process(env, "three")
    assert three.oracle.read_ts() >= later
    env.alter(IN_MEMORY)
    four = Process(env, "four")
    four.oracle._distributed.read_ts = die
    with pytest.raises(Died):
        four.oracle.read_ts()
    five = Process(env, "five")
    assert five.oracle.read_ts() >= later


def test_a_switch_that_fails_is_tried_again_at_the_next_operation():
    env = Environment()
    env.alter(IN_MEMORY)
    p = Process(env)
    written = p.oracle.write_ts()
    p.oracle.apply_write(written)
    env.alter(DISTRIBUTED)
    p.sync()
    saved = p.oracle._distributed.apply_write

    def fail(_):
        raise LocationError("away")

    p.oracle._distributed.apply_write = fail
    with pytest.raises(LocationError, match="away"):
        p.oracle.read_ts()
    p.oracle._distributed.apply_write = saved
    assert p.oracle.read_ts() >= written


def test_a_process_that_may_only_read_follows_and_switches_nothing():
    env = Environment()
    writer = Process(env, "writer")
    written = writer.oracle.write_ts()
    writer.oracle.apply_write(written)

    def reader():
        p = Process(env, "reader")
        oracle = p.oracle
        p.oracle = SwitchingOracle(
            oracle._distributed,
            Ledger(env.consensus, "t"),
            "e/t",
            p.now,
            "reader",
            wish=lambda: p.seen,
            ask=p.sync,
            read_only=True,
        )
        return p

    early = reader()
    assert early.oracle.read_ts() == written
    env.alter(IN_MEMORY)
    for p in (early, reader()):
        p.sync()
        assert p.oracle.read_ts() == written  # nobody serves from memory yet
        assert not p.oracle.alone
    assert not list(env.consensus.list_keys())
    writer.sync()
    later = writer.oracle.write_ts()
    writer.oracle.apply_write(later)
    late = reader()
    for p in (early, late):
        assert p.oracle.read_ts() >= later
        p.oracle.confirm_leadership()
        with pytest.raises(OracleReadOnly):
            p.oracle.apply_write(later + 1)
        with pytest.raises(OracleReadOnly):
            p.oracle.write_ts()
    writer.oracle.close()
    assert late.oracle.read_ts() == later
    env.alter(DISTRIBUTED)
    late.sync()
    assert late.oracle.read_ts() == later  # although nobody has made the switch


def test_a_write_under_way_with_the_distributed_oracle_is_seen_by_who_serves_from_memory():
    env = Environment()
    slow, fast = Process(env, "slow", skew=5_000), Process(env, "fast")
    slow.oracle.read_ts()
    env.alter(IN_MEMORY)
    fast.sync()
    fast.oracle.apply_write(fast.commit(fast.oracle.write_ts()))
    written = slow.commit(slow.oracle.write_ts())  # its statement began before the switch
    slow.oracle.apply_write(written)
    assert written > fast.oracle.read_ts()
    assert fast.fresh_timestamp() >= written


def test_what_runs_in_the_background_can_tell_that_a_switch_is_due():
    env = Environment()
    one, two = Process(env, "one"), Process(env, "two")
    assert one.oracle.due
    one.oracle.read_ts()
    assert not one.oracle.due
    env.alter(IN_MEMORY)
    one.sync()
    assert one.oracle.due
    one.oracle.read_ts()
    assert not one.oracle.due
    two.oracle.read_ts()
    with pytest.raises(OracleFenced):
        one.oracle.confirm_leadership()
    assert one.oracle.due


def test_whoever_has_followed_a_later_setting_is_not_taken_over_by_an_earlier_one():
    """The setting changed between a process's look at the catalog and its take-over."""
    env = Environment()
    ledger = Ledger(env.consensus, "t")
    later = InMemoryOracle("a", ledger, lambda: 0, "later", step=7, serving=Serving())
    with pytest.raises(OutdatedSetting):
        InMemoryOracle("b", ledger, lambda: 0, "earlier", step=6, serving=Serving())
    later.confirm_leadership()


def test_what_is_no_entry_is_told():
    env = Environment()
    env.alter(IN_MEMORY)
    p = Process(env)
    p.oracle.read_ts()
    key = Ledger(env.consensus, "t").key
    head = env.consensus.head(key)
    env.consensus.compare_and_set(key, head.seqno, head._replace(seqno=head.seqno + 1, data=b"?"))
    with pytest.raises(Exception, match="cannot be read"):
        p.oracle.confirm_leadership()


def test_entries_of_older_programs_are_read():
    """Fields are only added, with defaults."""
    found = msgspec.json.decode(
        b'{"epoch":1,"implementation":"in-memory","token":"x","who":"y","bound":5}',
        type=Reservation,
    )
    assert (found.step, found.read_ts, found.write_ts) == (0, None, None)


class _Schedule:
    """Three processes; each has at most one read and one write under way, cut into the steps between which others may act."""

    def __init__(self, timestamp, first):
        self.timestamp = timestamp
        self.env = Environment()
        self.env.alter(first)
        self.processes = [Process(self.env, str(n), skew) for n, skew in enumerate((0, 900, -900))]
        self.reads = {}
        self.writes = {}
        self.acked = 0
        self.read = 0

    def alter(self, implementation, way_back):
        self.env.alter(implementation, way_back=way_back)

    def tick(self, by):
        self.env.clock = max(0, self.env.clock + by)

    def end(self, who, gracefully):
        if gracefully:
            self.processes[who].oracle.close()
        self.reads.pop(who, None)
        self.writes.pop(who, None)
        self.processes[who] = Process(self.env, str(who), self.processes[who].skew)

    def go_on_reading(self, who):
        p = self.processes[who]
        if who not in self.reads:
            p.sync()
            self.reads[who] = (max(self.acked, self.read), p.oracle.term, None)
            return
        floor, term, ts = self.reads.pop(who)
        if ts is None:
            self.reads[who] = (floor, term, self.timestamp(p))
            return
        p.oracle.confirm_leadership(term)
        assert ts >= floor, f"process {who} read at {ts} although {floor} was acknowledged before"
        self.read = max(self.read, ts)

    def go_on_writing(self, who):
        p = self.processes[who]
        if who not in self.writes:
            p.sync()
            self.writes[who] = ("allocate", 0)
            return
        match self.writes.pop(who):
            case ("allocate", _):
                self.writes[who] = ("commit", p.oracle.write_ts())
            case ("commit", ts):
                self.writes[who] = ("apply", p.commit(ts))
            case ("apply", ts):
                p.oracle.apply_write(ts)
                self.acked = max(self.acked, ts)

    def run(self, steps):
        for act, *arguments in steps:
            with contextlib.suppress(OracleFenced):  # the statement failed
                getattr(self, act)(*arguments)
            assert self.env.timestamps.read <= self.env.timestamps.write


_who = st.integers(0, 2)
_going_on = st.one_of(
    st.tuples(st.just("go_on_reading"), _who), st.tuples(st.just("go_on_writing"), _who)
)
_alter = st.tuples(st.just("alter"), st.sampled_from(IMPLEMENTATIONS), st.booleans())
_events = st.one_of(
    st.tuples(st.just("tick"), st.sampled_from([1, 50, 4_000, 20_000, -3_000, -100_000])),
    st.tuples(st.just("end"), _who, st.booleans()),
)
_rarely = st.integers(0, 7)


def _steps(seldom):
    """Long schedules, of which about one step in eight is not a statement's."""
    one = _rarely.flatmap(lambda n: seldom if n == 0 else _going_on)
    return st.lists(one, min_size=40, max_size=80)


@settings(max_examples=60, deadline=None)
@given(steps=_steps(st.one_of(_alter, _alter, _events)))
def test_schedules_of_switches_crashes_and_clocks(steps):
    _Schedule(Process.fresh_timestamp, DISTRIBUTED).run(steps)


@settings(max_examples=50, deadline=None)
@given(steps=_steps(_events))
def test_schedules_of_take_overs(steps):
    """All serve from memory, one after the other, and nobody looks at the log of writes: confirming alone must do."""
    _Schedule(lambda process: process.oracle.read_ts(), IN_MEMORY).run(steps)


class _Timestamps:
    """Reads never see less than was written or read before; a write is beyond all of that."""

    def initial(self):
        return 0

    def step(self, state, operation):
        if operation.name == "read":
            return operation.result if operation.known and operation.result >= state else None
        ts = operation.result if operation.known else operation.args[0]
        return ts if ts > state else None


def _work(p, who, seed, wanted, history, tried):
    """Run statements until as many as wanted got through between switches; they let others run as the seed says."""
    rng = random.Random(seed)

    def others():
        for _ in range(rng.randrange(8)):
            time.sleep(0)

    end = time.monotonic() + PATIENCE
    while wanted:
        assert time.monotonic() < end
        call = time.monotonic_ns()
        reads = rng.random() < 0.6
        unknown = None
        try:
            p.sync()
            term = p.oracle.term
            if reads:
                result = p.fresh_timestamp()
                others()
                p.oracle.confirm_leadership(term)
            else:
                ts = p.oracle.write_ts()
                others()
                result = unknown = p.commit(ts)
                others()
                p.oracle.apply_write(result)
        except OracleFenced:
            if unknown is not None:
                history.append(Operation(who, "t", "write", (unknown,), call))
            continue
        finally:
            tried.release()
        name = "read" if reads else "write"
        history.append(Operation(who, "t", name, (), call, time.monotonic_ns(), result))
        wanted -= 1


@pytest.mark.parametrize("seed", range(3))
def test_statements_of_many_processes_are_linearizable_while_the_oracle_is_switched(seed):
    env = Environment()
    history, stop, tried = [], threading.Event(), threading.Semaphore(0)
    processes = [Process(env, str(n), skew) for n, skew in enumerate((0, 40, -40))]

    def switch():
        rng = random.Random(seed)
        while not stop.is_set():
            env.alter(rng.choice(IMPLEMENTATIONS), way_back=rng.random() < 0.5)
            env.clock += rng.randint(-20, 40)
            for _ in range(rng.randint(1, 4)):  # so many statements are tried before the next
                tried.acquire()

    switcher = threading.Thread(target=switch)
    failures: list[BaseException] = []

    def work(*args):
        try:
            _work(*args, history, tried)
        except BaseException as failure:
            failures.append(failure)

    workers = [
        threading.Thread(target=work, args=(p, 2 * n + i, 10 * seed + i, 15))
        for n, p in enumerate(processes)
        for i in range(2)
    ]
    for thread in [switcher, *workers]:
        thread.start()
    for thread in workers:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    stop.set()
    tried.release(4)
    switcher.join()
    assert not failures
    verdict = check_history(history, lambda _: _Timestamps())
    assert verdict.outcome == "linearizable", verdict.text


class _Before:
    """An oracle, chosen already, that something happens to right before ``operation``, once."""

    def __init__(self, oracle, operation, happens):
        self._oracle, self._operation, self._happens = oracle, operation, happens

    def __getattr__(self, name):
        if name == self._operation:
            self._operation = None
            self._happens()
        return getattr(self._oracle, name)


@pytest.mark.parametrize("operation", ["write_ts", "peek_write_ts", "read_ts", "apply_write"])
def test_an_operation_that_a_switch_catches_is_done_by_whichever_serves_then(operation):
    env = Environment()
    p = Process(env)
    env.alter(IN_MEMORY)
    p.sync()
    p.oracle.apply_write(p.oracle.write_ts())
    before = p.oracle.peek_write_ts()

    def switch():
        env.alter(DISTRIBUTED)
        p.sync()
        assert p.oracle.read_ts() >= before

    active = p.oracle._active
    caught = _Before(active.oracle, operation, switch)
    p.oracle._active = msgspec.structs.replace(active, oracle=caught)
    arguments = (before + 1,) if operation == "apply_write" else ()
    result = getattr(p.oracle, operation)(*arguments)
    assert not p.oracle.alone
    assert result is None or result >= before
    assert operation != "apply_write" or p.oracle.read_ts() > before


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_confirmation_that_a_switch_catches_says_whether_its_process_served_to_the_end(
    taken_over,
):
    env = Environment()
    p = Process(env, "p")
    env.alter(IN_MEMORY)
    p.sync()
    p.oracle.apply_write(p.oracle.write_ts())
    term, active = p.oracle.term, p.oracle._active
    p.oracle.read_ts()

    def switch():
        if taken_over:
            Process(env, "other").oracle.read_ts()
        env.alter(DISTRIBUTED)
        p.sync()
        p.oracle.read_ts()

    caught = _Before(active.served, "confirm_leadership", switch)
    p.oracle._active = msgspec.structs.replace(active, served=caught)
    if taken_over:
        with pytest.raises(OracleFenced):
            p.oracle.confirm_leadership(term)
    else:
        p.oracle.confirm_leadership(term)
    assert not p.oracle.alone


def test_a_closed_oracle_stays_closed():
    p = Process(Environment())
    p.oracle.read_ts()
    p.oracle.close()
    with pytest.raises(OracleClosed, match="the timestamp oracle is closed"):
        p.oracle.read_ts()
