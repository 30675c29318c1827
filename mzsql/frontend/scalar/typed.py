"""Typed scalars: literals with their types, calls of functions.

Promise: a number has the narrowest type that holds it; every scalar knows whether it can be NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mzsql.expr import functions
from mzsql.expr.decimal_functions import out_of_range
from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.names.type_depth import check_levels
from mzsql.repr.decimals import numeric_text, parsed
from mzsql.repr.errors import DataError
from mzsql.repr.types import INTEGER, NUMERIC, SqlType, type_name

_CATEGORIES = {
    "boolean": "boolean",
    **dict.fromkeys(
        (
            "smallint",
            "integer",
            "bigint",
            "uint2",
            "uint4",
            "uint8",
            "oid",
            "regclass",
            "regproc",
            "regtype",
            "real",
            "double",
            "numeric",
        ),
        "number",
    ),
    **dict.fromkeys(("text", "varchar", "char"), "string"),
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), "datetime"),
    "interval": "timespan",
}
#: PostgreSQL's preferred type of each category.
PREFERRED = frozenset({"boolean", "double", "text", "timestamptz", "interval"})
_MODIFIED = frozenset({"numeric", "varchar", "char", "timestamp", "timestamptz"})
#: Bits of the integer types, without the sign.
INTEGER_BOUNDS = {"smallint": 15, "integer": 31, "bigint": 63}


class Typed(msgspec.Struct, frozen=True):
    """A scalar with its type, and whether it can be NULL."""

    expr: hir.Scalar
    typ: SqlType
    nullable: bool = True

    def __post_init__(self) -> None:
        if self.typ.element is not None or self.typ.fields:
            check_levels(self.typ)


def plain_name(typ: SqlType) -> str:
    """A type's name without modifiers, as in an overload's signature."""
    return type_name(_plain(typ))


def _plain(typ: SqlType) -> SqlType:
    if typ.element is not None:
        return SqlType(typ.kind, element=_plain(typ.element))
    return SqlType(typ.kind) if typ.kind in _MODIFIED else typ


def category(typ: SqlType) -> str:
    """PostgreSQL's category of a type."""
    return _CATEGORIES.get(typ.kind, typ.kind)


def integer(value: int) -> Typed:
    """A constant integer."""
    return Typed(Literal(value, INTEGER), INTEGER, False)


def numeric_literal(text: str) -> Typed:
    """A number as written, as the first of integer, bigint and numeric that holds it."""
    if text.isdigit():
        value = int(text)
        for kind in ("integer", "bigint"):
            if value < 2 ** INTEGER_BOUNDS[kind]:
                return Typed(Literal(value, SqlType(kind)), SqlType(kind), False)
    return exact_numeric(text)


def exact_numeric(text: str, sign: str = "") -> Typed:
    """A numeric literal with as many fractional digits as written.

    Raises:
        ValueError: the text is no number.
        DataError: it has more digits than numeric holds.
    """
    try:
        number = parsed(f"{sign}{text}")
    except OverflowError:
        raise DataError(out_of_range(f"{sign}{text.upper()}"), sqlstate="22003") from None
    if number is None:
        raise ValueError(text)
    if number.is_nan():
        return Typed(Literal("NaN", NUMERIC), NUMERIC, False)
    scale = max(0, -int(number.as_tuple().exponent))
    typ = SqlType("numeric", scale=scale)
    return Typed(Literal(numeric_text(number), typ), typ, False)


def sortable(value: Typed) -> Typed:
    """What orders like a value: itself, but for a document, which engines have as a text, its sort key."""
    return call("jsonb_order_key", [value]) if value.typ.kind == "jsonb" else value


def call(key: str, args: Sequence[Typed], typ: SqlType | None = None) -> Typed:
    """A call of the function with key ``key``; the arguments must already have its types."""
    func = functions.scalar(key)
    result = func.result_type([a.typ for a in args]) if typ is None else typ
    nullable = func.introduces_nulls or any(a.nullable for a in args)
    if not func.strict:
        nullable = _nullable_unstrict(key, args, func.introduces_nulls)
    return Typed(hir.Call(key, tuple(a.expr for a in args), result), result, nullable)


def _nullable_unstrict(key: str, args: Sequence[Typed], introduces: bool) -> bool:
    if key in ("coalesce", "greatest", "least"):
        return all(a.nullable for a in args)
    if key in ("and", "or"):
        return any(a.nullable for a in args)
    return introduces
