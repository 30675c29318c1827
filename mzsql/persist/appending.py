"""Appends to a shard by one writer.

Promise: each append draws one idempotency token, so it is applied once however often it is sent. The objects of an
append that was certainly not committed are deleted; those of one that may have been are remembered until a later
state decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from mzsql.location import Determinate, Indeterminate
from mzsql.persist.batch import Batch, BlobPart, Part
from mzsql.persist.building import BatchBuilder
from mzsql.persist.clock import Deadline
from mzsql.persist.commands import CompareAndAppend, ExpireWriter, InlineOverflow
from mzsql.persist.errors import ExpiredHandle, UpperMismatch
from mzsql.persist.fetch import all_exist, missing
from mzsql.persist.leaks import DAY_MS
from mzsql.persist.machine import surely_not_committed
from mzsql.persist.opened import Opened
from mzsql.persist.shard_reports import object_id
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Frontier, less_than


@contextlib.contextmanager
def nothing_appended(shard_id: str) -> Iterator[None]:
    """Turn Indeterminate errors of the block into Determinate ones.

    An object that may have been written leaves no doubt about the append, which never began: nothing refers to the
    object.

    Raises:
        Determinate: the block raised Indeterminate.
    """
    try:
        yield
    except Indeterminate as failure:
        raise Determinate(
            f"shard {shard_id}: nothing was appended: {failure.message}", detail=failure.detail
        ) from failure


class Appender:
    """Appends batches. For one thread at a time.

    Args:
        opened: the shard.
        builder: builds its batches.
        writer_id: the writer's id.
        purpose: what the writer is for, as recorded in the shard's state.

    Attributes:
        registered: whether an append has registered the writer in the shard's state.
        expired: whether the writer was closed.
    """

    def __init__(self, opened: Opened, builder: BatchBuilder, writer_id: str, purpose: str) -> None:
        self._opened = opened
        self._context = opened.context
        self._builder = builder
        self._writer_id = writer_id
        self._purpose = purpose
        self._used = False
        # When the last successful append or renewal began, on the monotonic clock.
        self._renewed_at = 0.0
        self.registered = False
        self.expired = False

    def check_open(self) -> None:
        """Check that the writer was not closed.

        Raises:
            ExpiredHandle: it was.
        """
        if self.expired:
            raise ExpiredHandle(
                f"shard {self._opened.shard_id}: the writer {self._writer_id} has expired"
            )

    def renewed(self, began: float) -> None:
        """Note that the lease was renewed by a change that began at ``began`` (monotonic seconds)."""
        self._renewed_at = max(began, self._renewed_at)

    def lease_passed(self, fraction: int) -> bool:
        """Whether one ``fraction``-th of the lease has passed since it was renewed; false without a lease."""
        if not self.registered or self.expired:
            return False
        elapsed = self._context.clock.monotonic() - self._renewed_at
        return elapsed * 1000 * fraction >= self._context.settings.writer_lease_ms

    def append(
        self, parts: tuple[Part, ...], lower: Frontier, upper: Frontier, deadline: Deadline
    ) -> None:
        """Append parts if the shard's upper is ``lower``; inline parts are written as objects if the state has no room
        for them.

        Raises:
            UpperMismatch: the upper is another one; nothing was appended.
            Determinate: not committed by the deadline.
            Indeterminate: not known to be committed by the deadline.
        """
        self.check_open()
        settings = self._context.settings
        command = CompareAndAppend(
            writer_id=self._writer_id,
            token=self._context.new_id(),
            lower=lower,
            upper=upper,
            parts=parts,
            lease_ms=settings.writer_lease_ms,
            inline_total_bytes=settings.inline_total_bytes,
            purpose=self._purpose,
            registered=self.registered,
        )
        self._used = True
        began = self._context.clock.monotonic()
        written: list[Part] = []
        try:
            self._opened.shard.apply(command, deadline)
        except InlineOverflow as overflow:
            try:
                with nothing_appended(self._opened.shard_id):
                    flushed, written = self._builder.written_out(parts, deadline)
            except SqlError as failure:
                # The error says nothing about a first attempt that may have been committed.
                if overflow.doubtful is None:
                    raise
                raise Indeterminate(
                    f"shard {self._opened.shard_id}: an append may have been committed: {failure.message}"
                ) from failure
            command = msgspec.structs.replace(command, parts=flushed)
            try:
                self._opened.shard.apply(command, deadline, doubtful=overflow.doubtful)
            except BaseException as failure:
                self._given_up(written, failure, deadline)
                raise
        self.registered = True
        self.renewed(began)
        self._context.meter.appended(command.parts)

    def append_own(
        self, batch: Batch, expected: Frontier, new_upper: Frontier, deadline: Deadline
    ) -> None:
        """As `append`, with a batch made for this call; its objects are deleted if it certainly was not appended."""
        try:
            self.append(batch.parts, expected, new_upper, deadline)
        except BaseException as failure:
            self._given_up(batch.parts, failure, deadline)
            raise

    def append_definite(
        self, batch: Batch, current: Frontier, upper: Frontier, deadline: Deadline
    ) -> None:
        """Append those updates that lie at or beyond the shard's upper, however far other writers move it meanwhile.

        Args:
            batch: definite updates, made for this call: any other writer writes the same ones.
            current: the shard's upper as last seen.
            upper: the upper afterwards, unless it is beyond that already.
            deadline: the end of the call.
        """
        while not less_than(upper, current):
            if current is None:
                break
            with nothing_appended(self._opened.shard_id):
                batch = self._builder.without_below(batch, current, deadline)
            try:
                self.append(batch.parts, current, upper, deadline)
            except UpperMismatch as mismatch:
                current = mismatch.current
            except BaseException as failure:
                self._given_up(batch.parts, failure, deadline)
                raise
            else:
                return
        self._builder.discard(batch.parts, deadline)

    def _given_up(self, parts: Sequence[Part], failure: BaseException, deadline: Deadline) -> None:
        """Delete the objects of a failed append: now if it certainly was not committed, otherwise once a later state
        decides.
        """
        if surely_not_committed(failure):
            self._builder.discard(parts, deadline)
        else:
            self._opened.doubt([part.key for part in parts if isinstance(part, BlobPart)])

    def check_upper(self, expected: Frontier, deadline: Deadline) -> None:
        """Check, before anything is written, that the append is not known to fail.

        Raises:
            UpperMismatch: the shard's upper is another one.
        """
        shard = self._opened.shard
        if shard.state.upper != expected:
            state = shard.fetch(deadline)
            assert state is not None
            if state.upper != expected:
                raise UpperMismatch(self._opened.shard_id, expected, state.upper)

    def check_there(self, parts: Sequence[Part], expected: Frontier, deadline: Deadline) -> None:
        """Check that the objects of a batch are there, if it may be old enough for leak finders to have deleted them.

        Raises:
            UpperMismatch: the shard's upper is not ``expected``.
            MissingPart: an object was deleted.
        """
        if self._maybe_old(parts):
            self.check_upper(expected, deadline)
            self.check_not_swept(parts, deadline)

    def check_not_swept(self, parts: Sequence[Part], deadline: Deadline) -> None:
        """As `check_there`, for batches that need not begin at the shard's upper.

        Raises:
            MissingPart: the part's object is gone: garbage collection took it, as nothing has referred to it
                for long.
        """
        keys = self._maybe_old(parts)
        for key, there in zip(keys, all_exist(self._context, keys, deadline), strict=True):
            if not there:
                raise missing(self._opened.shard_id, key)

    def _maybe_old(self, parts: Sequence[Part]) -> list[str]:
        keys = [part.key for part in parts if isinstance(part, BlobPart)]
        ages = {key: self._context.written.age_ms(object_id(key)) for key in keys}
        # Objects of another process may have any age: only that process knows it, and the clock that named them may be
        # wrong.
        return [key for key, age in ages.items() if age is None or age >= DAY_MS]

    def forget(self, deadline: Deadline) -> None:
        """Remove the writer from the shard's state."""
        if self._used and self._writer_id in self._opened.shard.state.writers:
            self._opened.shard.apply(ExpireWriter(self._writer_id), deadline)
