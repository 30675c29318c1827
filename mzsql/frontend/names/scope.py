"""Scopes: which columns a name can mean, and how far out they are.

Promise: names resolve as in PostgreSQL: innermost query first; within one, exactly one visible column must bear the name. A scope that
stands on the left of a join is a level of its own for what stands on the right, visible there only under LATERAL; those of one FROM
clause are looked through together, as no one of them is nearer than another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
        aliases: further tables it is of (``x`` of ``USING (…) AS x``).
        place: where it stands in its table.
        scalar: whether its table's name means the value itself, as that of a function of one column does, and no record.
    """

    name: str
    table: TableName | None
    typ: ColumnType
    unqualified: bool = True
    starred: bool = True
    aliases: tuple[TableName, ...] = ()
    scalar: bool = False
    place: int = 0

    def is_of(self, table: TableName) -> bool:
        """Whether a table's name, as a reference gives it, means a table that the column is of."""
        return any(matches(full, table) for full in self.tables())

    def tables(self) -> tuple[TableName, ...]:
        """The tables it is of."""
        return self.aliases if self.table is None else (self.table, *self.aliases)


@dataclass(frozen=True)
class Scope:
    """The columns of a relation, and the scopes around it.

    `reachable` is False for the left side of a join that is not LATERAL; `tables` are names in scope that have no column; `left` says
    that it is the left side of a join, seen from the right; `base` that a query's own FROM clause ends before it.
    """

    items: tuple[ScopeItem, ...] = ()
    outer: Scope | None = None
    reachable: bool = True
    tables: tuple[TableName, ...] = ()
    left: bool = False
    base: bool = False

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
        return {table for item in self.items for table in item.tables()} | set(self.tables)

    def blocked(self) -> Scope:
        """The same, with the left sides of the joins around out of reach, as for a subquery in FROM that is not LATERAL."""
        if not self.left or self.base:
            return self
        outer = self.outer
        return replace(self, reachable=False, outer=None if outer is None else outer.blocked())

    def queries(self) -> Iterator[list[tuple[int, Scope]]]:
        """The levels, those that are left sides in one FROM clause together."""
        together: list[tuple[int, Scope]] = []
        for level, scope in self.levels():
            together.append((level, scope))
            outer = scope.outer
            if outer is None or not (scope.left and outer.left) or outer.base:
                yield together
                together = []

    def resolve(self, table: TableName | None, name: str, position: int | None) -> tuple[int, int]:
        """Level and index of a column.

        Raises:
            UndefinedColumn, AmbiguousColumn, UndefinedTable.
        """
        if table is not None:
            return self._resolve_qualified(table, name, position)
        for together in self.queries():
            found = [
                (level, i)
                for level, scope in together
                if scope.reachable
                for i, item in enumerate(scope.items)
                if item.name == name and item.unqualified
            ]
            if len(found) > 1:
                raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=position)
            if found:
                return found[0]
        hint = _similar(name, (item.name for item in self.items))
        raise UndefinedColumn(f'column "{name}" does not exist', position=position, hint=hint)

    def _resolve_qualified(
        self, table: TableName, name: str, position: int | None
    ) -> tuple[int, int]:
        shown = ".".join((*table, name))
        found = self.find_table(table, position)
        if found is None:
            raise UndefinedColumn(f'column "{shown}" does not exist', position=position)
        level, scope = found
        columns = [
            i for i, item in enumerate(scope.items) if item.name == name and item.is_of(table)
        ]
        if len(columns) > 1:
            raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=position)
        if columns:
            return level, columns[0]
        hint = _similar(name, (item.name for item in scope.items if item.is_of(table)))
        raise UndefinedColumn(f'column "{shown}" does not exist', position=position, hint=hint)

    def find_table(self, table: TableName, position: int | None) -> tuple[int, Scope] | None:
        """Level and scope of the innermost table that a reference's qualifier means; None where no table bears the name.

        Raises:
            AmbiguousColumn: several tables to the left do.
            UndefinedTable: the one that does cannot be reached from here.
        """
        blocked = False
        for together in self.queries():
            known = [
                (level, scope)
                for level, scope in together
                if any(matches(t, table) for t in scope.table_names())
            ]
            reachable = [(level, scope) for level, scope in known if scope.reachable]
            if len(reachable) > 1:
                raise AmbiguousColumn(
                    f'table reference "{".".join(table)}" is ambiguous',
                    position=position,
                    sqlstate="42P09",
                )
            if reachable:
                return reachable[0]
            blocked = blocked or bool(known)
        if blocked:
            raise UndefinedTable(
                f'invalid reference to FROM-clause entry for table "{".".join(table)}"',
                position=position,
                hint=f'There is an entry for table "{table[-1]}", but it cannot be referenced from this part of the query: '
                "say LATERAL.",
            )
        return None

    def star(self, table: TableName | None, position: int | None) -> list[int]:
        """The columns that ``*`` or ``table.*`` stands for."""
        if table is None:
            return [i for i, item in enumerate(self.items) if item.starred]
        if not any(matches(t, table) for t in self.table_names()):
            raise UndefinedTable(
                f"no table named '{'.'.join(table)}' in scope", position=position, sqlstate="42P01"
            )
        found = [i for i, item in enumerate(self.items) if item.is_of(table)]
        # USING moves columns to the front or out of sight; a table's own order is not touched by that.
        return sorted(found, key=lambda i: self.items[i].place)

    def renamed(self, table: TableName | None, names: tuple[str, ...]) -> Scope:
        """The same columns under a table alias and, the first ones, under new names; what `*` passes over has no name then."""
        items: list[ScopeItem] = []
        given = iter(names)
        for item in self.items:
            if not item.starred:
                items.append(replace(item, table=None, unqualified=False, aliases=()))
                continue
            items.append(
                replace(
                    item,
                    table=table if table is not None else item.table,
                    name=next(given, item.name),
                    unqualified=True,
                    aliases=(),
                    place=len(items),
                )
            )
        tables = () if table is None else (table,)
        return Scope(tuple(items), self.outer, self.reachable, tables)


def matches(full: TableName, given: TableName) -> bool:
    """Whether a table's name in scope is what a reference means: the same last parts."""
    return len(given) <= len(full) and full[len(full) - len(given) :] == given


def _similar(name: str, known: Iterable[str]) -> str | None:
    """A hint at a column whose name differs in case or by a letter."""
    names = sorted(set(known))
    cased = [n for n in names if n.lower() == name != n]
    if cased:
        return f'Write "{cased[0]}": a name with capital letters stands in double quotes.'
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    return f'Perhaps you meant the column "{near[0]}".' if near else None
