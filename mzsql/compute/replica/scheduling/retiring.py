"""Deletes the arrangements that no dataflow of a replica uses, and frees memory of traces and statements that are not
in use.

Promise: no arrangement is deleted before every dataflow has opened what it may reuse. One that others still read is
tried again later.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from functools import partial

from mzsql.compute.replica.arrangements.arrangement_shards import ArrangementShards
from mzsql.compute.replica.scheduling.commands import Commands
from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle
from mzsql.repr.errors import SqlError
from mzsql.repr.ids import GlobalId

_LOG = logging.getLogger(__name__)

#: Pause before arrangements that somebody still reads are tried again, in seconds.
RETIRE_SECONDS = 60.0
#: After how many seconds without use a rendered statement is kept only as bytes.
STATEMENTS_SECONDS = 30.0
#: How often that is checked, in seconds.
STATEMENTS_LOOK = 10.0
#: For how many dataflows at a time.
STATEMENTS_AT_ONCE = 32
#: For how many seconds it is put off while dataflows are hydrated: it takes a tenth of a second of the interpreter's time for each.
STATEMENTS_WAIT = 300.0


class Retiring:
    """Deletes what nobody uses, between two commands.

    Args:
        arrangements: the replica's.
        installed: the dataflows that may use them.
        commands: runs the deletion between commands, so that no dataflow is installed meanwhile.
        later: runs work that is not urgent.
        calm: whether nothing is being hydrated.
    """

    def __init__(
        self,
        arrangements: ArrangementShards,
        installed: Installed,
        commands: Commands,
        later: Callable[[Callable[[], None]], None],
        calm: Callable[[], bool],
    ) -> None:
        self._later = later
        self._calm = calm
        #: the clock time at which it was first put off since nothing was hydrated; None: it was not
        self._put_off: float | None = None
        #: dataflows whose statements are queued to be freed
        self._cooling: set[GlobalId] = set()
        self._statements_at = 0.0
        self._arrangements = arrangements
        self._installed = installed
        self._commands = commands
        self._due = False
        # Clock time at which arrangements that others still read are tried again.
        self._again_at = 0.0

    def retire(self) -> None:
        """Delete registered arrangements that no installed dataflow uses, now or once all are open. Runs on the thread
        of the commands.
        """
        if self._installed.opening:
            self._due = True
            return
        try:
            self._arrangements.retire_unused({flow.gid for flow in self._installed.all()})
        except SqlError as error:
            _LOG.warning("giving up what no dataflow uses: %s", error)
            self._due = True

    def look(self, now: float) -> None:
        """Queue the deletion if it is due at ``now`` (seconds of the replica's clock)."""
        if (self._due and not self._installed.opening) or (
            self._arrangements.left and now >= self._again_at
        ):
            self._due, self._again_at = False, now + RETIRE_SECONDS
            self._commands.after(self.retire)

    def cool(self, now: float) -> None:
        """Drop the least recently used traces until the others fit in memory, and free statements that nobody uses."""
        self._arrangements.cool()
        if now < self._statements_at or self._cooling:
            return
        self._statements_at = now + STATEMENTS_LOOK
        if self._calm():
            self._put_off = None
        else:
            self._put_off = now if self._put_off is None else self._put_off
            if now - self._put_off < STATEMENTS_WAIT:
                return
        warm = (flow for flow in self._installed.all() if flow.rendered.warm(STATEMENTS_SECONDS))
        for flow in itertools.islice(warm, STATEMENTS_AT_ONCE):
            self._cooling.add(flow.gid)
            self._later(partial(self._cool, flow))

    def _cool(self, flow: DataflowLifecycle) -> None:
        self._cooling.discard(flow.gid)
        flow.rendered.cool(STATEMENTS_SECONDS)
