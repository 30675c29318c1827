"""Directories that survive a power loss.

Promise: after `make_directory`, and after `Durable.ensure`, every directory down to the one asked for is found again after a power loss,
whoever made it: that a directory is there does not mean that its entry was ever written. Source: Pillai et al., "All File Systems Are
Not Created Equal" (OSDI 2014), whose commonest fault is the entry of a new file or directory that nobody fsynced.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path

from mzsql.location.privacy import PRIVATE_DIRECTORY


def fsync_directory(directory: Path) -> None:
    """Make the directory's present entries durable; where it cannot be opened, by writing out everything there is."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        # It may be entered and not be listed, as the parents of many a service's directory.
        os.sync()
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make ``directory`` and its parents; those made here are durable, and their owner's alone.

    Raises:
        NotADirectoryError: something else is in the way.
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
    """Where this user's files of a kind are: as a variable of the XDG base directory specification says, or below the home.

    Raises:
        RuntimeError: the variable does not say, and there is no home.
    """
    given = variables.get(variable, "")
    # As the specification has it, a relative path is no path.
    return Path(given) if Path(given).is_absolute() else Path.home() / default


class Durable:
    """The directories at and below a root whose entries this process has seen to, by path and inode: one made anew is another.

    Trade-off: one made anew with the same inode is taken for the old one; its maker is about to fsync its entry.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[Path, tuple[int, int]] = {}

    def ensure(self, directory: Path) -> None:
        """Make the entry of ``directory``, and of each above it up to the root, durable; costs one stat each where that was done before.

        Raises:
            FileNotFoundError: it is not there.
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
        """Take a directory that was removed for unknown."""
        self._known.pop(directory, None)
