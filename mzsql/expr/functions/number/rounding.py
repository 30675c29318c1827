"""Exact functions of numbers: absolute value, sign, rounding.

Promise: for numerics, every digit of the result is right. For floats, halves round to even, as in PostgreSQL, and large
doubles, which are integers already, stay unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import FLOATS, SIGNED, Ast, failed, of
from mzsql.expr.functions.number.arithmetic import out_of_range
from mzsql.expr.functions.number.numeric import OUT_OF_RANGE, numeric, rescale, same_type
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.types import DOUBLE, INTEGER, NUMERIC, NUMERIC_PRECISION, SqlType


def declared(
    key: str,
    name: str,
    args: tuple[SqlType, ...],
    result: object,
    value: Spelling,
    *errors: ErrorRule,
    monotone: bool = False,
) -> ScalarFunc:
    """A row of the table of functions.

    Args:
        key: its key.
        name: its SQL name.
        args: the types of its arguments.
        result: the type of its result, or a function that computes it.
        value: the spelling of its value.
        errors: the ways it fails, in order of precedence.
        monotone: whether it is monotone.
    """
    assert isinstance(result, SqlType) or callable(result)
    return ScalarFunc(
        key=key, name=name, args=args, result=result, value=value, errors=errors, monotone=monotone
    )


def engine_call(function: str) -> Spelling:
    """A call of the function with this name in every engine."""

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return s.cast(s.call(function, *(arg.ast for arg in args)), typ, engine)

    return value


def _abs() -> list[ScalarFunc]:
    def integer_abs(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        ast = args[0].ast
        negated = s.try_op("subtract", s.cast(s.num(0), typ, engine), ast, engine)
        return s.try_cast(s.case((s.lt(ast, s.num(0)), negated), otherwise=ast), typ, engine)

    functions = [
        declared(
            f"abs_{kind}",
            "abs",
            (of(kind),),
            of(kind),
            integer_abs,
            failed(integer_abs, out_of_range("|")),
        )
        for kind in SIGNED
    ]
    functions += [
        declared(f"abs_{kind}", "abs", (of(kind),), of(kind), engine_call("ABS")) for kind in FLOATS
    ]
    # Not ABS, because Spark negates decimals with 34 digits only.
    functions.append(declared("abs_numeric", "abs", (NUMERIC,), same_type, integer_abs))
    return functions


def whole_type(_args: Sequence[SqlType]) -> SqlType:
    """The type of a numeric integer."""
    return numeric(0)


def fraction(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    """The fractional part of a decimal, with its sign."""
    one = s.cast_to(s.num(1), s.decimal_type(38, typ.effective_scale))
    return s.try_op("mod", ast, one, engine)


def _whole_numeric(name: str) -> Spelling:
    """Ceil, floor, trunc and round to an integer; all results fit, since the scale is dropped."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        arg = args[0]
        if arg.typ.effective_scale == 0:
            return arg.ast.copy()
        if name == "round":
            return rescale(arg.ast, 0)
        rest = fraction(arg.ast, arg.typ, engine)
        whole = rescale(s.try_op("subtract", arg.ast, rest, engine), 0)
        one, zero = s.wide(s.num(1)), s.wide(s.num(0))
        match name:
            case "ceil":
                shift = s.case((s.gt(rest, s.num(0)), one), otherwise=zero)
            case "floor":
                shift = s.case((s.lt(rest, s.num(0)), s.wide(s.num(-1))), otherwise=zero)
            case _:
                return whole
        return rescale(s.try_op("add", whole, shift, engine), 0)

    return value


def _whole_float(name: str) -> Spelling:
    """Spark's CEIL and FLOOR return bigints, which would overflow; large doubles are integers already, so they stay."""

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        ast = args[0].ast
        if engine is Engine.DUCKDB:
            even = s.call("ROUND_EVEN", s.double(ast), s.num(0))
            native = {"round": even}.get(name, s.call(name.upper(), s.double(ast)))
            return s.cast(native, typ, engine)
        if name == "round":
            return s.cast(s.call("RINT", s.double(ast)), typ, engine)
        large = s.gte(s.call("ABS", s.double(ast)), s.double(s.num(2**52)))
        nan = s.eq(s.double(ast), s.cast_to(s.text("NaN"), s.typed(exp.DType.DOUBLE)))
        small = s.case((s.not_(s.or_(large, nan)), s.double(ast)))
        up, down = s.double(s.call("CEIL", small)), s.double(s.call("FLOOR", small))
        toward = {"ceil": up, "floor": down}.get(
            name, s.case((s.lt(ast, s.num(0)), up), otherwise=down)
        )
        return s.cast(s.coalesce(toward, s.double(ast)), typ, engine)

    return value


def _rounding() -> list[ScalarFunc]:
    functions = []
    for name, others in (("ceil", ("ceiling",)), ("floor", ()), ("trunc", ()), ("round", ())):
        for sql_name in (name, *others):
            for kind in FLOATS:
                value = _whole_float(name)
                functions.append(
                    declared(
                        f"{sql_name}_{kind}", sql_name, (of(kind),), of(kind), value, monotone=True
                    )
                )
            functions.append(
                declared(
                    f"{sql_name}_numeric",
                    sql_name,
                    (NUMERIC,),
                    whole_type,
                    _whole_numeric(name),
                    monotone=True,
                )
            )
    round_to, trunc_to = _at_place(half=True), _at_place(half=False)
    functions.append(
        declared(
            "round_numeric_to",
            "round",
            (NUMERIC, INTEGER),
            same_type,
            round_to,
            failed(round_to, OUT_OF_RANGE),
        )
    )
    functions.append(declared("trunc_numeric_to", "trunc", (NUMERIC, INTEGER), same_type, trunc_to))
    return functions


def _unit(places: int, scale: int) -> Ast:
    """10^-places as a decimal with this scale."""
    text = f"0.{'0' * (places - 1)}1" if places > 0 else f"1{'0' * -places}"
    return s.cast_to(s.text(text), s.decimal_type(NUMERIC_PRECISION, scale))


def _cut(ast: Ast, unit: Ast, scale: int, engine: Engine, *, half: bool) -> Ast:
    """A decimal as a multiple of ``unit``: toward zero or, with ``half``, to the nearest, halves away from zero."""
    zero = s.cast_to(s.num(0), s.decimal_type(NUMERIC_PRECISION, scale))
    rest = s.try_op("mod", ast, unit, engine)
    base = s.try_op("subtract", ast, rest, engine)
    if not half:
        return rescale(base, scale)
    twice, negative = s.try_op("add", rest, rest, engine), s.try_op("subtract", zero, unit, engine)
    shift = s.case((s.gte(twice, unit), unit), (s.lte(twice, negative), negative), otherwise=zero)
    return rescale(s.try_op("add", base, shift, engine), scale)


def _at_place(*, half: bool) -> Spelling:
    """``round(x, places)`` and ``trunc(x, places)``: the result keeps the operand's scale."""

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        ast, places = (arg.ast for arg in args)
        scale = typ.effective_scale
        # Units from 10^-scale to the largest that fits.
        coarsest = scale - (NUMERIC_PRECISION - 1)
        nothing = s.try_op("subtract", ast, ast, engine)
        beyond = nothing
        if half:
            limit = s.cast_to(
                s.text(f"{Decimal(5).scaleb(-coarsest):f}"),
                s.decimal_type(NUMERIC_PRECISION, scale),
            )
            small = s.and_(s.lt(ast, limit), s.gt(s.try_op("add", ast, limit, engine), s.num(0)))
            beyond = s.case((small, nothing))
        known = s.known_integer(places)
        if known is not None:
            if known >= scale:
                return ast.copy()
            if known >= coarsest:
                return _cut(ast, _unit(known, scale), scale, engine, half=half)
            return beyond if known == coarsest - 1 else nothing
        units = [(s.eq(places, s.num(n)), _unit(n, scale)) for n in range(coarsest, scale)]
        row = s.variable("p0")
        body = _cut(s.field(row, "x"), s.field(row, "u"), scale, engine, half=half)
        cut = s.let(s.struct(x=ast, u=s.case(*units)), "p0", body, engine) if units else ast
        return s.case(
            (s.gte(places, s.num(scale)), ast),
            (s.eq(places, s.num(coarsest - 1)), beyond),
            (s.lt(places, s.num(coarsest - 1)), nothing),
            otherwise=cut,
        )

    return value


def _sign() -> list[ScalarFunc]:
    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        ast = args[0].ast
        nan = s.cast_to(s.text("NaN"), s.typed(exp.DType.DOUBLE))
        not_a_number = [(s.eq(ast, nan), s.num(0))] if typ.kind == "double" else []
        signed = s.case(
            *not_a_number,
            (s.gt(ast, s.num(0)), s.num(1)),
            (s.lt(ast, s.num(0)), s.num(-1)),
            (s.eq(ast, s.num(0)), s.num(0)),
        )
        return s.cast(signed, typ, engine)

    return [
        declared("sign_double", "sign", (DOUBLE,), DOUBLE, value, monotone=True),
        declared("sign_numeric", "sign", (NUMERIC,), whole_type, value, monotone=True),
    ]


FUNCTIONS: tuple[ScalarFunc, ...] = (*_abs(), *_rounding(), *_sign())
