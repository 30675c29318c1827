"""The building blocks of rendered statements.

Promise: a statement is a list of named CTEs and a body. Only CTEs that the body reaches are included, in order of
definition. Every identifier is quoted. Nothing here knows plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.nodes import relations_in
from mzsql.repr.types import BIGINT, TEXT, ColumnType

Ast = exp.Expression

ERROR = "mz_error"
TIME = "mz_time"
DIFF = "mz_diff"


def identifier(name: str) -> exp.Identifier:
    """A quoted identifier."""
    return exp.Identifier(this=name, quoted=True)


def col(name: str, table: str | None = None) -> exp.Column:
    """A column, qualified by a table alias if given."""
    return exp.Column(this=identifier(name), table=None if table is None else identifier(table))


def named(ast: Ast, name: str) -> exp.Alias:
    """``ast AS name``."""
    return exp.Alias(this=s.own(ast)[0], alias=identifier(name))


def table(name: str, alias: str | None = None) -> exp.Table:
    """A relation, with an alias if given."""
    made = exp.Table(this=identifier(name))
    if alias is not None:
        made.set("alias", exp.TableAlias(this=identifier(alias)))
    return made


def subquery(query: exp.Expression, alias: str) -> exp.Subquery:
    """``(query) AS alias``."""
    return exp.Subquery(this=query, alias=exp.TableAlias(this=identifier(alias)))


def select(
    items: Iterable[Ast],
    source: str | exp.Expression,
    *,
    alias: str | None = None,
    where: Sequence[Ast] = (),
    group: Sequence[Ast] = (),
    having: Ast | None = None,
    distinct: bool = False,
) -> exp.Select:
    """``SELECT items FROM source …``; `source` is a relation's name, a table or a subquery."""
    made = exp.Select(expressions=list(items))
    origin = table(source, alias) if isinstance(source, str) else source
    made.set("from_", exp.From(this=origin))
    if where:
        made.set("where", exp.Where(this=s.and_(*where)))
    if group:
        # Copies, here and below: a node of sqlglot's knows its parent, so it cannot stand in two places.
        made.set("group", exp.Group(expressions=[g.copy() for g in group]))
    if having is not None:
        made.set("having", exp.Having(this=having.copy()))
    if distinct:
        made.set("distinct", exp.Distinct())
    return made


def join(
    left: str,
    right: str,
    on: Sequence[Ast],
    items: Iterable[Ast],
    *,
    engine: Engine,
    where: Sequence[Ast] = (),
    broadcast: str | None = "d",
    aliases: tuple[str, str] = ("d", "a"),
) -> exp.Select:
    """``SELECT items FROM left AS d JOIN right AS a ON …``; on Spark with a hint to broadcast the alias `broadcast`."""
    made = select(items, left, alias=aliases[0], where=where)
    condition = s.and_(*on)
    made.append(
        "joins",
        exp.Join(this=table(right, aliases[1]), on=condition, kind="INNER"),
    )
    if broadcast is not None and engine is Engine.SPARK:
        hint = exp.JoinHint(this="BROADCAST", expressions=[exp.to_table(broadcast)])
        made.set("hint", exp.Hint(expressions=[hint]))
    return made


def union_all(queries: Sequence[exp.Expression]) -> exp.Expression:
    """The rows of all queries; at least one query. The tree is balanced, so that hundreds of branches do not nest
    deeply.
    """
    assert queries
    parts = list(queries)
    while len(parts) > 1:
        parts = [
            exp.Union(this=parts[i], expression=parts[i + 1], distinct=False)
            if i + 1 < len(parts)
            else parts[i]
            for i in range(0, len(parts), 2)
        ]
    return parts[0]


def explode(items: Ast, engine: Engine) -> Ast:
    """A generator in the SELECT list: one row for each element of the array."""
    return s.call("EXPLODE" if engine is Engine.SPARK else "UNNEST", items)


def window(
    function: Ast, partition: Sequence[Ast], order: Sequence[exp.Ordered], *, rows: bool
) -> exp.Window:
    """``function OVER (PARTITION BY … ORDER BY … [ROWS UNBOUNDED PRECEDING])``."""
    spec = (
        exp.WindowSpec(kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
        if rows
        else None
    )
    return exp.Window(
        this=function,
        partition_by=[p.copy() for p in partition],
        order=exp.Order(expressions=list(order)) if order else None,
        spec=spec,
    )


def ordered(ast: Ast, *, desc: bool = False, nulls_last: bool = True) -> exp.Ordered:
    """One item of an ORDER BY, with the position of NULLs explicit."""
    return exp.Ordered(this=s.own(ast)[0], desc=desc, nulls_first=not nulls_last)


def same(left: Ast, right: Ast) -> Ast:
    """Null-safe equality."""
    left, right = s.own(left, right)
    return exp.Paren(this=exp.NullSafeEQ(this=left, expression=right))


def columns_of(types: Sequence[ColumnType], alias: str | None = None) -> list[Sql]:
    """The columns c0 … as arguments of expressions."""
    return [Sql(col(f"c{i}", alias), typ.type) for i, typ in enumerate(types)]


def null_of(typ: ColumnType, engine: Engine) -> Ast:
    """A NULL of the type."""
    return s.cast(s.null(), typ.type, engine)


def no_error(engine: Engine) -> Ast:
    """The value of mz_error on good rows: a NULL of type text."""
    return s.cast(s.null(), TEXT, engine)


def big(value: int, engine: Engine) -> Ast:
    """A bigint literal."""
    return s.cast(s.num(value), BIGINT, engine)


#: A query, or what makes it.
Query: TypeAlias = "exp.Expression | Callable[[], exp.Expression]"


class Statement:
    """The CTEs of a statement under construction, for one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._ctes: dict[str, Query] = {}
        self._read: dict[str, frozenset[str]] = {}
        self._bases: dict[str, frozenset[str]] = {}

    def define(self, name: str, query: Query) -> str:
        """Define a CTE; return its name, to which a number is appended if it is taken.

        A query can be given as a function, which is called when something reads it.
        """
        unique, number = name, 1
        while unique in self._ctes:
            number += 1
            unique = f"{name}_{number}"
        self._ctes[unique] = query
        return unique

    def _query(self, name: str) -> exp.Expression:
        query = self._ctes[name]
        if not isinstance(query, exp.Expression):
            query = self._ctes[name] = query()
        return query

    def reached(self, body: exp.Expression) -> tuple[set[str], set[str]]:
        """The names of the CTEs, and of other relations, that a body reads, directly or through CTEs."""
        ctes: set[str] = set()
        others: set[str] = set()
        queue = [relations_in(body)]
        while queue:
            for name in queue.pop():
                if name not in self._ctes:
                    others.add(name)
                elif name not in ctes:
                    ctes.add(name)
                    queue.append(self._relations_of(name))
        return ctes, others

    def _relations_of(self, name: str) -> frozenset[str]:
        """What a CTE reads itself. Cached: it is asked for at each stage of a hydration, and a CTE does not change once
        it is defined.
        """
        known = self._read.get(name)
        if known is None:
            known = self._read[name] = relations_in(self._query(name))
        return known

    def bases(self, relation: str) -> frozenset[str]:
        """The relations that are not CTEs and that a relation reads, directly or through CTEs; itself, if it is not a
        CTE.
        """
        waiting = [relation]
        while waiting:
            name = waiting[-1]
            if name in self._bases:
                waiting.pop()
            elif name not in self._ctes:
                self._bases[name] = frozenset([name])
            else:
                below = self._relations_of(name)
                unknown = [one for one in below if one not in self._bases]
                waiting += unknown
                if not unknown:
                    self._bases[name] = frozenset[str]().union(*(self._bases[o] for o in below))
        return self._bases[relation]

    def finish(self, body: exp.Expression) -> exp.Expression:
        """The statement: the CTEs that `body` reaches, then `body`."""
        reached, _ = self.reached(body)
        ctes = [
            exp.CTE(this=self._query(name), alias=exp.TableAlias(this=identifier(name)))
            for name in self._ctes
            if name in reached
        ]
        if ctes:
            body.set("with_", exp.With(expressions=ctes))
        return body
