"""WITH RECURSIVE: a query that refers to itself on the right of a UNION.

Promise: the rows that PostgreSQL gives, which adds what the right side makes of the rows that are new. That is the fixpoint
of the whole UNION where the right side makes something of each row by itself, so anything else is refused, in
PostgreSQL's words where it refuses the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.typed import plain_name
from mzsql.repr.errors import DatatypeMismatch, SqlError, Unsupported
from mzsql.repr.types import ColumnType, SqlType

_HINT = "Use WITH MUTUALLY RECURSIVE, which computes any query until it stays the same."
_UNDECLARED = ("numeric", "varchar", "char", "timestamp", "timestamptz")


def refers_to_itself(query: exp.Expr, name: str) -> bool:
    """Whether a query reads a table of this name, which no schema qualifies."""
    return any(
        isinstance(table.this, exp.Identifier)
        and not table.args.get("db")
        and fold(table.this) == name
        for table in query.find_all(exp.Table)
    )


def sides(cte: exp.Expr, name: str) -> exp.Union:
    """The UNION that a recursive query is.

    Raises:
        SqlError: it is none, or its left side refers to the query, too (42P19).
        Unsupported: it is sorted or limited.
    """
    query: exp.Expr = cte.this
    position = position_of(cte.args["alias"])
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    if not isinstance(query, exp.Union):
        raise _invalid(
            f'recursive query "{name}" does not have the form non-recursive-term UNION [ALL] '
            "recursive-term",
            position,
        )
    for clause, said in (("order", "ORDER BY"), ("limit", "LIMIT"), ("offset", "OFFSET")):
        if query.args.get(clause):
            raise Unsupported(f"{said} in a recursive query is not implemented", position=position)
    if refers_to_itself(query.this, name):
        raise _invalid(
            f'recursive reference to query "{name}" must not appear within its non-recursive term',
            position,
        )
    return query


def _invalid(message: str, position: int | None) -> SqlError:
    return SqlError(message, position=position, sqlstate="42P19", hint=_HINT)


def column_types(types: tuple[ColumnType, ...]) -> tuple[ColumnType, ...]:
    """The types of a recursive query's columns: those of its left side, which may hold other values of them later."""
    return tuple(ColumnType(_undeclared(column.type)) for column in types)


def _undeclared(typ: SqlType) -> SqlType:
    return SqlType(typ.kind) if typ.kind in _UNDECLARED else typ


def check_types(
    name: str, wanted: list[SqlType], have: list[SqlType], position: int | None
) -> None:
    """Whether a whole UNION has the types of its left side.

    Raises:
        DatatypeMismatch: it has others.
    """
    for i, (left, both) in enumerate(zip(wanted, have, strict=True), start=1):
        if both.kind not in (left.kind, "unknown"):
            raise DatatypeMismatch(
                f'recursive query "{name}" column {i} has type {plain_name(left)} in non-recursive term '
                f"but type {plain_name(both)} overall",
                position=position,
                hint="Cast the output of the non-recursive term to the correct type.",
            )


def check_linear(
    name: str, binding: hir.RecursiveBinding, *, distinct: bool, position: int | None
) -> None:
    """Whether a recursive query makes something of each of its rows by itself.

    Args:
        name: the query's name, for errors.
        binding: what it is, the UNION of both its sides.
        distinct: whether that leaves out rows that it has already.
        position: its place, for errors.

    Raises:
        SqlError: it does not, in a way that PostgreSQL refuses, too (42P19).
        Unsupported: it does not, in another way.
    """
    said = f'recursive reference to query "{name}" must not appear'
    if sum(1 for _ in _references(binding.value, binding.id)) > 1:
        raise _invalid(f"{said} more than once", position)
    rel = binding.value
    while not isinstance(rel, hir.Get):
        match rel:
            case hir.Map(scalars=scalars) | hir.Filter(predicates=scalars):
                if _mentions(scalars, binding.id):
                    raise _invalid(f"{said} within a subquery", position)
                if any(isinstance(part, hir.Windowing) for part in _parts(scalars)):
                    raise _beyond("window functions", position)
            case hir.Join(on=on, kind=kind, left=left):
                if _mentions(on, binding.id):
                    raise _invalid(f"{said} within a subquery", position)
                kept = "left" if _mentions(left, binding.id) else "right"
                if kind not in ("inner", "cross", kept):
                    raise _invalid(f"{said} within an outer join", position)
            case hir.Reduce(aggregates=aggregates) if aggregates:
                raise _invalid(
                    "aggregate functions are not allowed in a recursive query's recursive term",
                    position,
                )
            case hir.Reduce() | hir.Distinct():
                if not distinct:
                    raise _beyond("DISTINCT", position)
            case hir.TopK():
                raise _beyond("LIMIT", position)
            case hir.Negate() | hir.Threshold():
                raise _invalid(f"{said} within EXCEPT or INTERSECT", position)
            case hir.Let(value=value) if _mentions(value, binding.id):
                raise _beyond("WITH", position)
            case hir.LetRec():
                raise _beyond("WITH", position)
        inputs = hir.relation_inputs(rel)
        rel = next((one for one in inputs if _mentions(one, binding.id)), None) or _none(
            said, position
        )


def _none(said: str, position: int | None) -> hir.Relation:
    raise _invalid(f"{said} within a subquery", position)


def _beyond(what: str, position: int | None) -> Unsupported:
    return Unsupported(
        f"{what} in a recursive query's recursive term is not supported",
        position=position,
        hint=_HINT,
    )


def _parts(node: Any) -> Iterator[Any]:
    """Everything that a piece of a plan consists of."""
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, tuple):
            stack.extend(part)
        elif isinstance(part, msgspec.Struct):
            yield part
            stack.extend(getattr(part, field) for field in part.__struct_fields__)


def _references(node: Any, local: int) -> Iterator[hir.Get]:
    return (part for part in _parts(node) if isinstance(part, hir.Get) and part.id == local)


def _mentions(node: Any, local: int) -> bool:
    return any(True for _ in _references(node, local))
