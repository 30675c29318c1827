"""Names of things: global ids of catalog objects.

Promise: an id is written as Materialize writes it: ``s1`` (system), ``u1`` (user), ``t1`` (transient: a one-shot query). It is a
plain `str` at run time, so that it is a map key, a JSON value and a column value without conversion.
"""

from __future__ import annotations

import itertools
import re
from typing import NewType

GlobalId = NewType("GlobalId", str)

_ID = re.compile(r"(s|u|t)(\d+)")


def global_id(kind: str, number: int) -> GlobalId:
    """The id ``<kind><number>``; kind is one of s, u, t."""
    return parse_global_id(f"{kind}{number}")


def parse_global_id(text: str) -> GlobalId:
    """The id that a text spells.

    Raises:
        ValueError: it spells none.
    """
    if _ID.fullmatch(text) is None:
        msg = f"not a global id: {text!r}"
        raise ValueError(msg)
    return GlobalId(text)


def sort_key(gid: GlobalId) -> tuple[str, int]:
    """Order ids by kind, then by number (``u2`` before ``u10``)."""
    return gid[0], int(gid[1:])


def oid(gid: str) -> int:
    """A stable number for an id: users' objects and the system's in ranges of their own."""
    return (20_000 if gid.startswith("u") else 10_000) + int(gid[1:])


class TransientIds:
    """Makes the ids t1, t2, … of dataflows that are in no catalog: queries, subscriptions. One instance for a process, so that no id is
    given twice. Thread-safe.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self) -> GlobalId:
        """The next id."""
        return GlobalId(f"t{next(self._numbers)}")
