"""How a continuous command is stopped: by SIGTERM or Ctrl-C, and at once by a second Ctrl-C.

Promise: signal handlers here take no lock, so they may interrupt the thread at any point.
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
    """Whether the command was asked to stop; one thread may wait for that."""

    def __init__(self) -> None:
        self._asked = False
        self._wakeup = Wakeup()

    def is_set(self) -> bool:
        """Whether it was asked."""
        return self._asked

    def ask(self) -> None:
        """Ask it to stop; safe in a signal handler."""
        self._asked = True
        self._wakeup.wake()

    def wait(self, seconds: float) -> bool:
        """Wait until it is asked to stop, for at most ``seconds``.

        Returns:
            Whether it was asked.
        """
        if not self._asked:
            self._wakeup.wait(seconds)
        return self._asked


@contextmanager
def stopping(then: Callable[[], None] | None = None) -> Iterator[Stop]:
    """A `Stop` that SIGTERM and SIGINT set within the block, before they call ``then``; a second SIGINT interrupts.

    Args:
        then: called in the signal handler; takes no lock.
    """
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
    """Call ``then`` at the end of standard input: when the process that holds the other end is gone."""

    def read() -> None:
        # Not sys.stdin, whose lock would be held while the interpreter shuts down.
        with contextlib.suppress(OSError):  # what cannot be read has ended, too
            while os.read(source, _CHUNK):
                pass
        then()

    source = sys.stdin.fileno()
    threading.Thread(target=read, name="mzsql-input", daemon=True).start()
