"""What is said of storage-managed collections: their kinds, their rows, and the commands that they take.

Promise: data alone, in values that hash and compare; what becomes of it is `mzsql.storage.managed_collection`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

#: A row as Python values of the collection's Arrow types; these collections hold metadata, never a user's data.
ManagedRow: TypeAlias = tuple[Any, ...]


#: The values by which a mirror's rows are one group.
Group: TypeAlias = tuple[Any, ...]


class ManagedKind(msgspec.Struct, frozen=True):
    """What kind of collection one is, and how often it is written.

    Attributes:
        differential: whether it mirrors state; else it is a history.
        lasting: of a mirror, the columns by which its rows are groups that outlive the process that wrote them; None: none does.
        most_rows: of a history, about how many rows it keeps: once it has twice as many, those with the least values in `oldest_by` go.
            None: all.
        oldest_by: a column whose values grow with time.
        pause: so many seconds pass between two writes, unless somebody waits for them (`flush`) or it is closed.
        longest_pause: while changes keep coming each pause is twice the one before it, up to so many seconds.
    """

    differential: bool
    lasting: tuple[int, ...] | None = None
    most_rows: int | None = None
    oldest_by: int = 0
    pause: float = 0.0
    longest_pause: float = 0.0


class Append(msgspec.Struct, frozen=True):
    """Rows with their diffs, all at one time; `anew`: a group of a mirror's rows that goes at that time, whoever wrote it."""

    updates: tuple[tuple[ManagedRow, int], ...]
    anew: Group | None = None


class Delete(msgspec.Struct, frozen=True):
    """The retraction of every row that was appended before and that a predicate holds for."""

    predicate: Callable[[ManagedRow], bool]


Change: TypeAlias = Append | Delete
