"""Giving up the arrangements that no dataflow of a replica uses.

Promise: none is given up before every dataflow has opened what it may reuse; one that others still read is looked after again and again.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from functools import partial

from mzsql.compute.replica.arrangements import Arrangements
from mzsql.compute.replica.commands import Commands
from mzsql.compute.replica.flows import Flow
from mzsql.compute.replica.installed import Installed
from mzsql.repr.errors import SqlError
from mzsql.repr.ids import GlobalId

_LOG = logging.getLogger(__name__)

#: Arrangements that were given up, and that somebody still reads, are looked after so often, in seconds.
RETIRE_SECONDS = 60.0
#: Statements that nobody has looked at for so many seconds are kept as bytes,
STATEMENTS_SECONDS = 30.0
#: looked for so often, in seconds,
STATEMENTS_LOOK = 10.0
#: of so many dataflows at once.
STATEMENTS_AT_ONCE = 32


class Retiring:
    """Gives up what nobody uses, between two commands.

    Args:
        arrangements: the replica's.
        installed: the dataflows that may use them.
        commands: between which it is done, so that no dataflow is installed meanwhile.
        later: runs what need not be done now.
    """

    def __init__(
        self,
        arrangements: Arrangements,
        installed: Installed,
        commands: Commands,
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._later = later
        #: those whose statements are about to be let go of
        self._cooling: set[GlobalId] = set()
        self._statements_at = 0.0
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

    def cool(self, now: float) -> None:
        """Let go of the traces that were not used for longest, until the others fit in memory, and of statements that nobody looks at."""
        self._arrangements.cool()
        if now < self._statements_at or self._cooling:
            return
        self._statements_at = now + STATEMENTS_LOOK
        warm = (flow for flow in self._installed.all() if flow.rendered.warm(STATEMENTS_SECONDS))
        for flow in itertools.islice(warm, STATEMENTS_AT_ONCE):
            self._cooling.add(flow.gid)
            self._later(partial(self._cool, flow))

    def _cool(self, flow: Flow) -> None:
        self._cooling.discard(flow.gid)
        flow.rendered.cool(STATEMENTS_SECONDS)
