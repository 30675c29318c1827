"""Restricting local stores to their owner.

Promise: directories that stores create have mode 0700 and files 0600, whatever the umask, from the moment they exist.
What is open already is not changed, since a group may share it on purpose; it is warned of once, in the log and as a
Python warning.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import warnings
from pathlib import Path

PRIVATE_DIRECTORY = 0o700
PRIVATE_FILE = 0o600
_OTHERS = 0o077

_log = logging.getLogger(__name__)
_warned: set[Path] = set()
_lock = threading.Lock()


class OpenToOthers(UserWarning):
    """Other users of the machine can access a store's directory or file."""


def make_file(path: Path) -> None:
    """Create an empty file at ``path`` where there is none.

    Raises:
        OSError: it cannot be created.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))


def close_to_others(path: Path) -> None:
    """Remove others' permissions on a file or directory of this user; one of another user is not changed."""
    mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116
    if mode & _OTHERS:
        with contextlib.suppress(PermissionError):
            os.chmod(path, mode & ~_OTHERS)  # noqa: PTH101


def warn_if_open(path: Path) -> None:
    """Warn where others have permissions on ``path`` and on its directory; once per process, and not for the contents
    of one warned of.
    """
    if not _is_open(path) or (path.is_file() and not _is_open(path.parent)):
        return
    with _lock:
        if path in _warned or not _warned.isdisjoint(path.parents):
            return
        _warned.add(path)
    what = "file" if path.is_file() else "directory"
    text = (
        f"other users of this machine can look into the {what} {path}: its mode is "
        f"{stat.S_IMODE(os.stat(path).st_mode):04o}. To keep it to yourself: chmod -R go= {path}"  # noqa: PTH116
    )
    _log.warning("%s", text)
    warnings.warn(text, OpenToOthers, stacklevel=3)


def _is_open(path: Path) -> bool:
    try:
        return bool(stat.S_IMODE(os.stat(path).st_mode) & _OTHERS)  # noqa: PTH116
    except OSError:
        return False
