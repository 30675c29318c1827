"""Scopes: which columns a name can refer to, and how many scopes out they are.

Promise: names resolve as in PostgreSQL: the innermost query first; within one query, exactly one visible column must
have the name. The left side of a join is a scope of its own for the right side, visible there only under LATERAL. The
left sides within one FROM clause are searched together, since none of them is nearer than another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches

import msgspec
from msgspec import structs

from mzsql.repr.errors import AmbiguousColumn, UndefinedColumn, UndefinedTable, alike
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import ColumnType

#: A table's name in a scope: its alias, or the parts of its full name in order.
TableName = tuple[str, ...]


class ScopeItem(msgspec.Struct, frozen=True):
    """A column in scope.

    Attributes:
        name: its name.
        table: its table; None for a computed column.
        typ: its type.
        unqualified: whether it can be referred to without its table (not so for one side's column of a USING join).
        starred: whether ``*`` includes it.
        aliases: further tables that it belongs to (``x`` of ``USING (…) AS x``).
        scalar: whether the table's name means the value itself, as for a function with one column, instead of a record.
        place: its position in its table.
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
        """Whether a table name in a reference means a table that the column belongs to."""
        return any(matches(full, table) for full in self.tables())

    def tables(self) -> tuple[TableName, ...]:
        """The tables that it belongs to."""
        return self.aliases if self.table is None else (self.table, *self.aliases)


@dataclass(frozen=True)
class Scope:
    """The columns of a relation, and the scopes around it.

    Attributes:
        items: the columns.
        outer: the next scope outward.
        reachable: False for the left side of a join that is not LATERAL.
        tables: the names of the tables in scope, including those without columns.
        left: whether this is the left side of a join, seen from the right side.
        base: whether a query's own FROM clause ends before this scope.
    """

    items: tuple[ScopeItem, ...] = ()
    outer: Scope | None = None
    reachable: bool = True
    tables: tuple[TableName, ...] = ()
    left: bool = False
    base: bool = False

    @lazy_property
    def named(self) -> dict[str, list[int]]:
        """The positions of the columns of each name."""
        # A SELECT of a thousand columns would otherwise look through a thousand items for each of them.
        found: dict[str, list[int]] = {}
        for i, item in enumerate(self.items):
            found.setdefault(item.name, []).append(i)
        return found

    def types(self) -> tuple[ColumnType, ...]:
        """The columns' types."""
        return tuple(item.typ for item in self.items)

    def levels(self) -> Iterator[tuple[int, Scope]]:
        """This scope and those around it, each with its level."""
        scope: Scope | None = self
        level = 0
        while scope is not None:
            yield level, scope
            scope, level = scope.outer, level + 1

    def item(self, level: int, index: int) -> ScopeItem:
        """A column by level and position.

        Raises:
            IndexError: there is no such level.
        """
        for found, scope in self.levels():
            if found == level:
                return scope.items[index]
        raise IndexError(level)

    def table_names(self) -> set[TableName]:
        """The tables that have a name here."""
        return {table for item in self.items for table in item.tables()} | set(self.tables)

    def blocked(self) -> Scope:
        """This scope with the left sides of surrounding joins unreachable, as for a subquery in FROM that is not
        LATERAL.
        """
        if not self.left or self.base:
            return self
        outer = self.outer
        return replace(self, reachable=False, outer=None if outer is None else outer.blocked())

    def queries(self) -> Iterator[list[tuple[int, Scope]]]:
        """The scopes with their levels, grouped by query: the left sides in one FROM clause together."""
        together: list[tuple[int, Scope]] = []
        for level, scope in self.levels():
            together.append((level, scope))
            outer = scope.outer
            if outer is None or not (scope.left and outer.left) or outer.base:
                yield together
                together = []

    def resolve(self, table: TableName | None, name: str, position: int | None) -> tuple[int, int]:
        """The level and index of the column that a reference means.

        Args:
            table: the reference's table; None where it is unqualified.
            name: the column's name.
            position: the reference's position, for errors.

        Raises:
            UndefinedColumn: no visible column has the name.
            AmbiguousColumn: several have.
            UndefinedTable: the table cannot be referenced from here.
        """
        if table is not None:
            return self._resolve_qualified(table, name, position)
        for together in self.queries():
            found = [
                (level, i)
                for level, scope in together
                if scope.reachable
                for i in scope.named.get(name, ())
                if scope.items[i].unqualified
            ]
            if len(found) > 1:
                raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=position)
            if found:
                return found[0]
        # The query's own columns first, then those of the queries around it.
        hints = (
            column_like(name, (item.name for _, scope in together for item in scope.items))
            for together in self.queries()
        )
        hint = next(filter(None, hints), None)
        raise UndefinedColumn(f'column "{name}" does not exist', position=position, hint=hint)

    def _resolve_qualified(
        self, table: TableName, name: str, position: int | None
    ) -> tuple[int, int]:
        shown = ".".join((*table, name))
        found = self.find_table(table, position)
        if found is None:
            tables = [
                known[-1]
                for together in self.queries()
                for _, scope in together
                if scope.reachable
                for known in scope.table_names()
            ]
            hint = alike(table[-1], tables)
            raise UndefinedColumn(f'column "{shown}" does not exist', position=position, hint=hint)
        level, scope = found
        columns = [i for i in scope.named.get(name, ()) if scope.items[i].is_of(table)]
        if len(columns) > 1:
            raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=position)
        if columns:
            return level, columns[0]
        hint = column_like(name, (item.name for item in scope.items if item.is_of(table)))
        raise UndefinedColumn(f'column "{shown}" does not exist', position=position, hint=hint)

    def find_table(self, table: TableName, position: int | None) -> tuple[int, Scope] | None:
        """The level and scope of the innermost table that a reference's qualifier means; None where no table has the
        name.

        Raises:
            AmbiguousColumn: several tables to the left have it.
            UndefinedTable: the table that has it cannot be referenced from here.
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

    def star(self, table: TableName | None, position: int | None) -> list[tuple[int, int]]:
        """The levels and positions of the columns that ``*`` or ``table.*`` stands for; the table may be one of an outer query's.

        Raises:
            AmbiguousColumn: several tables to the left have the name.
            UndefinedTable: no such table is in scope.
        """
        if table is None:
            return [(0, i) for i, item in enumerate(self.items) if item.starred]
        known = self.find_table(table, position)
        if known is None:
            raise UndefinedTable(
                f"no table named '{'.'.join(table)}' in scope", position=position, sqlstate="42P01"
            )
        level, scope = known
        found = [i for i, item in enumerate(scope.items) if item.is_of(table)]
        # Sorted by place: USING moves merged columns to the front, but ``table.*`` keeps the table's own order.
        return [(level, i) for i in sorted(found, key=lambda i: scope.items[i].place)]

    def renamed(self, table: TableName | None, names: tuple[str, ...]) -> Scope:
        """The columns under a table alias, the first ones under new names. Columns that ``*`` skips cannot be referred
        to any more.
        """
        items: list[ScopeItem] = []
        given = iter(names)
        for item in self.items:
            if not item.starred:
                items.append(structs.replace(item, table=None, unqualified=False, aliases=()))
                continue
            items.append(
                structs.replace(
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
    """Whether a reference's table name means a table in scope: it equals the last parts of the full name."""
    return len(given) <= len(full) and full[len(full) - len(given) :] == given


def column_like(name: str, known: Iterable[str]) -> str | None:
    """A hint that names a column whose name differs in case or is similar."""
    names = sorted(set(known))
    cased = [n for n in names if n.lower() == name != n]
    if cased:
        return f'Write "{cased[0]}": a name with capital letters stands in double quotes.'
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    return f'Perhaps you meant the column "{near[0]}".' if near else None
