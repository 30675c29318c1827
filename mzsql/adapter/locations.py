"""Where an environment is: a directory, or three URLs; and whether what is there may be opened.

Promise: a directory is an environment iff it holds the marker file; anything else that is not empty is refused and left untouched, as is
an environment of a newer format.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import msgspec

from mzsql.adapter.catalog import FORMAT_VERSION
from mzsql.location import local_url
from mzsql.repr.errors import EnvironmentRefused, InvalidParameter

MARKER = "mzsql.json"


class Marker(msgspec.Struct, frozen=True):
    """What the marker file says."""

    environment_id: str
    format_version: int
    created_at: int


class Locations(msgspec.Struct, frozen=True):
    """The URLs of an environment's three stores; `directory` where they are inside one, `environment_id` as its marker says."""

    blob: str
    consensus: str
    oracle: str
    directory: str | None = None
    environment_id: str | None = None


def read_marker(directory: Path) -> Marker | None:
    """The marker of an environment's directory; None where the directory is missing or empty.

    Raises:
        EnvironmentRefused: something else is there, or a newer format.
    """
    path = directory / MARKER
    if path.is_file():
        try:
            marker = msgspec.json.decode(path.read_bytes(), type=Marker)
        except msgspec.MsgspecError as broken:
            raise EnvironmentRefused(
                f"{directory} is not an mzsql environment: its {MARKER} cannot be read ({broken})"
            ) from None
        refuse_newer(marker.format_version, str(directory))
        return marker
    if directory.exists() and not directory.is_dir():
        raise EnvironmentRefused(
            f"{directory} is not a directory", hint="Name a directory, or one that is to be made."
        )
    if directory.is_dir() and any(directory.iterdir()):
        raise EnvironmentRefused(
            f"{directory} is not an mzsql environment: it is not empty and has no {MARKER}",
            hint="Name an environment's directory, an empty one, or one that does not exist yet.",
        )
    return None


def refuse_newer(version: int, where: str) -> None:
    """EnvironmentRefused where a format is newer than this program's."""
    if version > FORMAT_VERSION:
        raise EnvironmentRefused(
            f"{where} was written by a newer mzsql: its format is {version}, this one knows up to {FORMAT_VERSION}",
            hint="Upgrade mzsql to open it.",
        )


def in_directory(path: str | os.PathLike[str], *, create: bool) -> Locations:
    """The environment in a directory, on files and SQLite.

    Args:
        path: the directory.
        create: whether to make a new environment where there is none.

    Raises:
        EnvironmentRefused: it is something else, of a newer format, or missing and not to be created.
    """
    directory = Path(path).expanduser().absolute()
    marker = read_marker(directory)
    if marker is None:
        if not create:
            raise EnvironmentRefused(f"{directory} is not an mzsql environment")
        marker = Marker(str(uuid.uuid4()), FORMAT_VERSION, time.time_ns() // 1_000_000)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            scratch = directory / f".{MARKER}.{marker.environment_id}"
            scratch.write_bytes(msgspec.json.encode(marker))
            # A hard link fails where the name is taken: of two processes that create at once, one wins.
            try:
                os.link(scratch, directory / MARKER)
            except FileExistsError:
                pass
            finally:
                scratch.unlink()
        except OSError as failure:
            raise EnvironmentRefused(
                f"cannot make an environment in {directory}: {failure.strerror}"
            ) from None
        marker = read_marker(directory)
        assert marker is not None
    return Locations(
        blob=local_url("file", str(directory / "blob")),
        consensus=local_url("sqlite", str(directory / "consensus.db")),
        oracle=local_url("sqlite", str(directory / "oracle.db")),
        directory=str(directory),
        environment_id=marker.environment_id,
    )


def locate(
    path: str | os.PathLike[str] | None = None,
    *,
    blob: str | None = None,
    consensus: str | None = None,
    oracle: str | None = None,
    create: bool = True,
) -> Locations:
    """Where the environment is that these arguments name.

    Raises:
        InvalidParameter: neither a directory nor all of the three URLs were given.
        EnvironmentRefused: see `in_directory`.
    """
    urls = (blob, consensus, oracle)
    if path is not None:
        if any(url is not None for url in urls):
            raise InvalidParameter(
                "give either a directory or the URLs of blob, consensus and oracle, not both"
            )
        return in_directory(path, create=create)
    if blob is None or consensus is None:
        raise InvalidParameter(
            "an environment needs a directory, or the URLs of blob, consensus and oracle",
            hint='mzsql.connect("./env") or mzsql.connect(blob="…", consensus="…", oracle="…")',
        )
    return Locations(blob, consensus, oracle if oracle is not None else consensus)
