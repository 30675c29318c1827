"""Pauses Python's cycle collector while large trees of small objects are made.

Promise: within `undisturbed` Python's cycle collector does not start by itself; what reference counts free is freed as ever. A statement of
two thousand columns is a million nodes that all stay until it is done, and looking through them again and again for cycles took two
thirds of the time that making and writing them did. The collector belongs to the whole process, so the pauses of several threads
are one, and a pause that has lasted for long takes nobody else in: it ends with those who are in it. Where somebody has switched the
collector off, it stays off.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import ContextDecorator

#: A pause that began longer ago than this, in seconds, is not prolonged by others.
LONGEST = 2.0


class Collector:
    """The pauses of this process's collector. Thread-safe.

    Args:
        now: seconds that only grow.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._inside = 0
        self._begun = 0.0

    def undisturbed(self) -> Pause:
        """The body runs without collections, unless the pause it would join has lasted for long."""
        return Pause(self)

    def enter(self) -> bool:
        """Begin a pause or join the one there is; whether that was done, and has to be undone by `leave`."""
        with self._lock:
            if self._inside == 0:
                if not gc.isenabled():
                    return False
                gc.disable()
                self._begun = self._now()
            elif self._now() - self._begun > LONGEST:
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        """End what `enter` began."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                gc.enable()


class Pause(ContextDecorator):
    """A block, or by decoration a function, that runs `Collector.undisturbed`. A class, as every statement is planned in
    several, and a generator costs three times as much.
    """

    __slots__ = ("_collector", "_joined")

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._joined = False

    def __enter__(self) -> None:
        self._joined = self._collector.enter()

    def __exit__(self, *_: object) -> None:
        if self._joined:
            self._collector.leave()

    def _recreate_cm(self) -> Pause:
        """Each call of a decorated function is a pause of its own, as calls nest and threads share the function."""
        return Pause(self._collector)


#: That of this process; also a decorator: ``@undisturbed()``.
undisturbed = Collector().undisturbed
