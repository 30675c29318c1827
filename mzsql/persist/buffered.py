"""A writer that collects updates in memory and appends them as one batch: it trades latency for cost.

Promise: the cost on an object store depends on the bytes written and the flush interval, not on how often the
frontier moves. An update is durable once `BufferedWriter.durable_upper` is beyond its time, not before. One append
is outstanding; a full buffer makes `push` wait. An append's error is raised by the next call, and a call that raises
has taken nothing. Trade-off: buffered updates are lost with the process, so this is for updates that can be produced
again (by a source or a dataflow), not for those acknowledged to a client. Source: Materialize's persist design, the
levers of its cost section.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from mzsql.location import Determinate
from mzsql.persist.batch import KeySpec
from mzsql.persist.building import by_worker
from mzsql.persist.checked import checked
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import normalize
from mzsql.persist.context import Context
from mzsql.persist.errors import ExpiredHandle, InvalidBounds
from mzsql.persist.parts import Updates, tables
from mzsql.repr.errors import SqlError, ThreadFailed
from mzsql.repr.frontier import Frontier, is_timestamp, less_than, show
from mzsql.threads import Supervised

_log = logging.getLogger(__name__)

_PIECE_BYTES = 8 * 1024 * 1024


class Appends(Protocol):
    """What a buffered writer needs of a shard's writer."""

    @property
    def shard_id(self) -> str:
        """The shard's id."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row, without time and diff."""

    @property
    def context(self) -> Context:
        """The settings, clock and supervisor that all handles of the client share."""

    @property
    def key(self) -> KeySpec | None:
        """The shard's key, with how many workers it has; None if it has none."""

    def compare_and_append(
        self,
        updates: Updates | Mapping[int, Updates] | None,
        *,
        expected_upper: Frontier,
        new_upper: Frontier,
        timeout: float | None = None,
    ) -> None:
        """Append updates if the shard's upper is ``expected_upper``, else fail."""


class _Buffer:
    """Buffered updates by worker, the upper they are complete up to, and since when the oldest of them waits (monotonic
    seconds).
    """

    def __init__(self, upper: Frontier) -> None:
        self.upper = upper
        self.updates: dict[int | None, list[pa.Table]] = {}
        self.bytes = 0
        self.since: float | None = None


@checked
class BufferedWriter:
    """Collects pushes to a shard and appends them together; made by `WriteHandle.buffered`. Thread-safe. Must be
    closed.

    If its client has background threads, the writer flushes on a thread of its own, otherwise inside the calls that
    find a flush due.
    """

    def __init__(
        self,
        writer: Appends,
        *,
        upper: Frontier,
        flush_interval: float,
        flush_bytes: int,
    ) -> None:
        self._writer = writer
        self._context = writer.context
        self._interval = flush_interval
        self._limit = flush_bytes
        self._durable = upper
        self._buffer = _Buffer(upper)
        self._changed = threading.Condition()
        self._appending = False
        self._failure: BaseException | None = None
        self._broken = False
        self._closing = False
        self._closed = False
        self._thread: Supervised | None = None
        if self._context.threads:
            self._thread = self._context.supervisor.start(
                "buffered-writer",
                self._run,
                thread_name="mzsql-persist-flush",
                object_id=writer.shard_id,
            )

    @property
    def upper(self) -> Frontier:
        """The time up to which all pushes are complete; the next one begins there."""
        with self._changed:
            return self._buffer.upper

    @property
    def durable_upper(self) -> Frontier:
        """The time up to which all pushes are durably part of the shard."""
        with self._changed:
            return self._durable

    def push(
        self,
        updates: Updates | Mapping[int, Updates] | None,
        *,
        upper: Frontier,
        timeout: float | None = None,
    ) -> None:
        """Take updates with times in ``[self.upper, upper)``; `None` only advances the upper.

        Args:
            updates: as in `WriteHandle.compare_and_append`; kept in memory.
            upper: the pushes are complete up to this time from now on.
            timeout: seconds to wait while the buffer is full.

        Raises:
            SchemaMismatch, InvalidBounds: the updates do not fit.
            UpperMismatch: another writer had moved the upper before an earlier append; this writer cannot be used
                any more.
            Determinate: an earlier append was not committed, and is tried again with the next one; or the buffer
                stayed full.
            Indeterminate: an earlier append may have been committed; this writer cannot be used any more.
            ExpiredHandle: the writer is closed or closing, or its handle has expired.
        """
        deadline = self._context.deadline(timeout)
        with self._changed:
            self._raise_failure()
            self._check_open()
            if self._thread is None and self._due():
                self._flush(deadline)
                self._raise_failure()
            # Before the updates are checked: they begin at the buffer's upper, which others may move while this call waits.
            self._wait_for_room(deadline)
            taken, size = self._checked(updates, upper)
            moved = self._buffer.upper != upper
            for worker, pieces in taken.items():
                self._buffer.updates.setdefault(worker, []).extend(pieces)
            self._buffer.bytes += size
            self._buffer.upper = upper
            # The interval runs from the first progress in the buffer, so a frontier that moves often does not postpone
            # the flush.
            if moved and self._buffer.since is None:
                self._buffer.since = self._context.clock.monotonic()
            self._changed.notify_all()
            if self._thread is None and self._due():
                self._flush(deadline)

    def flush(self, *, timeout: float | None = None) -> None:
        """Append everything that was pushed, so that it is durable.

        Raises:
            UpperMismatch, Determinate, Indeterminate, ExpiredHandle: as `push`.
        """
        deadline = self._context.deadline(timeout)
        with self._changed:
            if self._broken:
                self._raise_failure()
            self._failure = None
            self._wait_while_appending(deadline)
            self._raise_failure()
            self._flush(deadline)
            self._raise_failure()

    def close(self, *, timeout: float | None = None) -> None:
        """Flush, and take no more pushes. Idempotent; after an error that may pass (Determinate) call it again."""
        with self._changed:
            if self._closed:
                return
            # Refuse pushes from now on: one made after the flush has begun would be lost.
            self._closing = True
            self._changed.notify_all()
        try:
            self.flush(timeout=timeout)
        # It may pass, and nothing is lost: what is buffered stays, so pushes and another close are possible again.
        except Determinate:
            with self._changed:
                self._closing = False
            raise
        except BaseException:
            self._stop()
            raise
        self._stop()

    def _stop(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.stop()
            self._thread.join()

    def expire(self) -> None:
        """Append nothing any more, because the handle has expired: every later call raises that. Logs what is lost."""
        with self._changed:
            if self._closed or self._broken:
                return
            if self._buffer.updates or self._appending:
                _log.warning(
                    "shard %s: updates up to %s were buffered and not appended when their writer expired",
                    self._writer.shard_id,
                    show(self._buffer.upper),
                )
            self._failure = ExpiredHandle(
                f"shard {self._writer.shard_id}: the writer expired before its buffered writer was closed; "
                f"durable is what was pushed up to {show(self._durable)}"
            )
            self._broken = True
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _raise_failure(self) -> None:
        """Raise the error of an earlier append: once if the append is tried again, always if it is not."""
        if self._closed:
            raise ExpiredHandle(f"shard {self._writer.shard_id}: the buffered writer is closed")
        failure = self._failure
        if failure is not None:
            if not self._broken:
                self._failure = None
            if isinstance(failure, SqlError):
                raise failure
            raise ThreadFailed(
                f"shard {self._writer.shard_id}: the thread that flushes the buffered writer has ended: "
                f"{type(failure).__name__}: {failure}"
            ) from failure

    def _check_open(self) -> None:
        if self._closing or self._closed:
            raise ExpiredHandle(f"shard {self._writer.shard_id}: the buffered writer is closed")

    def _checked(
        self, updates: Updates | Mapping[int, Updates] | None, upper: Frontier
    ) -> tuple[dict[int | None, list[pa.Table]], int]:
        """Return the updates with the shard's columns, and their bytes."""
        shard_id, lower = self._writer.shard_id, self._buffer.upper
        if not (upper is None or is_timestamp(upper)):
            raise InvalidBounds(f"not an upper: {upper!r}")
        if less_than(upper, lower):
            raise InvalidBounds(
                f"shard {shard_id}: the upper of pushes cannot go back from {show(lower)} to {show(upper)}"
            )
        taken: dict[int | None, list[pa.Table]] = {}
        size = 0
        for worker, of_worker in by_worker(
            self._writer.shard_id, self._writer.key, updates
        ).items():
            pieces = []
            for table in tables(of_worker, _PIECE_BYTES):
                if table.num_rows and lower is None:
                    raise InvalidBounds(f"shard {shard_id}: pushes have ended, no updates fit")
                piece = normalize(table, self._writer.schema, lower or 0, upper, "the push")
                if piece.num_rows:
                    pieces.append(piece)
                    size += piece.nbytes
            if pieces:
                taken[worker] = pieces
        return taken, size

    def _due(self) -> bool:
        if self._buffer.since is None or self._failure is not None:
            return False
        waited = self._context.clock.monotonic() - self._buffer.since
        return waited >= self._interval or self._buffer.bytes >= self._limit

    def _wait_for_room(self, deadline: Deadline) -> None:
        def room() -> bool:
            full = self._buffer.bytes >= self._limit
            return not full or self._failure is not None or self._closing

        def ours() -> bool:
            return self._thread is None and not self._appending

        while not room():
            if ours():
                self._flush(deadline)
            elif not self._changed.wait_for(lambda: room() or ours(), deadline.remaining()):
                raise Determinate(
                    f"shard {self._writer.shard_id}: {self._buffer.bytes} bytes wait to be appended, "
                    f"and none went within {deadline.timeout:g} s"
                )
        self._raise_failure()
        self._check_open()

    def _wait_while_appending(self, deadline: Deadline) -> None:
        if not self._changed.wait_for(lambda: not self._appending, deadline.remaining()):
            raise Determinate(
                f"shard {self._writer.shard_id}: the append under way was not over within {deadline.timeout:g} s"
            )

    def _flush(self, deadline: Deadline) -> None:
        """Append the buffer. The caller holds the lock, which is released during the append; an error is kept for the
        next call.
        """
        if self._appending or (self._buffer.upper == self._durable and not self._buffer.updates):
            return
        # Swap the buffer before releasing the lock: pushes go on during the append.
        appended, self._buffer = self._buffer, _Buffer(self._buffer.upper)
        expected = self._durable
        self._appending = True
        self._changed.release()
        failure: BaseException | None = None
        try:
            self._append(appended, expected, deadline)
        except BaseException as caught:
            failure = caught
        finally:
            self._changed.acquire()
            self._appending = False
        if failure is None:
            self._durable = appended.upper
        else:
            if not self._broken:
                self._failure = failure
                # Only an append that certainly was not committed may be tried again: the next attempt has another
                # token, so nothing would recognise updates appended twice.
                self._broken = not isinstance(failure, Determinate)
            self._put_back(appended)
        self._changed.notify_all()
        if failure is not None and not isinstance(failure, Exception):
            raise failure  # an interrupt (Ctrl-C) is for this very call

    def _append(self, appended: _Buffer, expected: Frontier, deadline: Deadline) -> None:
        joined = {worker: pa.concat_tables(pieces) for worker, pieces in appended.updates.items()}
        updates: pa.Table | dict[int, pa.Table] | None = None
        if None in joined:
            updates = joined[None]
        elif joined:
            updates = {worker: table for worker, table in joined.items() if worker is not None}
        self._writer.compare_and_append(
            updates,
            expected_upper=expected,
            new_upper=appended.upper,
            timeout=deadline.remaining(),
        )

    def _put_back(self, older: _Buffer) -> None:
        """Put updates whose append failed back before those that were pushed meanwhile."""
        newer = self._buffer
        for worker, pieces in newer.updates.items():
            older.updates.setdefault(worker, []).extend(pieces)
        older.bytes += newer.bytes
        older.upper = newer.upper
        self._buffer = older

    def _run(self, thread: Supervised) -> None:
        """Flush what is due, in a thread, until the writer ends; an append's error is raised by the writer's next call."""
        with self._changed:
            while not (self._closed or self._broken):
                if self._due():
                    self._flush(self._context.deadline(None))
                    if self._failure is None:
                        thread.well()
                    continue
                since, pause = self._buffer.since, None
                if since is not None and self._failure is None:
                    left = since + self._interval - self._context.clock.monotonic()
                    pause = min(max(0.0, left), threading.TIMEOUT_MAX)
                self._changed.wait(pause)
