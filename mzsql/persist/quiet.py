"""Updates that a writer of definite updates makes known to its own process before they are in the shard.

Promise: readers of this process take such times as complete at once; the shard and other processes see them after
the writer's `catch_up`. Trade-off: losing them costs nothing but work, because whoever writes the same definite
updates can make them again.
"""

from __future__ import annotations

import pyarrow as pa

from mzsql.persist.ahead import Ahead, beyond, reach
from mzsql.persist.appending import Appender, nothing_appended
from mzsql.persist.batch import Batch
from mzsql.persist.building import BatchBuilder
from mzsql.persist.clock import Deadline
from mzsql.persist.errors import UpperMismatch
from mzsql.persist.fetch import between
from mzsql.persist.opened import Opened
from mzsql.repr.frontier import Frontier, Timestamp


class Quiet:
    """What one writer makes known early, and how it is appended to the shard later."""

    def __init__(self, opened: Opened, builder: BatchBuilder, appender: Appender) -> None:
        self._opened = opened
        self._builder = builder
        self._appender = appender
        self._tells = False

    def tell(self, batch: Batch) -> None:
        """Make the updates of a batch, which the shard lacks, known to this process."""
        self._opened.learn(batch)
        if not self._tells:
            self._tells = True
            self._opened.shard.quiet_writer(1)

    def tell_no_more(self) -> None:
        """Have readers that wait for the shard's upper no longer rely on this writer. Idempotent."""
        if self._tells:
            self._tells = False
            self._opened.shard.quiet_writer(-1)

    @property
    def behind(self) -> tuple[int, int]:
        """How many batches this process knows that the shard lacks, and their bytes; without a request."""
        shard = self._opened.shard
        lacking = [one for _, _, one in beyond(shard.ahead, shard.state.upper) if one.parts]
        return len(lacking), sum(one.size for one in lacking)

    def catch_up(self, deadline: Deadline) -> tuple[Frontier, bool]:
        """Append all that this process knows beyond the shard's upper, in one write; return the upper then, and whether
        anything was appended.
        """
        while True:
            ahead = self._opened.shard.ahead
            upper = self._opened.shard.state.upper
            reached = reach(ahead, upper)
            if upper is None or reached is None or reached == upper:
                return upper, False
            batch = self._rebuilt(ahead, upper, reached, deadline)
            try:
                self._appender.append_own(batch, upper, reached, deadline)
            except UpperMismatch:
                continue  # another writer of the same updates was faster: look what is still lacking
            return reached, True

    def _rebuilt(
        self, ahead: Ahead, lower: Timestamp, upper: Timestamp, deadline: Deadline
    ) -> Batch:
        """Return one batch with all that is known of ``[lower, upper)``."""
        lacking = [(at, one) for at, _, one in beyond(ahead, lower) if one.parts]
        if len(lacking) == 1:
            at, batch = lacking[0]
            cut = self._builder.without_below(batch, at, deadline)
            return Batch(self._opened.shard_id, lower, upper, cut.parts)
        # Small batches become one, so that the shard gets one batch per catch-up.
        by_worker: dict[int | None, list[pa.Table]] = {}
        for at, batch in lacking:
            for part in batch.parts:
                rows = self._opened.parts.read(part, deadline)
                by_worker.setdefault(part.worker, []).append(between(rows, at, None))
        joined = {worker: pa.concat_tables(rows) for worker, rows in by_worker.items()}
        with nothing_appended(self._opened.shard_id):
            return self._builder.build(joined, lower, upper, deadline)
