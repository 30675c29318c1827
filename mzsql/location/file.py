"""A Blob store in a directory: ``file:./env/blob``.

Promise: an object is a file whose path below the root is its key, so Spark and others can open it. It appears whole and
durable or not at all: it is written under a unique temporary name in a directory that listings skip, fsynced and
renamed; then its directory is fsynced, and so are the entries of the directories above where this process has not done
so before. So processes may be killed, and machines lose power, at any moment. The trade-off: no key may be a path
prefix of another (``a`` and ``a/b``), since a file is not a directory.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import SplitResult

from mzsql.location.directories import Durable, fsync_directory, make_directory
from mzsql.location.errors import Determinate, Indeterminate, UsageError
from mzsql.location.hookspecs import Serves, hookimpl
from mzsql.location.keys import check_blob_key
from mzsql.location.privacy import PRIVATE_FILE, close_to_others, warn_if_open
from mzsql.location.protocols import Blob, Unfinished
from mzsql.location.urls import local_path, local_url

_TEMPORARY = ".mzsql-tmp"
_STALE_SECONDS = 24 * 3600.0
_RENAME_ATTEMPTS = 100


class FileBlob:
    """Objects as files below ``root``, which is created where it does not exist.

    Raises:
        Determinate: the directory cannot be created or read.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        self._temporary = self.root / _TEMPORARY
        self._swept = False
        self._durable = Durable(self.root)
        try:
            warn_if_open(self.root)
            make_directory(self._temporary)
        except OSError as failure:
            raise self._failed(Determinate, "open", "", failure) from failure

    def _sweep(self) -> None:
        """Remove temporary files that killed writers left long ago; called by the first write, so that a process that
        only reads changes nothing.

        Ages are measured with the file system's clock only, which this machine's need not agree with.
        """
        self._swept = True
        probe = self._temporary / uuid.uuid4().hex
        try:
            probe.touch(0o600)
            now = probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)
        with os.scandir(self._temporary) as found:
            for leftover in found:
                with contextlib.suppress(FileNotFoundError):
                    if now - leftover.stat().st_mtime > _STALE_SECONDS:
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
        """The value of ``key``, or `None`.

        Raises:
            Determinate: the file cannot be read.
        """
        path = self._path(key)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as failure:
            raise self._failed(Determinate, "read", key, failure) from failure

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Up to ``length`` bytes from ``offset``; `None` when there is no such key.

        Raises:
            Determinate: the file cannot be read.
        """
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                return _read_exactly(file.fileno(), offset, length)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as failure:
            raise self._failed(Determinate, "read", key, failure) from failure

    def set(self, key: str, value: bytes) -> None:
        """Map ``key`` to ``value``, atomically and durably.

        Raises:
            UsageError: another key is a prefix of this one at a ``/``, or the other way round: a file cannot
                be a directory too.
            Determinate: writing failed before the file had its name.
            Indeterminate: it has its name, but is perhaps not durable.
        """
        path = self._path(key)
        temporary = self._temporary / uuid.uuid4().hex
        renamed = False
        try:
            if not self._swept:
                self._sweep()
            try:
                _write_durably(temporary, value)
                self._rename(temporary, path)
                renamed = True
                fsync_directory(path.parent)
                self._durable.ensure(path.parent)
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
            make_directory(path.parent)
            try:
                os.rename(temporary, path)  # noqa: PTH104
            except FileNotFoundError:
                # A concurrent deletion found the directory empty and removed it before the rename: create it again.
                if attempt + 1 == _RENAME_ATTEMPTS or not temporary.exists():
                    raise
            else:
                return

    def delete(self, key: str) -> int | None:
        """Remove ``key`` durably, and directories that become empty; its former size in bytes, or `None`.

        Raises:
            Determinate: the file is still there.
            Indeterminate: the file is gone, though perhaps not durably.
        """
        path = self._path(key)
        size: int | None = None
        removed = False
        try:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found = path.stat().st_size
                os.unlink(path)  # noqa: PTH108
                removed, size = True, found
            # If it is gone, an earlier call may have removed it and failed before its fsync, which this call repeats.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                fsync_directory(path.parent)
        except OSError as failure:
            if path.is_dir():
                return None
            raise self._failed(
                Indeterminate if removed else Determinate, "delete", key, failure
            ) from failure
        if removed:
            self._prune(path.parent)
        return size

    def delete_many(self, keys: Sequence[str]) -> None:
        """Remove all existing keys, durably, with one fsync per directory instead of per key.

        Raises:
            Indeterminate: a file could not be removed, or its directory not made durable; those before it may
                be gone.
        """
        directories: dict[Path, None] = {}
        for key in keys:
            path = self._path(key)
            try:
                os.unlink(path)  # noqa: PTH108
            except (FileNotFoundError, NotADirectoryError):
                # If it is gone, an earlier call may have removed it and failed before its fsync, which this call
                # repeats.
                if path.parent.is_dir():
                    directories[path.parent] = None
            except OSError as failure:
                if not path.is_dir():
                    raise self._failed(Indeterminate, "delete", key, failure) from failure
            else:
                directories[path.parent] = None
        for directory in directories:
            try:
                fsync_directory(directory)
            except FileNotFoundError:
                continue  # another deletion found it empty and removed it
            except OSError as failure:
                what = directory.name
                raise self._failed(Indeterminate, "delete from", what, failure) from failure
            self._prune(directory)

    def _prune(self, directory: Path) -> None:
        while directory != self.root:
            try:
                os.rmdir(directory)  # noqa: PTH106
            except OSError:  # not empty, or another has removed it: either way it is not ours
                return
            self._durable.forget(directory)
            directory = directory.parent

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Each key that starts with ``prefix``, with its size in bytes. Only walks directories that may contain some."""
        if prefix.split("/", 1)[0] == _TEMPORARY:
            return
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
        """Let a listing continue where a directory was removed meanwhile; raise where one cannot be read."""
        if not isinstance(failure, (FileNotFoundError, NotADirectoryError)):
            raise self._failed(Determinate, "list", str(failure.filename), failure) from failure

    def list_unfinished(self) -> Iterator[Unfinished]:
        """The temporary files of running and killed writers; their keys are unknown.

        Raises:
            Determinate: the directory of temporary files cannot be read.
        """
        try:
            with os.scandir(self._temporary) as found:
                for one in found:
                    with contextlib.suppress(FileNotFoundError):
                        stat = one.stat()
                        yield Unfinished("", one.name, int(stat.st_mtime * 1000), stat.st_size)
        except OSError as failure:
            raise self._failed(Determinate, "list temporary files of", "", failure) from failure

    def abort_unfinished(self, unfinished: Unfinished) -> None:
        """Remove a temporary file; one that does not exist is no error.

        Raises:
            UsageError: it does not belong to this store.
        """
        if Path(unfinished.upload).name != unfinished.upload:
            raise UsageError(
                f"not a temporary file of file Blob {self.root}: {unfinished.upload!r}"
            )
        try:
            (self._temporary / unfinished.upload).unlink(missing_ok=True)
        except OSError as failure:
            raise self._failed(Determinate, "remove", unfinished.upload, failure) from failure

    def _down_to(self, path: Path) -> Iterator[Path]:
        """The directories below the root that contain a file, innermost first."""
        for directory in path.parents:
            if directory == self.root:
                return
            yield directory

    def make_durable(self, keys: Sequence[str]) -> None:
        """Fsync files that others (Spark) wrote by path, and the directories above them, and restrict them to their
        owner.

        Raises:
            Determinate: a file or directory cannot be made durable; doing it again is safe.
        """
        directories: dict[Path, None] = {}
        try:
            for key in keys:
                path = self._path(key)
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                close_to_others(path)
                with contextlib.suppress(FileNotFoundError):
                    # The checksum file that Hadoop writes beside it.
                    close_to_others(path.with_name(f".{path.name}.crc"))
                directories.update(dict.fromkeys(self._down_to(path)))
            for directory in directories:
                close_to_others(directory)
                fsync_directory(directory)
                self._durable.ensure(directory)
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


def _write_durably(path: Path, value: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        rest = memoryview(value)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@hookimpl
def mzsql_open_blob(url: SplitResult) -> Blob | None:
    """``file:relative/path`` or ``file:///absolute/path``."""
    return FileBlob(local_path(url)) if url.scheme == "file" else None


@hookimpl
def mzsql_serves() -> list[Serves]:
    """A Blob store in a local directory."""
    return [Serves("blob", ("file",), "file:relative/directory or file:///absolute/directory")]


@hookimpl
def mzsql_scratch_url(kind: str, directory: str) -> str | None:
    """A subdirectory of the given one."""
    return local_url("file", f"{directory}/blob") if kind == "blob" else None
