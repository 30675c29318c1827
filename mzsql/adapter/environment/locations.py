"""Where an environment is: a directory, three URLs, or a profile that names either; and whether it may be opened.

Promise: an environment's Blob store holds the environment's id, so no environment is opened with another's objects.
Nothing here shows a URL's secrets. A directory is an environment if and only if it holds the marker file; any other
directory that is not empty is refused and left untouched, as is an environment of a newer format.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from pathlib import Path

import msgspec

from mzsql.catalog import durable
from mzsql.location import Blob, local_url, shown_url
from mzsql.location.directories import make_directory, user_directory
from mzsql.location.privacy import close_to_others, make_file, warn_if_open
from mzsql.location.profiles import SCHEME as PROFILE
from mzsql.location.profiles import profile as read_profile
from mzsql.repr.errors import EnvironmentRefused, InvalidParameter

MARKER = "mzsql.json"

#: The key of the object in the Blob store that holds the environment's id.
BLOB_MARKER = "environment/mzsql.json"

#: The start of a URL. As the beginning of a directory's name it would be a mistake.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class Marker(msgspec.Struct, frozen=True):
    """The contents of the marker file; `created_at` is in milliseconds since the epoch."""

    environment_id: str
    format_version: int
    created_at: int


class Locations(msgspec.Struct, frozen=True):
    """The URLs of an environment's three stores.

    Attributes:
        blob, consensus, oracle: the URLs.
        directory: the directory that holds all three, if one does.
        environment_id: the id in that directory's marker file.
        profile: the profile that named the environment, if one did.
    """

    blob: str
    consensus: str
    oracle: str
    directory: str | None = None
    environment_id: str | None = None
    profile: str | None = None

    def __repr__(self) -> str:
        if self.directory is not None:
            return f"Locations({self.directory!r})"
        urls = ((kind, getattr(self, kind)) for kind in ("blob", "consensus", "oracle"))
        shown = ", ".join(f"{kind}={shown_url(url)!r}" for kind, url in urls)
        return (
            f"Locations({shown})"
            if self.profile is None
            else f"Locations(profile={self.profile!r}, {shown})"
        )

    @property
    def where(self) -> str:
        """The environment's place as messages name it, without secrets."""
        if self.profile is not None:
            return f"profile {self.profile}"
        return self.directory or shown_url(self.consensus)


def read_marker(directory: Path) -> Marker | None:
    """The marker of an environment's directory; None where the directory is missing or empty.

    Raises:
        EnvironmentRefused: the directory holds something else, or an environment of a newer format.
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
    """Check that this program knows a format version; ``where`` names what has it.

    Raises:
        EnvironmentRefused: the version is newer than any that this program knows.
    """
    if version > durable.FORMAT_VERSION:
        raise EnvironmentRefused(
            f"{where} was written by a newer mzsql: its format is {version}, this one knows up to {durable.FORMAT_VERSION}",
            hint="Upgrade mzsql to open it.",
        )


def _refuse_url(path: str) -> None:
    if _URL.match(path) and not Path(path).exists():
        raise InvalidParameter(
            f"an environment's place is a directory or profile:NAME, not a URL: {shown_url(path)}",
            hint="Name the URLs of its three stores, by blob=, consensus= and oracle= or in a profile of mzsql.toml; "
            "a directory of such a name is ./NAME.",
        )


def in_directory(path: str | os.PathLike[str], *, create: bool) -> Locations:
    """The environment in a directory, with a Blob store in files and the other two in SQLite.

    Args:
        path: the directory.
        create: whether to create an environment where there is none.

    Raises:
        InvalidParameter: the path is a URL.
        EnvironmentRefused: the place holds something else or a newer format, or is missing and not to be created.
    """
    if "\0" in os.fspath(path):
        raise InvalidParameter("an environment's directory cannot have the character U+0000")
    try:
        _refuse_url(os.fspath(path))
        directory = Path(path).expanduser().absolute()
        marker = read_marker(directory)
    except OSError as failure:
        raise EnvironmentRefused(
            f"cannot open an environment in {os.fspath(path)}: {failure.strerror}"
        ) from None
    except RuntimeError as failure:  # pathlib's, of a home that there is not
        raise EnvironmentRefused(
            f"cannot open an environment in {os.fspath(path)}: {failure}"
        ) from None
    if marker is not None:
        warn_if_open(directory)
    else:
        if not create:
            raise EnvironmentRefused(f"{directory} is not an mzsql environment")
        marker = Marker(str(uuid.uuid4()), durable.FORMAT_VERSION, time.time_ns() // 1_000_000)
        try:
            make_directory(directory)
            if not any(directory.iterdir()):
                # The directory is empty and becomes the environment's: close it to other users before anything is in
                # it.
                close_to_others(directory)
            else:
                warn_if_open(directory)
            scratch = directory / f".{MARKER}.{marker.environment_id}"
            make_file(scratch)
            scratch.write_bytes(msgspec.json.encode(marker))
            # Creating a hard link is atomic and fails where the name exists: of two processes that create at once, one
            # wins and both read its marker.
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


def hot_directory(locations: Locations, environment_id: str) -> Path | None:
    """The local directory where replicas cache arrangements: inside an environment's directory, else in the user's
    cache directory.

    Returns:
        The directory, which may be deleted at the cost of time only; None where the user has no home directory.
    """
    if locations.directory is not None:
        return Path(locations.directory) / "hot"
    try:
        return user_directory("XDG_CACHE_HOME", ".cache") / "mzsql" / environment_id / "hot"
    except RuntimeError:  # there is no home
        return None


class BlobMarker(msgspec.Struct, frozen=True):
    """The contents of the object `BLOB_MARKER`."""

    environment_id: str


def mark_blob(blob: Blob, locations: Locations, environment_id: str) -> None:
    """Write the environment's id into its Blob store, unless it is there.

    Raises:
        EnvironmentRefused: the Blob store is another environment's.
    """
    if not check_blob(blob, locations, environment_id):
        blob.set(BLOB_MARKER, msgspec.json.encode(BlobMarker(environment_id)))


def check_blob(
    blob: Blob, locations: Locations, environment_id: str, *, marked: bool = False
) -> bool:
    """Whether the Blob store holds this environment's id; False where it holds none.

    Args:
        blob: the Blob store.
        locations: its URL, for messages.
        environment_id: the id that it should hold.
        marked: whether it must hold one, since the catalog says that it was marked.

    Raises:
        EnvironmentRefused: it holds another environment's id, or none although it must.
    """
    data = blob.get(BLOB_MARKER)
    at = shown_url(locations.blob)
    if data is None:
        if marked:
            raise EnvironmentRefused(
                f"the Blob store {at} holds nothing of the environment at {locations.where} ({environment_id})",
                hint="Check the URL of the Blob store: it is another one than the environment was made with.",
            )
        return False
    try:
        found = msgspec.json.decode(data, type=BlobMarker)
    except msgspec.MsgspecError as broken:
        raise EnvironmentRefused(
            f"the object {BLOB_MARKER} in the Blob store {at} cannot be read ({broken})"
        ) from None
    if found.environment_id != environment_id:
        raise EnvironmentRefused(
            f"the Blob store {at} belongs to another environment ({found.environment_id}) than the one at {locations.where} "
            f"({environment_id})",
            hint="Name a prefix or bucket of its own for each environment.",
        )
    return True


def locate(
    path: str | os.PathLike[str] | None = None,
    *,
    blob: str | None = None,
    consensus: str | None = None,
    oracle: str | None = None,
    profile: str | None = None,
    create: bool = True,
) -> Locations:
    """The stores of the environment that these arguments name: by a directory, by URLs, or by a profile.

    Args:
        path: its directory, or ``profile:NAME``.
        blob: the URL of its Blob store.
        consensus: the URL of its Consensus store.
        oracle: the URL of its timestamp oracle; by default that of Consensus.
        profile: the name of a profile (`mzsql.location.profiles`).
        create: whether to create an environment where the directory is missing or empty.

    Raises:
        InvalidParameter: the arguments name no environment, or more than one way to it.
        InvalidUrl: there is no such profile.
        EnvironmentRefused: see `in_directory`.
    """
    urls = (blob, consensus, oracle)
    if path is not None and os.fspath(path).startswith(PROFILE):
        profile, path = os.fspath(path).removeprefix(PROFILE), None
    if profile is not None:
        if path is not None or any(url is not None for url in urls):
            raise InvalidParameter("give either a profile, or a directory or URLs, not both")
        return _of_profile(profile, create=create)
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


def _of_profile(name: str, *, create: bool) -> Locations:
    found = read_profile(name)
    if found.env is not None:
        return msgspec.structs.replace(in_directory(found.env, create=create), profile=name)
    if found.blob is None or found.consensus is None:
        raise InvalidParameter(
            f"profile {name!r} ({found.source}) does not name a whole environment",
            hint="It needs blob and consensus (and oracle, where that is another place than consensus), or env.",
        )
    return Locations(found.blob, found.consensus, found.oracle or found.consensus, profile=name)
