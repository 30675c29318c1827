"""Whether one dataflow of a replica stands by for another replica: the rules of `standby` with what they need to know.

Promise: where the replica's settings say no, or the output is nobody else's, a dataflow steps as its inputs advance.
"""

from __future__ import annotations

from mzsql.compute.replica.dataflows.dataflow import Dataflow
from mzsql.compute.replica.scheduling.shared import Shared
from mzsql.compute.replica.scheduling.standby import (
    FOLLOW_SECONDS,
    Does,
    Standby,
    decide,
    stepped,
)
from mzsql.repr.frontier import Frontier, Timestamp, less_than


class Standing:
    """For one thread at a time.

    Args:
        replica: what the replica provides.
        shared: whether other replicas write the output as well: an index is this replica's own, and a view with a refresh schedule is
            seldom written.
    """

    def __init__(self, replica: Shared, *, shared: bool) -> None:
        settings = replica.settings
        stands_by = shared and settings.stands_by and not settings.read_only
        self._exports = replica.exports if stands_by else None
        self._standby = Standby()

    @property
    def may_wait(self) -> bool:
        """Whether it ever waits for another replica."""
        return self._exports is not None

    def begin(self, lower: Frontier, *, behind: bool) -> None:
        """The dataflow is open and hydrated, so that its next step begins at `lower`.

        Args:
            lower: of the next step.
            behind: whether its output was there when it was opened or hydrated, so that somebody else is likely to write that.
        """
        made = lower or 0
        self._standby = Standby(0 if behind else made, made)

    def does(
        self, dataflow: Dataflow | None, frontier: Frontier, inputs: Frontier, now: float
    ) -> tuple[Does, float]:
        """What it does now, and after how many seconds to ask again at the latest if it waits.

        Args:
            dataflow: it.
            frontier: how far it has told that it is.
            inputs: how far its inputs are complete.
            now: the monotonic time.
        """
        output = None if dataflow is None else dataflow.output
        written = None if output is None or self._exports is None else output.known_upper
        if self._exports is None or output is None or None in (written, frontier, inputs):
            return Does.STEP if less_than(frontier, inputs) else Does.WAIT, FOLLOW_SECONDS
        assert written is not None
        assert frontier is not None
        assert inputs is not None
        self._standby, does, pause = decide(
            self._standby,
            now,
            inputs=inputs,
            frontier=frontier,
            written=written,
            others=self._exports.others(output.shard_id),
        )
        return does, pause

    def goes_to(self, dataflow: Dataflow, inputs: Frontier, does: Does) -> Frontier:
        """How far it goes now; no further than its frontier if nothing of its own is to be written. What others have written is asked
        before it takes over.
        """
        exports, awaited = self._exports, self._standby.awaited
        if does is Does.STEP or inputs is None or exports is None:
            return inputs
        if does is Does.TAKE_OVER and awaited is not None:
            if less_than(dataflow.frontier(), awaited):
                exports.follow()
            if less_than(dataflow.frontier(), awaited):
                return inputs
        written = dataflow.frontier()
        return inputs if written is None else min(inputs, written)

    def stepped(self, upper: Timestamp, does: Does, *, empty: bool) -> None:
        """A step of its own has come to `upper`; whether it had nothing to do."""
        self._standby = stepped(self._standby, upper, does, empty=empty)
