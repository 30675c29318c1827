"""What a replica's process takes of its machine, and what it may take.

Promise: figures of the moment, asked of the operating system: of the process and all that it has started (Spark's virtual machine,
workers), and of the directories that it spills to and keeps traces in. What a machine does not tell is None, never a guess. Nothing is
limited here.
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

#: Where a control group says how much memory it has, of both versions.
_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Usage(msgspec.Struct, frozen=True):
    """What a process takes and may take, in bytes; None where that is not known.

    Attributes:
        memory: resident, of the process and those below it.
        memory_limit: the least of the machine's, the control group's and the process's own limit.
        disk: in its directories.
        disk_limit: that and what is free there, of the fullest of their file systems.
    """

    memory: int | None
    memory_limit: int | None
    disk: int
    disk_limit: int | None


def usage(kept: Path | None = None) -> Usage:
    """What this process takes.

    Args:
        kept: a directory of its own beside the one that it spills to.
    """
    folders = [one for one in (scratch_path(), kept) if one is not None and one.is_dir()]
    disk = sum(size for folder in folders for size in _sizes(folder))
    free = min((one for folder in folders for one in _free(folder)), default=None)
    return Usage(_resident(), _memory_limit(), disk, None if free is None else disk + free)


def _free(folder: Path) -> Iterator[int]:
    """What is free on its file system, unless it has gone meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        yield shutil.disk_usage(folder).free


def _sizes(folder: Path) -> Iterator[int]:
    """What its files take, those that go meanwhile left out."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield (Path(parent) / name).lstat().st_size


def _resident() -> int | None:
    if not Path("/proc/self/statm").exists():
        return None
    return sum(_pages_of(pid) for pid in _family(os.getpid())) * os.sysconf("SC_PAGE_SIZE")


def _family(pid: int) -> Iterable[int]:
    """A process, and all below it that are there still."""
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
    """The least limit that is known."""
    known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _GROUPS:
        with contextlib.suppress(OSError, ValueError):
            known.append(int(Path(path).read_text()))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 < soft < sys.maxsize and soft != resource.RLIM_INFINITY:
        known.append(soft)
    return min((one for one in known if one > 0), default=None)
