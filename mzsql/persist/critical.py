"""Critical holds: holds on a shard's since that outlive processes."""

from __future__ import annotations

from mzsql.persist.arguments import check_frontier
from mzsql.persist.checked import checked
from mzsql.persist.commands import DowngradeCritical, ReleaseCritical
from mzsql.persist.errors import InvalidBounds
from mzsql.persist.metrics import metered
from mzsql.persist.opened import Opened
from mzsql.persist.state import CriticalHold
from mzsql.repr.frontier import Frontier, join, less_than, show


@checked
class CriticalReader:
    """A hold on since without a lease: it stays until released, whatever happens to the process, and is fenced by a
    token.

    Made by `PersistClient.open_critical_reader`, which takes the hold over: the previous owner's next call raises
    `Fenced`.
    """

    def __init__(self, opened: Opened, reader_id: str, hold: CriticalHold) -> None:
        self._opened = opened
        self._context = opened.context
        self._since = hold.since
        self.reader_id = reader_id
        self.token: str = hold.token

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self._opened.shard_id

    @property
    def since(self) -> Frontier:
        """The time from which on the hold keeps the shard readable."""
        return self._since

    @property
    def upper(self) -> Frontier:
        """The shard's upper as last seen by this process; without a request."""
        return self._opened.shard.state.upper

    @metered("critical_downgrade_since")
    def downgrade_since(self, new_since: Frontier, *, timeout: float | None = None) -> None:
        """Move the hold forward.

        Raises:
            InvalidBounds: ``new_since`` is below the present hold.
            Fenced: another process has taken the hold over.
            ExpiredHandle: the hold was released.
        """
        check_frontier(new_since, f"shard {self.shard_id}")
        if less_than(new_since, self._since):
            raise InvalidBounds(
                f"shard {self.shard_id}: a hold cannot go back from {show(self._since)} to {show(new_since)}"
            )
        deadline = self._opened.deadline(timeout)
        command = DowngradeCritical(self.reader_id, self.token, new_since)
        self._opened.shard.apply(command, deadline)
        self._since = join(self._since, new_since)
        self._opened.changed(self._opened, deadline)

    @metered("critical_release")
    def release(self, *, timeout: float | None = None) -> None:
        """Remove the hold for good. Idempotent.

        Raises:
            Fenced: another process has taken the hold over.
        """
        command = ReleaseCritical(self.reader_id, self.token)
        self._opened.shard.apply(command, self._opened.deadline(timeout))
