"""What the dataflows of a replica share of one arrangement: its trace, and the updates that are not in its shard yet.

Promise: a step's updates are in the trace when `add` returns, and durable after the next `flush`, some seconds later at most: what must be
durable with a step is its export's updates alone. Until then the shard is behind, and a process that dies runs the steps again from the
shard's upper (the inputs are held until it has passed them), which makes the same updates. The shard is the truth: a trace is loaded
from it and can be dropped at any time.

Several dataflows bring the same updates, each at its own pace; whoever is first adds them, the others add what lies beyond. Another
process that writes the same shard does no harm either: what lies below its upper is dropped from the next flush.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pyarrow as pa

from mzsql.compute.replica.run_files import Contents, RunFiles
from mzsql.compute.replica.target import at_or_after
from mzsql.compute.replica.trace import Trace
from mzsql.expr.engines import scratch_path
from mzsql.persist.batch import KeyStats
from mzsql.repr.frontier import Frontier, Timestamp, less_than

_LOG = logging.getLogger(__name__)

#: Traces of fewer updates are loaded from their shards in no time.
KEPT_ROWS = 50_000
#: What is kept may hold its shard's since back by so many milliseconds.
KEPT_BACK = 600_000

#: Of each row group of a part how many rows it has and the statistics of columns.
GroupStats = list[tuple[int, tuple[KeyStats, ...]]]


class Hot:
    """The shared state of one arrangement. Thread-safe.

    Args:
        upper: the shard's, as it was opened.
        now: seconds that only grow.
        later: is told when the trace has got something, to have `merge` called at a moment that suits.
        files: where the trace's large runs are, and what is kept of it.
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
        # Counted as they come: to ask a table for its size costs more than the scheduler has for all arrangements.
        self._pending_bytes = 0
        #: since when the shard is behind
        self._waiting_from: float | None = None
        self._trace: Trace | None = None
        #: how often the shard was written by itself
        self._written = 0
        #: how far each dataflow has read, by its handle
        self._readers: dict[int, Timestamp] = {}
        self.used = now()
        #: what reads from the shard for want of a trace have cost so far, in rows of a trace that is loaded
        self.read_cold = 0
        #: what is known of the row groups of its shard's parts, by their objects
        self.groups: dict[str, GroupStats | None] = {}

    @property
    def upper(self) -> Frontier:
        """How far its updates are known here."""
        with self._lock:
            return self._upper

    @property
    def durable(self) -> Frontier:
        """How far its shard goes, and not farther than is known here: where a process that opens it would begin."""
        with self._lock:
            return self._durable if less_than(self._durable, self._upper) else self._upper

    def seen(self, upper: Frontier) -> None:
        """The shard's upper was seen there, by whoever opened it again."""
        with self._lock:
            if less_than(self._durable, upper):
                self._durable = upper

    def settled(self, upper: Frontier) -> None:
        """The shard was written past this by itself (a hydration, a large step): begin anew from there."""
        with self._lock:
            self._upper = self._durable = upper
            # In its place: what a flush under way has of the one before is not the first of this one.
            self._pending = []
            self._pending_bytes = 0
            self._waiting_from = None
            self._trace = None
            self._written += 1

    def add(self, updates: pa.Table, lower: Timestamp, upper: Timestamp) -> Frontier:
        """Add the updates of ``[lower, upper)`` that are not known yet; the upper then."""
        with self._lock:
            at = self._upper
            if not less_than(at, upper):
                return at
            assert at is not None
            rows = updates if at <= lower else at_or_after(updates, at)
            self._extend(rows)
            if rows.num_rows:
                self._pending.append(rows)
                self._pending_bytes += rows.nbytes
            if self._waiting_from is None:
                # Without updates, too: as long as the shard is behind, what it was made of is held.
                self._waiting_from = self._now()
            self._upper = upper
            return upper

    def written(self, updates: pa.Table, lower: Timestamp, upper: Frontier) -> None:
        """As `add`, of updates that are in the shard already."""
        with self._lock:
            if less_than(self._upper, upper):
                assert self._upper is not None
                self._extend(updates if self._upper <= lower else at_or_after(updates, self._upper))
                self._upper = upper
            if updates.num_rows:
                # A trace that is being loaded has not seen them.
                self._written += 1
            self.seen(upper)
            if not less_than(self._durable, self._upper):
                self._waiting_from = None

    def _extend(self, rows: pa.Table) -> None:
        if self._trace is not None:
            passed = min(self._readers.values(), default=self._trace.since)
            try:
                self._trace.add(rows, max(passed, self._trace.since))
            except BaseException:
                # It may have some of them, and they come again: it is loaded anew, from the shard and what waits.
                self._trace = None
                raise
            if self._later is not None and self._trace.unsorted:
                self._later(self)

    def merge(self) -> None:
        """Sort what was added to the trace, and make fewer runs of many, beside its readers."""
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
        """The trace, to be read by one who will not ask for times before `as_of` any more; None where it is not to be had.

        `load` makes it from the shard's updates before the time that it is given.
        """
        with self._lock:
            self.used = self._now()
            self._readers[reader] = as_of
            if self._trace is not None:
                return self._from(as_of)
        # Whoever asks for anything else need not wait for what may be a long read; a flush must, or its updates would be in neither.
        with self._flushing:
            with self._lock:
                if self._trace is not None:
                    return self._from(as_of)
                # Not beyond what is known here: what another process has written there comes from this one's steps, too.
                durable, written = self.durable, self._written
            made = load(durable)
            with self._lock:
                if made is None or written != self._written:
                    return None
                for rows in self._pending:
                    if durable is not None:
                        made.add(at_or_after(rows, durable), made.since)
                self._trace = made
                return self._from(as_of)

    def give(self, made: Trace, upper: Timestamp) -> None:
        """Take a trace of all updates before `upper`, made by whoever wrote them; of no use where the shard has got on meanwhile."""
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
        """Whether the trace is there."""
        with self._lock:
            return self._trace is not None

    def reading(self) -> threading.RLock:
        """Held while the trace is looked into."""
        return self._lock

    @property
    def bytes(self) -> int:
        """What the trace has in memory."""
        with self._lock:
            return 0 if self._trace is None else self._trace.bytes

    def cool(self) -> None:
        """Drop the trace; it is loaded again when somebody asks for it."""
        with self._lock:
            self._trace = None

    def passed(self, reader: int, as_of: Timestamp) -> None:
        """A dataflow will not ask for times before this any more, whether it looks something up now or not."""
        with self._lock:
            self._readers[reader] = as_of

    def left(self, reader: int) -> None:
        """A dataflow has closed its handle."""
        with self._lock:
            self._readers.pop(reader, None)

    # --- over a restart ---

    def keep(self, after: float) -> None:
        """Keep the trace in files, where it is large, its shard goes as far, and it was not for so many seconds."""
        with self._lock:
            kept = None if less_than(self._durable, self._upper) else self._to_keep(after)
        self._keep(kept)

    def _to_keep(self, after: float) -> Contents | None:
        """What the trace has now, where that is to be kept; the lock is held."""
        trace, upper = self._trace, self._upper
        now = self._now()
        if not self.files.keeps or trace is None or upper is None or now - self._kept_at < after:
            return None
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
        """As late a since as what is kept can do with, so that what comes after it can be read from the shard; it is given up where that
        would hold too much back.
        """
        span = self.files.span
        if span is None or since < span[1]:
            return since
        if since - span[1] > KEPT_BACK:
            self.files.drop()
            return since
        return span[1] - 1

    # --- durability ---

    def due(self, seconds: float, size: int) -> bool:
        """Whether the shard has been behind for so long, or lacks so many bytes, that it should be flushed to."""
        with self._lock:
            if self._waiting_from is None:
                return False
            late = self._now() - self._waiting_from >= seconds
            return late or self._pending_bytes >= size

    def late(self) -> float | None:
        """For how many seconds the shard has been behind; None where it is not."""
        with self._lock:
            return None if self._waiting_from is None else self._now() - self._waiting_from

    @property
    def behind(self) -> bool:
        """Whether the shard does not go as far as is known here."""
        with self._lock:
            return less_than(self._durable, self._upper)

    def flush(
        self,
        append: Callable[[list[pa.Table], Timestamp, Frontier], Frontier],
        keep_after: float | None = None,
    ) -> None:
        """Make what waits durable.

        Args:
            append: brings updates of ``[lower, upper)`` to the shard, those that it lacks; the shard's upper then. Nothing is lost where
                it raises.
            keep_after: the trace is kept, too, as the shard then has it, where it was not for so many seconds; None: it is not.
        """
        with self._flushing:
            with self._lock:
                lower, upper, pending = self._durable, self._upper, self._pending
                rows = list(pending)
                began = self._now()
                # Now: steps that come meanwhile are in the trace before they are in the shard.
                kept = None if keep_after is None else self._to_keep(keep_after)
            if not less_than(lower, upper):
                self._keep(kept)
                return
            assert lower is not None
            reached = append(rows, lower, upper)
            with self._lock:
                del pending[: len(rows)]
                self._pending_bytes = sum(one.nbytes for one in self._pending)
                self.seen(reached)
                self._waiting_from = began if less_than(self._durable, self._upper) else None
            if not less_than(reached, upper):
                self._keep(kept)
