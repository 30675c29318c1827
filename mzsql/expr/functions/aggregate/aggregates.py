"""Aggregates.

Promise: the partial sums of an accumulable aggregate are exact and additive, in any order and for any division of time:
integers and numerics are summed as decimals, in two parts so that no engine's SUM can overflow. Sums of floats are not
associative, so they are ``basic``: the group's values are added in ascending order. A row counts as often as its
multiplicity says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.aggregate import collecting
from mzsql.expr.functions.comparison import ANY, ORDERABLE
from mzsql.expr.functions.declare import FLOATS, INTEGERS, SIGNED, Ast, of
from mzsql.expr.functions.number.numeric import OVERFLOW, numeric, rescale, same_type
from mzsql.expr.functions.table import AggregateFunc, Engine, ErrorRule, Sql
from mzsql.repr.types import BIGINT, BOOLEAN, NUMERIC_PRECISION, TEXT, SqlType, type_name

#: Values with fewer unscaled digits are summed in one part: ten billion of them fit 38 digits.
_SMALL_DIGITS = 28

_SUM_RESULT = {
    "smallint": "bigint",
    "integer": "bigint",
    "bigint": "numeric",
    "uint2": "uint8",
    "uint4": "uint8",
    "uint8": "numeric",
}


def _counted(value: Sql, diff: Ast) -> Ast:
    """``diff`` where the value is not NULL, else 0."""
    return s.big(s.case((s.is_null(value.ast), s.num(0)), otherwise=diff))


def _sum_integer(kind: str) -> AggregateFunc:
    target = _SUM_RESULT[kind]
    result = numeric(0) if target == "numeric" else of(target)

    def accumulate(_engine: Engine, value: Sql, diff: Ast) -> Sequence[Ast]:
        total = s.mul(s.wide(value.ast), s.cast_to(diff, s.decimal_type(19, 0)))
        return (s.coalesce(rescale(total, 0), s.wide(s.num(0))), _counted(value, diff))

    def finish(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        total, count = (arg.ast for arg in args)
        known = s.case((s.neq(count, s.num(0)), total))
        if typ.kind == "uint8":
            known = s.case((s.between(known, s.num(0), s.num(2**64 - 1)), known))
        return s.try_cast(known, typ, engine)

    def lost(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return s.and_(s.neq(args[1].ast, s.num(0)), s.is_null(finish(engine, args, typ)))

    def message(_engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return s.concat(
            s.text('"'), s.string(args[0].ast), s.text(f'" {type_name(typ)} out of range')
        )

    rule = ErrorRule(lost, message, lambda _args, typ: typ.kind in ("bigint", "uint8"))
    return AggregateFunc(
        key=f"sum_{kind}",
        name="sum",
        args=(of(kind),),
        result=result,
        kind="accumulable",
        accumulators=(("sum", numeric(0)), ("count", BIGINT)),
        accumulate=accumulate,
        finish=finish,
        errors=(rule,),
    )


def _sum_numeric() -> AggregateFunc:
    """The sum of numerics; `accumulator_types` gives the accumulators the argument's scale."""

    def limit(scale: int) -> Ast:
        digits = _SMALL_DIGITS - scale
        shown = "1" + "0" * digits if digits >= 0 else f"0.{'0' * (-digits - 1)}1"
        return s.cast_to(s.num(shown), s.decimal_type(NUMERIC_PRECISION, scale))

    def accumulate(engine: Engine, value: Sql, diff: Ast) -> Sequence[Ast]:
        scale = value.typ.effective_scale
        unit, times = limit(scale), s.cast_to(diff, s.decimal_type(10, 0))
        small = s.lt(s.call("ABS", value.ast), unit)
        # A remainder by a nonzero literal cannot fail.
        rest = s.mod(value.ast, unit)
        kept = s.case((small, value.ast), otherwise=rest)
        if engine is Engine.SPARK:
            # Exact: an integral quotient of decimals with at most ten digits.
            large = s.cast_to(
                exp.IntDiv(this=value.ast.copy(), expression=unit), s.decimal_type(10, 0)
            )
        else:
            # Moves the decimal point in the text, because DuckDB divides decimals as doubles.
            large = _units(s.sub(value.ast, rest), scale)
        zero = s.cast_to(s.num(0), s.decimal_type(NUMERIC_PRECISION, scale))
        return (
            s.coalesce(rescale(s.mul(kept, times), scale), zero),
            s.case(
                (s.coalesce(small, s.boolean(True)), s.wide(s.num(0))),
                otherwise=rescale(s.mul(large, times), 0),
            ),
            _counted(value, diff),
        )

    def finish(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        total, large, count = (arg.ast for arg in args)
        scale = typ.effective_scale
        unit = limit(scale)
        moved = rescale(
            s.try_op("multiply", s.try_cast_to(large, s.decimal_type(20, 0)), unit, engine), scale
        )
        whole = s.case(
            (s.eq(large, s.num(0)), total),
            otherwise=rescale(s.try_op("add", total, moved, engine), scale),
        )
        return s.case((s.neq(count, s.num(0)), whole))

    def lost(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return s.and_(s.neq(args[2].ast, s.num(0)), s.is_null(finish(engine, args, typ)))

    return AggregateFunc(
        key="sum_numeric",
        name="sum",
        args=(of("numeric"),),
        result=same_type,
        kind="accumulable",
        accumulators=(("sum", of("numeric")), ("large", numeric(0)), ("count", BIGINT)),
        accumulate=accumulate,
        finish=finish,
        errors=(ErrorRule(lost, OVERFLOW),),
    )


def _units(multiple: Ast, scale: int) -> Ast:
    """A multiple of 10^(28 - scale) as the number of those units, with at most ten digits."""
    digits = s.call("REPLACE", s.string(rescale(multiple, scale)), s.text("."), s.text(""))
    length = s.integer(s.call("LENGTH", digits))
    head = s.call("SUBSTRING", digits, s.num(1), s.integer(s.sub(length, s.num(_SMALL_DIGITS))))
    return s.try_cast_to(head, s.decimal_type(10, 0))


def _sum_float(kind: str) -> AggregateFunc:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        start = s.double(s.num(0))
        a, b = s.variable("a0"), s.variable("b0")
        adding = s.lambda_(("a0", "b0"), s.add(a, b))
        doubles = s.double(args[0].ast)
        if engine is Engine.SPARK:
            ordered = s.call("SORT_ARRAY", s.call("COLLECT_LIST", doubles))
            total = s.call("AGGREGATE", ordered, start, adding)
            total = s.case((s.gt(s.call("COUNT", args[0].ast), s.num(0)), total))
        else:
            ordered = s.call(
                "LIST_SORT",
                exp.Filter(
                    this=s.call("LIST", doubles),
                    expression=exp.Where(this=s.is_not_null(args[0].ast)),
                ),
            )
            total = s.call("LIST_REDUCE", ordered, adding)
        return s.cast_to(total, s.typed(exp.DType.FLOAT if kind == "real" else exp.DType.DOUBLE))

    return AggregateFunc(
        key=f"sum_{kind}",
        name="sum",
        args=(of(kind),),
        result=of(kind),
        kind="basic",
        value=value,
    )


def _count() -> AggregateFunc:
    return AggregateFunc(
        key="count",
        name="count",
        args=(ANY,),
        result=BIGINT,
        kind="accumulable",
        nullable=False,
        accumulators=(("count", BIGINT),),
        accumulate=lambda _engine, value, diff: (_counted(value, diff),),
        finish=lambda _engine, args, _typ: args[0].ast.copy(),
    )


_TRUTHS = (("true", BIGINT), ("false", BIGINT), ("null", BIGINT))


def _truths(_engine: Engine, value: Sql, diff: Ast) -> Sequence[Ast]:
    ast, zero = value.ast, s.num(0)
    return (
        s.big(s.case((ast, diff), otherwise=zero)),
        s.big(s.case((s.not_(ast), diff), otherwise=zero)),
        s.big(s.case((s.is_null(ast), diff), otherwise=zero)),
    )


def _logic(name: str, *, decisive: bool, strict: bool) -> AggregateFunc:
    """The aggregates `any` and `all` (three-valued, never NULL for an empty group), `bool_or` and `bool_and` (which
    skip NULLs).
    """

    def finish(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        true, false, unknown = (s.neq(arg.ast, s.num(0)) for arg in args)
        decides, other = (true, false) if decisive else (false, true)
        branches = [(decides, s.boolean(decisive))]
        if strict:
            branches.append((other, s.boolean(not decisive)))
            return s.case(*branches, otherwise=exp.cast(s.null(), "boolean"))
        branches.append((unknown, exp.cast(s.null(), "boolean")))
        return s.case(*branches, otherwise=s.boolean(not decisive))

    return AggregateFunc(
        key=name,
        name=name,
        args=(BOOLEAN,),
        result=BOOLEAN,
        kind="accumulable",
        ignores_nulls=strict,
        accumulators=_TRUTHS,
        accumulate=_truths,
        finish=finish,
    )


def _extreme(name: str, kind: str) -> AggregateFunc:
    return AggregateFunc(
        key=f"{name}_{kind}",
        name=name,
        args=(of(kind),),
        result=(lambda args: args[0]) if kind in ("numeric", "varchar", "char") else of(kind),
        kind="hierarchical",
        value=lambda _engine, args, _typ: s.call(name.upper(), args[0].ast),
    )


def _bits(name: str, kind: str) -> AggregateFunc:
    """The bitwise aggregate of a group's integers."""
    return AggregateFunc(
        key=f"{name}_{kind}",
        name=name,
        args=(of(kind),),
        result=of(kind),
        kind="basic",
        value=lambda engine, args, typ: s.cast(s.call(name.upper(), args[0].ast), typ, engine),
    )


#: The order of an ordered aggregate: for each order expression, whether it is descending and whether NULLs come last.
Order = tuple[tuple[bool, bool], ...]

_ORDERED_KEY = re.compile(r"(\w+)\[order_by=\[(.*)\]\]")


def ordered_key(base: str, order: Order) -> str:
    """The key of an ordered aggregate, as EXPLAIN prints it: ``string_agg[order_by=[#0 desc nulls_first]]``."""
    items = [
        f"#{i} {'desc' if desc else 'asc'} {'nulls_last' if nulls_last else 'nulls_first'}"
        for i, (desc, nulls_last) in enumerate(order)
    ]
    return f"{base}[order_by=[{', '.join(items)}]]"


def parse_ordered_key(key: str) -> tuple[str, Order] | None:
    """The base name and order in an ordered aggregate's key; None for any other key."""
    match = _ORDERED_KEY.fullmatch(key)
    if match is None:
        return None
    base, body = match.groups()
    items = [item.split() for item in body.split(", ")] if body else []
    return base, tuple((item[1] == "desc", item[2] == "nulls_last") for item in items)


def _sorted(rows: Sql, order: Order, engine: Engine) -> Ast:
    """The group's rows as an array in order; ties are broken by the aggregated values, so that the result is
    deterministic.
    """
    keys = [(f"f{i}", *how) for i, how in enumerate(order, start=2)]
    keys.append(("f1", False, True))
    if engine is Engine.DUCKDB:
        listed = exp.Order(
            this=rows.ast.copy(),
            expressions=[
                exp.Ordered(this=s.field(rows.ast, name), desc=desc, nulls_first=not last)
                for name, desc, last in keys
            ],
        )
        return exp.Anonymous(this="LIST", expressions=[listed])
    left, right = s.variable("l0"), s.variable("r0")
    branches: list[tuple[Ast, Ast]] = []
    for name, desc, last in keys:
        a, b = s.field(left, name), s.field(right, name)
        null_left = s.num(1 if last else -1)
        null_right = s.num(-1 if last else 1)
        branches.append((s.and_(s.is_null(a), s.is_not_null(b)), null_left))
        branches.append((s.and_(s.is_not_null(a), s.is_null(b)), null_right))
        branches.append((s.lt(a, b), s.num(1 if desc else -1)))
        branches.append((s.gt(a, b), s.num(-1 if desc else 1)))
    compare = s.lambda_(("l0", "r0"), s.case(*branches, otherwise=s.num(0)))
    return s.call("ARRAY_SORT", s.call("COLLECT_LIST", rows.ast), compare)


def _collecting(base: str, order: Order) -> AggregateFunc:
    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        rows = _sorted(args[0], order, engine)
        return collecting.collected(base, rows, args[0].typ, typ, engine)

    return AggregateFunc(
        key=ordered_key(base, order),
        name=base,
        args=(ANY,),
        result=lambda args: collecting.result(base, args[0]),
        kind="basic",
        ignores_nulls=False,
        value=value,
    )


def _plain_array_agg(base: str) -> AggregateFunc:
    """A collecting aggregate without an order, over values in ascending order, so that the result is deterministic."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        wrapped = s.struct(f1=args[0].ast)
        if engine is Engine.DUCKDB:
            ordered_values = exp.Order(
                this=args[0].ast.copy(),
                expressions=[exp.Ordered(this=args[0].ast.copy(), desc=False, nulls_first=False)],
            )
            return exp.Anonymous(this="LIST", expressions=[ordered_values])
        ordered_rows = _sorted(Sql(wrapped, args[0].typ), (), engine)
        item = s.field(s.variable("x0"), "f1")
        return s.call("TRANSFORM", ordered_rows, s.lambda_(("x0",), item))

    return AggregateFunc(
        key=base,
        name=base,
        args=(ANY,),
        result=lambda args: SqlType("array" if base == "array_agg" else "list", element=args[0]),
        kind="basic",
        ignores_nulls=False,
        value=value,
    )


def _string_agg(order: Order) -> AggregateFunc:
    """``string_agg(value, separator)``: NULL values are skipped, and so is the first value's separator."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ordered = _sorted(args[0], order, engine)
        spark = engine is Engine.SPARK
        item = s.field(s.variable("x0"), "f1")
        kept = s.kept(ordered, "x0", s.is_not_null(s.field(item, "f1")), engine)
        piece = s.concat(s.coalesce(s.field(item, "f2"), s.text("")), s.field(item, "f1"))
        pieces = s.mapped(kept, "x0", piece, engine)
        joined = s.call("ARRAY_JOIN" if spark else "ARRAY_TO_STRING", pieces, s.text(""))
        lead = _first_separator_length(kept, engine)
        found = s.call("SUBSTRING", joined, s.integer(s.add(lead, s.num(1))))
        return s.case((s.gt(s.size(kept, engine), s.num(0)), found))

    return AggregateFunc(
        key=ordered_key("string_agg", order),
        name="string_agg",
        args=(ANY,),
        result=TEXT,
        kind="basic",
        value=value,
    )


def _first_separator_length(kept: Ast, engine: Engine) -> Ast:
    spark = engine is Engine.SPARK
    first = s.call("TRY_ELEMENT_AT" if spark else "LIST_EXTRACT", kept, s.num(1))
    separator = s.field(s.field(first, "f1"), "f2")
    return s.coalesce(s.integer(s.call("LENGTH", separator)), s.num(0))


#: Aggregates with an order in their keys; their rows are made on request.
_ORDERED: dict[str, Callable[[Order], AggregateFunc]] = {
    **{base: partial(_collecting, base) for base in collecting.ARGUMENTS},
    "string_agg": _string_agg,
}


def ordered(key: str) -> AggregateFunc | None:
    """The row for an ordered aggregate's key; None for any other key."""
    parsed = parse_ordered_key(key)
    if parsed is None or parsed[0] not in _ORDERED:
        return None
    return _ORDERED[parsed[0]](parsed[1])


FUNCTIONS: tuple[AggregateFunc, ...] = (
    *(_sum_integer(kind) for kind in INTEGERS),
    _sum_numeric(),
    *(_sum_float(kind) for kind in FLOATS),
    _count(),
    _logic("any", decisive=True, strict=False),
    _logic("all", decisive=False, strict=False),
    _logic("bool_or", decisive=True, strict=True),
    _logic("bool_and", decisive=False, strict=True),
    *(_bits(name, kind) for name in ("bit_and", "bit_or", "bit_xor") for kind in SIGNED),
    *(_extreme(name, kind) for name in ("min", "max") for kind in ORDERABLE),
    _plain_array_agg("array_agg"),
    _plain_array_agg("list_agg"),
    # For overload resolution only: calls are planned with `ordered_key`, over row(row(value, separator), order …).
    replace(_string_agg(()), args=(TEXT, TEXT)),
    *(
        replace(_collecting(base, ()), args=(ANY,) * count)
        for base, count in collecting.ARGUMENTS.items()
        if base not in ("array_agg", "list_agg")
    ),
)
