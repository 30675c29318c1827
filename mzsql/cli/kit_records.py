"""The latest results of the kit for each backend of each plugin, kept per user between runs of ``mzsql plugins``.

Promise: one small JSON file per distribution, scheme and kind in ``$XDG_STATE_HOME/mzsql/kit`` (``~/.local/state`` by
default), replaced atomically; it contains no secrets. A record is valid for the plugin's and the kit's version it was
made with, and out of date for any other. An unreadable record counts as none.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from mzsql.location.directories import user_directory


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the kit on one kind of backend.

    Attributes:
        distribution: the plugin's distribution.
        version: the plugin's version.
        scheme: the URL's scheme.
        kind: the kind of backend.
        kit_version: the version of the kit's cases.
        mzsql_version: the version of mzsql.
        url: the URL without secrets.
        level: quick or full.
        seed: the seed that repeats the run.
        ended_ms: the end of the run, in milliseconds since 1970.
        passed: the number of cases that passed.
        skipped: the number of skipped cases.
        failed: the names of the failed cases.
    """

    distribution: str
    version: str
    scheme: str
    kind: str
    kit_version: int
    mzsql_version: str
    url: str
    level: str
    seed: int
    ended_ms: int
    passed: int
    skipped: int
    failed: tuple[str, ...] = ()


def state_directory(variables: Mapping[str, str] = os.environ) -> Path:
    """The directory of this user's records."""
    return user_directory("XDG_STATE_HOME", ".local/state", variables) / "mzsql" / "kit"


def _path(directory: Path, distribution: str, scheme: str, kind: str) -> Path:
    return directory / f"{quote(distribution, safe='')}~{quote(scheme, safe='')}~{kind}.json"


def keep(record: Record, directory: Path | None = None) -> None:
    """Store a record in place of the previous one.

    Args:
        record: the record.
        directory: the directory; `state_directory` by default.

    Raises:
        OSError: the directory is not writable.
    """
    directory = directory or state_directory()
    directory.mkdir(parents=True, exist_ok=True)
    path = _path(directory, record.distribution, record.scheme, record.kind)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def find(distribution: str, scheme: str, kind: str, directory: Path | None = None) -> Record | None:
    """The readable record of the latest run, of any version; None if there is none."""
    path = _path(directory or state_directory(), distribution, scheme, kind)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None
