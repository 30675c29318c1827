"""Which collections readers of this process ask for, so that what they need is done first.

Promise: `awaited` and `lately` cost the collections that they name and never wait for a reader. At most `MOST_LATELY` collections are
remembered that nobody waits for any more. Readers of other processes are not known.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

from mzsql.persist import Clock
from mzsql.repr.ids import GlobalId

#: So many collections are remembered as asked for, the last ones: who looks for what to do first looks again and again, and where very
#: many are read in turn none of them is more urgent than another.
MOST_LATELY = 32


class Interest:
    """Thread-safe.

    Args:
        clock: its monotonic time is used.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: how many threads wait for each collection
        self._awaited: Counter[GlobalId] = Counter()
        #: the monotonic time at which each was asked for last, in that order
        self._asked: OrderedDict[GlobalId, float] = OrderedDict()

    def ask(self, gid: GlobalId) -> None:
        """Record that somebody reads a collection now, whether or not it is complete already."""
        with self._lock:
            self._asked[gid] = self._clock.monotonic()
            self._asked.move_to_end(gid)
            if len(self._asked) > MOST_LATELY:
                self._asked.popitem(last=False)

    @contextlib.contextmanager
    def waiting(self, gid: GlobalId, tell: Callable[[], None]) -> Iterator[None]:
        """Let those who can advance a collection know that somebody waits for it.

        Args:
            gid: the collection.
            tell: called if nobody else waits for it.
        """
        with self._lock:
            self._awaited[gid] += 1
            first = self._awaited[gid] == 1
        try:
            if first:
                tell()
            yield
        finally:
            with self._lock:
                self._awaited[gid] -= 1
                if not self._awaited[gid]:
                    del self._awaited[gid]

    def awaited(self) -> list[GlobalId]:
        """The collections that threads wait for."""
        with self._lock:
            return list(self._awaited)

    def lately(self, within: float) -> list[GlobalId]:
        """The collections that threads wait for; then others that were asked for within so many seconds, the longest ago
        first, as who reads some again and again asks for that one next.
        """
        with self._lock:
            after = self._clock.monotonic() - within
            lately = [g for g, at in self._asked.items() if at >= after and g not in self._awaited]
            return [*self._awaited, *lately]
