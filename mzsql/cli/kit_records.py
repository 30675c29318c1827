"""What the kit found last, for each backend of each plugin: kept for this user between runs of ``mzsql plugins``.

Promise: one small JSON file for each distribution, scheme and kind below ``$XDG_STATE_HOME/mzsql/kit`` (``~/.local/state`` where that is
not set), replaced as a whole; nothing in it is secret. A record counts for the version of the plugin and of the kit it was made with, and
is out of date for any other. One that cannot be read is as none.
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
    """One run of the kit on one kind of backend.

    Attributes:
        distribution, version: of the plugin.
        scheme, kind: what was opened.
        kit_version: of the cases.
        mzsql_version: of mzsql.
        url: where, without secrets.
        level: quick or full.
        seed: what reruns it.
        ended_ms: when, in milliseconds since 1970.
        passed, skipped: how many cases.
        failed: the names of the cases that failed.
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
    """Where this user's state is kept."""
    return user_directory("XDG_STATE_HOME", ".local/state", variables) / "mzsql" / "kit"


def _path(directory: Path, distribution: str, scheme: str, kind: str) -> Path:
    return directory / f"{quote(distribution, safe='')}~{quote(scheme, safe='')}~{kind}.json"


def keep(record: Record, directory: Path | None = None) -> None:
    """Keep a record in place of the one before.

    Raises:
        OSError: the directory cannot be written.
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
    """The record of the latest run, of whatever versions, if there is one that can be read."""
    path = _path(directory or state_directory(), distribution, scheme, kind)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None
