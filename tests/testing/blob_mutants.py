"""Blobs with one planted fault each."""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
import time
from pathlib import Path
from typing import ClassVar

from mutants_table import BLOB, caught_by

from mzsql.location import Determinate, UsageError, open_blob
from mzsql.location.file import FileBlob


class Blob:
    """No fault: everything goes to a Blob in memory."""

    def __init__(self, path):
        self.inner = self.open_inner(path)

    def open_inner(self, path):
        return open_blob(f"mem:{path}")

    def get(self, key):
        return self.inner.get(key)

    def get_range(self, key, offset, length):
        return self.inner.get_range(key, offset, length)

    def set(self, key, value):
        self.inner.set(key, value)

    def delete(self, key):
        return self.inner.delete(key)

    def delete_many(self, keys):
        for key in keys:
            self.inner.delete(key)

    def list_keys_and_metadata(self, prefix):
        return self.inner.list_keys_and_metadata(prefix)

    def close(self):
        self.inner.close()


class OnFiles(Blob):
    """No fault: everything goes to files."""

    def open_inner(self, path):
        return FileBlob(path)

    def spark_path(self, key):
        return self.inner.spark_path(key)

    def make_durable(self, keys):
        self.inner.make_durable(keys)

    def list_unfinished(self):
        return self.inner.list_unfinished()

    def abort_unfinished(self, unfinished):
        self.inner.abort_unfinished(unfinished)


BLOB.update(Sound=Blob, SoundOnFiles=OnFiles)


@caught_by("blob", "absent")
class AbsentIsEmpty(Blob):
    def get(self, key):
        return self.inner.get(key) or b""


@caught_by("blob", "empty_value")
class EmptyIsAbsent(Blob):
    def get(self, key):
        return self.inner.get(key) or None


@caught_by("blob", "set_get_overwrite")
class KeepsTheFirst(Blob):
    def set(self, key, value):
        if self.inner.get(key) is None:
            self.inner.set(key, value)


@caught_by("blob", "faults", "threads")
class DropsSome(Blob):
    count = itertools.count(1)

    def set(self, key, value):
        if next(self.count) % 9:
            self.inner.set(key, value)


@caught_by("blob", "reopened")
class BlobDiesWithItsHandle(Blob):
    def __init__(self, path):
        super().__init__(path)
        self.mine = []

    def set(self, key, value):
        self.inner.set(key, value)
        self.mine.append(key)

    def close(self):
        for key in self.mine:
            self.inner.delete(key)


@caught_by("blob", "set_get_overwrite")
class ListsTheFirstSize(Blob):
    sizes: ClassVar = {}

    def set(self, key, value):
        self.inner.set(key, value)
        self.sizes.setdefault(key, len(value))

    def list_keys_and_metadata(self, prefix):
        for key, size in self.inner.list_keys_and_metadata(prefix):
            yield key, self.sizes.get(key, size)


@caught_by("blob", "delete_sizes", "state_machine", "threads")
class LosesDeletes(Blob):
    def delete(self, key):
        value = self.inner.get(key)
        return None if value is None else len(value)


@caught_by("blob", "delete_sizes", "large_value")
class ForgetsSizes(Blob):
    def delete(self, key):
        self.inner.delete(key)


@caught_by("blob", "state_machine")
class DeletesByPrefix(Blob):
    def delete(self, key):
        size = self.inner.delete(key)
        for other, _ in self.inner.list_keys_and_metadata(key):
            self.inner.delete(other)
        return size


@caught_by("blob", "large_value")
class CutsOff(Blob):
    def set(self, key, value):
        self.inner.set(key, value[: 16 << 20])


@caught_by("blob", "list_by_prefix")
class ListsByPart(Blob):
    def list_keys_and_metadata(self, prefix):
        for key, size in self.inner.list_keys_and_metadata(prefix):
            if not prefix or prefix.endswith("/") or key[len(prefix) :][:1] in ("", "/"):
                yield key, size


@caught_by("blob", "list_by_prefix")
class ListsTwice(Blob):
    def list_keys_and_metadata(self, prefix):
        found = list(self.inner.list_keys_and_metadata(prefix))
        return iter(found + found[-1:])


@caught_by("blob", "list_many")
class ListsOnePage(Blob):
    def list_keys_and_metadata(self, prefix):
        return itertools.islice(self.inner.list_keys_and_metadata(prefix), 1000)


@caught_by("blob", "list_left_early", "list_many")
class ListsOnlyWhileNothingChanges(Blob):
    def list_keys_and_metadata(self, prefix):
        before = list(self.inner.list_keys_and_metadata(prefix))
        for one in before:
            if list(self.inner.list_keys_and_metadata(prefix)) != before:
                raise Determinate("the listing changed")
            yield one


@caught_by("blob", "odd_keys")
class FoldsCase(Blob):
    def get(self, key):
        return self.inner.get(key.lower())

    def set(self, key, value):
        self.inner.set(key.lower(), value)

    def delete(self, key):
        return self.inner.delete(key.lower())


@caught_by("blob", "odd_keys")
class ComposesUnicode(Blob):
    """As a file system that normalizes names."""

    def set(self, key, value):
        self.inner.set(key.replace("e\u0301", "\u00e9"), value)

    def get(self, key):
        return self.inner.get(key.replace("e\u0301", "\u00e9"))


@caught_by("blob", "refused_keys")
class TakesAnyKey(Blob):
    def set(self, key, value):
        self.inner.set(key.replace("..", "dots").replace("//", "/").strip("/") or "root", value)


@caught_by("blob", "ranges")
class RangesOffByOne(Blob):
    def get_range(self, key, offset, length):
        return self.inner.get_range(key, offset, length + 1)


@caught_by("blob", "delete_many")
class DeletesManyUntilOneIsAbsent(Blob):
    def delete_many(self, keys):
        for key in keys:
            if self.inner.delete(key) is None:
                return


@caught_by("blob", "two_handles", "threads")
class CachesValues(Blob):
    def __init__(self, path):
        super().__init__(path)
        self.cache = {}

    def get(self, key):
        if key not in self.cache:
            self.cache[key] = self.inner.get(key)
        return self.cache[key]

    def set(self, key, value):
        self.inner.set(key, value)
        self.cache[key] = value

    def delete(self, key):
        self.cache.pop(key, None)
        return self.inner.delete(key)


@caught_by("blob", "two_handles")
class CachesListings(Blob):
    """Until this handle writes."""

    def __init__(self, path):
        super().__init__(path)
        self.cache = {}

    def set(self, key, value):
        self.inner.set(key, value)
        self.cache = {}

    def delete(self, key):
        self.cache = {}
        return self.inner.delete(key)

    def list_keys_and_metadata(self, prefix):
        if prefix not in self.cache:
            self.cache[prefix] = list(self.inner.list_keys_and_metadata(prefix))
        return iter(self.cache[prefix])


@caught_by("blob", "two_handles", "processes")
class WritesBehind(OnFiles):
    """Acknowledges what it has not written, and writes it with the next one."""

    def __init__(self, path):
        super().__init__(path)
        self.waiting = {}

    def set(self, key, value):
        self.inner.get(key)  # refuses malformed keys
        for each in self.waiting.items():
            self.inner.set(*each)
        self.waiting = {key: value}

    def get(self, key):
        return self.waiting.get(key) or self.inner.get(key)


@caught_by("blob", "closing")
class ClosesOnce(Blob):
    closed = False

    def close(self):
        if self.closed:
            raise UsageError("closed already")
        self.closed = True


@caught_by("blob", "closing")
class FailsUntyped(Blob):
    closed = False

    def close(self):
        self.closed = True

    def get(self, key):
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self.inner.get(key)


@caught_by("blob", "closing")
class ClosesForAll(Blob):
    closed: ClassVar = set()

    def __init__(self, path):
        super().__init__(path)
        self.path = path

    def close(self):
        self.closed.add(self.path)

    def get(self, key):
        if self.path in self.closed:
            raise Determinate("closed")
        return self.inner.get(key)


@caught_by("blob", "unfinished_uploads")
class ListsFinishedUploads(OnFiles):
    def list_unfinished(self):
        from mzsql.location import Unfinished

        for key, size in self.inner.list_keys_and_metadata(""):
            yield Unfinished(key, key, 0, size)


@caught_by("blob", "paths_for_spark")
class EscapesPaths(OnFiles):
    def spark_path(self, key):
        return self.inner.spark_path(key.replace(" ", "%20").replace("/", "%2F"))


@caught_by("blob", "adoption")
class AdoptsNothing(OnFiles):
    def make_durable(self, keys):
        pass


@caught_by("blob", "threads_apart")
class SharesABuffer(Blob):
    def set(self, key, value):
        self.buffer = value
        time.sleep(0.0005)
        self.inner.set(key, self.buffer)


@caught_by("blob", "atomic_overwrites", "threads")
class WritesInPieces(Blob):
    def set(self, key, value):
        self.inner.set(key, value[: len(value) // 2])
        time.sleep(0.0005)
        self.inner.set(key, value)


@caught_by("blob", "processes")
class CachesInTheProcess(OnFiles):
    """Coherent between all handles of one process, and stale in any other."""

    cache: ClassVar = {}
    lock = threading.Lock()

    def get(self, key):
        with self.lock:
            if key not in self.cache:
                self.cache[key] = self.inner.get(key)
            return self.cache[key]

    def get_range(self, key, offset, length):
        value = self.get(key)
        return None if value is None else value[offset : offset + length]

    def set(self, key, value):
        with self.lock:
            self.inner.set(key, value)
            self.cache[key] = value

    def delete(self, key):
        with self.lock:
            self.cache.pop(key, None)
            return self.inner.delete(key)


@caught_by("blob", "killed_processes")
class WritesInPlace(OnFiles):
    """Under a lock between processes, so that only a writer killed half way leaves a torn object."""

    def __init__(self, path):
        super().__init__(path)
        Path(path).mkdir(parents=True, exist_ok=True)
        self.lock = Path(path).parent / (Path(path).name + ".lock")

    def locked(self, how, act):
        with self.lock.open("w") as lock:
            fcntl.flock(lock, how)
            return act()

    def set(self, key, value):
        def write():
            path = Path(self.inner.spark_path(key))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb", buffering=0) as file:
                for start in range(0, len(value), 10_000):
                    file.write(value[start : start + 10_000])
                    time.sleep(0.001)

        self.locked(fcntl.LOCK_EX, write)

    def get(self, key):
        return self.locked(fcntl.LOCK_SH, lambda: self.inner.get(key))

    def get_range(self, key, offset, length):
        return self.locked(fcntl.LOCK_SH, lambda: self.inner.get_range(key, offset, length))

    def delete(self, key):
        return self.locked(fcntl.LOCK_EX, lambda: self.inner.delete(key))

    def list_keys_and_metadata(self, prefix):
        found = self.locked(fcntl.LOCK_SH, lambda: list(self.inner.list_keys_and_metadata(prefix)))
        return iter(found)


@caught_by("blob", "options")
class TakesAnyOption(Blob):
    any_option = True


@caught_by("blob", "options")
class ShowsOptions(Blob):
    """Refuses options, and shows them with what is secret in them."""

    any_option = False


@caught_by("blob", "forked")
class TalksToItsParent(OnFiles):
    """In a forked child it goes on with a conversation that is its parent's: what was asked first is answered first."""

    def __init__(self, path):
        super().__init__(path)
        self.mine, self.others = os.pipe()

    def get(self, key):
        os.write(self.others, key.encode().ljust(100))
        time.sleep(0.0005)
        asked = os.read(self.mine, 100).decode().rstrip()
        return self.inner.get(asked)
