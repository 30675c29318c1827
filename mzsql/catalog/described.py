"""The columns of builtin views, precomputed in `catalog/columns.json`.

Promise: a view's entry is used only while its own SQL text and the texts of all relations below it are those that the
entry was computed from; for any other view nothing is known, and the caller plans it. Most tools list all columns of
all relations, which would otherwise plan every builtin view in each process.
``python -m mzsql.adapter.planning.builtin_columns`` writes the file.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from importlib import resources

import msgspec

from mzsql.catalog.builtin import PACKAGE, Builtin, builtins
from mzsql.repr.types import RelationDesc

FILE = "columns.json"


class Described(msgspec.Struct, frozen=True):
    """A view's entry.

    Attributes:
        of: the fingerprint of its text and of the texts of what it reads.
        reads: the full names of the relations that its query names.
        desc: its columns.
    """

    of: str
    reads: tuple[str, ...]
    desc: RelationDesc


def fingerprints(texts: Mapping[str, str], reads: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Hashes of relations' texts, each including the texts of all that the relation reads.

    Args:
        texts: the statements of relations, by full name.
        reads: the full names of what each relation reads; acyclic.
    """
    found: dict[str, str] = {}

    def of(name: str) -> str:
        known = found.get(name)
        if known is None:
            below = "".join(of(one) for one in sorted(reads.get(name, ())))
            text = f"{texts.get(name, '')}\0{below}"
            known = found[name] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return known

    for name in texts:
        of(name)
    return found


def texts() -> dict[str, str]:
    """The statements of all builtin relations but plugins', by full name."""
    return {one.full_name: one.sql for one in builtins().values() if one.plugin is None}


def read(data: bytes) -> dict[str, Described]:
    """Decode the file: entries by the full names of views."""
    return msgspec.json.decode(data, type=dict[str, Described])


@functools.cache
def _current() -> dict[str, RelationDesc]:
    """The columns of all views whose entries are current."""
    file = resources.files(PACKAGE).joinpath(FILE)
    if not file.is_file():
        return {}  # before it is written for the first time
    kept = read(file.read_bytes())
    now = fingerprints(texts(), {name: one.reads for name, one in kept.items()})
    return {name: one.desc for name, one in kept.items() if now.get(name) == one.of}


def described(builtin: Builtin) -> RelationDesc | None:
    """A builtin view's columns; None where its entry is missing or outdated."""
    return None if builtin.plugin is not None else _current().get(builtin.full_name)
