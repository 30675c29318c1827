"""The desired contents of a storage-managed mirror, in groups.

Promise: changes take effect at once and in order, and no more is kept than the desired contents and by what they
differ from those of the last `take`, so that a write costs as much as has changed. Rows of a mirror may be *lasting*:
those that an earlier process wrote stay, group by group, until the group is replaced. Until these are known (`seed`),
it is remembered which groups were replaced and what was deleted. Pure: it does no IO, and its owner does the locking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from mzsql.storage.managed import Change, Delete, Group, ManagedRow


class Mirror:
    """The rows that a mirror should contain.

    Args:
        lasting: the columns that identify groups which outlive the process that wrote them; None: no rows do.

    Attributes:
        groups: the rows by group, with their counts; no two groups share a row, and none is empty.
        seeded: whether the rows of an earlier process are known.
    """

    def __init__(self, lasting: tuple[int, ...] | None) -> None:
        self._lasting = lasting or ()
        self.groups: dict[Group, Counter[ManagedRow]] = {}
        self.seeded = lasting is None
        # By what the rows differ from those of the last `take`.
        self._changed: Counter[ManagedRow] = Counter()
        # Until those are known: the groups that were replaced, and what was deleted of the others.
        self._said: set[Group] = set()
        self._gone: list[Callable[[ManagedRow], bool]] = []

    def apply(self, command: Change) -> None:
        """Apply a change to the desired contents."""
        if isinstance(command, Delete):
            self._delete(command)
            return
        if command.anew is not None:
            for row, count in self.groups.pop(command.anew, {}).items():
                self._change(row, -count)
            if not self.seeded:
                self._said.add(command.anew)
        for row, diff in command.updates:
            group = self._group(row)
            rows = self.groups.setdefault(group, Counter())
            rows[row] += diff
            self._change(row, diff)
            if not rows[row]:
                del rows[row]
            if not rows:
                del self.groups[group]

    def take(self) -> Counter[ManagedRow]:
        """By what the rows differ from those of the last call. Of the first calls, until the rows of an earlier process
        are known, only `desired` counts.
        """
        taken, self._changed = self._changed, Counter()
        return taken

    def _change(self, row: ManagedRow, diff: int) -> None:
        changed = self._changed[row] + diff
        if changed:
            self._changed[row] = changed
        else:
            del self._changed[row]

    def seed(self, left: Mapping[ManagedRow, int]) -> None:
        """Take over the rows of an earlier process, except those replaced or deleted meanwhile. Idempotent."""
        if self.seeded:
            return
        for row, diff in left.items():
            group = self._group(row)
            if group not in self._said and not any(gone(row) for gone in self._gone):
                self.groups.setdefault(group, Counter())[row] += diff
        self.seeded = True
        self._said, self._gone = set(), []

    def desired(self) -> Counter[ManagedRow]:
        """All rows."""
        found: Counter[ManagedRow] = Counter()
        for rows in self.groups.values():
            dict.update(found, rows)
        return found

    def _group(self, row: ManagedRow) -> Group:
        return tuple(row[i] for i in self._lasting)

    def _delete(self, command: Delete) -> None:
        for group, rows in list(self.groups.items()):
            for row in [row for row in rows if command.predicate(row)]:
                self._change(row, -rows.pop(row))
            if not rows:
                del self.groups[group]
        if not self.seeded:
            self._gone.append(command.predicate)
