"""When what the dataflows of a tick have made is committed together.

Promise: a tick is the dataflows that are at work, or wait for their turn, when it begins; it is over when each of them has done that work.
Where others have work then (a view over one of these), the tick takes them in, until it has lasted for `GATHER` seconds: a chain of views
goes in one write. One that takes long keeps the others waiting for no longer than a step's patience. Nobody who reads in this process
waits for any of it. Trade-off: what other processes read of a view is as much later as the others of its tick take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mzsql.repr.ids import GlobalId

#: A tick takes dataflows in for so long, in seconds.
GATHER = 0.1


class Ticks:
    """Follows the dataflows of one replica. For one thread.

    Args:
        settle: commits what was made, or has it committed; is called more often than there is something.
    """

    def __init__(self, settle: Callable[[], None]) -> None:
        self._settle = settle
        self._awaited: dict[GlobalId, int] = {}
        self._since = 0.0

    def look(self, working: Mapping[GlobalId, int], now: float) -> None:
        """Settle where a tick is over.

        Args:
            working: the dataflows that have work, each with the number of that work.
            now: in seconds.
        """
        waited = bool(self._awaited)
        self._awaited = {
            gid: turn for gid, turn in self._awaited.items() if working.get(gid) == turn
        }
        if self._awaited:
            return
        if waited and working and now - self._since < GATHER:
            self._awaited = dict(working)
            return
        self._settle()
        self._awaited, self._since = dict(working), now
