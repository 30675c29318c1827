"""Where the time goes from opening an environment until all that it maintains is taken up.

Promise: each phase has the moment at which it began first, the seconds spent in it by this process's threads, and how many objects it was
about. Phases may be beside and within each other: taking up goes on while statements run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec


class Phase(msgspec.Struct, frozen=True):
    """One phase, so far.

    Attributes:
        name: what was done.
        began: seconds after the opening began.
        seconds: spent in it.
        objects: how many objects it was about.
    """

    name: str
    began: float
    seconds: float = 0.0
    objects: int = 0


class Startup:
    """The phases of one opening. Thread-safe.

    Args:
        monotonic: seconds from an arbitrary start, never backwards.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._start = monotonic()
        self._phases: dict[str, Phase] = {}
        self._complete: float | None = None
        self._told = threading.Condition(self._lock)
        self.wanted = 0
        """How many dataflows there are to take up, as far as is known."""

    @contextmanager
    def phase(self, name: str, objects: int = 0) -> Iterator[None]:
        """What happens in here is of this phase."""
        began = self._monotonic()
        try:
            yield
        finally:
            self.spent(name, began, self._monotonic() - began, objects)

    def spent(self, name: str, began: float, seconds: float, objects: int) -> None:
        """So much was spent in a phase from a moment of the clock on."""
        with self._lock:
            if self._complete is not None:
                return  # what is created later is no part of the opening
            known = self._phases.get(name) or Phase(name, began - self._start)
            self._phases[name] = Phase(
                name, known.began, known.seconds + seconds, known.objects + objects
            )

    def objects(self, name: str) -> int:
        """How many objects a phase was about so far."""
        with self._lock:
            known = self._phases.get(name)
            return 0 if known is None else known.objects

    def completed(self) -> None:
        """All that there was to take up is; the first time counts."""
        with self._told:
            if self._complete is None:
                self._complete = self._monotonic() - self._start
                self._phases["complete"] = Phase("complete", self._complete, self._complete)
                self._told.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait until all is taken up, for so many seconds; whether it is."""
        with self._told:
            return self._told.wait_for(lambda: self._complete is not None, timeout)

    def phases(self) -> list[Phase]:
        """What there is, in the order in which it began."""
        with self._lock:
            return sorted(self._phases.values(), key=lambda one: one.began)
