"""How long this process has known of an object: what leaks, and batches that wait, are judged by.

Promise: an age is the time that passed here, on this process's own monotonic clock, since it first met the name; no wall clock enters into
it, whoever's it is, so that those may be wrong, jump or stand still. Trade-off: what this process has not met has no age yet, so a finder
of leaks must have been at work for as long as it asks leaks to be old.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from mzsql.persist.clock import Clock

_NAMES = 200_000


class Ages:
    """When this process first met each of many names. Safe for threads.

    Args:
        clock: of its two times the monotonic one is asked.
        names: of so many it remembers when it met them.
    """

    def __init__(self, clock: Clock, names: int = _NAMES) -> None:
        self._clock = clock
        self._names = names
        self._lock = threading.Lock()
        # By name: when it was met first, and the round of a search that met it last.
        self._met: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._round = 0

    def meet(self, name: str, in_round: int = 0) -> int:
        """How many milliseconds ago the name was met first: 0 when that is now.

        With too many names already a search leaves it for when some are gone, so that those reach the age; else the oldest gives way.
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
        """How many milliseconds ago the name was met first; `None` when it was not, or so many were met since."""
        now = self._clock.monotonic()
        with self._lock:
            met = self._met.get(name)
        return None if met is None else round((now - met[0]) * 1000)

    def begin_round(self) -> int:
        """A search for names begins; what it is called in `meet` and `end_round`."""
        with self._lock:
            self._round += 1
            return self._round

    def end_round(self, number: int, prefix: str) -> None:
        """The search has met all there are under the prefix: forget those that no search has met since it began."""
        with self._lock:
            gone = [
                name
                for name, (_, met_in) in self._met.items()
                if met_in < number and name.startswith(prefix)
            ]
            for name in gone:
                del self._met[name]
