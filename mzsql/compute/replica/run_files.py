"""Runs in files: large ones mapped into memory, and all of a trace's kept for who opens its arrangement next.

Promise: what `RunFiles.load` gives is what `RunFiles.keep` was given last: all updates of an arrangement before a time, told apart from one
on; or nothing, where a file is missing, damaged, of another format, of another release of what hashes keys, or of an arrangement that looks
otherwise now. So the directory may be deleted at any time, and changed, cut short or filled up while no process has it, and that costs time
alone. A replica's directory is one process's at a time: another one that works for the same replica meanwhile keeps its large runs in files
without names, as does one that has no directory.

What is kept is a list of files, written beside the one before and renamed; the files themselves are written once and never changed. Nothing
is forced to the disk: what a machine's failure leaves does not match its checksums. Those are of all bytes and compared once, when files
are mapped, which takes about a second for each GB.

Trade-off: nothing here knows of a shard that was put back to an earlier state by who restores it from a copy. What an environment in a
directory keeps is in that directory and so of the same copy; who restores other stores deletes what was kept beside them.
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

from mzsql.compute.replica.runs import Hashes, Run
from mzsql.location.directories import make_directory
from mzsql.location.privacy import PRIVATE_FILE, make_file
from mzsql.repr.frontier import Timestamp

_LOG = logging.getLogger(__name__)

#: The format of the files and of their list.
FORMAT = 1
_LIST = "kept.json"
_LOCK = "lock"
_ROWS, _HASHES = ".rows", ".hashes"
_BLOCK = 1 << 20
_NUMBERS = itertools.count()


class _File(msgspec.Struct, frozen=True):
    """A file's size in bytes and the CRC-32 of them."""

    size: int
    crc: int


class _KeptRun(msgspec.Struct, frozen=True):
    """A run's files, and what is not in them."""

    name: str
    arity: int
    first: Timestamp
    last: Timestamp
    mixed: bool
    rows: _File
    hashes: _File


class _Kept(msgspec.Struct, frozen=True):
    """The list of what is kept."""

    signature: str
    since: Timestamp
    upper: Timestamp
    runs: tuple[_KeptRun, ...]
    format: int = FORMAT


class Contents(msgspec.Struct, frozen=True):
    """Runs of all updates before `upper`, told apart from `since` on."""

    runs: tuple[Run, ...]
    since: Timestamp
    upper: Timestamp


class RunFiles:
    """The files of one arrangement's runs. Thread-safe. A file goes with the last of the run that is in it and the list that names it.

    Args:
        directory: where they have names and can be kept; made when there is something to put there. None: nowhere.
        scratch: where those without names are made: a directory that is there; asked for each of them.
        signature: equal for arrangements whose runs are good for each other.
    """

    def __init__(
        self, directory: Path | None, scratch: Callable[[], Path], signature: str = ""
    ) -> None:
        self._directory = directory
        self._scratch = scratch
        self._signature = signature
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        #: the files of runs that are in use
        self._used: dict[str, tuple[_File, _File]] = {}
        #: what the files of a run are called
        self._of: weakref.WeakKeyDictionary[Run, str] = weakref.WeakKeyDictionary()
        self._kept: _Kept | None = None
        self._closed = False
        #: files of runs that nobody has any more
        self._left: deque[str] = deque()
        if directory is not None:
            self._look(directory)

    def _look(self, directory: Path) -> None:
        """See what is there; what is in no list is nobody's any more."""
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
        """What is kept has all updates before the second time, told apart from the first on; None where nothing is."""
        with self._lock:
            return None if self._kept is None else (self._kept.since, self._kept.upper)

    @property
    def keeps(self) -> bool:
        """Whether anything can be kept here."""
        return self._directory is not None

    def put(self, run: Run) -> Run:
        """See `runs.Files`."""
        directory = self._directory
        if directory is None or self._closed:
            return _unnamed(run, self._scratch())
        name, buffers, sums = _named(run, directory)
        made = _mapped(run, *buffers)
        self._use(made, name, sums)
        return made

    def _use(self, run: Run, name: str, sums: tuple[_File, _File]) -> None:
        """A run is in files, and in use until nobody has it any more."""
        with self._lock:
            self._sweep()
            self._used[name], self._of[run] = sums, name
        weakref.finalize(run, self._unused, name).atexit = False

    def _unused(self, name: str) -> None:
        """Nobody has a run any more. Comes at any moment, in any thread, so it waits for nobody: whoever is at work here sees to it."""
        self._left.append(name)
        if self._lock.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self._lock.release()

    def _sweep(self) -> None:
        """Give up the files of runs that nobody has and no list names; the lock is held."""
        while self._left:
            name = self._left.popleft()
            self._used.pop(name, None)
            if name not in _names(self._kept):
                self._unlink({name})

    def _unlink(self, names: Collection[str]) -> None:
        """Give files up; who has them mapped goes on reading them."""
        assert self._directory is not None
        for name in names:
            for suffix in (_ROWS, _HASHES):
                with contextlib.suppress(OSError):
                    (self._directory / f"{name}{suffix}").unlink()

    # --- keeping ---

    def keep(self, runs: Sequence[Run], since: Timestamp, upper: Timestamp) -> None:
        """Keep the runs of a trace, instead of what was kept before.

        Args:
            runs: all updates before `upper`, and no others.
            since: they can be told apart from then on.
            upper: the shard has them, too.

        Raises:
            OSError: they cannot be written; nothing is kept then, as what was kept before may be what fills the disk.
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
        path = directory / f".{_LIST}"
        make_file(path)
        path.write_bytes(msgspec.json.encode(kept))
        with self._lock:
            path.replace(directory / _LIST)
            before, self._kept = self._kept, kept
            self._sweep()
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
        """What is kept, its files mapped and their checksums compared; None where that is nothing, or damaged."""
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
        """Keep nothing; the files of runs that are in use stay as long as these are."""
        with self._lock:
            before, self._kept = self._kept, None
            if self._directory is not None:
                with contextlib.suppress(OSError):
                    (self._directory / _LIST).unlink()
                self._sweep()
                self._unlink(_names(before) - set(self._used))

    def close(self) -> None:
        """Make no more files with names; those that are not kept go."""
        with self._lock:
            self._closed = True
            if self._directory is not None:
                self._sweep()
                self._unlink(set(self._used) - _names(self._kept))
                if self._kept is None:
                    with contextlib.suppress(OSError):
                        self._directory.rmdir()


class HotDirectory:
    """What one replica keeps of its arrangements, each in a directory of its own, as long as no other process does.

    Args:
        root: the replica's directory; None: nothing is kept.
        scratch: as `RunFiles` has it.
    """

    def __init__(self, root: Path | None, scratch: Callable[[], Path]) -> None:
        self._scratch = scratch
        self._held: int | None = None
        self._root = root
        self._lock = threading.Lock()

    def _take(self) -> None:
        """Have the directory for this process, or none."""
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

    def of(self, shard: str, signature: str) -> RunFiles:
        """The files of a shard's arrangement."""
        self._take()
        directory = None if self._root is None else self._root / shard
        return RunFiles(directory, self._scratch, signature)

    def remove(self, shard: str) -> None:
        """Give up what is kept of a shard."""
        if self._held is not None and self._root is not None:
            shutil.rmtree(self._root / shard, ignore_errors=True)

    def retain(self, shards: Collection[str]) -> None:
        """Give up what is kept of any other shard."""
        if self._held is not None and self._root is not None:
            with contextlib.suppress(OSError):  # somebody has deleted it
                for path in self._root.iterdir():
                    if path.name not in shards and path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Leave the directory to others. Idempotent."""
        held, self._held, self._root = self._held, None, None
        if held is not None:
            os.close(held)


def remove_others(root: Path, replicas: Collection[str]) -> None:
    """Give up what replicas have kept below a directory that are not among those there are, but for one that still runs here."""
    with contextlib.suppress(OSError):
        for path in root.iterdir():
            if path.name not in replicas and path.is_dir():
                _remove_unlocked(path)


def remove_old(caches: Path, seconds: float, now: float) -> None:
    """Give up what other environments' replicas have kept below a directory of caches and nobody has used for so long, at ``now``."""
    with contextlib.suppress(OSError):
        for lock in caches.glob(f"*/hot/*/{_LOCK}"):
            if now - lock.stat().st_mtime > seconds:
                _remove_unlocked(lock.parent)


def _remove_unlocked(directory: Path) -> None:
    """Give up a replica's directory that no process has."""
    try:
        held = _locked(directory / _LOCK)
    except OSError as error:
        _LOG.warning("what was kept in %s stays: %s", directory, error)
        return
    if held is not None:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(held)


def _locked(path: Path) -> int | None:
    """The descriptor that holds a lock; None where another process does."""
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
    """A run in files of a new name: that, they as mapped, and their checksums."""
    make_directory(directory)
    while True:
        # No two of this process are the same, whoever writes them; of another life's there may be one.
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
    """A run's files, mapped."""
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
    """A run as it is in files."""
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
    """The run in files that have no name any more: they go with the last who reads them."""
    with tempfile.TemporaryDirectory(dir=scratch, prefix="run-") as folder:
        rows, hashes = _written(run, Path(folder) / "rows", Path(folder) / "hashes")
    return _mapped(run, rows, hashes)
