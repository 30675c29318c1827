"""CPU, memory and disk space that a replica's process uses, and its limits.

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
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from mzsql.expr.engines import scratch_path

#: Where a control group states its memory limit, in version 2 and version 1.
_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
#: Where a control group of version 2 states its quota of CPU time and the period it is for.
_CPU_GROUP = "/sys/fs/cgroup/cpu.max"
_NANOSECONDS = 10**9
#: CPU use over less than this says little: the system counts in hundredths of a second.
_LEAST_SECONDS = 1.0


class Usage(msgspec.Struct, frozen=True):
    """What a process uses and may use, in bytes and in billionths of a core; None if unknown.

    Attributes:
        memory: resident memory of the process and its descendants.
        memory_limit: the lowest of the machine's memory, the control group's limit and the process's own limit.
        disk: size of the files in its directories.
        disk_limit: `disk` plus the free space on the fullest of their file systems.
        cpu: how many nanoseconds of CPU time a second the process and its descendants used lately.
        cpu_limit: the lower of the cores that the process may run on and the control group's quota.
    """

    memory: int | None
    memory_limit: int | None
    disk: int
    disk_limit: int | None
    cpu: int | None = None
    cpu_limit: int | None = None


class Meter:
    """Measures the CPU use of this process and its descendants between two readings. Any number of threads may call.

    Args:
        monotonic: the clock, in seconds.
        used: gives the CPU time used so far, in nanoseconds; None where the system does not tell.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        used: Callable[[], int | None] | None = None,
    ) -> None:
        self._monotonic = monotonic
        self._used = used or _cpu_time
        self._lock = threading.Lock()
        # Two readings, so that one that follows another at once still looks back over a second or more.
        self._before = self._latest = (monotonic(), self._used())

    def rate(self) -> int | None:
        """Nanoseconds of CPU time a second since a reading that is `_LEAST_SECONDS` old or older, if there is one."""
        with self._lock:
            at, used = now = self._monotonic(), self._used()
            if at - self._latest[0] >= _LEAST_SECONDS:
                self._before, self._latest = self._latest, now
            since, base = self._before
            if used is None or base is None or at <= since:
                return None
            # A process that ended without being waited for takes its time with it.
            return max(0, round((used - base) / (at - since)))


def usage(kept: Path | None = None, meter: Meter | None = None) -> Usage:
    """What this process uses.

    Args:
        kept: a directory of its own besides the one that it spills to.
        meter: measures its CPU use; without it, that is None.
    """
    folders = [one for one in (scratch_path(), kept) if one is not None and one.is_dir()]
    disk = sum(size for folder in folders for size in _sizes(folder))
    free = min((one for folder in folders for one in _free(folder)), default=None)
    limit = None if free is None else disk + free
    rate = None if meter is None else meter.rate()
    return Usage(_resident(), _memory_limit(), disk, limit, rate, _cpu_limit())


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


def _cpu_time() -> int | None:
    """The CPU time, in nanoseconds, of this process, its descendants, and those of them that have ended."""
    if not Path("/proc/self/stat").exists():
        return None
    return (
        sum(_ticks_of(pid) for pid in _family(os.getpid()))
        * _NANOSECONDS
        // os.sysconf("SC_CLK_TCK")
    )


def _ticks_of(pid: int) -> int:
    try:
        # The name in parentheses may have spaces. Behind it, utime, stime, cutime and cstime are the fields 11 to 14.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # it has ended meanwhile
    return sum(map(int, fields[11:15]))


def _cpu_limit() -> int:
    """The lowest known limit, in billionths of a core."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    known = [cores * _NANOSECONDS]
    with contextlib.suppress(OSError, ValueError):
        quota, period = map(int, Path(_CPU_GROUP).read_text().split())  # "max" where there is none
        known.append(quota * _NANOSECONDS // period)
    return min(known)


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
