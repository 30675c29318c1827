"""Processes of one environment on machines whose clocks are wrong by hours, or jump."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.oracle import MAX_AHEAD_MS, ClockSkew
from mzsql.persist import SystemClock

HOUR, YEAR = 3_600_000, 31_536_000_000


class Wrong(SystemClock):
    """A machine's clock, so many milliseconds wrong."""

    def __init__(self, wrong: int) -> None:
        self.wrong = wrong

    def now_ms(self) -> int:
        return super().now_ms() + self.wrong


class Process:
    """A process on a machine with a clock of its own."""

    def __init__(self, place: str, wrong: int) -> None:
        self.clock = Wrong(wrong)
        self.env = Environment.open(locate(place), clock=self.clock)
        self.coordinator = Coordinator(self.env, spark=None, lead=False)
        self.session = Session()

    def run(self, text: str) -> list[tuple[object, ...]]:
        result = self.coordinator.execute(self.session, text)[-1]
        return [] if result.rows is None else [tuple(r.values()) for r in result.rows.to_pylist()]

    def ahead(self) -> int:
        """By how much the oracle and the log are ahead of the time."""
        latest = max(self.env.oracle.peek_write_ts(), self.env.wal.follow().upper)
        return latest - SystemClock().now_ms()

    def close(self) -> None:
        self.coordinator.close()
        self.env.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], Process]]:
    """Starts a process whose clock is so wrong, persist's too."""
    with ExitStack() as undo:

        def started(wrong: int = 0) -> Process:
            process = Process(str(tmp_path / "env"), wrong)
            undo.callback(process.close)
            return process

        yield started


@pytest.mark.parametrize("wrong", [HOUR, YEAR])
def test_a_fast_machine_is_stopped_at_whatever_would_move_time_and_the_others_are_not(
    start: Callable[[int], Process], wrong: int
) -> None:
    fast = start(wrong)
    with pytest.raises(ClockSkew, match="this machine's clock is") as refused:
        fast.run("CREATE TABLE mine (a int)")
    assert refused.value.sqlstate == "55000"
    right = start(0)
    right.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    for statement in ("INSERT INTO t VALUES (9)", "UPDATE t SET a = 9"):
        with pytest.raises(ClockSkew):
            fast.run(statement)
    # what it reads is right, and moves nothing far
    assert fast.run("SELECT a FROM t") == [(1,)]
    ((now,),) = fast.run("SELECT mz_now()::text::bigint")
    assert int(str(now)) <= SystemClock().now_ms() + MAX_AHEAD_MS
    right.run("INSERT INTO t VALUES (2)")
    assert fast.run("SELECT a FROM t ORDER BY a") == [(1,), (2,)]
    assert right.ahead() < MAX_AHEAD_MS
    # set right, it writes again
    fast.clock.wrong = 0
    fast.run("INSERT INTO t VALUES (3)")
    assert right.run("SELECT count(*) FROM t") == [(3,)]


@pytest.mark.parametrize("wrong", [HOUR, YEAR])
def test_a_slow_machine_goes_on_by_the_timeline(
    start: Callable[[int], Process], wrong: int
) -> None:
    right, slow = start(0), start(-wrong)
    right.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    slow.run("INSERT INTO t VALUES (2)")
    slow.run("CREATE TABLE u (a int)")
    assert slow.run("SELECT a FROM t ORDER BY a") == [(1,), (2,)]
    right.run("INSERT INTO t VALUES (3)")
    slow.run("UPDATE t SET a = a + 1")
    assert right.run("SELECT a FROM t ORDER BY a") == [(2,), (3,), (4,)]
    assert right.ahead() < MAX_AHEAD_MS


def test_a_machine_whose_clock_jumps_is_stopped_while_it_is_fast(
    start: Callable[[int], Process],
) -> None:
    right, jumping = start(0), start(0)
    right.run("CREATE TABLE t (a int)")
    rows = 0
    for wrong in (0, HOUR, -HOUR, YEAR, 0, -YEAR):
        jumping.clock.wrong = wrong
        if wrong > 0:
            with pytest.raises(ClockSkew):
                jumping.run("INSERT INTO t VALUES (0)")
        else:
            jumping.run("INSERT INTO t VALUES (1)")
            rows += 1
        right.run("INSERT INTO t VALUES (1)")
        rows += 1
        assert right.run("SELECT count(*), min(a) FROM t") == [(rows, 1)]
    assert right.ahead() < MAX_AHEAD_MS


def test_a_timeline_that_is_ahead_all_the_same_stops_nobody(
    start: Callable[[int], Process],
) -> None:
    right = start(0)
    right.run("CREATE TABLE t (a int)")
    spoilt = SystemClock().now_ms() + HOUR
    right.env.wal.advance_past(spoilt)  # as an older program could
    right.run("INSERT INTO t VALUES (1)")
    joining = start(0)
    joining.run("INSERT INTO t VALUES (2)")
    assert right.run("SELECT a FROM t ORDER BY a") == [(1,), (2,)]
    assert joining.env.oracle.peek_write_ts() < spoilt + MAX_AHEAD_MS
