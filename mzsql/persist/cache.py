"""A local cache of blobs: recently used objects in memory, and in a directory that outlives the process.

Promise: a cache never changes a result. Shards' objects are written once, so what was read stays correct until the
object is deleted; a cached file is compared with its own checksums on every read, and is dropped if they do not
match. Several processes may share the directory. A directory that cannot be read or written makes reads slower, not
fail: that is logged once. Trade-offs: an object that another process has deleted may still be read here by its key;
and an object written here is cached only once it is read.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mzsql.location import (
    Adoptable,
    Blob,
    ManyDeletable,
    RangeReadable,
    SparkReadable,
    Unfinished,
    UploadSweepable,
)
from mzsql.location.abilities import Abilities, class_as_able
from mzsql.persist.cache_directory import CacheDirectory, Stretch

MEMORY_BYTES = 64 * 1024 * 1024
DIRECTORY_BYTES = 1024 * 1024 * 1024


class CacheStats(msgspec.Struct, frozen=True):
    """What a cache has done since it was made: reads by where they were served from, and what it holds."""

    memory_hits: int = 0
    directory_hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    missed_bytes: int = 0
    evictions: int = 0
    damaged: int = 0
    failures: int = 0
    memory_bytes: int = 0
    directory_bytes: int = 0


class _Memory:
    """Objects and ranges of them in memory; the least recently used are dropped first. The caller holds a lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[Stretch, bytes] = OrderedDict()
        self._of_key: dict[str, set[Stretch]] = {}
        self.size = 0
        self.evictions = 0

    def get(self, wanted: Stretch) -> bytes | None:
        """Return the bytes, from the whole object if that is cached; `None` if they are not."""
        whole = Stretch(wanted.key)
        for place in (whole, wanted):
            found = self._values.get(place)
            if found is not None:
                self._values.move_to_end(place)
                ranged = place is whole and wanted.length >= 0
                return found[wanted.offset : wanted.offset + wanted.length] if ranged else found
        return None

    def put(self, place: Stretch, value: bytes) -> None:
        """Keep the bytes, unless they would displace nearly everything else."""
        # One scan of a large object is not worth what all others would lose by it.
        if len(value) * 2 > self._limit:
            return
        if place.length < 0:
            # The whole object replaces all of its ranges.
            self.drop(place.key)
        elif place in self._values:
            return
        self._values[place] = value
        self._of_key.setdefault(place.key, set()).add(place)
        self.size += len(value)
        while self.size > self._limit:
            self._remove(next(iter(self._values)))
            self.evictions += 1

    def _remove(self, place: Stretch) -> None:
        self.size -= len(self._values.pop(place))
        places = self._of_key[place.key]
        places.discard(place)
        if not places:
            del self._of_key[place.key]

    def drop(self, key: str) -> None:
        """Drop everything of an object."""
        for place in list(self._of_key.get(key, ())):
            self._remove(place)


class _Fetch:
    """A backend read in progress; its result is not cached if its object was dropped meanwhile."""

    __slots__ = ("valid",)

    def __init__(self) -> None:
        self.valid = True


class BlobCache:
    """What a `CachedBlob` keeps. Thread-safe; several Blobs of one store may share it.

    Args:
        directory: keeps objects beyond the process and beyond memory; made if it does not exist. `None` keeps them
            in memory only.
        directory_bytes: about the most bytes kept in the directory.
        memory_bytes: the most bytes kept in memory.
        namespace: separates the objects of one store from those of another in the same directory; the store's URL
            will do.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        directory_bytes: int = DIRECTORY_BYTES,
        memory_bytes: int = MEMORY_BYTES,
        namespace: str = "",
    ) -> None:
        self._memory = _Memory(memory_bytes)
        self._directory = (
            None
            if directory is None
            else CacheDirectory(Path(directory), directory_bytes, namespace)
        )
        self._lock = threading.Lock()
        self._fetches: dict[str, list[_Fetch]] = {}
        self._counts = CacheStats()
        self.observe: Callable[[Mapping[str, int]], None] | None = None
        """Told what is added to the counts; set by the first client that uses the cache, for its metrics."""

    def stats(self) -> CacheStats:
        """Return what it has done so far."""
        directory = self._directory
        with self._lock:
            counts = msgspec.structs.replace(
                self._counts, memory_bytes=self._memory.size, evictions=self._memory.evictions
            )
        if directory is None:
            return counts
        return msgspec.structs.replace(
            counts,
            evictions=counts.evictions + directory.evictions,
            damaged=directory.damaged,
            failures=directory.failures,
            directory_bytes=directory.size,
        )

    def get(self, key: str, offset: int = 0, length: int = -1) -> bytes | None:
        """Return an object, or ``length`` bytes of it from ``offset`` on; `None` if they are not cached."""
        wanted = Stretch(key, offset, length)
        with self._lock:
            found = self._memory.get(wanted)
            if found is not None:
                self._count(memory_hits=1, hit_bytes=len(found))
                return found
        if self._directory is None:
            return None
        with self._fetching(key) as fetch:
            found = self._directory.get(wanted)
            if found is not None:
                with self._lock:
                    self._count(directory_hits=1, hit_bytes=len(found))
                    if fetch.valid:
                        self._memory.put(wanted, found)
        return found

    @contextlib.contextmanager
    def _fetching(self, key: str) -> Iterator[_Fetch]:
        fetch = _Fetch()
        with self._lock:
            self._fetches.setdefault(key, []).append(fetch)
        try:
            yield fetch
        finally:
            with self._lock:
                fetches = self._fetches[key]
                fetches.remove(fetch)
                if not fetches:
                    del self._fetches[key]

    @contextlib.contextmanager
    def filling(self, key: str, offset: int = 0, length: int = -1) -> Iterator[list[bytes]]:
        """Wrap a backend read: what the block puts into the list is cached, unless the object is dropped meanwhile."""
        with self._fetching(key) as fetch:
            read: list[bytes] = []
            yield read
            with self._lock:
                self._count(misses=1, missed_bytes=sum(len(one) for one in read))
                for value in read:
                    if fetch.valid:
                        self._memory.put(Stretch(key, offset, length), value)
            if self._directory is None or length >= 0:
                return
            for value in read:
                if fetch.valid:
                    self._directory.put(key, value)
                # The object was dropped during the write, which may have come after the removal of the file.
                if not fetch.valid:
                    self._directory.drop(key)

    def _count(self, **more: int) -> None:
        """Add to the counts. The caller holds the lock."""
        # A new value each time, so that whoever has been given the counts keeps them as they were.
        counts = {name: getattr(self._counts, name) + by for name, by in more.items()}
        self._counts = msgspec.structs.replace(self._counts, **counts)
        if self.observe is not None:
            self.observe(more)

    def drop(self, key: str) -> None:
        """Drop an object."""
        with self._lock:
            for fetch in self._fetches.get(key, ()):
                fetch.valid = False
            self._memory.drop(key)
        if self._directory is not None:
            self._directory.drop(key)


class CachedBlob:
    """A Blob whose reads are served from ``cache`` if possible; it has the same optional abilities as the Blob
    ``inner``.

    `forget` makes it read an object again. For stores whose objects are written once, as shards' are: an object that
    another handle has overwritten or deleted may be served as it was.
    """

    inner: Any

    def __new__(cls, inner: Blob, cache: BlobCache) -> CachedBlob:  # noqa: ARG004
        """Make an instance of a class with exactly the abilities of ``inner``, because runtime protocols look at the
        class.
        """
        return object.__new__(class_as_able(inner, cls, _ABILITIES))

    def __init__(self, inner: Blob, cache: BlobCache) -> None:
        self.inner = inner
        self.cache = cache

    def get(self, key: str) -> bytes | None:
        """Return the value of ``key``, or `None`."""
        found = self.cache.get(key)
        if found is not None:
            return found
        with self.cache.filling(key) as read:
            value: bytes | None = self.inner.get(key)
            if value is not None:
                read.append(value)
        return value

    def set(self, key: str, value: bytes) -> None:
        """Set the value of ``key``."""
        with self._changing((key,)):
            self.inner.set(key, value)

    def delete(self, key: str) -> int | None:
        """Delete ``key``; return its size in bytes, or `None` if it did not exist."""
        with self._changing((key,)):
            removed: int | None = self.inner.delete(key)
        return removed

    @contextlib.contextmanager
    def _changing(self, keys: Sequence[str]) -> Iterator[None]:
        """Drop the keys before and after the block, because a read may begin or end during it."""
        for key in keys:
            self.cache.drop(key)
        try:
            yield
        finally:
            for key in keys:
                self.cache.drop(key)

    def forget(self, key: str) -> None:
        """Drop all copies of an object."""
        self.cache.drop(key)

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield each key that starts with ``prefix``, with its size in bytes."""
        return iter(self.inner.list_keys_and_metadata(prefix))

    def close(self) -> None:
        """Close the underlying Blob; the directory keeps its contents."""
        self.inner.close()


class _Ranges(CachedBlob):
    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Return up to ``length`` bytes from ``offset``; `None` if there is no such key."""
        found = self.cache.get(key, offset, length)
        if found is not None:
            return found
        with self.cache.filling(key, offset, length) as read:
            value: bytes | None = self.inner.get_range(key, offset, length)
            if value is not None:
                read.append(value)
        return value


class _Paths(CachedBlob):
    def spark_path(self, key: str) -> str:
        """As `SparkReadable.spark_path`; a reader by path bypasses the cache."""
        path: str = self.inner.spark_path(key)
        return path


class _Adopts(CachedBlob):
    def make_durable(self, keys: Sequence[str]) -> None:
        """As `Adoptable.make_durable`."""
        self.inner.make_durable(keys)


class _DeletesMany(CachedBlob):
    def delete_many(self, keys: Sequence[str]) -> None:
        """As `ManyDeletable.delete_many`."""
        with self._changing(keys):
            self.inner.delete_many(keys)


class _Sweeps(CachedBlob):
    def list_unfinished(self) -> Iterator[Unfinished]:
        """As `UploadSweepable.list_unfinished`."""
        return iter(self.inner.list_unfinished())

    def abort_unfinished(self, unfinished: Unfinished) -> None:
        """As `UploadSweepable.abort_unfinished`."""
        self.inner.abort_unfinished(unfinished)


_ABILITIES: Abilities = (
    (RangeReadable, _Ranges),
    (SparkReadable, _Paths),
    (Adoptable, _Adopts),
    (ManyDeletable, _DeletesMany),
    (UploadSweepable, _Sweeps),
)
