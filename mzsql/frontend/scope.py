"""Scopes: which columns a name can mean, and how far out they are.

Promise: names resolve as in PostgreSQL: innermost scope first; within one, exactly one visible column must bear the name. A scope that
stands on the left of a join is a level of its own for what stands on the right, visible there only under LATERAL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches

from mzsql.repr.errors import AmbiguousColumn, UndefinedColumn, UndefinedTable
from mzsql.repr.types import ColumnType

#: A table's name in a scope: its alias, or the parts of its full name, the last one last.
TableName = tuple[str, ...]


@dataclass(frozen=True)
class ScopeItem:
    """A column.

    Attributes:
        name: its name.
        table: the table it is of; None for a computed one.
        typ: its type.
        unqualified: whether it can be meant without its table's name (one side's column of a USING join cannot).
        starred: whether `*` expands to it.
    """

    name: str
    table: TableName | None
    typ: ColumnType
    unqualified: bool = True
    starred: bool = True


@dataclass(frozen=True)
class Scope:
    """The columns of a relation, and the scopes around it.

    `reachable` is False for the left side of a join that is not LATERAL; `tables` are names in scope that have no column.
    """

    items: tuple[ScopeItem, ...] = ()
    outer: Scope | None = None
    reachable: bool = True
    tables: tuple[TableName, ...] = ()

    def types(self) -> tuple[ColumnType, ...]:
        """The columns' types."""
        return tuple(item.typ for item in self.items)

    def levels(self) -> Iterator[tuple[int, Scope]]:
        """This scope and those around it, with their levels."""
        scope: Scope | None = self
        level = 0
        while scope is not None:
            yield level, scope
            scope, level = scope.outer, level + 1

    def item(self, level: int, index: int) -> ScopeItem:
        """A column by its position."""
        for found, scope in self.levels():
            if found == level:
                return scope.items[index]
        raise IndexError(level)

    def table_names(self) -> set[TableName]:
        """The tables that have a name here."""
        return {item.table for item in self.items if item.table is not None} | set(self.tables)

    def resolve(self, table: TableName | None, name: str, position: int | None) -> tuple[int, int]:
        """Level and index of a column.

        Raises:
            UndefinedColumn, AmbiguousColumn, UndefinedTable.
        """
        if table is not None:
            return self._resolve_qualified(table, name, position)
        for level, scope in self.levels():
            if not scope.reachable:
                continue
            found = [
                i for i, item in enumerate(scope.items) if item.name == name and item.unqualified
            ]
            if len(found) > 1:
                raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=position)
            if found:
                return level, found[0]
        raise UndefinedColumn(
            f'column "{name}" does not exist', position=position, hint=self._similar(name)
        )

    def _resolve_qualified(
        self, table: TableName, name: str, position: int | None
    ) -> tuple[int, int]:
        blocked = False
        shown = ".".join((*table, name))
        for level, scope in self.levels():
            known = [t for t in scope.table_names() if matches(t, table)]
            if not known:
                continue
            if not scope.reachable:
                blocked = True
                continue
            found = [
                i
                for i, item in enumerate(scope.items)
                if item.name == name and item.table is not None and matches(item.table, table)
            ]
            if len(found) > 1:
                raise AmbiguousColumn(f'column reference "{shown}" is ambiguous', position=position)
            if found:
                return level, found[0]
            raise UndefinedColumn(f'column "{shown}" does not exist', position=position)
        if blocked:
            raise UndefinedTable(
                f'invalid reference to FROM-clause entry for table "{".".join(table)}"',
                position=position,
                hint=f'There is an entry for table "{table[-1]}", but it cannot be referenced from this part of the query: '
                "say LATERAL.",
            )
        raise UndefinedColumn(f'column "{shown}" does not exist', position=position)

    def _similar(self, name: str) -> str | None:
        """A hint at a column whose name differs in case or by a letter."""
        near = get_close_matches(name, sorted({i.name for i in self.items}), n=1, cutoff=0.75)
        return f'Perhaps you meant the column "{near[0]}".' if near else None

    def star(self, table: TableName | None, position: int | None) -> list[int]:
        """The columns that ``*`` or ``table.*`` stands for."""
        if table is None:
            return [i for i, item in enumerate(self.items) if item.starred]
        if not any(matches(t, table) for t in self.table_names()):
            raise UndefinedTable(
                f'no table named "{".".join(table)}" in scope', position=position, sqlstate="42P01"
            )
        seen: dict[str, int] = {}
        found: list[int] = []
        for i, item in enumerate(self.items):
            if item.table is not None and matches(item.table, table):
                seen.setdefault(item.name, i)
                found.append(i)
        return found

    def renamed(self, table: TableName | None, names: tuple[str, ...]) -> Scope:
        """The same columns under a table alias and, the first ones, under new names."""
        items = tuple(
            replace(
                item,
                table=table if table is not None else item.table,
                name=names[i] if i < len(names) else item.name,
                unqualified=True,
                starred=True,
            )
            for i, item in enumerate(self.items)
        )
        return Scope(items, self.outer, self.reachable, () if table is None else (table,))


def matches(full: TableName, given: TableName) -> bool:
    """Whether a table's name in scope is what a reference means: the same last parts."""
    return len(given) <= len(full) and full[len(full) - len(given) :] == given
