"""How a command that goes on is asked to end: SIGTERM or Ctrl-C once, and Ctrl-C again for at once.

Promise: what a signal's handler does here takes no lock, so that it may come at any moment of the thread that it interrupts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from mzsql.threads import Wakeup

_CHUNK = 4096


class Stop:
    """Whether a command was asked to end; one thread may wait for it."""

    def __init__(self) -> None:
        self._asked = False
        self._wakeup = Wakeup()

    def is_set(self) -> bool:
        """Whether it was."""
        return self._asked

    def ask(self) -> None:
        """Ask it to end; may be called from a signal's handler."""
        self._asked = True
        self._wakeup.wake()

    def wait(self, seconds: float) -> bool:
        """Wait until it is, for so many seconds at most; whether it was."""
        if not self._asked:
            self._wakeup.wait(seconds)
        return self._asked


@contextmanager
def stopping(then: Callable[[], None] | None = None) -> Iterator[Stop]:
    """What SIGTERM and SIGINT ask to end, before ``then`` is called, which takes no lock; a second SIGINT interrupts."""
    stop = Stop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.ask()
        if then is not None:
            then()

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ending_with_input(then: Callable[[], None]) -> None:
    """Call ``then`` when standard input ends: whoever has started this process, and holds the other end, is gone."""

    def read() -> None:
        # Not through sys.stdin: its lock would be held while the interpreter ends.
        with contextlib.suppress(OSError):  # what cannot be read has ended, too
            while os.read(source, _CHUNK):
                pass
        then()

    source = sys.stdin.fileno()
    threading.Thread(target=read, name="mzsql-input", daemon=True).start()
