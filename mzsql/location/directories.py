"""Directories that survive a power failure.

Promise: after `make_directory`, and after `Durable.ensure`, every directory on the way to the given one survives a
power failure, whoever created it: an existing directory's entry in its parent need not have been fsynced. Source:
Pillai et al., "All File Systems Are Not Created Equal" (OSDI 2014), whose most common bug is the unsynced entry of a
new file or directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path

from mzsql.location.privacy import PRIVATE_DIRECTORY


def fsync_directory(directory: Path) -> None:
    """Make the directory's present entries durable; where it cannot be opened, by syncing everything."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        # Execute permission without read permission is common for services' parent directories.
        os.sync()
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Create ``directory`` and its parents; created ones are durable, and accessible to their owner only.

    Raises:
        NotADirectoryError: a file is in the way.
    """
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        if directory.parent == directory:
            break
        directory = directory.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, PRIVATE_DIRECTORY)  # noqa: PTH102
        if not path.is_dir() and path.exists():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        with contextlib.suppress(FileNotFoundError):
            fsync_directory(path.parent)


def user_directory(variable: str, default: str, variables: Mapping[str, str] = os.environ) -> Path:
    """The user's directory for a kind of files, by the XDG base directory specification: from ``variable``, else
    ``default`` below the home.

    Raises:
        RuntimeError: the variable is not set, and there is no home directory.
    """
    given = variables.get(variable, "")
    # The specification says that a relative path must be ignored.
    return Path(given) if Path(given).is_absolute() else Path.home() / default


class Durable:
    """The directories below a root whose entries this process has made durable, by path and inode, so that a recreated
    one is not mistaken.

    The trade-off: one recreated with the same inode is mistaken; its creator is about to fsync its entry itself.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[Path, tuple[int, int]] = {}

    def ensure(self, directory: Path) -> None:
        """Make the entries of ``directory`` and its parents up to the root durable; costs one stat each where that was
        done before.

        Raises:
            FileNotFoundError: it does not exist.
        """
        for path in (directory, *directory.parents):
            found = os.stat(path)  # noqa: PTH116
            identity = (found.st_dev, found.st_ino)
            if self._known.get(path) != identity:
                fsync_directory(path.parent)
                self._known[path] = identity
            if path == self._root:
                return

    def forget(self, directory: Path) -> None:
        """Forget a directory that was removed."""
        self._known.pop(directory, None)
