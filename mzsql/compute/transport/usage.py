"""Memory and disk space that a replica's process uses, and its limits.

Promise: present figures from the operating system, for the process and all its descendants (Spark's JVM, workers),
and for the directories that it spills to and saves traces in. What the machine does not tell is None, never a guess.
Nothing is limited here.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from mzsql.expr.engines import scratch_path

#: Where a control group states its memory limit, in version 2 and version 1.
_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Usage(msgspec.Struct, frozen=True):
    """What a process uses and may use, in bytes; None if unknown.

    Attributes:
        memory: resident memory of the process and its descendants.
        memory_limit: the lowest of the machine's memory, the control group's limit and the process's own limit.
        disk: size of the files in its directories.
        disk_limit: `disk` plus the free space on the fullest of their file systems.
    """

    memory: int | None
    memory_limit: int | None
    disk: int
    disk_limit: int | None


def usage(kept: Path | None = None) -> Usage:
    """What this process uses.

    Args:
        kept: a directory of its own besides the one that it spills to.
    """
    folders = [one for one in (scratch_path(), kept) if one is not None and one.is_dir()]
    disk = sum(size for folder in folders for size in _sizes(folder))
    free = min((one for folder in folders for one in _free(folder)), default=None)
    return Usage(_resident(), _memory_limit(), disk, None if free is None else disk + free)


def _free(folder: Path) -> Iterator[int]:
    """The free space on the folder's file system, unless the folder has vanished."""
    with contextlib.suppress(FileNotFoundError):
        yield shutil.disk_usage(folder).free


def _sizes(folder: Path) -> Iterator[int]:
    """The sizes of the files in a folder, without those that vanish meanwhile."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield (Path(parent) / name).lstat().st_size


def _resident() -> int | None:
    if not Path("/proc/self/statm").exists():
        return None
    return sum(_pages_of(pid) for pid in _family(os.getpid())) * os.sysconf("SC_PAGE_SIZE")


def _family(pid: int) -> Iterable[int]:
    """A process and all its descendants that still exist."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                with contextlib.suppress(OSError):
                    found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _pages_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0  # it has ended meanwhile


def _memory_limit() -> int | None:
    """The lowest known limit."""
    known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _GROUPS:
        with contextlib.suppress(OSError, ValueError):
            known.append(int(Path(path).read_text()))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 < soft < sys.maxsize and soft != resource.RLIM_INFINITY:
        known.append(soft)
    return min((one for one in known if one > 0), default=None)
