"""The steps from each format of the catalog to the next one.

Promise: a step is a pure function from the entries of one format, as bytes, to what becomes of them in the next; it decodes what it
changes by itself, so that it goes on doing the same whatever becomes of the present types, and once released it is not changed. `migration`
is all the steps from whatever format there is, and names the new one. A program that only reads, or waits to be promoted, reads an older
catalog through them and writes nothing; the first change that one in charge makes writes them along, in one append: a catalog is wholly of
one format at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from mzsql.catalog.durable_map import Change
from mzsql.repr.errors import InternalError

Entries = Mapping[str, bytes]
Step = Callable[[Entries], Change]

#: The entry that says what the environment is, its format too, in every format.
META = "meta/environment"

#: By the format that each goes on from. In the first one, which is the present one, nothing is to be changed yet.
STEPS: dict[int, Step] = {}


class _Format(msgspec.Struct, frozen=True):
    """What any format's entry of its environment has."""

    format_version: int


def format_of(entries: Entries) -> int | None:
    """The format of a catalog; None where there is none yet.

    Raises:
        msgspec.MsgspecError: its entry of the environment cannot be read.
    """
    entry = entries.get(META)
    return None if entry is None else msgspec.json.decode(entry, type=_Format).format_version


def migration(entries: Entries, wanted: int) -> Change:
    """What is to be changed of a catalog for it to be of a format; nothing where it is, or where there is none.

    Raises:
        msgspec.MsgspecError: an entry cannot be read.
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
    """Entries after a change."""
    return {key: value for key, value in {**entries, **change}.items() if value is not None}


def _of_format(entry: bytes, number: int) -> bytes:
    fields = msgspec.json.decode(entry, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**fields, "format_version": number})
