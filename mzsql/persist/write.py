"""Writers of a shard.

Promise: an acknowledged append is durable, was applied exactly once, and has moved the upper as requested. Each call draws one
idempotency token and sends it again after indeterminate errors. Memory is bounded by the size of a part times the number of parts being
uploaded, however large the input. A handle has one outstanding write at a time; further callers wait, at most for their timeout. Objects
that a failed call wrote to Blob are deleted.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from msgspec import UNSET, UnsetType

from mzsql.location import Determinate, UsageError
from mzsql.persist.adoption import adopt, delete_empty
from mzsql.persist.appending import Appender, nothing_appended
from mzsql.persist.arguments import check_time, refuse
from mzsql.persist.batch import Batch, KeySpec, Part, first_time
from mzsql.persist.buffered import BufferedWriter
from mzsql.persist.building import BatchBuilder, by_worker, check_distinct, check_worker, has_rows
from mzsql.persist.checked import checked
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import check_times
from mzsql.persist.commands import RenewWriter
from mzsql.persist.context import Context
from mzsql.persist.deciding import known_keys
from mzsql.persist.errors import (
    DuplicatePart,
    ForeignBlob,
    InvalidBounds,
    MissingPart,
    SchemaMismatch,
    ShardFinalized,
    UpperMismatch,
)
from mzsql.persist.metrics import metered
from mzsql.persist.opened import Opened
from mzsql.persist.parts import Updates, delete_objects
from mzsql.persist.quiet import Quiet
from mzsql.repr.frontier import Frontier, Timestamp, less_than, show


@checked
class WriteHandle:
    """Writes updates to one shard. Made by `PersistClient.open_writer` or `open_shard`. Thread-safe.

    Updates are Arrow tables (or readers) with the shard's columns, ``mz_time`` int64 and ``mz_diff`` int64.
    """

    def __init__(self, opened: Opened, writer_id: str, purpose: str = "") -> None:
        self._opened = opened
        self._context = opened.context
        self._builder = BatchBuilder(opened)
        self._lock = threading.RLock()
        self._appender = Appender(opened, self._builder, writer_id, purpose)
        self._quiet = Quiet(opened, self._builder, self._appender)
        # Weak: a buffered writer that its owner has dropped need not be ended with this one.
        self._buffered: weakref.WeakSet[BufferedWriter] = weakref.WeakSet()
        self.writer_id = writer_id
        self.purpose = purpose
        opened.add_writer(self)

    @property
    def handle_id(self) -> str:
        """The writer's id."""
        return self.writer_id

    def renewed(self, began: float) -> None:
        """Note that the lease was renewed by a change that began at ``began`` (monotonic seconds)."""
        self._appender.renewed(began)

    def renewable(self) -> bool:
        """Whether to renew the lease along with another handle's: an eighth of it has passed."""
        return self._appender.lease_passed(8)

    def heartbeat_due(self) -> bool:
        """Whether half of the lease has passed since it was renewed; before that, a reader of this process mostly renews it with
        its own.
        """
        return self._appender.lease_passed(2)

    def reopened(self) -> WriteHandle:
        """Return a new writer with the same purpose, for a caller that goes on after its lease ran out."""
        self._appender.check_open()
        self._opened.discard_writer(self)
        self._quiet.tell_no_more()
        return WriteHandle(self._opened, "w" + self._context.new_id(), self.purpose)

    @metered("heartbeat")
    def heartbeat(self, *, timeout: float | None = None) -> None:
        """Renew the lease; does nothing for a writer that has not appended yet, because it has none.

        Raises:
            ExpiredHandle: the lease ran out.
        """
        self._appender.check_open()
        if not self._appender.registered:
            return
        # Before the renewal: so the lease seems to run out here earlier than in other processes, never later.
        began = self._context.clock.monotonic()
        others = self._opened.renewable(besides=self.writer_id)
        command = RenewWriter(self.writer_id, tuple(other.handle_id for other in others))
        self._opened.shard.apply(command, self._opened.deadline(timeout))
        for one in (self, *others):
            one.renewed(began)

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self._opened.shard_id

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row, without time and diff."""
        return self._opened.schema

    @property
    def key(self) -> KeySpec | None:
        """The layout of a keyed shard; `None` for a shard without key."""
        return self._opened.key

    @property
    def upper(self) -> Frontier:
        """The upper in the shard's durable state, as last seen by this process; without a request."""
        return self._opened.shard.state.upper

    @property
    def context(self) -> Context:
        """The settings, backends and metrics that all handles of the client share."""
        return self._context

    def buffered(
        self,
        *,
        upper: Frontier | UnsetType = UNSET,
        flush_interval: float | None = None,
        flush_bytes: int | None = None,
        timeout: float | None = None,
    ) -> BufferedWriter:
        """Return a writer that appends what is pushed to it as one batch every ``flush_interval`` seconds or ``flush_bytes`` bytes.

        Args:
            upper: where the pushes begin; the shard's current upper by default.
            flush_interval: `Settings.flush_interval_ms` by default.
            flush_bytes: `Settings.flush_bytes` by default; a push waits while the buffer holds more.
            timeout: seconds that fetching the upper may take.
        """
        self._appender.check_open()
        settings = self._context.settings
        buffered = BufferedWriter(
            self,
            upper=self.fetch_upper(timeout=timeout) if upper is UNSET else upper,
            flush_interval=(
                settings.flush_interval_ms / 1000 if flush_interval is None else flush_interval
            ),
            flush_bytes=settings.flush_bytes if flush_bytes is None else flush_bytes,
        )
        self._buffered.add(buffered)
        return buffered

    @metered("fetch_upper")
    def fetch_upper(self, *, timeout: float | None = None) -> Frontier:
        """Fetch the shard's current upper from Consensus."""
        state = self._opened.shard.fetch(self._opened.deadline(timeout))
        assert state is not None
        return state.upper

    def pass_quietly(self, lower: Timestamp, upper: Timestamp) -> None:
        """Tell this process alone that there are no updates in ``[lower, upper)``: its readers take those times as complete at once.

        For a writer of definite updates, which advances the shard itself later by an append without updates. The shard's upper and all
        other durable state stay as they are, and so does what other processes see. From then on, until this handle is expired, readers
        of this process that wait for the upper rely on this process's writers and look at Consensus only once a second.

        Raises:
            InvalidBounds: ``upper`` is not a time, or is before ``lower``.
        """
        self._appender.check_open()
        check_time(upper, f"shard {self.shard_id}")
        if upper < lower:
            raise InvalidBounds(f"shard {self.shard_id}: [{upper}] is before [{lower}]")
        self._quiet.tell(Batch(self.shard_id, lower, upper))

    def append_quietly(self, batch: Batch) -> None:
        """As `pass_quietly`, with the updates of ``batch``: readers of this process see them at once.

        They are in the shard itself after a `catch_up`, by this or by another writer of the same updates.

        Raises:
            ForeignBlob: the batch is of another shard.
            InvalidBounds: it has no upper, or it refers to objects in Blob, which nothing would protect from deletion.
        """
        self._appender.check_open()
        self._quiet.tell(batch)

    def learn(self, batch: Batch) -> None:
        """As `ReadHandle.learn`: take over what another writer of the same updates has made, which need not be made again here."""
        self._opened.learn(batch)

    @property
    def durable_upper(self) -> Frontier:
        """As `upper`."""
        return self.upper

    @property
    def known_upper(self) -> Frontier:
        """The upper as known to this process: the shard's, or as far as was appended or passed quietly beyond it; without a request."""
        shard = self._opened.shard
        return shard.upper_in(shard.state)

    @property
    def behind(self) -> tuple[int, int]:
        """How many batches this process knows that the shard itself lacks, and their bytes; without a request."""
        return self._quiet.behind

    @metered("catch_up")
    def catch_up(self, *, timeout: float | None = None) -> Frontier:
        """Append all that this process knows beyond the shard's upper, in one write; return the upper then.

        Idempotent: what others have appended meanwhile is left out.

        Raises:
            ShardFinalized: the shard has ended.
            Determinate: not committed within the timeout.
            Indeterminate: not known to be committed within the timeout.
        """
        with self._turn(timeout) as deadline:
            upper, appended = self._quiet.catch_up(deadline)
        if appended:
            self._opened.changed(self._opened, deadline)
        return upper

    @contextlib.contextmanager
    def _turn(self, timeout: float | None) -> Iterator[Deadline]:
        """Hold the handle's lock while the block runs; yield the deadline of the call.

        Raises:
            Determinate: another call held the lock until the deadline.
        """
        deadline = self._opened.deadline(timeout)
        if not self._lock.acquire(timeout=min(deadline.remaining(), threading.TIMEOUT_MAX)):
            raise Determinate(
                f"shard {self.shard_id}: an earlier write of this handle was not over within {deadline.timeout:g} s"
                + self._context.awaited
            )
        try:
            yield deadline
        finally:
            self._lock.release()

    @metered("batch")
    def batch(
        self,
        updates: Updates,
        *,
        lower: Timestamp,
        upper: Frontier,
        timeout: float | None = None,
    ) -> Batch:
        """Write updates with times in ``[lower, upper)`` as a batch that is not yet part of the shard.

        For a shard without key, or with one worker. Any process may append the batch (`Batch.to_bytes`). Small batches are carried
        inline.

        Raises:
            SchemaMismatch: the columns do not fit, or the shard has several workers.
            InvalidBounds: a time is outside of the bounds.
            LocationError: not written within the timeout.
        """
        with self._turn(timeout) as deadline:
            return self._built(by_worker(self.shard_id, self.key, updates), lower, upper, deadline)

    @metered("batch_by_worker")
    def batch_by_worker(
        self,
        updates: Mapping[int, Updates],
        *,
        lower: Timestamp,
        upper: Frontier,
        timeout: float | None = None,
    ) -> Batch:
        """As `batch`, for a keyed shard: the updates of each worker, which are sorted by key here."""
        with self._turn(timeout) as deadline:
            return self._built(by_worker(self.shard_id, self.key, updates), lower, upper, deadline)

    @metered("batch_with_workers")
    def batch_with_workers(
        self,
        updates: Updates,
        *,
        lower: Timestamp,
        upper: Frontier,
        timeout: float | None = None,
        written: Callable[[int], object] | None = None,
    ) -> Batch:
        """As `batch_by_worker`, with updates in any order, read once: the additional column ``mz_worker`` has the worker of each update.

        `written` is called with each worker whose updates are stored in objects, when they are; not for what travels inline.

        Raises:
            SchemaMismatch: the columns do not fit, or the shard does not have a worker named.
            InvalidBounds: a time is outside of the bounds.
            LocationError: not written within the timeout.
        """
        key = self.key
        if key is None:
            raise SchemaMismatch(f"shard {self.shard_id} has no key, so no workers either")
        with self._turn(timeout) as deadline:
            self._appender.check_open()
            with nothing_appended(self.shard_id):
                return self._builder.build_split(
                    updates, key.workers, lower, upper, deadline, written
                )

    def _built(
        self,
        updates: Mapping[int | None, Updates],
        lower: Timestamp,
        upper: Frontier,
        deadline: Deadline,
    ) -> Batch:
        self._appender.check_open()
        with nothing_appended(self.shard_id):
            return self._builder.build(updates, lower, upper, deadline)

    def part_prefix(self) -> str:
        """Return a new key prefix of this shard under which another program (Spark) may write Parquet objects for `adopt_parts`."""
        return f"{self.shard_id}/{self._context.new_object_id()}"

    @metered("adopt_parts")
    def adopt_parts(
        self,
        keys: Sequence[str],
        *,
        lower: Timestamp,
        upper: Frontier,
        workers: Sequence[int | None] | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Make a batch of Parquet objects that are already in Blob under a `part_prefix` of this shard.

        Each object is read once, for its checksum, and made durable. Objects without rows are deleted. After an error none is deleted:
        they still belong to the caller.

        Args:
            keys: the objects' keys.
            lower: all times are at or after it.
            upper: all times are before it.
            workers: for a keyed shard the worker of each object, whose rows must be sorted by key.
            timeout: seconds the call may take.

        Raises:
            ForeignBlob: an object is not under this shard's prefix.
            DuplicatePart: an object is named twice, or is part of the shard already.
            SchemaMismatch: its columns do not fit, or a worker is missing.
            InvalidBounds: a time is outside of the bounds.
            MissingPart: there is no such object.
            ShardFinalized: the shard has ended, and its objects with it.
        """
        default = None if self.key is None or self.key.workers > 1 else 0
        of_each = [default] * len(keys) if workers is None else list(workers)
        if len(of_each) != len(keys):
            raise SchemaMismatch(f"{len(of_each)} workers were named for {len(keys)} objects")
        for worker in of_each:
            check_worker(self.shard_id, self.key, worker)
        with self._turn(timeout) as deadline:
            self._appender.check_open()
            self._check_new(keys, deadline)
            try:
                parts = adopt(self._opened.parts, keys, self.key, of_each, deadline)
            except MissingPart:
                # Ending a shard deletes all objects under its prefix: then say that the shard has ended, not that an object is missing.
                self._check_new(keys, deadline)
                raise
            for part in parts:
                if part.rows:
                    what = f"the object {part.key}"
                    check_times(part.time_min, part.time_max, lower, upper, what)
            kept = delete_empty(self._opened.parts, parts, deadline)
        return Batch(self.shard_id, lower, upper, tuple(kept))

    def _check_new(self, keys: Sequence[str], deadline: Deadline) -> None:
        """Check that the objects are not part of the shard, and that none is named twice.

        Raises:
            DuplicatePart, ShardFinalized: as `adopt_parts`.
        """
        check_distinct(self.shard_id, keys)
        state = self._opened.shard.fetch(deadline)
        assert state is not None
        if state.finalized:
            raise ShardFinalized(f"shard {self.shard_id} was finalized: nothing can be written")
        for key in sorted(known_keys(state).intersection(keys)):
            raise DuplicatePart(
                f"shard {self.shard_id}: the object {key} is part of the shard already",
                hint="A batch of it was appended before; each object makes one part.",
            )

    @metered("delete_batch")
    def delete_batch(self, batch: Batch, *, timeout: float | None = None) -> None:
        """Delete the objects of a batch that was never appended and never will be.

        Raises:
            UsageError: the batch is part of the shard; nothing was deleted.
            LocationError: not all were deleted within the timeout; call again.
        """
        self._check_own(batch)
        deadline = self._opened.deadline(timeout)
        state = self._opened.shard.fetch(deadline)
        assert state is not None
        # Asked of a state fetched just now: an append whose answer was lost may have put the batch in.
        if known_keys(state).intersection(batch.blob_keys()):
            raise UsageError(f"shard {self.shard_id}: a batch that was appended cannot be deleted")
        delete_objects(self._context, batch.blob_keys(), deadline)

    @metered("compare_and_append")
    def compare_and_append(
        self,
        updates: Updates | Mapping[int, Updates] | None,
        *,
        expected_upper: Frontier,
        new_upper: Frontier,
        timeout: float | None = None,
    ) -> None:
        """Append updates with times in ``[expected_upper, new_upper)`` if the shard's upper is ``expected_upper``, else fail.

        `None` or empty updates only advance the upper, or renew the writer's lease if the upper stays. For a keyed shard with several
        workers, updates are a mapping from worker to updates. The empty ``new_upper`` ends the shard for writers.

        Raises:
            UpperMismatch: the upper is ``.current`` instead; nothing was written.
            SchemaMismatch, InvalidBounds: the updates do not fit; nothing was written.
            Determinate: not committed within the timeout.
            Indeterminate: not known to be committed within the timeout.
        """
        with self._turn(timeout) as deadline:
            sorted_out = by_worker(self.shard_id, self.key, updates)
            # Compare the upper before writing objects that could not be appended anyway.
            if sorted_out:
                self._appender.check_upper(expected_upper, deadline)
            if expected_upper is None:
                if any(has_rows(of_worker) for of_worker in sorted_out.values()):
                    raise InvalidBounds(
                        f"shard {self.shard_id} has ended: no updates fit beyond the empty upper"
                    )
                self._appender.append((), expected_upper, new_upper, deadline)
            else:
                batch = self._built(sorted_out, expected_upper, new_upper, deadline)
                self._appender.append_own(batch, expected_upper, new_upper, deadline)
        self._opened.changed(self._opened, deadline)

    @metered("check_batch")
    def check_batch(self, batch: Batch | Sequence[Batch], *, timeout: float | None = None) -> None:
        """Check that batches can still be appended, whenever and by whichever process they were written.

        Unlike the other methods, this one does not wait for a call of another thread.

        Raises:
            ForeignBlob: one is of another shard.
            MissingPart: one is older than a day, or was not written by this client, and an object of it is gone.
        """
        batches = batch if isinstance(batch, Sequence) else [batch]
        for one in batches:
            self._check_own(one)
        parts = [part for one in batches for part in one.parts]
        self._appender.check_not_swept(parts, self._opened.deadline(timeout))

    @metered("compare_and_append_batch")
    def compare_and_append_batch(
        self,
        batch: Batch | Sequence[Batch],
        *,
        expected_upper: Frontier,
        new_upper: Frontier,
        timeout: float | None = None,
    ) -> None:
        """As `compare_and_append`, with batches that were written before, here or by another process.

        After UpperMismatch the batches' objects stay: the caller appends them later or deletes them (`delete_batch`). Whoever keeps a
        batch for a day or longer must protect it from `PersistClient.find_leaks`.

        Raises:
            ForeignBlob: a batch is of another shard.
            DuplicatePart: a batch is given twice.
            MissingPart: it is older than a day, or was not written by this client, and an object of it is gone.
            InvalidBounds: it holds updates outside of ``[expected_upper, new_upper)``.
        """
        batches = [batch] if isinstance(batch, Batch) else list(batch)
        check_distinct(self.shard_id, [key for one in batches for key in one.blob_keys()])
        with self._turn(timeout) as deadline:
            parts: list[Part] = []
            for one in batches:
                self._check_own(one)
                if one.parts:
                    if expected_upper is None:
                        raise UpperMismatch(self.shard_id, expected_upper, self.upper)
                    for part in one.parts:
                        last = max(part.time_max, part.time_floor)
                        check_times(first_time(part), last, expected_upper, new_upper, "the batch")
                        parts.append(part)
            self._appender.check_there(parts, expected_upper, deadline)
            self._appender.append(tuple(parts), expected_upper, new_upper, deadline)
        self._opened.changed(self._opened, deadline)

    def _check_own(self, batch: Batch) -> None:
        if not isinstance(batch, Batch):
            refuse("batch", "a Batch", batch)
        if batch.shard_id != self.shard_id:
            raise ForeignBlob(
                f"the batch belongs to shard {batch.shard_id}, not to {self.shard_id}"
            )

    @metered("append")
    def append(
        self,
        updates: Updates | Mapping[int, Updates] | None,
        *,
        lower: Timestamp,
        upper: Frontier,
        timeout: float | None = None,
    ) -> None:
        """Append definite updates of ``[lower, upper)`` that other writers may write too.

        Updates below the shard's upper are dropped, because another writer has appended them; so writers of the same data need not agree
        on who writes.

        Raises:
            InvalidBounds: ``lower`` is beyond the shard's upper, which would leave a gap.
            SchemaMismatch: the updates do not fit.
        """
        with self._turn(timeout) as deadline:
            # Fetched, not as last seen: an upper that is too old would make this write, and upload, what others have
            # appended.
            current = self.fetch_upper(timeout=deadline.remaining())
            if less_than(current, lower):
                raise InvalidBounds(
                    f"shard {self.shard_id}: an append from [{lower}] would leave a gap, "
                    f"the upper is {show(current)}"
                )
            if not less_than(upper, current):
                batch = self._built(
                    by_worker(self.shard_id, self.key, updates), lower, upper, deadline
                )
                self._appender.append_definite(batch, current, upper, deadline)
        self._opened.changed(self._opened, deadline)

    @metered("expire_writer")
    def expire(self, *, timeout: float | None = None) -> None:
        """Close the writer and remove it from the shard's state. Idempotent."""
        with self._turn(timeout) as deadline:
            if self._appender.expired:
                return
            # Marked first: should the write below fail, the handle is closed all the same, and its registration ends with its lease.
            self._appender.expired = True
            self._quiet.tell_no_more()
            self._opened.discard_writer(self)
            for buffered in list(self._buffered):
                buffered.expire()
            self._appender.forget(deadline)
