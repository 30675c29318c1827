"""Who may look into what a store of this machine is made of: its owner alone.

Promise: directories that stores make here have mode 0700 and files 0600, whatever the umask says, from the moment they are there. What
is open already stays as it is, and is warned of once, in the log and as a Python warning: there may be a reason, as where a group
shares it.
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
    """A store's directory or file can be looked into by other users of the machine."""


def make_file(path: Path) -> None:
    """Have an empty file at ``path``, if there is none.

    Raises:
        OSError: it cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))


def close_to_others(path: Path) -> None:
    """Take what rights others have on a file or directory of this process's user; one of somebody else's stays as it is."""
    mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116
    if mode & _OTHERS:
        with contextlib.suppress(PermissionError):
            os.chmod(path, mode & ~_OTHERS)  # noqa: PTH101


def warn_if_open(path: Path) -> None:
    """Warn where others have rights on ``path`` and on the directory it is in; once a process, and not for what is in one warned of."""
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
