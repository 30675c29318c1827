"""Which local files a connection's COPY may read and write: any, those in given folders, or none.

Promise: no statement changes a connection's restriction. A path is judged after resolving links and ``..``, and the
resolved path is what is opened. COPY FROM STDIN and TO STDOUT touch no file and are always allowed. Without a
restriction COPY may do what the process may: fit for one's own program; a program that runs other people's statements
should restrict its connections.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from mzsql.repr.errors import InvalidParameter, SqlError


class CopyDenied(SqlError):
    """The connection may not COPY from or to that path."""

    sqlstate = "42501"


def local_file(place: str, purpose: str) -> Path:
    """The local file that a statement names; ``~`` is expanded.

    Raises:
        InvalidParameter: there is no such home directory, or this cannot be a path.
    """
    try:
        if "\0" in place:
            raise ValueError("a path cannot have the character U+0000")
        return Path(place.removeprefix("file://")).expanduser()
    except (
        RuntimeError,
        ValueError,
    ) as failure:  # RuntimeError is pathlib's of a home that there is not
        raise InvalidParameter(
            f'could not open file "{place}" for {purpose}: {failure}', sqlstate="58P01"
        ) from None


class CopyPaths(msgspec.Struct, frozen=True):
    """The files that COPY may touch.

    Attributes:
        folders: files in these folders and below them, links resolved; None: all files; empty: none.
    """

    folders: tuple[Path, ...] | None = None

    def source(self, path: str) -> Path:
        """The file to read.

        Raises:
            CopyDenied: it is outside the folders.
        """
        return self._allowed(path, "COPY from a file", "reading")

    def target(self, path: str) -> Path:
        """The file to write.

        Raises:
            CopyDenied: it is outside the folders.
        """
        return self._allowed(path, "COPY to a file", "writing")

    def check_url(self, url: str) -> None:
        """Check that COPY may use a URL, which it may where it is not restricted to folders.

        Raises:
            CopyDenied: COPY is restricted to folders: no URL is in one.
        """
        if self.folders is not None:
            raise self._denied("COPY to a URL", url)

    def _allowed(self, path: str, act: str, purpose: str) -> Path:
        found = local_file(path, purpose)
        if self.folders is None:
            return found
        try:
            # Resolve before judging, and return the resolved path: the caller opens what was judged.
            found = found.resolve()
        except (OSError, RuntimeError):
            raise self._denied(act, path) from None
        if not any(found.is_relative_to(folder) for folder in self.folders):
            raise self._denied(act, path)
        return found

    def _denied(self, act: str, path: str) -> CopyDenied:
        where = (
            "This connection may COPY from and to no file."
            if not self.folders
            else "This connection may COPY from and to files in "
            + ", ".join(str(folder) for folder in self.folders)
            + " only."
        )
        return CopyDenied(
            f"permission denied to {act}",
            detail=f'"{path}" is not allowed. {where}',
            hint="Anyone can COPY to stdout or from stdin.",
        )


ANYWHERE = CopyPaths()
