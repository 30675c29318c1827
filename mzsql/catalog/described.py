"""The columns of builtin views, as they were found out by planning each, and kept beside their files.

Promise: what is kept of a view is told only as long as its text, and that of all it reads, is the one that it was found out from; of any
other view nothing is known, and whoever wants its columns plans it. Whoever asks for all columns that there are, as most tools do, would
have every view planned else, in each process. ``python -m mzsql.adapter.planning.builtin_columns`` writes the file.
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
    """What is kept of a view.

    Attributes:
        of: the fingerprint of its text and of those of what it reads.
        reads: the whole names of the relations that its query names.
        desc: its columns.
    """

    of: str
    reads: tuple[str, ...]
    desc: RelationDesc


def fingerprints(texts: Mapping[str, str], reads: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """What is another one as soon as the text of a relation is, or of any that it reads.

    Args:
        texts: the statements of relations, by their whole names.
        reads: the names of what each reads, where it reads anything; no relation reads itself.
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
    """The statements of all builtin relations, by their whole names."""
    return {one.full_name: one.sql for one in builtins().values() if one.plugin is None}


def read(data: bytes) -> dict[str, Described]:
    """What a file keeps, by the whole names of views."""
    return msgspec.json.decode(data, type=dict[str, Described])


@functools.cache
def _current() -> dict[str, RelationDesc]:
    """What is kept of the views whose texts are those that it was found out from."""
    file = resources.files(PACKAGE).joinpath(FILE)
    if not file.is_file():
        return {}  # it is about to be written for the first time
    kept = read(file.read_bytes())
    now = fingerprints(texts(), {name: one.reads for name, one in kept.items()})
    return {name: one.desc for name, one in kept.items() if now.get(name) == one.of}


def described(builtin: Builtin) -> RelationDesc | None:
    """The columns of a builtin view, where they are known without planning it."""
    return None if builtin.plugin is not None else _current().get(builtin.full_name)
