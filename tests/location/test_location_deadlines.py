"""What a backend is told of its caller's time."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

from mzsql.location import (
    Determinate,
    at_most,
    check_caller,
    interruptible,
    seconds_left,
    waiting,
)
from mzsql.location.deadlines import LEAST_SECONDS


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


def test_long_work_ends_when_nobody_waits_for_it():
    check_caller()
    with waiting(lambda: 1.0):
        check_caller()
    with waiting(lambda: 0.0), pytest.raises(Determinate):
        check_caller()


def test_whoever_waits_says_how_work_is_woken():
    woken = []

    @contextmanager
    def on_interrupt(wake):
        woken.append(wake)
        yield

    with waiting(lambda: 5.0, on_interrupt), waiting(lambda: 4.0), interruptible(list):
        pass
    with interruptible(dict):
        pass
    assert woken == [list]
