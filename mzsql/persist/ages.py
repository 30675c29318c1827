"""How long this process has known of an object, by which leaks, and batches that wait, are judged.

Promise: an age is the time that has passed on this process's own monotonic clock since it first met the name; wall
clocks do not matter, so they may be wrong, jump or stand still. Trade-off: what this process has not met has no age
yet, so a finder of leaks must have run for as long as the age it requires of leaks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from mzsql.persist.clock import Clock

_NAMES = 200_000


class Ages:
    """When this process first met each of many names. Thread-safe.

    Args:
        clock: its monotonic time is used.
        names: the most names it remembers.
    """

    def __init__(self, clock: Clock, names: int = _NAMES) -> None:
        self._clock = clock
        self._names = names
        self._lock = threading.Lock()
        # By name: when it was first met, and the last round of a search that met it.
        self._met: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._round = 0

    def meet(self, name: str, in_round: int = 0) -> int:
        """Return for how many milliseconds the name has been known: 0 if it is new.

        If there are too many names, a new one found by a search is not remembered until others are gone, so that
        those can reach the age; any other new name replaces the oldest.
        """
        now = self._clock.monotonic()
        with self._lock:
            since, met_in = self._met.get(name, (now, 0))
            if name not in self._met and len(self._met) >= self._names:
                if in_round:
                    return 0
                self._met.popitem(last=False)
            self._met[name] = (since, max(met_in, in_round))
        return round((now - since) * 1000)

    def age_ms(self, name: str) -> int | None:
        """Return for how many milliseconds the name has been known; `None` if it was never met, or was displaced."""
        now = self._clock.monotonic()
        with self._lock:
            met = self._met.get(name)
        return None if met is None else round((now - met[0]) * 1000)

    def begin_round(self) -> int:
        """Begin a search for names; return the round's number for `meet` and `end_round`."""
        with self._lock:
            self._round += 1
            return self._round

    def end_round(self, number: int, prefix: str) -> None:
        """End a search that has met all names under the prefix: forget those that no search has met since it began."""
        with self._lock:
            gone = [
                name
                for name, (_, met_in) in self._met.items()
                if met_in < number and name.startswith(prefix)
            ]
            for name in gone:
                del self._met[name]
