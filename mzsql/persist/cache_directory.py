"""The directory of a blob cache: objects in files with checksums of their own.

Promise: a read returns what was written, or nothing; a file that does not match its checksums is removed. A file
becomes visible whole, by a rename, so several processes may write, read and evict at the same time. Whatever the
directory refuses is counted, logged once, and otherwise treated as not cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import struct
import tempfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger(__name__)

_MAGIC = b"mzcache2"
_HEAD = struct.Struct(">8sQI")
_BLOCK = 64 * 1024
_SPARE = 10
"""An eviction frees this many percent of the limit more than needed, so that not every write evicts."""


class Stretch(NamedTuple):
    """A cached range of an object; all of it if ``length`` is negative."""

    key: str
    offset: int = 0
    length: int = -1


class _Damaged(Exception):
    """A file of the cache is not as it was written."""


class CacheDirectory:
    """Objects in files, each preceded by the checksums of its blocks. Safe for threads and processes.

    A file becomes visible whole, by a rename, under a name derived from its key. Its modification time is that of
    its last use. Evictions consider all files in the directory, whichever process wrote them, so that together the
    processes stay near the limit.
    """

    def __init__(self, root: Path, limit: int, namespace: str) -> None:
        self._root = root
        self._limit = limit
        self._namespace = namespace
        self._lock = threading.Lock()
        self._unlooked = limit  # so that the first write looks at the directory
        self._logged = False
        self.size = 0
        self.evictions = 0
        self.damaged = 0
        self.failures = 0

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(f"{self._namespace}\0{key}".encode()).hexdigest()
        return self._root / name[:2] / name

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """Yield each file's time of last use, size and path."""
        with contextlib.suppress(FileNotFoundError):
            for directory in list(os.scandir(self._root)):
                if not directory.is_dir(follow_symlinks=False):
                    continue
                for file in os.scandir(directory.path):
                    with contextlib.suppress(FileNotFoundError):
                        status = file.stat(follow_symlinks=False)
                        if not stat.S_ISDIR(status.st_mode):  # a directory here is not ours
                            yield status.st_mtime_ns, status.st_size, file.path

    def get(self, wanted: Stretch) -> bytes | None:
        """Return the bytes, verified; `None` if they are not there or damaged."""
        path = self._path(wanted.key)
        try:
            # O_NONBLOCK, because opening a pipe placed there would otherwise wait forever.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as failure:
            self._gone_wrong("read", failure)
            return None
        try:
            found = _read_file(descriptor, path.name, wanted)
        except _Damaged:
            self.damaged += 1
            self._unlink(path)
            return None
        except OSError as failure:
            self._gone_wrong("read", failure)
            return None
        else:
            with contextlib.suppress(OSError):  # only the owner may set times
                os.utime(descriptor)
            return found
        finally:
            os.close(descriptor)

    def put(self, key: str, value: bytes) -> None:
        """Keep the object, unless it would displace nearly everything else."""
        size = len(value) + _HEAD.size + 4 * -(-len(value) // _BLOCK)
        if size * 2 > self._limit:
            return
        path = self._path(key)
        try:
            self._make_room(size)
            self._write(path, value)
        except OSError as failure:
            self._gone_wrong("write", failure)

    def _write(self, path: Path, value: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
                file.write(_header(path.name, value))
                file.write(value)
            with contextlib.suppress(FileNotFoundError):
                # Another process may have evicted the temporary file, or removed the directory: then the object is not
                # cached.
                Path(temporary).replace(path)
        except BaseException:
            self._unlink(Path(temporary))
            raise

    def drop(self, key: str) -> None:
        """Drop an object."""
        self._unlink(self._path(key))

    def _unlink(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as failure:
            self._gone_wrong("remove from", failure)

    def _make_room(self, size: int) -> None:
        """Evict the least recently used files to make room for ``size`` more bytes.

        It looks at the directory, and so at what other processes wrote, at least once per eighth of the limit
        written.
        """
        with self._lock:
            self._unlooked += size
            if self.size + size <= self._limit and self._unlooked * 8 <= self._limit:
                self.size += size
                return
            self._unlooked = 0
            files = sorted(self._files())
            used = sum(length for _, length, _ in files)
            if used + size > self._limit:
                target = self._limit * (100 - _SPARE) // 100 - size
                for _, length, path in files:
                    if used <= target:
                        break
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)  # noqa: PTH108
                    used -= length
                    self.evictions += 1
            self.size = used + size

    def _gone_wrong(self, what: str, failure: OSError) -> None:
        self.failures += 1
        if not self._logged:
            self._logged = True
            _log.warning("cannot %s the blob cache %s: %s", what, self._root, failure)


def _header(name: str, value: bytes) -> bytes:
    """Return what precedes an object in its file; the checksum includes the file's name, so a renamed file counts as
    damaged.
    """
    view = memoryview(value)
    checksums = [zlib.crc32(view[i : i + _BLOCK]) for i in range(0, len(value), _BLOCK)]
    table = struct.pack(f">{len(checksums)}I", *checksums)
    return _HEAD.pack(_MAGIC, len(value), _sum(name, len(value), table)) + table


def _sum(name: str, size: int, table: bytes) -> int:
    return zlib.crc32(table, zlib.crc32(f"{name} {size}".encode()))


def _read_file(descriptor: int, name: str, wanted: Stretch) -> bytes:
    """Return the wanted bytes of the cache's file ``name``, each block verified.

    Raises:
        _Damaged: it is not as it was written.
    """
    head = _pread(descriptor, 0, _HEAD.size)
    magic, size, checksum = _HEAD.unpack(head)
    if magic != _MAGIC or os.fstat(descriptor).st_size != _HEAD.size + size + 4 * -(
        -size // _BLOCK
    ):
        raise _Damaged
    table = _pread(descriptor, _HEAD.size, 4 * -(-size // _BLOCK))
    if _sum(name, size, table) != checksum:
        raise _Damaged
    offset, end = (0, size) if wanted.length < 0 else (wanted.offset, wanted.offset + wanted.length)
    offset, end = min(offset, size), min(end, size)
    if offset >= end:
        return b""
    first = offset // _BLOCK
    start = first * _BLOCK
    stop = min(size, -(-end // _BLOCK) * _BLOCK)
    data = _pread(descriptor, _HEAD.size + len(table) + start, stop - start)
    view = memoryview(data)
    for place in range(0, len(data), _BLOCK):
        (expected,) = struct.unpack_from(">I", table, 4 * (first + place // _BLOCK))
        if zlib.crc32(view[place : place + _BLOCK]) != expected:
            raise _Damaged
    return data if stop - start == end - offset else data[offset - start : end - start]


def _pread(descriptor: int, offset: int, length: int) -> bytes:
    chunks: list[bytes] = []
    while length > 0:
        chunk = os.pread(descriptor, length, offset)
        if not chunk:
            raise _Damaged
        chunks.append(chunk)
        offset, length = offset + len(chunk), length - len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
