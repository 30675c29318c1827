"""The numbers of builtin relations' ids, kept in `catalog/ids.json` by full name.

Promise: a number means one relation for good. A relation keeps its number whatever other relations a release adds, renames or drops, and
the number of one that was dropped is given to no other. So ids and OIDs of builtin relations may be stored, by an environment
as by a tool. Numbers begin at 1001: earlier builds numbered relations from 1 in order of their names, anew in every build, and none of
those ids may pass for one of these (`mzsql.catalog.former_ids`).

``python -m mzsql.adapter.planning.builtin_columns`` gives numbers to relations that have none. Until then such a relation has a
provisional one, which follows from its name.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Mapping
from importlib import resources

import msgspec

from mzsql.repr.ids import GlobalId

PACKAGE = "mzsql.system_catalog"
FILE = "ids.json"

#: The first number that lasts.
FIRST = 1_001
#: Provisional numbers are from here on, below those of logs and plugins' relations, which last by themselves.
_PROVISIONAL, _END = 100_000, 1_000_000


@functools.cache
def numbers() -> dict[str, int]:
    """The file's contents: numbers by full name, in order of the numbers."""
    file = resources.files(PACKAGE).joinpath(FILE)
    if not file.is_file():
        return {}  # before it is written for the first time
    return msgspec.json.decode(file.read_bytes(), type=dict[str, int])


def id_of(full_name: str) -> GlobalId:
    """The id of the builtin relation of this name."""
    number = numbers().get(full_name)
    if number is None:
        number = _PROVISIONAL + zlib.crc32(full_name.encode()) % (_END - _PROVISIONAL)
    return GlobalId(f"s{number}")


def of_the_system_catalog(gid: GlobalId) -> bool:
    """Whether an id is that of a relation in the system catalog's files, in this build or another one."""
    return gid[0] == "s" and int(gid[1:]) < _END


def numbered(known: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Numbers of all names: those known stay, also of names that are no more, and the others get the next ones."""
    new = sorted(set(names) - known.keys())
    first = max((FIRST - 1, *known.values())) + 1
    return {**known, **{name: number for number, name in enumerate(new, start=first)}}


def written(known: Mapping[str, int]) -> str:
    """The file's text, a line for each relation."""
    ordered = sorted(known.items(), key=lambda one: one[1])
    lines = (f"{msgspec.json.encode(name).decode()}: {number}" for name, number in ordered)
    return "{\n" + ",\n".join(lines) + "\n}\n"
