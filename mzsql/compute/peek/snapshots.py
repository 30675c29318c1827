"""Caches the contents of small collections while they do not change.

Promise: `SnapshotCache.read` returns exactly the consolidated contents at a time. An entry is the contents at some
time. It serves a later time too if nothing was written in between, and is brought forward by the updates if these
are few. An earlier time is read from storage. The cache is bounded in bytes; the least recently read entries are
dropped first.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from mzsql.persist import SinceViolation, consolidate
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.storage import Collections

#: Bound on the cache, in bytes.
TOTAL_BYTES = 128 * 1024 * 1024
#: Contents with more bytes than this, stored or in memory, are not kept, …
ENTRY_BYTES = 16 * 1024 * 1024
#: … nor those with more updates than this.
ENTRY_ROWS = 1_000_000
#: For how many contents it is remembered that they were too large: they are not read again before they have halved.
_LARGE = 10_000


_TIME = pa.field("mz_time", pa.int64())


class Contents(Protocol):
    """Something whose contents can be read at a time: a collection, an arrangement."""

    @property
    def key(self) -> Hashable:
        """The cache key; equal only for the same schema and history."""

    def contents_at(self, as_of: Timestamp) -> Timestamp | None:
        """A time at or before ``as_of`` at which the contents are the same; None if nothing was ever written."""

    def stored(self, at: Timestamp) -> tuple[int, int]:
        """The number of updates and of bytes in the parts of the contents."""

    def changed(self, lower: Timestamp, upper: Timestamp) -> bool:
        """Whether there may be updates with ``lower <= time < upper``."""

    def changed_bytes(self, lower: Timestamp, upper: Timestamp) -> int:
        """The bytes of the parts that may hold updates with ``lower <= time < upper``."""

    def snapshot(self, at: Timestamp) -> pa.Table:
        """The contents: columns, mz_time, mz_diff, consolidated."""

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """The updates with ``lower <= time < upper``."""


class StoredContents:
    """A collection, as `SnapshotCache` reads it."""

    def __init__(self, collections: Collections, gid: GlobalId) -> None:
        self._collections = collections
        self._gid = gid
        self.key: Hashable = (gid, collections.meta(gid).shard)

    def contents_at(self, as_of: Timestamp) -> Timestamp | None:
        """See `Contents`."""
        return self._collections.contents_at(self._gid, as_of)

    def stored(self, at: Timestamp) -> tuple[int, int]:
        """See `Contents`."""
        parts = self._collections.parts(self._gid, at)
        return sum(part.rows for part in parts), sum(part.bytes for part in parts)

    def changed(self, lower: Timestamp, upper: Timestamp) -> bool:
        """See `Contents`."""
        return bool(self._collections.parts_between(self._gid, lower, upper))

    def changed_bytes(self, lower: Timestamp, upper: Timestamp) -> int:
        """See `Contents`."""
        return sum(p.bytes for p in self._collections.parts_between(self._gid, lower, upper))

    def snapshot(self, at: Timestamp) -> pa.Table:
        """See `Contents`."""
        return self._collections.snapshot(self._gid, at)

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """See `Contents`."""
        return self._collections.updates(self._gid, lower, upper)


class _Kept(msgspec.Struct, frozen=True):
    at: Timestamp
    rows: pa.Table


class _Turn:
    """The lock of a read that several threads want, and their number."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted = 0


class SnapshotCache:
    """Contents as last read. Thread-safe.

    Args:
        total_bytes: bound on the whole cache.
        entry_bytes: bound on each entry …
        entry_rows: … and its bound in rows.
    """

    def __init__(
        self,
        total_bytes: int = TOTAL_BYTES,
        entry_bytes: int = ENTRY_BYTES,
        entry_rows: int = ENTRY_ROWS,
    ) -> None:
        self._total_bytes = total_bytes
        self._entry_bytes = entry_bytes
        self._entry_rows = entry_rows
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        #: contents that were too large in memory, with their number of updates
        self._large: OrderedDict[Hashable, int] = OrderedDict()
        self._loading: dict[Hashable, _Turn] = {}
        self._bytes = 0
        self.hits = 0
        self.misses = 0

    @property
    def bytes(self) -> int:
        """Bytes of all entries."""
        return self._bytes

    def read(self, contents: Contents, as_of: Timestamp) -> pa.Table | None:
        """The contents at ``as_of``: columns and mz_diff, consolidated; None if they are too large to keep.

        Args:
            contents: what to read; complete at ``as_of``.
            as_of: the time.

        Raises:
            Exception: what reading the contents raises.
        """
        key = contents.key
        at = contents.contents_at(as_of)
        if at is None:
            return contents.snapshot(as_of).drop_columns(["mz_time"])
        found = self._fit(contents, key, at)
        if found is not None:
            return found
        # One thread reads, the others find the result.
        with self._turn(key):
            found = self._fit(contents, key, at)
            if found is not None:
                return found
            return self._load(contents, key, at)

    @contextlib.contextmanager
    def _turn(self, key: Hashable) -> Iterator[None]:
        """Let one thread at a time read the contents of a key."""
        with self._lock:
            turn = self._loading.setdefault(key, _Turn())
            turn.wanted += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.wanted -= 1
                if not turn.wanted:
                    del self._loading[key]

    def _fit(self, contents: Contents, key: Hashable, at: Timestamp) -> pa.Table | None:
        """The entry, if it is the contents at ``at``."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
        if kept.at != at:
            if kept.at > at or _may_have_changed(contents, kept.at, at):
                return None
            self._keep(key, _Kept(at, kept.rows))
        self.hits += 1
        return kept.rows

    def _load(self, contents: Contents, key: Hashable, at: Timestamp) -> pa.Table | None:
        with self._lock:
            kept = self._kept.get(key)
        self.misses += 1
        rows = None
        if kept is not None and kept.at < at:
            rows = _brought_forward(contents, kept, at, self._entry_bytes)
        if rows is None:
            rows_there, bytes_there = contents.stored(at)
            with self._lock:
                large = self._large.get(key)
            if bytes_there > self._entry_bytes or rows_there > self._entry_rows:
                return None
            if large is not None and rows_there > large // 2:
                return None
            rows = contents.snapshot(at).drop_columns(["mz_time"])
        if kept is None or kept.at < at:
            self._keep(key, _Kept(at, rows))
        return rows

    def _keep(self, key: Hashable, new: _Kept) -> None:
        with self._lock:
            old = self._kept.pop(key, None)
            if old is not None:
                self._bytes -= old.rows.nbytes
                if old.at > new.at:
                    new = old
            if new.rows.nbytes > self._entry_bytes or new.rows.num_rows > self._entry_rows:
                self._large[key] = new.rows.num_rows
                self._large.move_to_end(key)
                if len(self._large) > _LARGE:
                    self._large.popitem(last=False)
                return
            self._large.pop(key, None)
            self._kept[key] = new
            self._bytes += new.rows.nbytes
            while self._bytes > self._total_bytes and self._kept:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= gone.rows.nbytes

    def forget(self, key: Hashable) -> None:
        """Drop the entry of a key."""
        with self._lock:
            old = self._kept.pop(key, None)
            if old is not None:
                self._bytes -= old.rows.nbytes


def _may_have_changed(contents: Contents, since: Timestamp, at: Timestamp) -> bool:
    """Whether there may be updates after ``since`` up to ``at``; also true if that history was compacted."""
    try:
        return contents.changed(since + 1, at + 1)
    except SinceViolation:
        return True


def _brought_forward(contents: Contents, kept: _Kept, at: Timestamp, most: int) -> pa.Table | None:
    """An entry with later updates applied; None if they cannot be read, or reading the contents is cheaper, or they
    exceed ``most`` bytes.
    """
    try:
        if contents.changed_bytes(kept.at + 1, at + 1) > most:
            return None
        updates = contents.updates(kept.at + 1, at + 1)
    except SinceViolation:
        return None
    if updates.num_rows > max(1000, kept.rows.num_rows):
        return None
    if not updates.num_rows:
        return kept.rows
    return merged(kept.rows, [updates], at).combine_chunks()


def merged(contents: pa.Table, updates: Sequence[pa.Table], at: Timestamp) -> pa.Table:
    """Contents (columns, mz_diff) with further updates (columns, mz_time, mz_diff) applied, at a time at or after all
    of them.
    """
    if not updates:
        return contents
    place = contents.num_columns - 1
    before = contents.add_column(place, _TIME, _at(at, contents.num_rows))
    after = [
        one.select(before.column_names).set_column(place, _TIME, _at(at, one.num_rows))
        for one in updates
    ]
    # Schemas may differ in nullability, not in type.
    both = pa.concat_tables([before, *after], promote_options="default")
    found: pa.Table = consolidate(both, None)
    return found.drop_columns(["mz_time"])


def _at(time: Timestamp, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(time, pa.int64()), rows)
