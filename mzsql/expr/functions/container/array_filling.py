"""Arrays filled with one value.

Promise: an array with one dimension per given size; empty if a size is 0. NULL sizes, and arrays above 128 MiB, are
errors, as in Materialize. The number of sizes is part of the array's type, so each number has its own function.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.container.polymorphic import ELEMENT
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.repr.types import INTEGER, SqlType

MAX_DIMENSIONS = 6
#: The bytes that an array may have, and those of one of its values.
_BYTES, _VALUE = 2**27, 24
_MOST = _BYTES // _VALUE


def key(dimensions: int) -> str:
    """The key of the function with this number of sizes."""
    return f"array_fill_{dimensions}"


def _total(sizes: Sequence[Sql]) -> Ast:
    """The number of values, capped above the maximum; a negative size counts as the largest."""
    total = s.big(s.num(1))
    for size in sizes:
        count = s.big(size.ast)
        count = s.case((s.lt(count, s.num(0)), s.big(s.num(2**31))), otherwise=count)
        # Not `s.at_most`, which would repeat the product so far.
        total = s.call("LEAST", s.mul(total, count), s.big(s.num(_MOST + 1)))
    empty = s.or_(*(s.eq(size.ast, s.num(0)) for size in sizes))
    return s.case((empty, s.big(s.num(0))), otherwise=total)


def _unknown(sizes: Sequence[Sql]) -> Ast:
    return s.or_(*(s.is_null(size.ast) for size in sizes))


def _value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    fill, *sizes = args
    types = [typ]
    for _ in sizes[1:]:
        assert types[-1].element is not None
        types.append(types[-1].element)
    fits = s.and_(s.not_(_unknown(sizes)), s.between(_total(sizes), s.num(1), s.num(_MOST)))
    made = fill.ast
    for size, of in zip(reversed(sizes), reversed(types), strict=True):
        count = s.case((fits, s.integer(size.ast)), otherwise=s.num(0))
        if engine is Engine.SPARK:
            made = s.call("ARRAY_REPEAT", made, count)
        else:
            made = s.call("LIST_RESIZE", s.cast(s.array(), of, engine), count, made)
    nothing = s.cast(s.array(), typ, engine)
    return s.case((fits, s.cast(made, typ, engine)), otherwise=nothing)


def _result(args: Sequence[SqlType]) -> SqlType:
    typ, *sizes = args
    for _ in sizes:
        typ = SqlType("array", element=typ)
    return typ


_KNOWN = ErrorRule(
    lambda _engine, args, _typ: _unknown(args[1:]), "dimension values must not be null"
)
_FITTING = ErrorRule(
    lambda _engine, args, _typ: s.gt(_total(args[1:]), s.num(_MOST)),
    f"array size exceeds the maximum allowed ({_BYTES} bytes)",
)

FUNCTIONS: tuple[ScalarFunc, ...] = tuple(
    ScalarFunc(
        key=key(n),
        name="array_fill",
        args=(ELEMENT, *(INTEGER for _ in range(n))),
        result=_result,
        value=_value,
        strict=False,
        errors=(_KNOWN, _FITTING),
        explain=f"array_fill({{0}}, array[{', '.join(f'{{{i + 1}}}' for i in range(n))}])",
    )
    for n in range(1, MAX_DIMENSIONS + 1)
)
