"""PostgreSQL's further array functions: dimensions as text, all positions of a value, replacement of values, trimming.

Promise: elements compare as values, NULL equals NULL; the number of an array's dimensions is its type's, and an empty
one has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.container import array_shapes
from mzsql.expr.functions.container.polymorphic import ARRAY, ELEMENT
from mzsql.expr.functions.container.sequences import dimension, dimensions, same_element
from mzsql.expr.functions.declare import Ast, duckdb_only
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.repr.types import INTEGER, TEXT, SqlType

_INTEGERS = SqlType("array", element=INTEGER)


def _size(args: Sequence[Sql], number: int, engine: Engine) -> Ast:
    return dimension((args[0], Sql(s.num(number), INTEGER)), engine)


def _empty(args: Sequence[Sql], engine: Engine) -> Ast:
    return s.is_null(_size(args, 1, engine))


def _count(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.case((s.not_(_empty(args, engine)), s.num(dimensions(args[0].typ))))


def _shown(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    pieces: list[Ast] = []
    for number in range(1, dimensions(args[0].typ) + 1):
        pieces += [s.text("[1:"), s.string(_size(args, number, engine)), s.text("]")]
    return s.case((s.not_(_empty(args, engine)), s.concat(*pieces)))


def _positions(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if engine is Engine.SPARK:
        raise duckdb_only("array_positions")
    array, wanted = args[0].ast, args[1].ast
    numbers = s.call("RANGE", s.num(1), s.add(s.call("LEN", array), s.num(1)))
    item = s.call("LIST_EXTRACT", array, s.variable("ap0"))
    found = s.call("LIST_FILTER", numbers, s.lambda_(("ap0",), same_element(item, wanted)))
    return s.case((s.is_not_null(array), s.cast(found, typ, engine)))


def _replaced(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if engine is Engine.SPARK:
        raise duckdb_only("array_replace")
    array, old, new = (arg.ast for arg in args)
    item = s.variable("ar0")
    body = s.case((same_element(item, old), new), otherwise=item)
    return s.cast(s.call("LIST_TRANSFORM", array, s.lambda_(("ar0",), body)), typ, engine)


def _left_out(args: Sequence[Sql]) -> Ast:
    return s.call("LEN", args[0].ast)


def _trimmed(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if engine is Engine.SPARK:
        raise duckdb_only("trim_array")
    array, count = (arg.ast for arg in args)
    kept = s.sub(s.call("LEN", array), s.big(count))
    cut = s.call("LIST_SLICE", array, s.num(1), kept)
    return s.case((s.gt(kept, s.num(0)), cut), otherwise=s.cast(s.array(), typ, engine))


def _most_frequent(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The most frequent value in a sorted array, the first if there are several."""
    if engine is Engine.SPARK:
        raise duckdb_only("mode")
    assert typ is not None
    state, item = s.variable("md0"), s.variable("md1")
    best, most, value, count = (s.field(state, name) for name in ("b", "m", "v", "n"))
    again = s.case((s.eq(item, value), s.add(count, s.big(s.num(1)))), otherwise=s.big(s.num(1)))
    more = s.gt(again, most)
    step = s.struct(
        b=s.case((more, item), otherwise=best),
        m=s.big(s.case((more, again), otherwise=most)),
        v=item,
        n=s.big(again),
    )
    first = s.call("LIST_EXTRACT", args[0].ast, s.num(1))
    none = s.big(s.num(0))
    start = s.struct(b=first, m=none, v=first, n=none)
    return s.field(s.call("LIST_REDUCE", args[0].ast, s.lambda_(("md0", "md1"), step), start), "b")


_BEYOND = ErrorRule(
    lambda _engine, args, _typ: s.not_(s.between(args[1].ast, s.num(0), _left_out(args))),
    lambda _engine, args, _typ: s.concat(
        s.text("number of elements to trim must be between 0 and "), s.string(_left_out(args))
    ),
)

FUNCTIONS: tuple[ScalarFunc, ...] = (
    ScalarFunc("array_ndims", "array_ndims", (ARRAY,), INTEGER, _count, introduces_nulls=True),
    ScalarFunc("array_dims", "array_dims", (ARRAY,), TEXT, _shown, introduces_nulls=True),
    ScalarFunc(
        "array_positions",
        "array_positions",
        (ARRAY, ELEMENT),
        _INTEGERS,
        _positions,
        strict=False,
        introduces_nulls=True,
        errors=(array_shapes.flat_only("searching for elements in"),),
    ),
    ScalarFunc(
        "array_replace",
        "array_replace",
        (ARRAY, ELEMENT, ELEMENT),
        lambda args: args[0],
        _replaced,
        strict=False,
        introduces_nulls=True,
    ),
    ScalarFunc(
        "trim_array",
        "trim_array",
        (ARRAY, INTEGER),
        lambda args: args[0],
        _trimmed,
        errors=(_BEYOND,),
    ),
    ScalarFunc(
        "mz_mode",
        "mz_mode",
        (ARRAY,),
        lambda args: args[0].element or TEXT,
        _most_frequent,
        introduces_nulls=True,
    ),
)
