"""``pg_column_size(value)`` and ``mz_row_size(record)``: the bytes of values in Materialize's row encoding.

Promise: the sizes are those that Materialize reports, for types whose size follows from the value's magnitude or
length: one byte for the type, and the value. They do not depend on where a query runs, and say nothing about how mzsql
stores rows. The trade-off: numerics, jsonb, arrays, lists, maps and ranges, whose encodings depend on more, are
refused.
"""

from __future__ import annotations

from functools import reduce

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import (
    Typed,
    call,
    explicit,
    function_call,
    integer,
    operator_call,
    settle,
)
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.frontend.scalar.rows import record_fields
from mzsql.repr import types as t
from mzsql.repr.errors import UndefinedFunction, Unsupported
from mzsql.repr.types import type_name

#: Sizes of fixed-size types: one byte for the type, then the value; a boolean is encoded in the type's byte.
_FIXED = {
    "boolean": 1, "real": 5, "double": 9, "date": 5, "time": 9, "timestamp": 9, "timestamptz": 9,
    "interval": 17, "uuid": 17, "mz_timestamp": 9,
}  # fmt: skip
_WHOLE = frozenset({"smallint", "integer", "bigint", "uint2", "uint4", "uint8", "oid", "regclass", "regproc", "regtype"})  # fmt: skip
_LETTERS = frozenset({"text", "varchar", "char", "bytea"})
#: The bytes of a row, and how many of them can hold values inline.
_ROW, _INLINE = 24, 23
#: The bytes for a record's type and length.
_RECORD = 9


def _choose(condition: Typed, then: Typed, otherwise: Typed) -> Typed:
    return Typed(hir.If(condition.expr, then.expr, otherwise.expr), t.INTEGER, False)


def _sum(parts: list[Typed]) -> Typed:
    return reduce(lambda a, b: operator_call("+", [a, b], None), parts, integer(0))


def _of_whole(value: Typed) -> Typed:
    """An integer's size: one byte for type and sign, and the bytes of its magnitude, none for 0 and -1."""
    wide = explicit(value, t.NUMERIC, None)
    below = operator_call("<", [wide, explicit(integer(0), t.NUMERIC, None)], None)
    flipped = operator_call("-", [explicit(integer(-1), t.NUMERIC, None), wide], None)
    magnitude = Typed(hir.If(below.expr, flipped.expr, wide.expr), t.NUMERIC, value.nullable)
    size = integer(9)
    for count in range(7, -1, -1):
        most = explicit(Typed(Literal(str(2 ** (8 * count) - 1), t.UNKNOWN), t.UNKNOWN, False), t.NUMERIC, None)  # fmt: skip
        size = _choose(operator_call("<=", [magnitude, most], None), integer(1 + count), size)
    return size


def _of_letters(value: Typed) -> Typed:
    length = function_call("octet_length", [value], None)
    lead = integer(9)
    for bytes_, bits in ((4, 31), (2, 16), (1, 8)):
        most = integer(2**bits - 1)
        lead = _choose(operator_call("<=", [length, most], None), integer(1 + bytes_), lead)
    return operator_call("+", [length, lead], None)


def _size(value: Typed, position: int | None) -> Typed:
    """The size of a value that may be NULL."""
    kind = value.typ.kind
    if kind in _FIXED:
        size = integer(_FIXED[kind])
    elif kind in _WHOLE:
        size = _of_whole(value)
    elif kind in _LETTERS:
        size = _of_letters(value)
    elif kind == "record":
        size = _sum([integer(_RECORD), *_fields(value, position)])
    else:
        raise Unsupported(
            f"the size of a {type_name(value.typ)} is not supported", position=position
        )
    return _choose(call("is_null", [value]), integer(1), size)


def _fields(value: Typed, position: int | None) -> list[Typed]:
    return [_size(part, position) for _, part in record_fields(value, position)]


def column_size(ctx: ExprContext, node: exp.Expr) -> Typed:
    """``pg_column_size(value)``; NULL for NULL.

    Raises:
        UndefinedFunction: the call has not one argument.
        Unsupported: the size of such values is unknown.
    """
    value = _argument(ctx, node)
    if isinstance(value.expr, Literal) and value.expr.value is None:
        return Typed(Literal(None, t.INTEGER), t.INTEGER, True)
    size = _size(settle(value), position_of(node))
    null = Literal(None, t.INTEGER)
    return Typed(hir.If(call("is_null", [settle(value)]).expr, null, size.expr), t.INTEGER, True)


def row_size(ctx: ExprContext, node: exp.Expr) -> Typed:
    """``mz_row_size(record)``: a row, and the values that do not fit inline.

    Raises:
        UndefinedFunction: the call has not one argument that is a record.
        Unsupported: the size of a value in it is unknown.
    """
    value, position = _argument(ctx, node), position_of(node)
    if value.typ.kind != "record":
        raise UndefinedFunction("mz_row_size requires a record type", position=position)
    held = _sum(_fields(value, position))
    inside = operator_call("<=", [held, integer(_INLINE)], None)
    size = _choose(inside, integer(_ROW), operator_call("+", [held, integer(_ROW)], None))
    null = Literal(None, t.INTEGER)
    return Typed(hir.If(call("is_null", [value]).expr, null, size.expr), t.INTEGER, True)


def _argument(ctx: ExprContext, node: exp.Expr) -> Typed:
    if len(node.expressions) != 1:
        raise UndefinedFunction(
            f"{function_name(node)} takes one argument", position=position_of(node)
        )
    return ctx.plan(node.expressions[0])


__all__ = ["column_size", "row_size"]
