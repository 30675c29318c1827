"""The release of history that no read may ask for any more.

Promise: a collection keeps what RETAIN HISTORY says, or `RETAIN_MS`. Older history is released from time to time while data is written,
and nothing is done while nobody writes. One thread calls.
"""

from __future__ import annotations

from mzsql.adapter.environment.environment import Environment
from mzsql.catalog.commands.retention import retention
from mzsql.repr.frontier import Timestamp

#: Seconds between two releases of read holds on history, while something is written …
RELEASE_SECONDS = 15.0
#: … or longer, so that releasing for all collections is at most so many writes a second.
RELEASE_WRITES = 50
#: Milliseconds of history kept for AS OF reads of a collection without RETAIN HISTORY.
RETAIN_MS = 60_000


class HistoryRelease:
    """Releases the history of an environment's collections.

    Args:
        env: the environment.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._release_at = 0.0
        # The log's upper at the last release, and whether one more release is due although nothing was written since.
        self._released: tuple[Timestamp, bool] = (-1, True)

    def look(self) -> None:
        """Release holds on history from time to time while something is written, and once more after that, when dataflows caught up."""
        upper = self._env.wal.state.upper
        now = self._env.clock.monotonic()
        at, again = self._released
        if now < self._release_at or (at == upper and not again) or self._env.oracle.due:
            return
        read_ts = self._env.oracle.read_ts()
        retained = {
            gid: max(0, read_ts - ms)
            for gid, ms in retention(self._env.catalog.state, RETAIN_MS).items()
        }
        self._env.collections.release_history(max(0, read_ts - RETAIN_MS), retained)
        self._env.exports.keep_up()
        # Releasing one collection's history may take two writes.
        pause = 2 * len(self._env.collections.ids()) / RELEASE_WRITES
        self._release_at = now + max(RELEASE_SECONDS, pause)
        self._released = (upper, at != upper)
