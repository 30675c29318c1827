"""Building batches from updates, and from other batches.

Promise: a failed call leaves no object behind. Memory is bounded by the size of a part times the number of parts
being uploaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.persist.ahead import Ahead, beyond
from mzsql.persist.batch import (
    WORKER_COLUMN,
    Batch,
    BlobPart,
    InlinePart,
    KeySpec,
    Part,
    first_time,
)
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import normalize
from mzsql.persist.errors import DuplicatePart, InvalidBounds, SchemaMismatch
from mzsql.persist.fetch import between
from mzsql.persist.opened import Opened
from mzsql.persist.parts import PartWriter, Updates, discard_objects, tables
from mzsql.persist.state import ShardState, TraceBatch
from mzsql.persist.uploads import Uploads
from mzsql.repr.frontier import Frontier, Timestamp, is_timestamp, less_than, show

_LOOK_BYTES = 1 << 20
_PIECES_A_PART = 8
"""Updates are checked in pieces of this fraction (1/n) of a part."""


class BatchBuilder:
    """Builds the batches of one shard."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._context = opened.context

    def build(
        self,
        updates: Mapping[int | None, Updates],
        lower: Timestamp,
        upper: Frontier,
        deadline: Deadline,
    ) -> Batch:
        """Write updates with times in ``[lower, upper)``, by worker (`None` if the shard has no key).

        Raises:
            SchemaMismatch, InvalidBounds: they do not fit; nothing stays in Blob.
            LocationError: not written by the deadline.
        """
        return self._build(tuple(updates), self._in_turn(updates), lower, upper, deadline)

    def build_split(
        self,
        updates: Updates,
        workers: int,
        lower: Timestamp,
        upper: Frontier,
        deadline: Deadline,
        written: Callable[[int], object] | None = None,
    ) -> Batch:
        """As `build`, with updates of ``workers`` workers in any order, whose column `WORKER_COLUMN` names the worker.

        `written` is called with each worker whose updates are stored in objects, when they are.

        Up to one part per worker is in memory.

        Raises:
            SchemaMismatch: an update's worker does not exist.
        """
        return self._build(
            range(workers), self._split(updates, workers), lower, upper, deadline, written
        )

    @property
    def _piece_bytes(self) -> int:
        return self._context.settings.part_bytes // _PIECES_A_PART

    def _in_turn(
        self, updates: Mapping[int | None, Updates]
    ) -> Iterator[tuple[int | None, pa.Table | None]]:
        for worker, of_worker in updates.items():
            for table in tables(of_worker, self._piece_bytes):
                yield worker, table
            yield worker, None

    def _split(self, updates: Updates, workers: int) -> Iterator[tuple[int, pa.Table]]:
        shard = f"shard {self._opened.shard_id}"
        for table in tables(updates, self._piece_bytes):
            if WORKER_COLUMN not in table.column_names:
                raise SchemaMismatch(f"{shard}: the updates have no column {WORKER_COLUMN}")
            numbers = table.column(WORKER_COLUMN)
            if not pa.types.is_integer(numbers.type):
                raise SchemaMismatch(f"{shard}: workers are integers, not {numbers.type}")
            rows = table.drop_columns([WORKER_COLUMN])
            # Counted down, since a row of a worker that does not exist would pass every filter by without a trace.
            left = table.num_rows
            for worker in range(workers):
                of_worker = rows.filter(pc.equal(numbers, worker))
                left -= of_worker.num_rows
                yield worker, of_worker
            if left:
                raise SchemaMismatch(
                    f"{shard}: {left} updates are of none of its {workers} workers"
                )

    def _build(
        self,
        workers: Sequence[int | None],
        inputs: Iterable[tuple[int | None, pa.Table | None]],
        lower: Timestamp,
        upper: Frontier,
        deadline: Deadline,
        written: Callable[[int], object] | None = None,
    ) -> Batch:
        """Build a batch from pairs of worker and piece; a piece `None` says that the worker has no more."""
        if not is_timestamp(lower) or not (upper is None or is_timestamp(upper)):
            raise InvalidBounds(f"not bounds of a batch: {lower!r}, {upper!r}")
        if less_than(upper, lower):
            raise InvalidBounds(f"the upper {show(upper)} of a batch is below its lower [{lower}]")
        # The inline limit is for the whole batch, so divide it among the workers.
        inline_bytes = self._context.settings.inline_bytes // max(1, len(workers))
        uploads = Uploads(self._context)
        writers = {worker: self._part_writer(worker, deadline, uploads) for worker in workers}
        try:
            for worker, table in inputs:
                if table is None:
                    writers[worker].end(inline_bytes=inline_bytes)
                else:
                    writers[worker].add(normalize(table, self._opened.schema, lower, upper))
            for writer in writers.values():
                # End all writers before waiting for any, so that their last parts are uploaded at the same time.
                writer.end(inline_bytes=inline_bytes)
            parts: list[Part] = []
            for worker, writer in writers.items():
                made = writer.finish()
                parts += made
                if written is not None and worker is not None and _stored(made):
                    written(worker)
        except BaseException:
            for writer in writers.values():
                writer.abandon()
            raise
        finally:
            uploads.close()
        return Batch(self._opened.shard_id, lower, upper, tuple(parts))

    def _part_writer(
        self, worker: int | None, deadline: Deadline, uploads: Uploads | None = None
    ) -> PartWriter:
        return PartWriter(
            self._opened.parts, self._opened.key, worker=worker, deadline=deadline, uploads=uploads
        )

    def discard(self, parts: Sequence[Part], deadline: Deadline) -> None:
        """Delete the objects of parts that certainly are not and will not be part of the shard; what cannot be deleted
        is logged.
        """
        keys = [part.key for part in parts if isinstance(part, BlobPart)]
        discard_objects(self._context, self._opened.shard_id, keys, deadline)

    def written_out(
        self, parts: Sequence[Part], deadline: Deadline
    ) -> tuple[tuple[Part, ...], list[Part]]:
        """Write inline parts as objects; return all parts, and the new ones among them."""
        result: list[Part] = []
        written: list[Part] = []
        try:
            for part in parts:
                if not isinstance(part, InlinePart):
                    result.append(part)
                    continue
                new = self._rewritten(
                    part.worker, self._opened.parts.read(part, deadline), 0, deadline
                )
                result += new
                written += new
        except BaseException:
            self.discard(written, deadline)
            raise
        return tuple(result), written

    def _rewritten(
        self, worker: int | None, table: pa.Table, inline_bytes: int, deadline: Deadline
    ) -> tuple[Part, ...]:
        """Return new parts for updates read from another part."""
        writer = self._part_writer(worker, deadline)
        try:
            writer.add(table)
            return writer.finish(inline_bytes=inline_bytes)
        except BaseException:
            writer.abandon()
            raise

    def without_below(self, batch: Batch, lower: Timestamp, deadline: Deadline) -> Batch:
        """Return the batch without its updates below ``lower``. Objects of replaced parts are deleted; after an error,
        all of its objects.
        """
        if all(first_time(part) >= lower for part in batch.parts):
            return msgspec.structs.replace(batch, lower=lower)
        inline_bytes = self._context.settings.inline_bytes
        kept: list[Part] = []
        dropped: list[Part] = []
        try:
            for part in batch.parts:
                if first_time(part) >= lower:
                    kept.append(part)
                    continue
                dropped.append(part)
                rest = between(self._opened.parts.read(part, deadline), lower, None)
                kept += self._rewritten(part.worker, rest, inline_bytes, deadline)
        except BaseException:
            self.discard(
                [*batch.parts, *(part for part in kept if part not in batch.parts)], deadline
            )
            raise
        self.discard(dropped, deadline)
        return Batch(self._opened.shard_id, lower, batch.upper, tuple(kept))

    def ahead_of(self, state: ShardState, ahead: Ahead, deadline: Deadline) -> list[TraceBatch]:
        """Return what is known beyond ``state`` as batches of a trace, with negative ids."""
        found: list[TraceBatch] = []
        for at, to, batch in beyond(ahead, state.upper):
            if batch.parts:
                parts = self.without_below(batch, at, deadline).parts
                found.append(TraceBatch(-1 - len(found), at, to, 0, parts))
        return found


def _stored(parts: Sequence[Part]) -> bool:
    """Whether there are parts, all of them objects."""
    return bool(parts) and all(isinstance(part, BlobPart) for part in parts)


def check_distinct(shard_id: str, keys: Sequence[str]) -> None:
    """Check that no object is given twice.

    Raises:
        DuplicatePart: one is.
    """
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise DuplicatePart(
                f"shard {shard_id}: the object {key} is given twice",
                hint="Give each object, and each batch, once.",
            )
        seen.add(key)


def has_rows(updates: Updates) -> bool:
    """Whether there are any updates; reads them."""
    return any(table.num_rows for table in tables(updates, _LOOK_BYTES))


def by_worker(
    shard_id: str, key: KeySpec | None, updates: Updates | Mapping[int, Updates] | None
) -> Mapping[int | None, Updates]:
    """Updates by the worker that they are of; under None where the shard has no key, and so no workers.

    Raises:
        SchemaMismatch: the shard does not have such workers, or several, of which none is named.
    """
    if updates is None:
        return {}
    if isinstance(updates, Mapping):
        if key is None:
            raise SchemaMismatch(f"shard {shard_id} has no key, so no workers either")
        for worker in updates:
            check_worker(shard_id, key, worker)
        return {worker: updates[worker] for worker in sorted(updates)}
    if key is not None and key.workers > 1:
        raise SchemaMismatch(
            f"shard {shard_id} has {key.workers} workers: give each worker's updates"
        )
    return {(None if key is None else 0): updates}


def check_worker(shard_id: str, key: KeySpec | None, worker: int | None) -> None:
    """Check that a shard has a worker; only None is one of a shard without a key.

    Raises:
        SchemaMismatch: it has not.
    """
    if key is None:
        if worker is not None:
            raise SchemaMismatch(f"shard {shard_id} has no key, so no workers either")
    elif not isinstance(worker, int) or not 0 <= worker < key.workers:
        raise SchemaMismatch(f"shard {shard_id}: worker {worker} is not in [0, {key.workers})")
