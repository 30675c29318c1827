"""How a command that goes on is asked to end: SIGTERM or Ctrl-C once, and Ctrl-C again for at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping(then: Callable[[], None] | None = None) -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, before ``then`` is called; a second SIGINT interrupts."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()
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
