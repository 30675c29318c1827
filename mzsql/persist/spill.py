"""Directories for what a merge spills to disk.

Promise: a directory is removed when its merge ends, however it ends; one left behind by a killed process is removed
when the next one is made on the machine. A lock on a file in it, which the kernel releases with the process, tells
the two apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "mzsql-compaction-"
_LOCK = "lock"


@contextlib.contextmanager
def spill_directory() -> Iterator[str]:
    """Make a new directory under the system's temporary one (``TMPDIR``) for as long as the block runs."""
    _sweep(Path(tempfile.gettempdir()))
    while True:
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
            lock = cleanup.enter_context((directory / _LOCK).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Before it was locked, another process may have taken it for one left behind and removed it; then make
            # another.
            if directory.exists():
                yield str(directory)
                return


def _sweep(parent: Path) -> None:
    """Remove the directories of processes that have ended, except those that this user may not open."""
    # Collect names only: in a directory with many files, a path for each would cost more than a small merge.
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        names = [entry.name for entry in entries]
    for left in (parent / name for name in names if name.startswith(_PREFIX)):
        with contextlib.suppress(OSError), (left / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
