"""Cancels and timeouts of statements, on real threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from commit_kit import Place, opened
from ctrl_c_kit import ctrl_c_at

from mzsql.adapter.session.session import Session
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.scalar import Call, Column, Literal
from mzsql.location import seconds_left
from mzsql.repr.errors import QueryCanceled
from mzsql.repr.interrupt import NO_LIMIT, Interrupt, current, running
from mzsql.repr.types import INTEGER, ColumnType
from mzsql.threads import ALARMS, Deadlines

HANG = 60.0


def _later(act: object, seconds: float = 0.05) -> threading.Timer:
    timer = threading.Timer(seconds, act)  # type: ignore[arg-type]
    timer.start()
    return timer


def test_a_cancel_ends_a_wait_at_once_with_postgresql_s_error() -> None:
    interrupt, condition = Interrupt(), threading.Condition()
    timer = _later(interrupt.cancel)
    began = time.monotonic()
    assert not interrupt.wait(condition, lambda: False, timeout=HANG)
    assert time.monotonic() - began < HANG
    with pytest.raises(QueryCanceled, match=r"^canceling statement due to user request$") as raised:
        interrupt.check()
    assert raised.value.sqlstate == "57014"
    timer.join()


def test_a_timeout_ends_a_wait_with_postgresql_s_error() -> None:
    interrupt = Interrupt(0.05, ALARMS)
    assert not interrupt.wait(threading.Condition(), lambda: False)
    with pytest.raises(QueryCanceled, match=r"^canceling statement due to statement timeout$"):
        interrupt.check()


def test_a_wait_ends_when_its_condition_is_true_though_the_statement_is_over() -> None:
    interrupt = Interrupt(0.0, ALARMS)
    assert interrupt.wait(threading.Condition(), lambda: True)


def test_a_wait_is_woken_by_whoever_makes_its_condition_true() -> None:
    condition, done = threading.Condition(), threading.Event()

    def finish() -> None:
        with condition:
            done.set()
            condition.notify_all()

    timer = _later(finish)
    assert Interrupt(HANG, ALARMS).wait(condition, done.is_set)
    timer.join()


def test_a_statement_without_a_limit_is_over_only_when_it_is_cancelled() -> None:
    interrupt = Interrupt()
    assert interrupt.left() == NO_LIMIT
    interrupt.check()
    assert not interrupt.wait(threading.Condition(), lambda: False, timeout=0.01)
    interrupt.check()
    interrupt.cancel()
    assert interrupt.over
    assert interrupt.cancelled


@pytest.mark.parametrize("how", ["cancel", "timeout", "cancelled before"])
def test_what_is_registered_is_called_when_the_statement_is_over(how: str) -> None:
    interrupt = Interrupt(0.05 if how == "timeout" else None, ALARMS)
    if how == "cancelled before":
        interrupt.cancel()
    called = threading.Event()
    with interrupt.on_interrupt(called.set):
        if how == "cancel":
            threading.Thread(target=interrupt.cancel).start()
        assert called.wait(HANG)
    with pytest.raises(QueryCanceled):
        interrupt.check()


def test_what_was_registered_is_not_called_after_its_block() -> None:
    interrupt = Interrupt(0.02, ALARMS)
    calls: list[int] = []
    with interrupt.on_interrupt(lambda: calls.append(1)):
        pass
    later = threading.Event()  # alarms are raised in order, on one thread
    ALARMS.add(time.monotonic() + 0.02, later.set)
    assert later.wait(HANG)
    interrupt.cancel()
    assert calls == []


def test_the_earliest_of_many_deadlines_is_kept_though_it_comes_last() -> None:
    late, early = Interrupt(HANG * 10, ALARMS), Interrupt(0.05, ALARMS)
    called = threading.Event()
    with late.on_interrupt(lambda: None), early.on_interrupt(called.set):
        assert called.wait(HANG)
    assert not late.over


def test_a_wake_that_is_under_way_is_over_before_its_block_ends() -> None:
    interrupt = Interrupt()
    entered, leave, inside = threading.Event(), threading.Event(), threading.Event()
    open_ = True

    def wake() -> None:
        entered.set()
        leave.wait(HANG)
        if open_:
            inside.set()

    with interrupt.on_interrupt(wake):
        canceller = threading.Thread(target=interrupt.cancel)
        canceller.start()
        assert entered.wait(HANG)
        _later(leave.set)
    open_ = False
    canceller.join(HANG)
    assert inside.is_set()


def test_the_next_statement_of_a_text_has_its_own_time_but_the_same_cancel() -> None:
    interrupt = Interrupt(0.0, ALARMS)
    assert interrupt.over
    interrupt.begin(HANG)
    interrupt.check()
    interrupt.cancel()
    interrupt.begin(HANG)
    with pytest.raises(QueryCanceled, match="user request"):
        interrupt.check()


def test_backends_hear_how_long_the_statement_has_left() -> None:
    assert seconds_left() is None
    with running(Interrupt(HANG, ALARMS)) as interrupt:
        assert current() is interrupt
        left = seconds_left()
        assert left is not None
        assert 1.0 <= left <= HANG
        interrupt.cancel()
        assert seconds_left() == 1.0
    assert seconds_left() is None
    current().check()


def test_a_sleep_ends_with_the_statement() -> None:
    interrupt = Interrupt(0.05, ALARMS)
    with pytest.raises(QueryCanceled):
        interrupt.sleep(HANG)
    Interrupt().sleep(0.01)


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_wake_that_fails_keeps_no_other_from_being_made(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ConnectionResetError("the other side is gone")

    for _ in range(2):  # the thread that watches goes on for the next statement
        interrupt = Interrupt(0.05 if how == "timeout" else None, ALARMS)
        called = threading.Event()
        with interrupt.on_interrupt(broken), interrupt.on_interrupt(called.set):
            if how == "cancel":
                interrupt.cancel()
            assert called.wait(HANG)
    assert "the other side is gone" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_watch_whose_thread_has_ended_starts_another() -> None:
    watch, called = Deadlines(), threading.Event()
    ended: list[threading.Thread] = []
    left = threading.Event()

    def leave() -> None:
        ended.append(threading.current_thread())
        left.set()
        raise SystemExit

    watch.add(time.monotonic(), leave)
    assert left.wait(HANG)
    ended[0].join(HANG)
    watch.add(time.monotonic(), called.set)
    assert called.wait(HANG)
    watch.close()


def test_ctrl_c_at_any_moment_at_which_limits_are_set_leaves_none_of_them_behind(
    tmp_path: Path,
) -> None:
    def interrupted_at(place: Place, number: int) -> bool:
        pressed = False
        try:
            with ctrl_c_at(number, ("deadlines.py", "repr/interrupt.py", "session/session.py")):
                place.run("SELECT a FROM t")
        except KeyboardInterrupt:
            pressed = True
        assert seconds_left() is None, number
        assert place.rows("SELECT a FROM t") == [(1,)], number
        return pressed

    with opened(tmp_path / "env") as (place,):
        place.run("CREATE TABLE t (a int)")
        place.run("INSERT INTO t VALUES (1)")
        moments = 0
        while moments < 120 and interrupted_at(place, moments + 1):
            moments += 1
        assert moments > 20


def test_a_timeout_ends_planning_too(tmp_path: Path) -> None:
    depth = 64
    with opened(tmp_path / "env") as (place,):
        session = Session()
        place.run("SET statement_timeout = '200 ms'", session)
        with pytest.raises(QueryCanceled, match="canceling statement due to statement timeout"):
            place.run("SELECT " + "(SELECT " * depth + "1" + ")" * depth, session)


def test_an_evaluation_that_a_cancel_ends_says_so_at_whatever_point_it_comes() -> None:
    column = ColumnType(INTEGER, nullable=False)
    asked = Call("add_integer", (Column(0), Literal(1, INTEGER)), INTEGER)
    evaluator = Evaluator()
    ended = 0
    try:
        for round_ in range(300):
            interrupt = Interrupt()
            timer = _later(interrupt.cancel, round_ % 30 / 20_000)
            try:
                with running(interrupt):
                    (rows,) = evaluator.evaluate_rows([asked], [(round_,)], [column])
                assert rows == (round_ + 1,)
            except QueryCanceled:
                ended += 1
            timer.join()
        assert evaluator.evaluate_rows([asked], [(1,)], [column]) == [(2,)]
    finally:
        evaluator.close()
    assert ended < 300
