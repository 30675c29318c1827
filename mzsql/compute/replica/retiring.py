"""Giving up the arrangements that no dataflow of a replica uses.

Promise: none is given up before every dataflow has opened what it may reuse; one that others still read is looked after again and again.
"""

from __future__ import annotations

import logging

from mzsql.compute.replica.arrangements import Arrangements
from mzsql.compute.replica.commands import Commands
from mzsql.compute.replica.installed import Installed
from mzsql.repr.errors import SqlError

_LOG = logging.getLogger(__name__)

#: Arrangements that were given up, and that somebody still reads, are looked after so often, in seconds.
RETIRE_SECONDS = 60.0


class Retiring:
    """Gives up what nobody uses, between two commands.

    Args:
        arrangements: the replica's.
        installed: the dataflows that may use them.
        commands: between which it is done, so that no dataflow is installed meanwhile.
    """

    def __init__(
        self, arrangements: Arrangements, installed: Installed, commands: Commands
    ) -> None:
        self._arrangements = arrangements
        self._installed = installed
        self._commands = commands
        self._due = False
        # When what was given up and others still read is to be looked after again.
        self._again_at = 0.0

    def retire(self) -> None:
        """Give up what is in the registry and no installed dataflow uses, now or once all are open. For the thread of the commands."""
        if self._installed.opening:
            self._due = True
            return
        try:
            self._arrangements.retire_unused({flow.gid for flow in self._installed.all()})
        except SqlError as error:
            _LOG.warning("giving up what no dataflow uses: %s", error)
            self._due = True

    def look(self, now: float) -> None:
        """Have done what is due at ``now``, in seconds of the replica's clock."""
        if (self._due and not self._installed.opening) or (
            self._arrangements.left and now >= self._again_at
        ):
            self._due, self._again_at = False, now + RETIRE_SECONDS
            self._commands.after(self.retire)

    def cool(self) -> None:
        """Let go of the traces that were not used for longest, until the others fit in memory."""
        self._arrangements.cool()
