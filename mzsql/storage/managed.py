"""The vocabulary of storage-managed collections: kinds, rows, and commands.

Promise: only data, in values that hash and compare; `mzsql.storage.managed_collection` acts on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

#: A row as Python values of the collection's Arrow types; these collections hold metadata, never a user's data.
ManagedRow: TypeAlias = tuple[Any, ...]


#: The values that identify a group of a mirror's rows.
Group: TypeAlias = tuple[Any, ...]


class ManagedKind(msgspec.Struct, frozen=True):
    """The kind of a collection, and how often it is written.

    Attributes:
        differential: whether it mirrors state; else it is a history.
        lasting: for a mirror, the columns that identify groups of rows which outlive the process that wrote them;
            None: no rows do.
        most_rows: for a history, about how many rows it keeps: when it has twice as many, those with the least
            values in `oldest_by` are deleted. None: all.
        oldest_by: a column whose values grow with time.
        pause: seconds between two writes, unless somebody waits for them (`flush`) or it is closed.
        longest_pause: while changes keep coming each pause is twice the previous one, up to so many seconds.
    """

    differential: bool
    lasting: tuple[int, ...] | None = None
    most_rows: int | None = None
    oldest_by: int = 0
    pause: float = 0.0
    longest_pause: float = 0.0


class Append(msgspec.Struct, frozen=True):
    """Rows with their diffs, all at one time; `anew`: a group of a mirror's rows that is removed at that time, whoever
    wrote it.
    """

    updates: tuple[tuple[ManagedRow, int], ...]
    anew: Group | None = None


class Delete(msgspec.Struct, frozen=True):
    """The retraction of every row that was appended before and that a predicate holds for. `before`: it holds for those alone
    whose value in the kind's `oldest_by` is less, so where a history has none, there is nothing to look for.
    """

    predicate: Callable[[ManagedRow], bool]
    before: Any = None


Change: TypeAlias = Append | Delete
