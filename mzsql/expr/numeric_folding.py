"""Constant expressions with numerics, reduced without an engine.

Promise: values are those of `mzsql.expr.decimal_functions`, and an error counts exactly where an engine's would:
arguments from left to right, only the taken branch of a CASE, and none for AND and OR where an argument decides.
Trade-off: a constant may have digits that the same expression over columns (`decimal(38, s)`) lacks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache

from mzsql.expr.decimal_functions import FUNCTIONS, Failed, extreme
from mzsql.expr.scalar import Call, Column, If, Literal, LiteralError, Scalar, walk
from mzsql.repr.datum import Datum
from mzsql.repr.decimals import NotCarried, carried, is_carried, numeric_text
from mzsql.repr.types import SqlType

#: Functions of any type, computed here for numerics: extremes, which skip NULLs, and constructors, which hold them.
_EXTREMES = frozenset({"greatest", "least"})
_HOLDERS = frozenset({"array", "list", "row", "window_payload"})
#: The connectives of conditions and values.
_LOGIC = frozenset({"and", "or", "not", "is_null", "coalesce"})


@lru_cache(maxsize=4096)
def concerns(expr: Scalar) -> bool:
    """Whether any part of the expression is computed here."""
    return any(
        _is_here(node) if isinstance(node, Call) else isinstance(node, If) and _is_numeric(node)
        for node in walk(expr)
    )


def _is_numeric(expr: Scalar) -> bool:
    while isinstance(expr, If):
        expr = expr.then
    return not isinstance(expr, Column) and expr.typ.kind == "numeric"


def is_closed(expr: Scalar) -> bool:
    """Whether a constant expression is reduced without asking an engine."""
    return all(
        not isinstance(node, Call) or node.func in _LOGIC or _is_here(node) for node in walk(expr)
    )


def _is_here(call: Call) -> bool:
    if call.func in FUNCTIONS:
        return True
    if call.func in _EXTREMES or call.func == "coalesce":
        return call.typ.kind == "numeric"
    if call.func.startswith("record_get_"):
        return True
    return call.func in _HOLDERS and holds_numerics(call.typ)


def holds_numerics(typ: SqlType) -> bool:
    """Whether values of the type contain numerics."""
    inside = [column.type for _, column in typ.fields]
    if typ.element is not None:
        inside.append(typ.element)
    return any(part.kind == "numeric" or holds_numerics(part) for part in inside)


def _compute(call: Call, args: Sequence[Literal]) -> Datum:
    """The value of a function that is computed here.

    Raises:
        Failed: the function has no value for the arguments.
    """
    values = [arg.value for arg in args]
    if call.func in _HOLDERS:
        return json.dumps(values)
    if call.func in _EXTREMES:
        numbers = [Decimal(str(value)) for value in values if value is not None]
        if not numbers:
            return None
        return numeric_text(extreme(numbers, greatest=call.func == "greatest"))
    if any(value is None for value in values):
        return None
    if call.func.startswith("record_get_"):
        field: Datum = json.loads(str(values[0]))[int(call.func.rpartition("_")[2]) - 1]
        return field
    given = [
        Decimal(str(value)) if arg.typ.kind == "numeric" else value
        for value, arg in zip(values, args, strict=True)
    ]
    return FUNCTIONS[call.func](given, call.typ)


# --- expressions -----------------------------------------------------------------------------------

Constant = Literal | LiteralError
#: Evaluates a constant expression by an engine.
Ask = Callable[[Scalar], Constant]


def reduced(expr: Scalar, ask: Ask) -> Constant:
    """The value of a constant expression; ``ask`` computes the parts that are not computed here."""
    match expr:
        case Literal(typ=SqlType(kind="numeric"), value=str(value)):
            return Literal(numeric_text(Decimal(value)), expr.typ)
        case Literal() | LiteralError():
            return expr
        case _ if not concerns(expr):
            return ask(expr)
        case If():
            condition = reduced(expr.condition, ask)
            if isinstance(condition, LiteralError):
                return LiteralError(condition.message, _type_of(expr))
            return reduced(expr.then if condition.value is True else expr.otherwise, ask)
        case Call(func="and" | "or"):
            return _connected(expr, ask)
        case Call(func="coalesce"):
            return _first_known(expr, ask)
        case Call():
            return _called(expr, ask)
        case _:
            return ask(expr)


def _type_of(expr: Scalar) -> SqlType:
    while isinstance(expr, If):
        expr = expr.then
    assert isinstance(expr, Literal | LiteralError | Call)
    return expr.typ


def _connected(expr: Call, ask: Ask) -> Constant:
    """The value of AND or OR; an argument that decides without failing hides all errors."""
    decisive = expr.func == "or"
    parts = [reduced(arg, ask) for arg in expr.args]
    if any(isinstance(part, Literal) and part.value is decisive for part in parts):
        return Literal(decisive, expr.typ)
    failed = next((part for part in parts if isinstance(part, LiteralError)), None)
    if failed is not None:
        return failed
    unknown = any(isinstance(part, Literal) and part.value is None for part in parts)
    return Literal(None if unknown else not decisive, expr.typ)


def _first_known(expr: Call, ask: Ask) -> Constant:
    for arg in expr.args:
        part = reduced(arg, ask)
        if isinstance(part, LiteralError):
            return LiteralError(part.message, expr.typ)
        if part.value is not None:
            return Literal(part.value, expr.typ)
    return Literal(None, expr.typ)


def _called(expr: Call, ask: Ask) -> Constant:
    args: list[Literal] = []
    for arg in expr.args:
        part = reduced(arg, ask)
        if isinstance(part, LiteralError):
            return LiteralError(part.message, expr.typ)
        args.append(part)
    if not _is_here(expr):
        return _logic(expr, args) or ask(Call(expr.func, tuple(args), expr.typ))
    try:
        return Literal(_compute(expr, args), expr.typ)
    except Failed as failed:
        return LiteralError(failed.message, expr.typ)


def _logic(expr: Call, args: Sequence[Literal]) -> Constant | None:
    """The value of an IS NULL or NOT; None for any other function."""
    if expr.func == "is_null":
        return Literal(args[0].value is None, expr.typ)
    if expr.func == "not":
        return Literal(None if args[0].value is None else not args[0].value, expr.typ)
    return None


def refusal(value: Datum, typ: SqlType) -> str | None:
    """Why no column of the type holds the value, even rounded to the type's scale; None where one does."""
    for number, kind in _numerics(value, typ):
        try:
            carried(number, kind)
        except NotCarried as refused:
            return refused.message
    return None


def is_held(value: Datum, typ: SqlType) -> bool:
    """Whether a column of the type holds the value with all its digits."""
    return all(is_carried(number, kind) for number, kind in _numerics(value, typ))


def _numerics(value: Datum, typ: SqlType) -> Iterator[tuple[str, SqlType]]:
    """The numerics inside a value, with their types."""
    if value is None:
        return
    if typ.kind == "numeric":
        yield str(value), typ
        return
    if not holds_numerics(typ):
        return
    items = json.loads(str(value))
    if typ.kind == "range":
        items = items[::2]  # the bounds; whether each is included stands behind it
    if typ.kind == "record":
        types = [column.type for _, column in typ.fields]
    else:
        assert typ.element is not None
        items = list(items.values()) if isinstance(items, dict) else items
        types = [typ.element] * len(items)
    for item, part in zip(items, types, strict=True):
        yield from _numerics(item, part)
