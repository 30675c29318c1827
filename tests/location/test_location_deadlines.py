"""What a backend is told of its caller's time."""

from __future__ import annotations

import threading

import pytest

from mzsql.location import Determinate, at_most, seconds_left, waiting
from mzsql.location.deadlines import LEAST_SECONDS, caller_left, caller_limit
from mzsql.repr.errors import QueryCanceled
from mzsql.repr.interrupt import Interrupt, check_for_interrupts, on_interrupt, running


def test_without_a_limit_there_is_none():
    assert seconds_left() is None
    assert at_most(30.0) == 30.0


def test_the_shorter_limit_counts():
    with waiting(lambda: 20.0):
        assert at_most(30.0) == 20.0
        assert at_most(10.0) == 10.0
        with waiting(lambda: 40.0):
            assert seconds_left() == 20.0
        with waiting(lambda: 5.0):
            assert seconds_left() == 5.0
        assert seconds_left() == 20.0


def test_what_is_left_is_asked_for_each_time():
    left = [9.0, 4.0]
    with waiting(left.pop):
        assert seconds_left() == 4.0
        assert seconds_left() == 9.0


def test_an_act_that_is_begun_has_time_for_a_try():
    with waiting(lambda: 0.0):
        assert seconds_left() == LEAST_SECONDS


def test_a_failure_ends_the_limit():
    with pytest.raises(Determinate), waiting(lambda: 5.0):
        raise Determinate("no")
    assert seconds_left() is None


def test_a_limit_is_of_one_thread():
    seen = []
    with waiting(lambda: 5.0):
        thread = threading.Thread(target=lambda: seen.append(seconds_left()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_a_statements_time_counts_too():
    with running(Interrupt(50.0)) as statement:
        left = seconds_left()
        assert left is not None
        assert 40.0 < left <= 50.0
        with waiting(lambda: 5.0):
            assert seconds_left() == 5.0
            later = caller_limit()
        with waiting(lambda: 90.0):
            left = seconds_left()
            assert left is not None
            assert left <= 50.0
        statement.cancel()
        assert caller_left() == 0.0
        assert seconds_left() == LEAST_SECONDS
        # Whoever took the question along learns of the cancel too, on whatever thread.
        assert later is not None
        assert later() == 0.0
    assert seconds_left() is None


def test_long_work_ends_when_nobody_waits_for_it():
    check_for_interrupts()
    with running(Interrupt(50.0)) as statement:
        check_for_interrupts()
        statement.cancel()
        with pytest.raises(QueryCanceled, match="due to user request"):
            check_for_interrupts()
    with running(Interrupt(0.0)), pytest.raises(QueryCanceled, match="due to statement timeout"):
        check_for_interrupts()
    check_for_interrupts()


def test_what_is_under_way_is_woken():
    woken = threading.Event()
    with on_interrupt(woken.set):
        assert not woken.is_set()
    with running(Interrupt()) as statement, on_interrupt(woken.set):
        statement.cancel()
        assert woken.is_set()
