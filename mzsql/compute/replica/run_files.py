"""Runs in files: large ones mapped into memory, and all of a trace's kept for who opens its arrangement next.

Promise: what `RunFiles.load` gives is what `RunFiles.keep` was given last: all updates of an arrangement before a time, told apart from one
on; or nothing, where a file is missing, damaged, of another format, of another release of what hashes keys, or of an arrangement that looks
otherwise now. So the directory may be deleted, cut short or filled up at any time, and that costs time alone. A replica's directory is one
process's at a time: another one that works for the same replica meanwhile keeps its large runs in files without names, as does one that has
no directory.

What is kept is a list of files, written beside the one before and renamed; the files themselves are written once and never changed. Nothing
is forced to the disk: what a machine's failure leaves does not match its checksums. Those are of all bytes and compared once, when files
are mapped: about a second for each GB, a tenth of what it takes to load as much from a shard.

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
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from mzsql.compute.replica.runs import Hashes, Run
from mzsql.location.directories import make_directory
from mzsql.location.privacy import make_file
from mzsql.repr.frontier import Timestamp

_LOG = logging.getLogger(__name__)

#: The format of the files and of their list.
FORMAT = 1
_LIST = "kept.json"
_LOCK = "lock"
_ROWS, _HASHES = ".rows", ".hashes"
_BLOCK = 1 << 20


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


class Loaded(msgspec.Struct, frozen=True):
    """What was kept: runs of all updates before `upper`, told apart from `since` on."""

    runs: tuple[Run, ...]
    since: Timestamp
    upper: Timestamp


class RunFiles:
    """The files of one arrangement's runs. Thread-safe.

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
        self._names: set[str] = set()
        #: what the files of a run are called
        self._of: weakref.WeakKeyDictionary[Run, str] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count()
        self._sums: dict[str, tuple[_File, _File]] = {}
        self._kept: _Kept | None = None
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
        self._numbers = itertools.count(1 + max((_number(name) for name in found), default=-1))
        self._kept = _read_list(directory, self._signature)
        self._names = set() if self._kept is None else {one.name for one in self._kept.runs}
        self._remove(found - self._names)

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
        if self._directory is None:
            return _unnamed(run, self._scratch())
        made, name = self._named(run, self._directory)
        with self._lock:
            self._of[made] = name
        return made

    def _named(self, run: Run, directory: Path) -> tuple[Run, str]:
        """The run in files, and what they are called."""
        with self._lock:
            name = str(next(self._numbers))
        make_directory(directory)
        paths = directory / f"{name}{_ROWS}", directory / f"{name}{_HASHES}"
        try:
            rows, hashes = _written(run, *paths)
            sums = _sum(rows), _sum(hashes)
        except BaseException:
            for path in paths:
                path.unlink(missing_ok=True)
            raise
        with self._lock:
            self._names.add(name)
            self._sums[name] = sums
        return _mapped(run, rows, hashes), name

    # --- keeping ---

    def keep(self, runs: Sequence[Run], since: Timestamp, upper: Timestamp) -> None:
        """Keep the runs of a trace, instead of what was kept before.

        Args:
            runs: all updates before `upper`, and no others.
            since: they can be told apart from then on.
            upper: the shard has them, too.

        Raises:
            OSError: they cannot be written; what was kept before stays.
        """
        directory = self._directory
        if directory is None:
            return
        with self._writing:
            with self._lock:
                before, there = self._kept, set(self._names)
            listed = tuple(self._listed(run, directory) for run in runs)
            kept = _Kept(self._signature, since, upper, listed)
            if kept == before:
                return
            make_directory(directory)
            _write_list(directory, kept)
            with self._lock:
                self._kept = kept
            # Those that came meanwhile are of runs that are being made.
            self._remove(there - {one.name for one in listed})

    def _listed(self, run: Run, directory: Path) -> _KeptRun:
        with self._lock:
            name = self._of.get(run)
            known = None if name is None else self._sums.get(name)
        if name is None or known is None:
            # Of no file yet, or of one that was given up before the run was a part of anything that is kept.
            _, name = self._named(run, directory)
            with self._lock:
                self._of[run] = name
                known = self._sums[name]
        rows, hashes = known
        return _KeptRun(name, run.arity, run.first, run.last, run.mixed, rows, hashes)

    def _remove(self, names: Collection[str]) -> None:
        """Give files up; who has them mapped goes on reading them."""
        assert self._directory is not None
        with self._lock:
            self._names.difference_update(names)
            for name in names:
                self._sums.pop(name, None)
        for name in names:
            for suffix in (_ROWS, _HASHES):
                with contextlib.suppress(OSError):
                    (self._directory / f"{name}{suffix}").unlink()

    def load(self) -> Loaded | None:
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
            self._remove({one.name for one in kept.runs})
            return None
        with self._lock:
            for one, run in zip(kept.runs, runs, strict=True):
                self._sums[one.name], self._of[run] = (one.rows, one.hashes), one.name
        return Loaded(runs, kept.since, kept.upper)

    def drop(self) -> None:
        """Keep nothing; the files of runs that are in use stay until something is kept again."""
        with self._lock:
            self._kept = None
        if self._directory is not None:
            with contextlib.suppress(OSError):
                (self._directory / _LIST).unlink()

    def close(self) -> None:
        """Give up the files that are not kept."""
        with self._lock:
            kept = set() if self._kept is None else {one.name for one in self._kept.runs}
            left = self._names - kept
        if self._directory is not None:
            self._remove(left)
            if not kept:
                shutil.rmtree(self._directory, ignore_errors=True)


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
    with contextlib.suppress(FileNotFoundError):
        for path in root.iterdir():
            if path.name in replicas or not path.is_dir():
                continue
            try:
                held = _locked(path / _LOCK)
            except OSError as error:
                _LOG.warning("what was kept in %s stays: %s", path, error)
                continue
            if held is not None:
                shutil.rmtree(path, ignore_errors=True)
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


def _number(name: str) -> int:
    return int(name) if name.isdigit() else -1


def _read_list(directory: Path, signature: str) -> _Kept | None:
    try:
        kept = msgspec.json.decode((directory / _LIST).read_bytes(), type=_Kept)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        _LOG.warning("what was kept of an arrangement in %s is of no use: %s", directory, error)
        return None
    return kept if (kept.format, kept.signature) == (FORMAT, signature) else None


def _write_list(directory: Path, kept: _Kept) -> None:
    path = directory / f".{_LIST}"
    make_file(path)
    path.write_bytes(msgspec.json.encode(kept))
    path.replace(directory / _LIST)


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


def _mapped(run: Run, rows: pa.Buffer, hashes: pa.Buffer) -> Run:
    """A run as it is in files."""
    made = Run(_batch(rows), run.arity, _numbers(hashes), (run.first, run.last))
    made.mixed, made.mapped = run.mixed, True
    return made


def _batch(rows: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.BufferReader(rows)).get_batch(0)


def _numbers(hashes: pa.Buffer) -> Hashes:
    return np.frombuffer(hashes, np.uint64)


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
    made = Run(_batch(rows), kept.arity, _numbers(hashes), (kept.first, kept.last))
    made.mixed, made.mapped = kept.mixed, True
    return made


def _unnamed(run: Run, scratch: Path) -> Run:
    """The run in files that have no name any more: they go with the last who reads them."""
    with tempfile.TemporaryDirectory(dir=scratch, prefix="run-") as folder:
        rows, hashes = _written(run, Path(folder) / "rows", Path(folder) / "hashes")
    return _mapped(run, rows, hashes)
