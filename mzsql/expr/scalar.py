"""Scalar expressions over the columns of one relation.

Promise: an expression is an immutable tree; equality, hash, msgpack and JSON encoding follow from its definition. A
function is named by its key in the table of functions (`mzsql.expr.functions`), which determines the overload; nothing
is resolved after the frontend. The nodes follow Materialize's `MirScalarExpr`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import is_
from typing import TypeGuard

import msgspec

from mzsql.repr.datum import Datum
from mzsql.repr.types import ColumnType, SqlType


class Column(msgspec.Struct, frozen=True, tag="column", cache_hash=True, gc=False):
    """Column ``index``, from 0, of the input row."""

    index: int


class Literal(msgspec.Struct, frozen=True, tag="literal", cache_hash=True, gc=False):
    """A constant; ``value`` is encoded as `mzsql.repr.datum` says for ``typ``."""

    value: Datum
    typ: SqlType


class LiteralError(msgspec.Struct, frozen=True, tag="error", cache_hash=True, gc=False):
    """A constant whose evaluation always fails with ``message``."""

    message: str
    typ: SqlType


TOO_MANY_RECORDS = "more than one record produced in subquery"
"""The error in the place of a scalar subquery's value where it has several rows."""


def guards_rows(expr: Scalar) -> TypeGuard[LiteralError]:
    """Whether ``expr`` says that its rows are too many, rather than what one column of them is: there must be none, read or not."""
    return isinstance(expr, LiteralError) and expr.message == TOO_MANY_RECORDS


class Call(msgspec.Struct, frozen=True, tag="call", cache_hash=True, gc=False):
    """A function applied to arguments.

    Attributes:
        func: the key of the overload in the table of functions, such as ``add_integer``.
        args: the arguments, of the overload's types.
        typ: the type of the result; for a numeric, with its scale.
    """

    func: str
    args: tuple[Scalar, ...]
    typ: SqlType


class If(msgspec.Struct, frozen=True, tag="if", cache_hash=True, gc=False):
    """``case when condition then … else … end``; only the taken branch is evaluated, so only its errors count."""

    condition: Scalar
    then: Scalar
    otherwise: Scalar


class Unmaterializable(
    msgspec.Struct, frozen=True, tag="unmaterializable", cache_hash=True, gc=False
):
    """A function of the session or the moment (``mz_now``, ``current_timestamp``, ``current_user``, …), known only at
    run time.
    """

    func: str
    typ: SqlType


Scalar = Column | Literal | LiteralError | Call | If | Unmaterializable


class AggregateExpr(msgspec.Struct, frozen=True, tag="aggregate", cache_hash=True, gc=False):
    """An aggregate over a group.

    Attributes:
        func: the key in the table of aggregates, such as ``sum_bigint``, ``count``, ``min_date``.
        expr: the argument; ``count(*)`` counts the literal ``true``.
        distinct: whether equal values count once.
        typ: the type of the result.
        nullable: whether the result can be NULL; counts cannot.
    """

    func: str
    expr: Scalar
    distinct: bool
    typ: SqlType
    nullable: bool = True


class ColumnOrder(msgspec.Struct, frozen=True, tag="order", cache_hash=True, gc=False):
    """A column of an ORDER BY, with PostgreSQL's defaults: NULLs come last ascending, first descending."""

    column: int
    desc: bool = False
    nulls_last: bool = True


#: Shared objects for small columns, which are most: fewer are made, and identical ones compare fast.
_COLUMNS = tuple(Column(index) for index in range(256))


def column(index: int) -> Column:
    """Column ``index``; a shared object where the index is small."""
    return _COLUMNS[index] if 0 <= index < len(_COLUMNS) else Column(index)


def children(expr: Scalar) -> tuple[Scalar, ...]:
    """The direct subexpressions, left to right."""
    kind = type(expr)
    if kind is Call:
        return expr.args  # type: ignore[union-attr]  # the class says it
    if kind is If:
        assert isinstance(expr, If)
        return (expr.condition, expr.then, expr.otherwise)
    return ()


def with_children(expr: Scalar, new: Sequence[Scalar]) -> Scalar:
    """The same node over other subexpressions, as many as `children` returns."""
    if type(expr) is Call:
        return Call(expr.func, tuple(new), expr.typ)
    if type(expr) is If:
        c, t, o = new
        return If(c, t, o)
    assert not new
    return expr


def transform(expr: Scalar, f: Callable[[Scalar], Scalar]) -> Scalar:
    """The expression rewritten bottom-up: ``f`` receives each node after its subexpressions. Unchanged nodes keep their
    identity.
    """
    kids = children(expr)
    if kids:
        new = [transform(kid, f) for kid in kids]
        if not all(map(is_, new, kids)):
            expr = with_children(expr, new)
    return f(expr)


def walk(expr: Scalar) -> Iterator[Scalar]:
    """Every node, parents before children, without recursion."""
    stack: list[Scalar] = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


#: What an expression reads that reads no column.
_NO_COLUMNS: frozenset[int] = frozenset()


#: The same of each small column.
_ONE_COLUMN = tuple(frozenset((index,)) for index in range(len(_COLUMNS)))


def support(expr: Scalar) -> frozenset[int]:
    """The columns that the expression reads."""
    if type(expr) is Column:
        index = expr.index
        return _ONE_COLUMN[index] if 0 <= index < len(_ONE_COLUMN) else frozenset((index,))
    stack = list(children(expr))
    if not stack:
        return _NO_COLUMNS
    found: set[int] = set()
    for node in stack:  # which grows meanwhile
        kind = type(node)
        if kind is Column:
            found.add(node.index)  # type: ignore[union-attr]  # the class says it
        elif kind is Call:
            stack += node.args  # type: ignore[union-attr]  # as above
        elif kind is If:
            stack += children(node)
    return frozenset(found)


def permute(expr: Scalar, mapping: Mapping[int, int]) -> Scalar:
    """The expression with column i renamed to ``mapping[i]``.

    Raises:
        KeyError: it reads a column that ``mapping`` lacks.
    """
    if type(expr) is Column:
        index = mapping[expr.index]
        return expr if index == expr.index else column(index)
    kids = children(expr)
    if not kids:
        return expr
    new = [permute(kid, mapping) for kid in kids]
    return expr if all(map(is_, new, kids)) else with_children(expr, new)


def substitute(expr: Scalar, columns: Sequence[Scalar]) -> Scalar:
    """The expression with column i replaced by ``columns[i]``."""
    if type(expr) is Column:
        return columns[expr.index]
    kids = children(expr)
    if not kids:
        return expr
    new = [substitute(kid, columns) for kid in kids]
    return expr if all(map(is_, new, kids)) else with_children(expr, new)


#: The number of nodes an expression may reach by inlining: repeated inlining grows exponentially.
INLINED = 1000


def size_over(expr: Scalar, sizes: Sequence[int]) -> int:
    """The number of nodes of an expression after inlining expressions with ``sizes`` nodes for its columns."""
    return sum(sizes[n.index] if isinstance(n, Column) else 1 for n in walk(expr))


def inlined(scalars: Sequence[Scalar], width: int) -> list[Scalar]:
    """The columns of rows with ``scalars`` appended to ``width`` columns, each as an expression over those first
    columns.

    A scalar that would exceed `INLINED` nodes remains a column, and so do columns that read nothing but such.
    """
    columns: list[Scalar] = [column(c) for c in range(width)]
    sizes = [1] * width
    for scalar in scalars:
        size = size_over(scalar, sizes)
        small = size <= INLINED
        columns.append(substitute(scalar, columns) if small else column(len(columns)))
        sizes.append(size if small else 1)
    return columns


def inlined_into(
    exprs: Sequence[Scalar], scalars: Sequence[Scalar], width: int
) -> tuple[Scalar, ...] | None:
    """Expressions over rows with ``scalars`` appended, rewritten over the first ``width`` columns; None where one would
    become too large.
    """
    columns = inlined(scalars, width)
    found = tuple(substitute(expr, columns) for expr in exprs)
    return found if all(is_small(expr, width) for expr in found) else None


def is_small(expr: Scalar, width: int) -> bool:
    """Whether an expression reads only the first ``width`` columns and has at most `INLINED` nodes."""
    nodes = list(itertools.islice(walk(expr), INLINED + 1))
    reads = (node.index for node in nodes if isinstance(node, Column))
    return len(nodes) <= INLINED and all(index < width for index in reads)


def scalar_type(expr: Scalar, columns: Sequence[ColumnType]) -> SqlType:
    """The SQL type of an expression over rows of ``columns``."""
    while type(expr) is If:
        # The frontend has cast both branches to one type, which errors and NULL literals carry too.
        expr = expr.then
    if type(expr) is Column:
        return columns[expr.index].type
    return expr.typ  # type: ignore[union-attr]  # all others have one
