"""Decides when the outputs of the dataflows of one tick are committed to the export log together.

Promise: a tick consists of the dataflows that have queued or running steps when it begins, and is over when each has
finished that step. If others have work by then (a view over one of these), they join the tick, until it has lasted
`GATHER` seconds; so a chain of views is committed in one write. A long step keeps the others waiting for no longer
than the step patience. Readers in this process wait for none of this. Trade-off: other processes see a view only
when the others of its tick are done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mzsql.repr.ids import GlobalId

#: How long dataflows may join a tick, in seconds.
GATHER = 0.1


class Ticks:
    """Follows the ticks of one replica. For one thread.

    Args:
        settle: commits what was made, or has it committed; may be called when there is nothing to commit.
    """

    def __init__(self, settle: Callable[[], None]) -> None:
        self._settle = settle
        self._awaited: dict[GlobalId, int] = {}
        self._since = 0.0

    def look(self, working: Mapping[GlobalId, int], now: float) -> None:
        """Settle if the present tick is over.

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
