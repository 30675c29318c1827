"""The state of one arrangement that the dataflows of a replica share: its trace, and the updates that are not in its
shard yet.

Promise: a step's updates are in the trace when `add` returns, and durable after the next `flush`, some seconds
later; only the output's updates have to be durable with the step. Until then the shard is behind. A process that
dies runs the steps again from the shard's upper, which makes the same updates, because the inputs are held until the
shard has passed them. The shard is the truth: a trace is loaded from it and can be dropped at any time.

Several dataflows may bring the same updates, each at its own pace: the first adds them, the others add only what is
beyond them. Another process that writes the same shard does no harm either: what lies below its upper is dropped
from the next flush.

Locks: `_flushing` is held through a flush and through the loading of a trace, `_lock` only for moments. Who needs
both takes `_flushing` first.
docs/architecture.md, "The way of an update through a dataflow", step 3.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pyarrow as pa

from mzsql.compute.replica.arrangements.run_files import Contents, RunFiles
from mzsql.compute.replica.arrangements.trace import Trace
from mzsql.compute.replica.target import at_or_after
from mzsql.expr.engines import scratch_path
from mzsql.persist.batch import KeyStats
from mzsql.repr.frontier import Frontier, Timestamp, less_than

_LOG = logging.getLogger(__name__)

#: Traces of fewer updates are not saved for a restart: they load quickly from their shards.
KEPT_ROWS = 50_000
#: By how many milliseconds a saved trace may hold back its shard's since; beyond that it is deleted.
KEPT_BACK = 600_000

#: For each row group of a part its number of rows and the statistics of some columns.
GroupStats = list[tuple[int, tuple[KeyStats, ...]]]


class Hot:
    """The shared state of one arrangement. Thread-safe.

    Args:
        upper: the shard's upper when it was opened.
        now: monotonic seconds.
        later: called when the trace has unsorted updates, so that `merge` is called at a convenient moment.
        files: stores the trace's large runs, and the saved trace.
    """

    def __init__(
        self,
        upper: Frontier,
        now: Callable[[], float],
        later: Callable[[Hot], None] | None = None,
        files: RunFiles | None = None,
    ) -> None:
        self._now = now
        self.files = files if files is not None else RunFiles(None, scratch_path)
        self._kept_at = float("-inf")
        self._later = later
        self._lock = threading.RLock()
        self._flushing = threading.Lock()
        self._upper = upper
        self._durable = upper
        self._pending: list[pa.Table] = []
        # Counted as updates come: the scheduler asks all arrangements for it, and computing the size of a table is too
        # slow for that.
        self._pending_bytes = 0
        #: monotonic time since which the shard is behind; None if it is not
        self._waiting_from: float | None = None
        self._trace: Trace | None = None
        #: how many times the shard was written directly, so that a trace being loaded notices
        self._written = 0
        #: the earliest time that each dataflow may still read at, by the id of its handle
        self._readers: dict[int, Timestamp] = {}
        self.used = now()
        #: cost of the reads from the shard that a trace would have spared, in rows of a trace that is loaded; see
        #: `compute.replica.arrangements.cold`
        self.read_cold = 0
        #: statistics of the row groups of the shard's parts, by object key
        self.groups: dict[str, GroupStats | None] = {}

    @property
    def upper(self) -> Frontier:
        """How far the updates are known on this replica."""
        with self._lock:
            return self._upper

    @property
    def durable(self) -> Frontier:
        """How far its shard goes, but no further than is known here: where a process that opens the shard would begin."""
        with self._lock:
            return self._durable if less_than(self._durable, self._upper) else self._upper

    def seen(self, upper: Frontier) -> None:
        """Record the shard's upper as somebody who opened it has seen it."""
        with self._lock:
            if less_than(self._durable, upper):
                self._durable = upper

    def settled(self, upper: Frontier) -> None:
        """The shard was written directly up to `upper` (a hydration, a large step): discard the trace and what waits,
        and begin anew.
        """
        with self._lock:
            self._upper = self._durable = upper
            # A new list: a flush under way removes what it has written from the old one.
            self._pending = []
            self._pending_bytes = 0
            self._waiting_from = None
            self._trace = None
            self._written += 1

    def add(self, updates: pa.Table, lower: Timestamp, upper: Timestamp) -> Frontier:
        """Add those updates of ``[lower, upper)`` that are not known yet; return the upper then."""
        with self._lock:
            at = self._upper
            if not less_than(at, upper):
                return at
            assert at is not None
            # A dataflow that is behind brings what another one has brought before it; the updates are the same, so the first ones stand.
            rows = updates if at <= lower else at_or_after(updates, at)
            self._extend(rows)
            if rows.num_rows:
                self._pending.append(rows)
                self._pending_bytes += rows.nbytes
            if self._waiting_from is None:
                # Also without updates: as long as the shard's upper is behind, the inputs are held back.
                self._waiting_from = self._now()
            self._upper = upper
            return upper

    def written(self, updates: pa.Table, lower: Timestamp, upper: Frontier) -> None:
        """As `add`, for updates that are in the shard already."""
        with self._lock:
            if less_than(self._upper, upper):
                assert self._upper is not None
                self._extend(updates if self._upper <= lower else at_or_after(updates, self._upper))
                self._upper = upper
            if updates.num_rows:
                # A trace that is being loaded may lack them.
                self._written += 1
            self.seen(upper)
            if not less_than(self._durable, self._upper):
                self._waiting_from = None

    def _extend(self, rows: pa.Table) -> None:
        if self._trace is not None:
            # Compaction may go as far as the slowest reader: a dataflow that steps later still reads at its own earlier time.
            passed = min(self._readers.values(), default=self._trace.since)
            try:
                self._trace.add(rows, max(passed, self._trace.since))
            except BaseException:
                # It may have some of the updates, and they will come again. It is loaded anew when it is needed, from
                # the shard and what waits.
                self._trace = None
                raise
            if self._later is not None and self._trace.unsorted:
                self._later(self)

    def merge(self) -> None:
        """Sort what was added to the trace, and merge runs if there are many. The merge itself runs without the lock,
        beside readers.
        """
        with self._lock:
            trace = self._trace
            if trace is not None:
                trace.sort()
            merge = None if trace is None else trace.due()
        if trace is None or merge is None:
            return
        made = merge.made()
        with self._lock:
            trace.settle(merge, made)

    # --- the trace ---

    def trace(
        self,
        reader: int,
        as_of: Timestamp,
        load: Callable[[Frontier], Trace | None],
    ) -> Trace | None:
        """The trace, loaded if need be; None if it is too large or does not reach back to `as_of`.

        Args:
            reader: id of the handle that reads, which will not ask for times before `as_of` any more.
            as_of: the time to read at.
            load: loads the trace of the shard's updates before the time that it is given; None if it is too large.
        """
        with self._lock:
            self.used = self._now()
            self._readers[reader] = as_of
            if self._trace is not None:
                return self._from(as_of)
        # Loading may take long, so it holds only the lock that flushes take: until it is done no update may move from
        # what waits into the shard, or the trace would lack it.
        with self._flushing:
            with self._lock:
                if self._trace is not None:
                    return self._from(as_of)
                # No further than is known here: what another process has written beyond that comes from this process's
                # steps too.
                durable, written = self.durable, self._written
            made = load(durable)
            with self._lock:
                # What was written directly meanwhile is neither in what was loaded nor in what waits.
                if made is None or written != self._written:
                    return None
                for rows in self._pending:
                    if durable is not None:
                        made.add(at_or_after(rows, durable), made.since)
                self._trace = made
                return self._from(as_of)

    def give(self, made: Trace, upper: Timestamp) -> None:
        """Take over a trace of all updates before `upper` from whoever wrote these; ignored if the shard has advanced
        meanwhile.
        """
        with self._lock:
            if self._trace is not None or self._durable != upper:
                return
            for rows in self._pending:
                made.add(rows, made.since)
            self._trace = made

    def _from(self, as_of: Timestamp) -> Trace | None:
        return self._trace if self._trace is not None and as_of >= self._trace.since else None

    @property
    def loaded(self) -> bool:
        """Whether the trace is loaded."""
        with self._lock:
            return self._trace is not None

    def reading(self) -> threading.RLock:
        """The lock to hold while the trace is read."""
        return self._lock

    @property
    def bytes(self) -> int:
        """Bytes of the trace in memory."""
        with self._lock:
            return 0 if self._trace is None else self._trace.bytes

    def cool(self) -> None:
        """Drop the trace; it is loaded again when it is needed."""
        with self._lock:
            self._trace = None

    def passed(self, reader: int, as_of: Timestamp) -> None:
        """Record that a dataflow will not ask for times before `as_of` any more."""
        with self._lock:
            self._readers[reader] = as_of

    def left(self, reader: int) -> None:
        """Forget a dataflow that has closed its handle."""
        with self._lock:
            self._readers.pop(reader, None)

    # --- over a restart ---

    def keep(self, after: float) -> None:
        """Save the trace in files if it is large, its shard has all its updates, and it was not saved in the last
        `after` seconds.
        """
        with self._lock:
            kept = None if less_than(self._durable, self._upper) else self._to_keep(after)
        self._keep(kept)

    def _to_keep(self, after: float) -> Contents | None:
        """The trace's present contents if they should be saved, else None. The caller holds the lock."""
        trace, upper = self._trace, self._upper
        now = self._now()
        if not self.files.keeps or trace is None or upper is None or now - self._kept_at < after:
            return None
        # Counts from the attempt, so that a full disk is not written to at each flush.
        self._kept_at = now
        return Contents(trace.runs, trace.since, upper)

    def _keep(self, contents: Contents | None) -> None:
        if contents is None:
            return
        try:
            if sum(run.rows.num_rows for run in contents.runs) >= KEPT_ROWS:
                self.files.keep(contents.runs, contents.since, contents.upper)
            else:
                self.files.drop()
        except OSError as error:
            _LOG.warning("an arrangement is not kept over a restart: %s", error)

    def held(self, since: Timestamp) -> Timestamp:
        """The latest since, up to `since`, with which a restart can still read from the shard what came after the saved
        trace.

        If that would hold back too much history the saved trace is deleted.
        """
        span = self.files.span
        if span is None or since < span[1]:
            return since
        if since - span[1] > KEPT_BACK:
            self.files.drop()
            return since
        # A restart reads from the shard what came at the saved trace's upper or later, so as of the time before.
        return span[1] - 1

    # --- durability ---

    def due(self, seconds: float, size: int) -> bool:
        """Whether the shard has been behind for `seconds`, or lacks `size` bytes, so that it should be flushed."""
        with self._lock:
            if self._waiting_from is None:
                return False
            late = self._now() - self._waiting_from >= seconds
            return late or self._pending_bytes >= size

    def late(self) -> float | None:
        """For how many seconds the shard has been behind; None if it is not."""
        with self._lock:
            return None if self._waiting_from is None else self._now() - self._waiting_from

    @property
    def behind(self) -> bool:
        """Whether the shard's upper is below what is known here."""
        with self._lock:
            return less_than(self._durable, self._upper)

    def flush(
        self,
        append: Callable[[list[pa.Table], Timestamp, Frontier], Frontier],
        keep_after: float | None = None,
    ) -> None:
        """Write what waits to the shard. If `append` raises, it waits on.

        Args:
            append: appends those updates of ``[lower, upper)`` that the shard lacks, and returns the shard's upper
                then.
            keep_after: also save the trace, in the state that the shard reaches, if it was not saved for so many
                seconds; None: do not.
        """
        with self._flushing:
            with self._lock:
                lower, upper, pending = self._durable, self._upper, self._pending
                rows = list(pending)
                began = self._now()
                # Taken now: later steps add to the trace before their updates are in the shard.
                kept = None if keep_after is None else self._to_keep(keep_after)
            if not less_than(lower, upper):
                self._keep(kept)
                return
            assert lower is not None
            reached = append(rows, lower, upper)
            with self._lock:
                # By number, from the list as it was then: `add` may have appended to it since, and `settled` may have
                # put another list in its place.
                del pending[: len(rows)]
                self._pending_bytes = sum(one.nbytes for one in self._pending)
                self.seen(reached)
                self._waiting_from = began if less_than(self._durable, self._upper) else None
            if not less_than(reached, upper):
                self._keep(kept)
