"""Commands that go on are asked to end by signals, at whatever moment of theirs these come."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType

import pytest

from mzsql.cli.stopping import Stop, stopping
from mzsql.threads import Wakeup

FILES = ("threading.py", "cli/stopping.py", "threads/waiting.py")


class _SignalAt:
    """Sends this process a signal at a moment of the code of `FILES` on this thread that is counted, not timed."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        if frame.f_code.co_filename.endswith(FILES) and "raise_signal" not in event:
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGTERM)


@pytest.mark.timeout(300)
def test_a_signal_at_any_moment_of_a_wait_ends_it() -> None:
    """A handler that took the lock of what the thread waits for would wait for ever."""
    wakeup = Wakeup()
    for number in range(1, 60):
        with stopping(wakeup.wake) as stop:
            at = _SignalAt(number)
            sys.setprofile(at)
            try:
                while not stop.is_set() and at.left > 0:
                    stop.wait(0.0)
                    wakeup.wait(0.0)
                    wakeup.wake()
            finally:
                sys.setprofile(None)
            assert stop.is_set()
            assert stop.wait(60.0)


def test_ctrl_c_once_asks_and_twice_interrupts() -> None:
    with stopping() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_wait_ends_when_another_thread_asks() -> None:
    stop, began = Stop(), time.monotonic()
    thread = threading.Timer(0.01, stop.ask)
    thread.start()
    assert stop.wait(60.0)
    assert time.monotonic() - began < 60.0
    thread.join()


def test_one_wait_takes_all_wakings_before_it() -> None:
    wakeup = Wakeup()
    for _ in range(3):
        wakeup.wake()
    assert wakeup.wait(0.0)
    assert not wakeup.wait(0.0)
