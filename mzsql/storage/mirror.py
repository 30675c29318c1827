"""What a mirror is to hold: the desired rows of a storage-managed collection, in groups.

Promise: commands take effect at once and in their order, and what is kept is no more than what is to be held. Rows of a mirror may be
*lasting*: those that an earlier process left stay, group by group, until the group is said anew; until they are known (`seed`) it is
remembered what was said and deleted of them. Pure: it reads and writes nothing, and whoever has it keeps others away meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from mzsql.storage.managed import Change, Delete, Group, ManagedRow


class Mirror:
    """The rows that a mirror is to hold.

    Args:
        lasting: the columns by which rows are groups that outlive the process that wrote them; None: none does.

    Attributes:
        groups: the rows by group, with their counts; no two groups have a row in common, and none is empty.
        seeded: whether what an earlier process left is known.
    """

    def __init__(self, lasting: tuple[int, ...] | None) -> None:
        self._lasting = lasting or ()
        self.groups: dict[Group, Counter[ManagedRow]] = {}
        self.seeded = lasting is None
        # Until what was left is known: the groups that were said anew, and what was deleted of the others.
        self._said: set[Group] = set()
        self._gone: list[Callable[[ManagedRow], bool]] = []

    def apply(self, command: Change) -> None:
        """Make a change to what is to be held."""
        if isinstance(command, Delete):
            self._delete(command)
            return
        if command.anew is not None:
            self.groups.pop(command.anew, None)
            if not self.seeded:
                self._said.add(command.anew)
        for row, diff in command.updates:
            group = self._group(row)
            rows = self.groups.setdefault(group, Counter())
            rows[row] += diff
            if not rows[row]:
                del rows[row]
            if not rows:
                del self.groups[group]

    def seed(self, left: Mapping[ManagedRow, int]) -> None:
        """Take over what an earlier process left, but for what was said anew or deleted meanwhile. Idempotent."""
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
                del rows[row]
            if not rows:
                del self.groups[group]
        if not self.seeded:
            self._gone.append(command.predicate)
