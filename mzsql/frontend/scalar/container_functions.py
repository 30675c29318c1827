"""Functions that make arrays and maps whose type does not follow from the argument types alone: ``array_fill``,
``map_build``.

Promise: array_fill makes as many dimensions as its array of sizes has elements, so that array must be written out; a
map's keys are texts.
"""

from __future__ import annotations

import json

from sqlglot import expressions as exp

from mzsql.expr.functions.container import array_filling
from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.names.type_depth import check_dimensions
from mzsql.frontend.scalar.coerce import NO_OVERLOAD, Typed, call, cast, empty, plain_name, settle
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.repr import types as t
from mzsql.repr.errors import DataError, UndefinedFunction, Unsupported
from mzsql.repr.types import SqlType

_INTS = SqlType("array", element=t.INTEGER)


def _no_such_function(node: exp.Expr, args: list[Typed]) -> UndefinedFunction:
    return UndefinedFunction(
        f"function {function_name(node)}({', '.join(plain_name(a.typ) for a in args)}) does not exist",
        position=position_of(node),
        hint=NO_OVERLOAD,
    )


def array_fill(ctx: ExprContext, node: exp.Expr) -> Typed:
    """``array_fill(value, sizes [, lower bounds])``.

    Raises:
        UndefinedFunction: no overload takes these arguments.
        DataError: the sizes are NULL, or there are not as many lower bounds as sizes.
        Unsupported: the value is an array, the sizes are not written out, or a lower bound is not 1.
    """
    args = [ctx.plan(argument) for argument in node.expressions]
    position = position_of(node)
    if len(args) not in (2, 3):
        raise _no_such_function(node, args)
    whole = [cast(arg, _INTS, "implicit") for arg in args[1:]]
    value = settle(args[0])
    if any(array is None for array in whole):
        raise _no_such_function(node, args)
    if value.typ.kind == "array":
        raise Unsupported("array_fill with arrays not yet supported", position=position)
    sizes, *bounds = (_items(array, position) for array in whole if array is not None)
    if any(_is_array(item) for one in (sizes, *bounds) for item in one):
        raise DataError(
            "wrong number of array subscripts",
            position=position,
            sqlstate="2202E",
            hint="The dimension array must be one-dimensional.",
        )
    if bounds:
        if len(bounds[0]) != len(sizes):
            raise DataError("wrong number of array subscripts", position=position, sqlstate="2202E")
        if any(not isinstance(b.expr, Literal) or b.expr.value != 1 for b in bounds[0]):
            raise Unsupported(
                "array_fill with lower bounds that are not 1 is not supported", position=position
            )
    if not sizes:
        return empty(SqlType("array", element=value.typ))
    check_dimensions(len(sizes))
    done = call(array_filling.key(len(sizes)), [value, *sizes])
    return Typed(done.expr, done.typ, False)


def _is_array(item: Typed) -> bool:
    """Whether an element of an array of any dimensions, which has the type of one of one dimension, is an array."""
    match item.expr:
        case Literal(value=value):
            return isinstance(value, list | tuple)
        case hir.Call(func="array"):
            return True
        case _:
            return item.typ.kind == "array"


def _items(array: Typed, position: int | None) -> list[Typed]:
    """The elements of an array that is written out."""
    expr = array.expr
    if isinstance(expr, Literal):
        if expr.value is None:
            raise DataError(
                "dimension array or low bound array must not be null",
                position=position,
                sqlstate="22004",
            )
        return [
            Typed(Literal(n, t.INTEGER), t.INTEGER, n is None) for n in json.loads(str(expr.value))
        ]
    if isinstance(expr, hir.Call) and expr.func == "array":
        return [Typed(item, t.INTEGER, True) for item in expr.args]
    written = expr.args[0] if isinstance(expr, hir.Call) and len(expr.args) == 1 else None
    if isinstance(written, hir.Call) and written.func == "array" and written.typ.element:
        items = [Typed(item, written.typ.element, True) for item in written.args]
        return [cast(item, t.INTEGER, "explicit") or item for item in items]
    raise Unsupported(
        "array_fill takes sizes and lower bounds that are written out, as in ARRAY[2, n]; others are not supported",
        position=position,
    )


def map_build(ctx: ExprContext, node: exp.Expr) -> Typed:
    """``map_build(list of records)``: each record's first field is a key, the second its value.

    Raises:
        UndefinedFunction: the argument is not a list of such records.
    """
    args = [ctx.plan(argument) for argument in node.expressions]
    pair = args[0].typ.element if len(args) == 1 and args[0].typ.kind == "list" else None
    if (
        pair is None
        or pair.kind != "record"
        or len(pair.fields) != 2
        or pair.fields[0][1].type != t.TEXT
    ):
        raise _no_such_function(node, args)
    return call("map_build", args)
