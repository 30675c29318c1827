"""A Blob in a directory: ``file:./env/blob``.

Promise: an object is a file whose path below the root is its key, so Spark and everyone else can open it; it appears whole and
durable or not at all: written under a unique temporary name in a directory that listings leave out, fsynced, renamed, and the
directory fsynced. So processes may write and be killed at any moment. Trade-off: no key may be a path prefix of another (``a`` and
``a/b``), as no file is a directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import SplitResult

from mzsql.location.errors import Determinate, Indeterminate, UsageError
from mzsql.location.hookspecs import hookimpl
from mzsql.location.keys import check_blob_key
from mzsql.location.protocols import Blob, Unfinished
from mzsql.location.registry import local_path

_TEMPORARY = ".mzsql-tmp"
_STALE_SECONDS = 24 * 3600.0
_RENAME_ATTEMPTS = 100


class FileBlob:
    """Objects as files below ``root``, which is made when it is not there.

    Raises:
        Determinate: the directory cannot be made or read.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        self._temporary = self.root / _TEMPORARY
        self._swept = False
        try:
            self._make_directory(self._temporary)
        except OSError as failure:
            raise self._failed(Determinate, "open", "", failure) from failure

    def _sweep(self) -> None:
        """Remove what writers killed long ago left behind; the first write does, so that whoever only reads changes nothing."""
        self._swept = True
        for leftover in os.scandir(self._temporary):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                    os.unlink(leftover.path)  # noqa: PTH108

    def _failed(
        self, kind: type[Determinate | Indeterminate], act: str, key: str, failure: OSError
    ) -> Determinate | Indeterminate:
        what = f" {key!r}" if key else ""
        return kind(f"file Blob {self.root}: cannot {act}{what}: {failure.strerror or failure}")

    def _path(self, key: str) -> Path:
        check_blob_key(key)
        if key.split("/", 1)[0] == _TEMPORARY:
            raise UsageError(f"not a Blob key: {key!r}, {_TEMPORARY} is where files are prepared")
        return self.root / key

    def spark_path(self, key: str) -> str:
        """The file's path, absolute."""
        return str(self._path(key))

    def get(self, key: str) -> bytes | None:
        """The value of ``key``, or `None`."""
        path = self._path(key)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as failure:
            raise self._failed(Determinate, "read", key, failure) from failure

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Up to ``length`` bytes from ``offset``; `None` when there is no such key."""
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                return _read_exactly(file.fileno(), offset, length)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as failure:
            raise self._failed(Determinate, "read", key, failure) from failure

    def set(self, key: str, value: bytes) -> None:
        """Map ``key`` to ``value``, atomically and durably."""
        path = self._path(key)
        temporary = self._temporary / uuid.uuid4().hex
        renamed = False
        try:
            if not self._swept:
                self._sweep()
            try:
                with temporary.open("xb", buffering=0) as file:
                    _write_all(file.fileno(), value)
                    os.fsync(file.fileno())
                self._rename(temporary, path)
                renamed = True
                _fsync_directory(path.parent)
            finally:
                if not renamed:
                    temporary.unlink(missing_ok=True)
        except (IsADirectoryError, NotADirectoryError, FileExistsError) as failure:
            raise UsageError(
                f"file Blob {self.root}: key {key!r} and another one are each other's prefix"
            ) from failure
        except OSError as failure:
            raise self._failed(
                Indeterminate if renamed else Determinate, "write", key, failure
            ) from failure

    def _rename(self, temporary: Path, path: Path) -> None:
        for attempt in range(_RENAME_ATTEMPTS):
            self._make_directory(path.parent)
            try:
                temporary.rename(path)
            except FileNotFoundError:
                # A deletion in the same directory found it empty in between and removed it.
                if attempt + 1 == _RENAME_ATTEMPTS or not temporary.exists():
                    raise
            else:
                return

    def _make_directory(self, directory: Path) -> None:
        """Make ``directory`` and its parents, each durably."""
        missing = []
        while not directory.is_dir():
            missing.append(directory)
            if directory.parent == directory:
                break
            directory = directory.parent
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                path.mkdir()
            if not path.is_dir() and path.exists():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            with contextlib.suppress(FileNotFoundError):
                _fsync_directory(path.parent)

    def delete(self, key: str) -> int | None:
        """Remove ``key`` durably, and the directories it leaves empty; its former size, or `None`."""
        path = self._path(key)
        removed = False
        try:
            size = path.stat().st_size
            path.unlink()
            removed = True
            _fsync_directory(path.parent)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as failure:
            if path.is_dir():
                return None
            raise self._failed(
                Indeterminate if removed else Determinate, "delete", key, failure
            ) from failure
        self._prune(path.parent)
        return size

    def _prune(self, directory: Path) -> None:
        while directory != self.root:
            try:
                directory.rmdir()
            except OSError:  # not empty, or another has removed it: either way it is not ours
                return
            directory = directory.parent

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Each key that starts with ``prefix``, with its size. Walks only the directories that may hold some."""
        base = self.root / prefix.rpartition("/")[0]
        for directory, subdirectories, names in os.walk(base, onerror=self._unlisted):
            relative = os.path.relpath(directory, self.root)
            head = "" if relative == "." else relative.replace(os.sep, "/") + "/"
            if not head and _TEMPORARY in subdirectories:
                subdirectories.remove(_TEMPORARY)
            subdirectories[:] = [
                s for s in subdirectories if f"{head}{s}/".startswith(prefix[: len(head + s) + 1])
            ]
            for name in names:
                key = head + name
                if not key.startswith(prefix):
                    continue
                try:
                    size = os.stat(os.path.join(directory, name)).st_size  # noqa: PTH116, PTH118
                except OSError as failure:
                    self._unlisted(failure)
                else:
                    yield key, size

    def _unlisted(self, failure: OSError) -> None:
        """Let a listing go on where a directory is gone; what cannot be read is an error."""
        if not isinstance(failure, (FileNotFoundError, NotADirectoryError)):
            raise self._failed(Determinate, "list", str(failure.filename), failure) from failure

    def list_unfinished(self) -> Iterator[Unfinished]:
        """The temporary files of writes under way, and of writers that were killed; what they were to become is not known."""
        try:
            with os.scandir(self._temporary) as found:
                for one in found:
                    with contextlib.suppress(FileNotFoundError):
                        stat = one.stat()
                        yield Unfinished("", one.name, int(stat.st_mtime * 1000), stat.st_size)
        except OSError as failure:
            raise self._failed(Determinate, "list temporary files of", "", failure) from failure

    def abort_unfinished(self, unfinished: Unfinished) -> None:
        """Remove one temporary file; none there is no error.

        Raises:
            UsageError: it is none of this store's.
        """
        if Path(unfinished.upload).name != unfinished.upload:
            raise UsageError(
                f"not a temporary file of file Blob {self.root}: {unfinished.upload!r}"
            )
        try:
            (self._temporary / unfinished.upload).unlink(missing_ok=True)
        except OSError as failure:
            raise self._failed(Determinate, "remove", unfinished.upload, failure) from failure

    def make_durable(self, keys: Sequence[str]) -> None:
        """Fsync files others have written by path, and the directories down to them."""
        directories: dict[Path, None] = {}
        try:
            for key in keys:
                path = self._path(key)
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                for parent in path.parents:
                    directories[parent] = None
                    if parent == self.root:
                        break
            for directory in directories:
                _fsync_directory(directory)
        except OSError as failure:
            raise self._failed(Determinate, "make durable", key, failure) from failure

    def close(self) -> None:
        """Nothing to release."""


def _read_exactly(descriptor: int, offset: int, length: int) -> bytes:
    chunks = []
    while length > 0:
        chunk = os.pread(descriptor, length, offset)
        if not chunk:
            break
        chunks.append(chunk)
        offset += len(chunk)
        length -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _write_all(descriptor: int, value: bytes) -> None:
    rest = memoryview(value)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@hookimpl
def mzsql_open_blob(url: SplitResult) -> Blob | None:
    """``file:relative/path`` or ``file:///absolute/path``."""
    return FileBlob(local_path(url)) if url.scheme == "file" else None
