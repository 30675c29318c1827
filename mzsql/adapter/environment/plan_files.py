"""Plans of queries over builtin relations, kept in files beside what replicas cache on this machine.

Promise: `PlanFiles.get` returns what `PlanFiles.put` saved under the same key by a process of the same build and the same
releases of what plans and runs statements, or nothing: a file that is missing, cut short, altered or of another key counts as
absent. So the directory may be deleted or damaged at any time, which costs only time; one that cannot be written keeps nothing.

A plan over builtin relations depends on the program alone, not on what users define, so it is none of the expression cache's
entries: a process that answers one such query would have to read the plans of all views and indexes for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import logging
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from mzsql.location.directories import make_directory
from mzsql.location.privacy import PRIVATE_FILE
from mzsql.repr.lazy import lazy_property

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Version of the files' format, and of what is encoded in them.
_FORMAT = 1
#: What plans a statement, writes its text, and runs it, besides this program.
_RUNS_ON = ("sqlglot", "duckdb", "msgspec")
#: Once there are more files than this, the older half of them is deleted.
MOST_FILES = 2048
#: More bytes than this are not kept under a key.
MOST_BYTES = 1 << 20
_SUFFIX = ".plan"


class PlanFiles:
    """The files of one environment on this machine. Thread-safe, and used by any number of processes at once.

    Args:
        directory: gives where they are, created when needed; None where nothing is to be kept.
        build: gives the program's build, as the expression cache tells builds apart.
    """

    def __init__(self, directory: Callable[[], Path | None], build: Callable[[], str]) -> None:
        self._directory_of = directory
        self._build_of = build
        self._written = 0

    @classmethod
    def nowhere(cls) -> PlanFiles:
        """One that keeps nothing."""
        return cls(lambda: None, str)

    @lazy_property
    def _directory(self) -> Path | None:
        return self._directory_of()

    @lazy_property
    def _program(self) -> bytes:
        """What tells this program's plans from those of all others."""
        releases = tuple(importlib.metadata.version(name) for name in _RUNS_ON)
        made_by = (_FORMAT, self._build_of(), releases, platform.python_version())
        return msgspec.msgpack.encode(made_by)

    def key(self, kind: str, *parts: object) -> bytes:
        """The key of a plan: equal for equal parts, which are what it follows from, of the same kind and program."""
        return _digest(self._program, msgspec.msgpack.encode((kind, parts)))

    def get(self, key: bytes, decode: Callable[[bytes], T]) -> T | None:
        """What was saved under a key, decoded; None where nothing was, or where it is damaged."""
        if self._directory is None:
            return None
        try:
            found = (self._directory / f"{key.hex()}{_SUFFIX}").read_bytes()
        except OSError:
            return None
        kept, data = found[: len(key)], found[len(key) :]
        if kept != _digest(key, data):
            _log.warning("a plan in %s is made again: its checksum is another", self._directory)
            return None
        try:
            return decode(data)
        except msgspec.MsgspecError as failure:
            _log.warning("a plan in %s is made again: %s", self._directory, failure)
            return None

    def put(self, key: bytes, data: bytes) -> None:
        """Save something under a key, in place of what was there. What cannot be saved is not."""
        directory = self._directory
        if directory is None or len(data) > MOST_BYTES:
            return
        beside = directory / f"{key.hex()}.{os.getpid()}-{os.urandom(4).hex()}"
        try:
            make_directory(directory)
            opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            with os.fdopen(opened, "wb") as file:
                file.write(_digest(key, data) + data)
            beside.replace(directory / f"{key.hex()}{_SUFFIX}")
            self._bound(directory)
        except OSError as failure:
            # A reader of somebody else's environment may not write there; a disk may be full. Plans are made again then.
            _log.info("no plan is kept in %s: %s", directory, failure)
            with contextlib.suppress(OSError):
                beside.unlink()

    def _bound(self, directory: Path) -> None:
        """Delete the older half of the files where there are too many; looked at once for so many that this process has written."""
        self._written += 1
        if self._written % (MOST_FILES // 16) != 1:
            return
        with os.scandir(directory) as entries:
            found = sorted((one.stat().st_mtime_ns, one.path) for one in entries)
        if len(found) > MOST_FILES:
            for _, path in found[: len(found) // 2]:
                Path(path).unlink(missing_ok=True)


def remove_old_plans(caches: Path, name: str, seconds: float, now: float) -> None:
    """Delete the plans of environments below ``caches``, in directories of the given name, to which nobody has added any for
    ``seconds`` before ``now``.
    """
    with contextlib.suppress(OSError):
        for directory in caches.glob(f"*/{name}"):
            if now - directory.stat().st_mtime > seconds:
                shutil.rmtree(directory, ignore_errors=True)


def _digest(*parts: bytes) -> bytes:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()
