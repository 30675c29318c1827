"""How long each phase of opening an environment takes, until all its dataflows have been started.

Promise: a phase records when it first began, the seconds that this process's threads spent in it, and how many objects
it covered. Phases may overlap and nest: dataflows are started while statements already run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

#: What is done in each phase.
PHASES: Mapping[str, str] = {
    "stores": "the stores are opened",
    "catalog": "the catalog is read",
    "oracle": "the timestamp oracle is opened",
    "collections": "tables and views are made known, the log of writes is read",
    "recovery": "what was committed before a crash is made visible",
    "plans": "plans are looked up, or made",
    "optimization": "of these, those that the expression cache did not have are made",
    "taking up": "dataflows are given to the replicas",
    "complete": "everything was taken up",
}


class Phase(msgspec.Struct, frozen=True):
    """One phase, so far.

    Attributes:
        name: what was done.
        began: seconds from the start of the opening.
        seconds: time spent in it, summed over threads.
        objects: how many objects it covered.
    """

    name: str
    began: float
    seconds: float = 0.0
    objects: int = 0


class Startup:
    """The phases of one opening. Thread-safe.

    Args:
        monotonic: seconds from an arbitrary start, never going backwards.
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
        """Measure the block as part of a phase."""
        began = self._monotonic()
        try:
            yield
        finally:
            self.spent(name, began, self._monotonic() - began, objects)

    def spent(self, name: str, began: float, seconds: float, objects: int) -> None:
        """Add ``seconds`` to a phase, begun at the monotonic time ``began``; ignored once the opening is complete."""
        with self._lock:
            if self._complete is not None:
                return  # what is created later is no part of the opening
            known = self._phases.get(name) or Phase(name, began - self._start)
            self._phases[name] = Phase(
                name, known.began, known.seconds + seconds, known.objects + objects
            )

    def objects(self, name: str) -> int:
        """How many objects a phase has covered so far."""
        with self._lock:
            known = self._phases.get(name)
            return 0 if known is None else known.objects

    def completed(self) -> None:
        """Everything was started; only the first call counts."""
        with self._told:
            if self._complete is None:
                self._complete = self._monotonic() - self._start
                self._phases["complete"] = Phase("complete", self._complete, self._complete)
                self._told.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until everything was started; whether it was."""
        with self._told:
            return self._told.wait_for(lambda: self._complete is not None, timeout)

    def phases(self) -> list[Phase]:
        """The phases, in the order in which they began."""
        with self._lock:
            return sorted(self._phases.values(), key=lambda one: one.began)
