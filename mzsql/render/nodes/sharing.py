"""How large an expression becomes as SQL text, and which parts to compute in a subquery so that it stays small.

Promise: the SQL of a function may repeat an argument several times, and that of its error again, so nested calls
grow exponentially with their depth. Sizes are estimated from the SQL of each function over plain columns, without
writing nested calls. `parts` names the expressions that should be columns of a subquery below; then no expression is
written with more than about `BUDGET` nodes. Small expressions stay in place, where engines optimize them best.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import lru_cache

from mzsql.expr import spell
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.scalar import (
    Call,
    Column,
    If,
    Literal,
    LiteralError,
    Scalar,
    children,
    scalar_type,
    walk,
)
from mzsql.render.statement import col
from mzsql.repr.types import ColumnType, SqlType

#: Most AST nodes of an expression together with its error.
BUDGET = 1000
#: An expression of fewer nodes is repeated rather than computed below.
_SMALL = 12

#: A call's argument: its type or, since some functions depend on it, the constant that it is.
_Argument = SqlType | Scalar
#: Nodes of the value, and of the error (0 if there is none).
_Size = tuple[int, int]


def can_fail(expr: Scalar, columns: Sequence[ColumnType]) -> bool:
    """Whether an evaluation can fail, without writing the expression. True if only writing it would tell."""
    for node in walk(expr):
        if isinstance(node, LiteralError):
            return True
        if isinstance(node, Call) and _growth(node.func, _arguments(node, columns), node.typ)[2]:
            return True
    return False


def parts(
    items: Iterable[Scalar], columns: Sequence[ColumnType], known: Container[Scalar] = ()
) -> list[Scalar]:
    """The expressions inside `items` to compute below; `known` ones are columns already."""
    found: dict[Scalar, None] = {}
    sizes: dict[Scalar, _Size] = {}

    def size(expr: Scalar) -> _Size:
        if expr in sizes:
            return sizes[expr]
        if expr in known:
            return 1, 1
        inner = [size(kid) for kid in children(expr)]
        made = _size(expr, inner, columns)
        if sum(made) > BUDGET:
            for place, kid in enumerate(children(expr)):
                if sum(inner[place]) > _SMALL and kid not in known:
                    found[kid] = None
                    inner[place] = (1, min(inner[place][1], 1))
            made = _size(expr, inner, columns)
        sizes[expr] = made
        return made

    for item in items:
        size(item)
    return list(found)


def _size(expr: Scalar, inner: Sequence[_Size], columns: Sequence[ColumnType]) -> _Size:
    values, errors = [v for v, _ in inner], [e for _, e in inner]
    if isinstance(expr, If):
        failing = any(errors)
        return 3 + sum(values), (values[0] + 2 * errors[0] + errors[1] + errors[2] + 3) * failing
    if isinstance(expr, LiteralError):
        return 3, 3
    if not isinstance(expr, Call):
        return 2, 0
    own, times, own_error, error_times = _growth(expr.func, _arguments(expr, columns), expr.typ)
    value = own + sum(v * n for v, n in zip(values, times, strict=True))
    if expr.func in ("and", "or", "coalesce"):
        return value, (sum(values) + 2 * sum(errors) + 5) * any(errors)
    failure = own_error + sum(v * n for v, n in zip(values, error_times, strict=True))
    return value, failure + sum(errors)


def _arguments(expr: Call, columns: Sequence[ColumnType]) -> tuple[_Argument, ...]:
    return tuple(arg if _constant(arg) else scalar_type(arg, columns) for arg in expr.args)


def _constant(expr: Scalar) -> bool:
    if isinstance(expr, Call):
        return all(isinstance(arg, Literal) for arg in expr.args)
    return isinstance(expr, Literal | LiteralError)


@lru_cache(maxsize=8192)
def _growth(
    func: str, args: tuple[_Argument, ...], typ: SqlType
) -> tuple[int, tuple[int, ...], int, tuple[int, ...]]:
    """Nodes of a call's value and how often each argument occurs in it; and the same of its own error."""
    names = [f"?{place}" for place in range(len(args))]
    given: list[Scalar] = []
    held: list[Sql] = []
    for name, arg in zip(names, args, strict=True):
        if isinstance(arg, SqlType):
            given.append(Column(len(held)))
            held.append(Sql(col(name), arg))
        else:
            given.append(arg)
    call = Call(func, tuple(given), typ)
    failure = spell.error(call, held, Engine.DUCKDB)
    counts = []
    for ast in (spell.value(call, held, Engine.DUCKDB), failure):
        total = 0
        times = dict.fromkeys(names, 0)
        for node in () if ast is None else ast.walk():
            total += 1
            if node.key == "column" and node.name in times:
                times[node.name] += 1
        counts.append((total, tuple(times.values())))
    (own, value_times), (own_error, error_times) = counts
    return own, value_times, own_error, error_times
