"""How a thread waits for the next time that its work is due, or for its end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Wakeup:
    """Wakes the one thread that waits, from any thread or from a signal's handler.

    The condition of an event has a lock: a handler that runs on the thread that holds it just then would wait for it for ever. A simple
    queue is made to be put to at any moment.
    """

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wake(self) -> None:
        """Have the present wait end, or the next one."""
        if self._asked.empty():
            self._asked.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait until somebody wakes, for so many seconds at most; whether somebody has, once or more often since the last wait."""
        try:
            self._asked.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return False
        while not self._asked.empty():
            self._asked.get()
        return True


def wait_until_due(
    changed: threading.Condition, due: Callable[[], float | None], ends: Callable[[], bool]
) -> bool:
    """Wait until work is due; whether it is, and not its end.

    Args:
        changed: is held by the caller, and notified when what the other two say may have changed.
        due: seconds until work is due, 0 now, None for no work yet.
        ends: whether there is to be no more work.
    """
    while not ends() and (seconds := due()) != 0.0:
        changed.wait(seconds)
    return not ends()
