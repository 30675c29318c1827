"""Runs in files: large runs memory-mapped, and whole traces saved so that the next process to open the arrangement need
not read the shard.

Promise: `RunFiles.load` returns what `RunFiles.keep` saved last (all updates of an arrangement before a time,
readable from another time on), or nothing if a file is missing, damaged, of another format, made with another
release of DuckDB (which hashes keys), or of an arrangement whose description has changed. So the directory may be
deleted at any time, and altered, truncated or filled up while no process uses it; that costs only time. One process
at a time has a replica's directory. Another one that works for the same replica, or one without a directory, keeps
its large runs in unlinked files.

What is saved is a list of files, written beside the previous list and renamed into place; the files are written once
and never changed. Nothing is synced to disk: files that a machine's failure left incomplete do not match their
checksums, which cover all bytes and are compared once, when files are mapped (about a second for each GB).

Trade-off: a shard that an operator restored from a backup to an earlier state is not recognized. An environment in a
directory keeps these files in that directory, so they are part of the same backup; who restores other stores must
delete the saved files.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import shutil
import tempfile
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from mzsql.compute.replica.arrangements.runs import Hashes, Run
from mzsql.location.directories import make_directory
from mzsql.location.privacy import PRIVATE_FILE, make_file
from mzsql.repr.frontier import Timestamp

_LOG = logging.getLogger(__name__)

#: Version of the format of the files and of their list.
FORMAT = 1
_LIST = "kept.json"
_LOCK = "lock"
_ROWS, _HASHES = ".rows", ".hashes"
_BLOCK = 1 << 20
_NUMBERS = itertools.count()


class _File(msgspec.Struct, frozen=True):
    """The size of a file in bytes, and the CRC-32 of its contents."""

    size: int
    crc: int


class _KeptRun(msgspec.Struct, frozen=True):
    """A saved run: the name of its files, and its metadata."""

    name: str
    arity: int
    first: Timestamp
    last: Timestamp
    mixed: bool
    rows: _File
    hashes: _File


class _Kept(msgspec.Struct, frozen=True):
    """The list of a saved trace's runs."""

    signature: str
    since: Timestamp
    upper: Timestamp
    runs: tuple[_KeptRun, ...]
    format: int = FORMAT


class Contents(msgspec.Struct, frozen=True):
    """Runs that hold all updates before `upper`, readable from `since` on."""

    runs: tuple[Run, ...]
    since: Timestamp
    upper: Timestamp


class RunFiles:
    """The files of one arrangement's runs. Thread-safe. A file is deleted when neither a run in use nor the list refers
    to it.

    Args:
        directory: where named files are made, so that they can be saved; created when needed. None: nowhere.
        scratch: returns an existing directory for unlinked files; called for each of them.
        signature: equal for arrangements whose runs are interchangeable.
    """

    def __init__(
        self, directory: Path | None, scratch: Callable[[], Path], signature: str = ""
    ) -> None:
        self._directory = directory
        self._scratch = scratch
        self._signature = signature
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        #: checksums of the files of runs that are in use, by name
        self._used: dict[str, tuple[_File, _File]] = {}
        #: the name of each run's files
        self._of: weakref.WeakKeyDictionary[Run, str] = weakref.WeakKeyDictionary()
        self._kept: _Kept | None = None
        self._closed = False
        #: names of files whose runs nobody uses any more
        self._left: deque[str] = deque()
        if directory is not None:
            self._look(directory)

    def _look(self, directory: Path) -> None:
        """Read the list of what is saved, and delete files that it does not name."""
        try:
            found = {path.stem for path in directory.iterdir() if path.suffix in (_ROWS, _HASHES)}
        except FileNotFoundError:
            return
        except OSError as error:
            _LOG.warning("nothing is kept of an arrangement in %s: %s", directory, error)
            self._directory = None
            return
        self._kept = _read_list(directory, self._signature)
        self._unlink(found - _names(self._kept))

    @property
    def span(self) -> tuple[Timestamp, Timestamp] | None:
        """The pair (since, upper) of the saved trace; None if none is saved."""
        with self._lock:
            return None if self._kept is None else (self._kept.since, self._kept.upper)

    @property
    def keeps(self) -> bool:
        """Whether traces can be saved here."""
        return self._directory is not None

    def put(self, run: Run) -> Run:
        """See `runs.Files`."""
        directory = self._directory
        if directory is not None and not self._closed:
            try:
                name, buffers, sums = _named(run, directory)
                made = _mapped(run, *buffers)
                self._use(made, name, sums)
                return made
            except OSError:
                if not self._closed:
                    raise
            finally:
                if self._closed:
                    # Closed, perhaps deleted, while files were being written, which made the directory anew.
                    with self._lock:
                        self._remove_unsaved(directory)
        return _unnamed(run, self._scratch())

    def _use(self, run: Run, name: str, sums: tuple[_File, _File]) -> None:
        """Record that a run is in files, until it is garbage-collected."""
        with self._lock:
            self._sweep()
            self._used[name], self._of[run] = sums, name
        # Not at exit, where nobody has to wait for it: the next process deletes what its list does not name.
        weakref.finalize(run, self._unused, name).atexit = False

    def _unused(self, name: str) -> None:
        """A run was garbage-collected. That happens at any moment on any thread, perhaps one that holds the lock, so
        this must not wait for the lock: whoever takes it next deletes the files.
        """
        self._left.append(name)
        if self._lock.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self._lock.release()

    def _sweep(self) -> None:
        """Delete the files of runs that are neither in use nor saved. The caller holds the lock."""
        while self._left:
            name = self._left.popleft()
            self._used.pop(name, None)
            if name not in _names(self._kept):
                self._unlink({name})

    def _unlink(self, names: Collection[str]) -> None:
        """Delete files. A process that has them mapped can still read them."""
        assert self._directory is not None
        for name in names:
            for suffix in (_ROWS, _HASHES):
                with contextlib.suppress(OSError):
                    (self._directory / f"{name}{suffix}").unlink()

    # --- keeping ---

    def keep(self, runs: Sequence[Run], since: Timestamp, upper: Timestamp) -> None:
        """Save the runs of a trace, replacing what was saved before.

        Args:
            runs: all updates before `upper`, and no others.
            since: the earliest time at which they can be read.
            upper: the shard's upper is at least this.

        Raises:
            OSError: they cannot be written. Then nothing is saved any more, since what was saved before may be what
                fills the disk.
        """
        directory = self._directory
        if directory is None or self._closed:
            return
        with self._writing:
            try:
                listed = tuple(self._listed(run, directory) for run in runs)
                self._list(_Kept(self._signature, since, upper, listed), directory)
            except OSError:
                self.drop()
                raise

    def _list(self, kept: _Kept, directory: Path) -> None:
        if kept == self._kept:
            return
        make_directory(directory)
        # Written to another file and renamed, so that a crash leaves either the old list or the new one.
        path = directory / f".{_LIST}"
        make_file(path)
        path.write_bytes(msgspec.json.encode(kept))
        with self._lock:
            if self._closed:
                # Closed while files were being written: the arrangement may be deleted by now.
                path.unlink(missing_ok=True)
                self._remove_unsaved(directory)
                return
            path.replace(directory / _LIST)
            before, self._kept = self._kept, kept
            self._sweep()
            # Files are deleted only after the list that named them was replaced.
            self._unlink(_names(before) - _names(kept) - set(self._used))

    def _listed(self, run: Run, directory: Path) -> _KeptRun:
        with self._lock:
            name = self._of.get(run)
            sums = None if name is None else self._used.get(name)
        if name is None or sums is None:
            name, _, sums = _named(run, directory)
            self._use(run, name, sums)
        return _KeptRun(name, run.arity, run.first, run.last, run.mixed, *sums)

    def load(self) -> Contents | None:
        """Map what is saved and compare its checksums; None if nothing is saved or it is damaged."""
        with self._lock:
            kept = self._kept
        if kept is None or self._directory is None:
            return None
        try:
            runs = tuple(_loaded(one, self._directory) for one in kept.runs)
        except (OSError, ValueError) as error:
            _LOG.warning(
                "what was kept of an arrangement in %s is of no use: %s", self._directory, error
            )
            self.drop()
            return None
        for one, run in zip(kept.runs, runs, strict=True):
            self._use(run, one.name, (one.rows, one.hashes))
        return Contents(runs, kept.since, kept.upper)

    def drop(self) -> None:
        """Delete what is saved. Files of runs in use are deleted when these are gone."""
        with self._lock:
            before, self._kept = self._kept, None
            if self._directory is not None:
                with contextlib.suppress(OSError):
                    (self._directory / _LIST).unlink()
                self._sweep()
                self._unlink(_names(before) - set(self._used))

    def close(self) -> None:
        """Make no more named files, and delete those that are not saved."""
        with self._lock:
            self._closed = True
            if self._directory is not None:
                self._remove_unsaved(self._directory)

    def _remove_unsaved(self, directory: Path) -> None:
        """Delete the files that are not saved, and the directory if nothing is. The caller holds the lock."""
        self._sweep()
        self._unlink(set(self._used) - _names(self._kept))
        # Only if it is empty.
        with contextlib.suppress(OSError):
            directory.rmdir()


class HotDirectory:
    """The directory in which one replica saves its arrangements' traces, each in a subdirectory. Used if no other
    process has it.

    Args:
        root: the directory; None to save nothing.
        scratch: as in `RunFiles`.
    """

    def __init__(self, root: Path | None, scratch: Callable[[], Path]) -> None:
        self._scratch = scratch
        self._held: int | None = None
        self._root = root
        self._lock = threading.Lock()

    def _take(self) -> None:
        """Lock the directory for this process; if another process has it, do without."""
        with self._lock:
            root = self._root
            if root is None or self._held is not None:
                return
            try:
                make_directory(root)
                self._held = _locked(root / _LOCK)
                if self._held is not None:
                    os.utime(self._held)
            except OSError as error:
                _LOG.warning("nothing is kept of arrangements in %s: %s", root, error)
            if self._held is None:
                self._root = None

    def _take_existing(self) -> None:
        """As `_take`, unless there is nothing to take. Arrangements may be given up that this process never opened."""
        if self._root is not None and self._root.is_dir():
            self._take()

    def of(self, shard: str, signature: str) -> RunFiles:
        """The files of the arrangement in a shard."""
        self._take()
        directory = None if self._root is None else self._root / shard
        return RunFiles(directory, self._scratch, signature)

    def remove(self, shard: str) -> None:
        """Delete what is saved of a shard."""
        self._take_existing()
        if self._held is not None and self._root is not None:
            shutil.rmtree(self._root / shard, ignore_errors=True)

    def retain(self, shards: Collection[str]) -> None:
        """Delete what is saved of all other shards."""
        self._take_existing()
        if self._held is not None and self._root is not None:
            with contextlib.suppress(OSError):  # somebody has deleted it
                for path in self._root.iterdir():
                    if path.name not in shards and path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Unlock the directory. Idempotent."""
        held, self._held, self._root = self._held, None, None
        if held is not None:
            os.close(held)


def remove_others(root: Path, replicas: Collection[str]) -> None:
    """Delete the directories below `root` of replicas that do not exist any more, except those that a process has
    locked.
    """
    with contextlib.suppress(OSError):
        for path in root.iterdir():
            if path.name not in replicas and path.is_dir():
                _remove_unlocked(path)


def remove_old(caches: Path, seconds: float, now: float) -> None:
    """Delete what replicas of other environments saved below `caches` and nobody has used for `seconds` before ``now``."""
    with contextlib.suppress(OSError):
        for lock in caches.glob(f"*/hot/*/{_LOCK}"):
            if now - lock.stat().st_mtime > seconds:
                _remove_unlocked(lock.parent)


def _remove_unlocked(directory: Path) -> None:
    """Delete a replica's directory unless a process has it locked."""
    try:
        held = _locked(directory / _LOCK)
    except OSError as error:
        _LOG.warning("what was kept in %s stays: %s", directory, error)
        return
    if held is not None:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(held)


def _locked(path: Path) -> int | None:
    """Lock a file and return its descriptor, which holds the lock; None if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _names(kept: _Kept | None) -> set[str]:
    return set() if kept is None else {one.name for one in kept.runs}


def _read_list(directory: Path, signature: str) -> _Kept | None:
    try:
        kept = msgspec.json.decode((directory / _LIST).read_bytes(), type=_Kept)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        _LOG.warning("what was kept of an arrangement in %s is of no use: %s", directory, error)
        return None
    return kept if (kept.format, kept.signature) == (FORMAT, signature) else None


def _named(
    run: Run, directory: Path
) -> tuple[str, tuple[pa.Buffer, pa.Buffer], tuple[_File, _File]]:
    """Write a run to files of a new name.

    Returns:
        The name, the mapped files, and their checksums.
    """
    make_directory(directory)
    while True:
        # Unique within this process; a file of that name may be left from an earlier one.
        name = str(next(_NUMBERS))
        rows, hashes = directory / f"{name}{_ROWS}", directory / f"{name}{_HASHES}"
        try:
            rows.touch(PRIVATE_FILE, exist_ok=False)
            break
        except FileExistsError:
            continue
    try:
        buffers = _written(run, rows, hashes)
        sums = _sum(buffers[0]), _sum(buffers[1])
    except BaseException:
        rows.unlink(missing_ok=True)
        hashes.unlink(missing_ok=True)
        raise
    return name, buffers, sums


def _written(run: Run, rows: Path, hashes: Path) -> tuple[pa.Buffer, pa.Buffer]:
    """Write a run's files; return them mapped."""
    make_file(rows)
    with pa.OSFile(str(rows), "wb") as sink, pa.ipc.new_file(sink, run.rows.schema) as file:
        file.write_batch(run.rows)
    make_file(hashes)
    run.hashes.tofile(hashes)
    return _map(rows), _map(hashes)


def _map(path: Path) -> pa.Buffer:
    # Python's own maps keep their files open, and a process may have few of those; Arrow's do not.
    with pa.memory_map(str(path)) as source:
        return source.read_buffer()


def _mapped(run: Run | _KeptRun, rows: pa.Buffer, hashes: pa.Buffer) -> Run:
    """A run over its mapped files."""
    batch = pa.ipc.open_file(pa.BufferReader(rows)).get_batch(0)
    numbers: Hashes = np.frombuffer(hashes, np.uint64)
    made = Run(batch, run.arity, numbers, (run.first, run.last))
    made.mixed, made.mapped = run.mixed, True
    return made


def _sum(data: pa.Buffer) -> _File:
    found: Any = memoryview(data)
    crc = 0
    for begin in range(0, data.size, _BLOCK):
        crc = zlib.crc32(found[begin : begin + _BLOCK], crc)
    return _File(data.size, crc)


def _checked(path: Path, wanted: _File) -> pa.Buffer:
    data = _map(path)
    if _sum(data) != wanted:
        raise ValueError(f"{path.name} is not as it was written")
    return data


def _loaded(kept: _KeptRun, directory: Path) -> Run:
    rows = _checked(directory / f"{kept.name}{_ROWS}", kept.rows)
    hashes = _checked(directory / f"{kept.name}{_HASHES}", kept.hashes)
    return _mapped(kept, rows, hashes)


def _unnamed(run: Run, scratch: Path) -> Run:
    """Move a run into files that are unlinked at once, so that they vanish with their last reader."""
    with tempfile.TemporaryDirectory(dir=scratch, prefix="run-") as folder:
        rows, hashes = _written(run, Path(folder) / "rows", Path(folder) / "hashes")
    return _mapped(run, rows, hashes)
