"""`numeric`: exact decimals of 38 digits, each expression with the scale that its operands give it.

The rules, all of them (s1, s2 the operands' scales; `decimal(38, s)` the carrier of every numeric):

* add, subtract, mod: ``max(s1, s2)``.
* multiply: ``s1 + s2`` while that is at most 18, else ``max(s1, s2, 18)``; digits behind that are rounded half away from zero.
* divide: 18 digits behind the point, rounded half away from zero.
* sums keep the scale.

A numeric without a declared scale is carried with 18 digits behind the point, and what is computed of it has no declared scale either:
such a number is shown without zeros at its end. What does not fit in front of the point is an error, never a wrapped or a shortened
number. PostgreSQL's numeric has more digits; the trade-off buys columns that Spark, DuckDB, Arrow and Parquet all hold natively. NaN is
not carried. Constants are no columns: theirs are up to 39 digits and NaN (`mzsql.expr.numeric_folding`).

Promise: every spelling is exact to the last digit of its result's scale in both engines, though Spark rounds quotients to a
scale of its own and DuckDB turns them into doubles.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, failed
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.types import DEFAULT_NUMERIC_SCALE, NUMERIC, NUMERIC_PRECISION, SqlType

#: The error messages of a cast, and of an operation.
OVERFLOW = "numeric field overflow"
OUT_OF_RANGE = "value out of range: overflow"
#: The key of the function that raises a numeric's scale; NULL where it does not fit, and so equals no number of that
#: scale.
WIDENED = "numeric_widened"
#: The scale of a quotient, and the scale below which no product is rounded.
_CAP = DEFAULT_NUMERIC_SCALE
#: The key in a node's metadata that marks a quotient.
_QUOTIENT = "mz_quotient"


def numeric(scale: int) -> SqlType:
    """The numeric type with this scale."""
    return SqlType("numeric", scale=scale)


def common_numeric(types: Sequence[SqlType]) -> SqlType:
    """The numeric type that holds all of these; with a declared scale only if all have one."""
    scale = max(typ.effective_scale for typ in types)
    if any(typ.scale is None for typ in types):
        return NUMERIC if scale == DEFAULT_NUMERIC_SCALE else numeric(scale)
    return numeric(max(typ.scale or 0 for typ in types))


def add_type(args: Sequence[SqlType]) -> SqlType:
    """The type of a sum, difference or remainder."""
    return common_numeric(args)


def mul_type(args: Sequence[SqlType]) -> SqlType:
    """The type of a product."""
    left, right = (arg.effective_scale for arg in args)
    declared = all(arg.scale is not None for arg in args)
    if declared and left + right <= _CAP:
        return numeric(left + right)
    scale = max(left, right, _CAP)
    return NUMERIC if scale == _CAP else numeric(scale)


def div_type(_args: Sequence[SqlType]) -> SqlType:
    """The type of a quotient."""
    return NUMERIC


def same_type(args: Sequence[SqlType]) -> SqlType:
    """The type of the first argument."""
    return SqlType("numeric", scale=args[0].scale)


def rescale(ast: Ast, scale: int) -> Ast:
    """A cast to ``decimal(38, scale)``, rounding half away from zero; NULL where the value does not fit."""
    return s.try_cast_to(ast, s.decimal_type(NUMERIC_PRECISION, scale))


def at_scale(_engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """An integer, or a numeric, as a numeric of the type's scale."""
    return rescale(args[0].ast, typ.effective_scale)


def _sum(name: str) -> Spelling:
    def spelling(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        scale = typ.effective_scale
        left, right = (
            arg.ast if arg.typ.effective_scale == scale else rescale(arg.ast, scale) for arg in args
        )
        return rescale(s.try_op(name, left, right, engine), scale)

    return spelling


def _product(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The exact product where its scale fits, else the sum of the products of parts, of which only the last is rounded.

    With a = ai + af and b = bi + bf (whole and fraction, with the same sign): a·bi + ai·bf + af·bf.
    """
    a, b = args
    s1, s2, scale = a.typ.effective_scale, b.typ.effective_scale, typ.effective_scale
    if s1 + s2 == scale:
        return rescale(s.try_op("multiply", a.ast, b.ast, engine), scale)
    ai, af, s1 = _parts(a, engine)
    bi, bf, s2 = _parts(b, engine)
    first = rescale(s.try_op("multiply", _narrow(a.ast, a), bi, engine), scale)
    second = rescale(s.try_op("multiply", ai, bf, engine), scale)
    third = rescale(s.try_op("multiply", af, bf, engine), scale)
    return s.try_op("add", s.try_op("add", first, second, engine), third, engine)


def _narrow(ast: Ast, arg: Sql) -> Ast:
    return s.cast_to(ast, s.decimal_type(NUMERIC_PRECISION, arg.typ.effective_scale))


def _parts(arg: Sql, engine: Engine) -> tuple[Ast, Ast, int]:
    """The whole part as a decimal of scale 0, the fraction as a decimal of at most 19 digits, and the number of those
    digits.
    """
    scale = arg.typ.effective_scale
    one = s.cast_to(s.num(1), s.decimal_type(NUMERIC_PRECISION, scale))
    fraction = s.try_op("mod", arg.ast, one, engine)
    whole = s.try_op("subtract", arg.ast, fraction, engine)
    kept = min(scale, 19)
    return (
        s.try_cast_to(whole, s.decimal_type(NUMERIC_PRECISION - kept, 0)),
        s.try_cast_to(fraction, s.decimal_type(max(kept, 1), kept)),
        kept,
    )


def _remainder(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    scale = typ.effective_scale
    left, right = (rescale(arg.ast, scale) for arg in args)
    return s.try_op("mod", left, s.nullif(right, s.num(0)), engine)


def _quotient(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The quotient. Both operands get the larger scale; then Spark's division has exactly 18 decimals, and for DuckDB
    it is spelled out.
    """
    scale = max(arg.typ.effective_scale for arg in args)
    left, right = (rescale(arg.ast, scale) for arg in args)
    if engine is Engine.SPARK:
        quotient = s.call("TRY_DIVIDE", left, right)
        return rescale(quotient, typ.effective_scale)
    return _long_division(left, right)


def _unscaled(decimal: Ast) -> Ast:
    """A decimal without its decimal point, as DuckDB's 128-bit integer."""
    return s.cast_to(
        s.call("REPLACE", s.string(decimal), s.text("."), s.text("")),
        s.typed(exp.DType.INT128),
    )


def _long_division(left: Ast, right: Ast) -> Ast:
    """DuckDB: the quotient of the unscaled integers, then 18 decimals in three rounds of six.

    A divisor above 10^32 first loses six digits, and so does the dividend: then the quotient is below 10^6, and its
    error below 10^-26, far behind the last digit kept.
    """
    v = s.variable("q0")
    big = s.cast_to(s.num("100000000000000000000000000000000"), s.typed(exp.DType.INT128))
    six, huge = s.num(10**6), s.typed(exp.DType.INT128)
    divisor = s.field(v, "b")
    shrunk = s.case(
        (
            s.gt(s.call("ABS", divisor), big),
            s.struct(a=s.int_div(s.field(v, "a"), six), b=s.int_div(divisor, six)),
        ),
        otherwise=v,
    )
    w = s.variable("q1")
    a, b = s.call("ABS", s.field(w, "a")), s.call("ABS", s.field(w, "b"))
    step = s.struct(b=b, q=s.int_div(a, b), r=s.mod(a, b))
    for depth in range(3):
        x = s.variable(f"r{depth}")
        shifted = s.mul(s.field(x, "r"), six)
        step = s.let(
            step,
            f"r{depth}",
            s.struct(
                b=s.field(x, "b"),
                q=s.add(s.mul(s.field(x, "q"), six), s.int_div(shifted, s.field(x, "b"))),
                r=s.mod(shifted, s.field(x, "b")),
            ),
            Engine.DUCKDB,
        )
    last = s.variable("r9")
    rounded = s.add(
        s.field(last, "q"),
        s.case(
            (s.gte(s.mul(s.field(last, "r"), s.num(2)), s.field(last, "b")), s.num(1)),
            otherwise=s.num(0),
        ),
    )
    magnitude = s.let(step, "r9", rounded, Engine.DUCKDB)
    signed = s.mul(
        magnitude,
        s.mul(s.call("SIGN", s.field(w, "a")), s.call("SIGN", s.field(w, "b"))),
    )
    body = s.let(shrunk, "q1", s.cast_to(signed, huge), Engine.DUCKDB)
    pair = s.struct(a=_unscaled(left), b=s.nullif(_unscaled(right), s.num(0)))
    quotient = _rescaled(s.call("TRY", s.let(pair, "q0", body, Engine.DUCKDB)))
    quotient.meta[_QUOTIENT] = True
    return quotient


def division_of(ast: Ast) -> tuple[Ast, Ast] | None:
    """The dividend and divisor, two decimals of one scale, of a quotient spelled for DuckDB; None for any other AST."""
    if not ast.meta.get(_QUOTIENT):
        return None
    pair = ast.find(exp.Struct)
    assert pair is not None
    by_name = {field.this.name: field.expression for field in pair.expressions}
    left, right = by_name["a"], by_name["b"].expressions[0]
    return left.this.expressions[0].this, right.this.expressions[0].this


def small_quotient(left: Ast, right: Ast, scale: int, *, positive: bool, nonzero: bool) -> Ast:
    """DuckDB: the quotient by one integer division, where ``2 * |left| * 10**(scale + 18) + |right| * 10**scale <
    10**38``.

    The dividend is doubled and half of the divisor added, away from zero, so that truncation rounds. A quotient by zero
    is NULL.

    Args:
        left: the dividend, a decimal.
        right: the divisor, a decimal of the same scale.
        scale: their scale.
        positive: whether the divisor is never negative.
        nonzero: whether the divisor is never zero; if it is, DuckDB raises.
    """
    integer, unit = s.typed(exp.DType.INT128), s.num(10**scale)
    a = s.cast_to(s.mul(left, unit) if scale else left, integer)
    b = s.cast_to(s.mul(right, unit) if scale else right, integer)
    half = b if positive else s.call("ABS", b)
    away = s.case((s.lt(left, s.num(0)), s.sub(s.num(0), half)), otherwise=half)
    doubled = s.add(s.mul(a, s.num(2 * 10**_CAP)), away)
    twice = s.mul(b, s.num(2))
    quotient = s.int_div(doubled, twice if nonzero else s.nullif(twice, s.num(0)))
    unscaled = s.cast_to(quotient, s.decimal_type(NUMERIC_PRECISION, 0))
    last = s.cast_to(s.num(f"0.{'0' * (_CAP - 1)}1"), s.decimal_type(_CAP, _CAP))
    return s.mul(unscaled, last)


def _rescaled(unscaled: Ast) -> Ast:
    """DuckDB: an integer that counts units of 10^-18, as a decimal(38, 18), from its whole part and its fraction."""
    x, unit = s.variable("u0"), s.num(10**_CAP)
    whole = s.cast_to(s.int_div(x, unit), s.decimal_type(20, 0))
    fraction = s.mul(
        s.cast_to(s.mod(x, unit), s.decimal_type(18, 0)),
        s.cast_to(s.num(f"0.{'0' * (_CAP - 1)}1"), s.decimal_type(18, 18)),
    )
    total = s.add(
        s.cast_to(whole, s.decimal_type(NUMERIC_PRECISION, _CAP)),
        s.cast_to(fraction, s.decimal_type(NUMERIC_PRECISION, _CAP)),
    )
    return s.call("TRY", s.let(unscaled, "u0", total, Engine.DUCKDB))


def _negated(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """Zero minus the number, because Spark's negation rounds decimals to 34 digits."""
    zero = s.cast_to(s.num(0), s.decimal_type(NUMERIC_PRECISION, typ.effective_scale))
    return s.try_op("subtract", zero, args[0].ast, engine)


def _zero_divisor(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    known = s.literal_of(args[1].ast)
    if known is not None:
        return s.boolean(float(known.name) == 0)
    return s.eq(args[1].ast, s.num(0))


DIVISION_BY_ZERO = ErrorRule(_zero_divisor, "division by zero")


def _binary(
    key: str,
    symbol: str,
    rule: object,
    value: Spelling,
    *more: ErrorRule,
    monotone: bool = False,
) -> ScalarFunc:
    assert callable(rule)
    return ScalarFunc(
        key=f"{key}_numeric",
        name=symbol,
        args=(NUMERIC, NUMERIC),
        result=rule,
        value=value,
        explain=f"({{0}} {symbol} {{1}})",
        errors=(*more, failed(value, OUT_OF_RANGE)),
        monotone=monotone,
    )


FUNCTIONS: tuple[ScalarFunc, ...] = (
    _binary("add", "+", add_type, _sum("add"), monotone=True),
    _binary("sub", "-", add_type, _sum("subtract"), monotone=True),
    _binary("mul", "*", mul_type, _product),
    _binary("div", "/", div_type, _quotient, DIVISION_BY_ZERO),
    _binary("mod", "%", add_type, _remainder, DIVISION_BY_ZERO),
    ScalarFunc(
        key="neg_numeric",
        name="-",
        args=(NUMERIC,),
        result=same_type,
        value=_negated,
        explain="-({0})",
        monotone=True,
    ),
    # Not callable in SQL: it makes keys of joins on different scales comparable.
    ScalarFunc(
        key=WIDENED,
        name="widened numeric",
        args=(NUMERIC,),
        result=same_type,
        value=at_scale,
        explain="({0})::numeric",
        introduces_nulls=True,
        monotone=True,
    ),
)
