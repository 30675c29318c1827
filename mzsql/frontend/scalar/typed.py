"""A scalar with its type: numbers as they are written, functions applied.

Promise: a number has the narrowest type that holds it; whether a value can be NULL is known of everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mzsql.expr import functions
from mzsql.expr.decimal_functions import out_of_range
from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.names.levels import check_levels
from mzsql.repr.decimals import numeric_text, parsed
from mzsql.repr.errors import DataError
from mzsql.repr.types import NUMERIC, SqlType, type_name

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
#: The type of each category that PostgreSQL prefers.
PREFERRED = frozenset({"boolean", "double", "text", "timestamptz", "interval"})
_MODIFIED = frozenset({"numeric", "varchar", "char", "timestamp", "timestamptz"})
#: How many bits besides the sign the integers have.
INTEGER_BOUNDS = {"smallint": 15, "integer": 31, "bigint": 63}


@dataclass(frozen=True)
class Typed:
    """A scalar with its type, and whether it can be NULL."""

    expr: hir.Scalar
    typ: SqlType
    nullable: bool = True

    def __post_init__(self) -> None:
        if self.typ.element is not None or self.typ.fields:
            check_levels(self.typ)


def plain_name(typ: SqlType) -> str:
    """A type without its modifiers: what an overload is called by."""
    return type_name(_plain(typ))


def _plain(typ: SqlType) -> SqlType:
    if typ.element is not None:
        return SqlType(typ.kind, element=_plain(typ.element))
    return SqlType(typ.kind) if typ.kind in _MODIFIED else typ


def category(typ: SqlType) -> str:
    """PostgreSQL's category of a type."""
    return _CATEGORIES.get(typ.kind, typ.kind)


def numeric_literal(text: str) -> Typed:
    """A number as written: integer, bigint or numeric, whichever holds it."""
    if text.isdigit():
        value = int(text)
        for kind in ("integer", "bigint"):
            if value < 2 ** INTEGER_BOUNDS[kind]:
                return Typed(Literal(value, SqlType(kind)), SqlType(kind), False)
    return exact_numeric(text)


def exact_numeric(text: str, sign: str = "") -> Typed:
    """A numeric literal with as many digits behind the point as written.

    Raises:
        ValueError: the text is no number.
        DataError: it has more digits than a numeric.
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


def call(key: str, args: Sequence[Typed], typ: SqlType | None = None) -> Typed:
    """The function `key` applied; its arguments are of its types already."""
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
