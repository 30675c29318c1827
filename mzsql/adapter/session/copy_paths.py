"""Which files of the machine a connection's COPY may read and write: any, those in some folders, or none.

Promise: what a connection is confined to no statement changes. A path is judged by what it comes to, links and ``..`` followed, and that
is what is then opened. COPY from STDIN and to STDOUT touches no file of the machine, and is always allowed. Without confinement COPY may
do what the process may: that is for a program of one's own; what runs strangers' statements confines its connections.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from mzsql.repr.errors import InvalidParameter, SqlError


class CopyDenied(SqlError):
    """The connection may not COPY from or to that path."""

    sqlstate = "42501"


def local_file(place: str, purpose: str) -> Path:
    """The file of this machine that a statement names, ``~`` being somebody's home.

    Raises:
        InvalidParameter: there is no such home, or it can be no path.
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
    """What `COPY` may touch.

    Attributes:
        folders: in these, links followed, and what is below them; None: everywhere.
    """

    folders: tuple[Path, ...] | None = None

    def source(self, path: str) -> Path:
        """The file to read; raises CopyDenied."""
        return self._allowed(path, "COPY from a file", "reading")

    def target(self, path: str) -> Path:
        """The file to write; raises CopyDenied."""
        return self._allowed(path, "COPY to a file", "writing")

    def check_url(self, url: str) -> None:
        """A store's URL is nowhere in a folder; raises CopyDenied."""
        if self.folders is not None:
            raise self._denied("COPY to a URL", url)

    def _allowed(self, path: str, act: str, purpose: str) -> Path:
        found = local_file(path, purpose)
        if self.folders is None:
            return found
        try:
            # What is opened is what was judged.
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
