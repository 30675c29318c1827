"""Migrations: the steps from each format of the catalog to the next.

Promise: a step is a pure function from the entries of one format, as bytes, to their changes for the next. It decodes
what it changes by itself, so it keeps working when the present types change, and it is never changed once released.
`migration` combines all steps from a catalog's format, and sets the new one. A process that only reads, or waits for
promotion, reads an older catalog through them and writes nothing; the first change by a process in charge writes them
too, in the same append, so a catalog always has exactly one format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from mzsql.catalog.durable_map import Change
from mzsql.repr.errors import InternalError

Entries = Mapping[str, bytes]
Step = Callable[[Entries], Change]

#: The key of the environment's entry, which has the format version in every format.
META = "meta/environment"

#: Steps by the format that they start from. The first format is the present one, so there are none yet.
STEPS: dict[int, Step] = {}


class _Format(msgspec.Struct, frozen=True):
    """The part of the environment's entry that every format has."""

    format_version: int


def format_of(entries: Entries) -> int | None:
    """The format of a catalog; None where there is no catalog yet.

    Raises:
        msgspec.MsgspecError: the environment's entry cannot be decoded.
    """
    entry = entries.get(META)
    return None if entry is None else msgspec.json.decode(entry, type=_Format).format_version


def migration(entries: Entries, wanted: int) -> Change:
    """The change that brings a catalog to a format; empty where it has that format, or there is no catalog.

    Raises:
        msgspec.MsgspecError: an entry cannot be decoded.
        InternalError: there is no step from its format.
    """
    found = format_of(entries)
    change: dict[str, bytes | None] = {}
    for number in range(wanted if found is None else found, wanted):
        if number not in STEPS:
            raise InternalError(f"there is no step from format {number} of the catalog")
        change.update(STEPS[number](migrated(entries, change)))
        change[META] = _of_format(migrated(entries, change)[META], number + 1)
    return change


def migrated(entries: Entries, change: Change) -> dict[str, bytes]:
    """The entries after a change."""
    return {key: value for key, value in {**entries, **change}.items() if value is not None}


def _of_format(entry: bytes, number: int) -> bytes:
    fields = msgspec.json.decode(entry, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**fields, "format_version": number})
