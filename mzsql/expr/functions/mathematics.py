"""Functions of numbers: rounding, roots, powers, logarithms, trigonometry.

Promise: on numerics what is exact stays exact (abs, ceil, floor, round, trunc, mod); roots, powers and logarithms of numerics are computed
in doubles and so have about 15 digits, the trade-off for having them in both engines. Domain errors are Materialize's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from sqlglot import expressions as exp

from mzsql.expr.functions import arithmetic
from mzsql.expr.functions import numeric as numerics
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.arithmetic import is_infinite, out_of_range
from mzsql.expr.functions.casts import decimal_to_double
from mzsql.expr.functions.declare import FLOATS, INTEGERS, SIGNED, Ast, failed, of
from mzsql.expr.functions.numeric import OVERFLOW, numeric, rescale, same_type
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.types import (
    DEFAULT_NUMERIC_SCALE,
    DOUBLE,
    INTEGER,
    NUMERIC,
    NUMERIC_PRECISION,
    SqlType,
)


def declared(
    key: str,
    name: str,
    args: tuple[SqlType, ...],
    result: object,
    value: Spelling,
    *errors: ErrorRule,
    monotone: bool = False,
) -> ScalarFunc:
    """A row of the table of functions."""
    assert isinstance(result, SqlType) or callable(result)
    return ScalarFunc(
        key=key, name=name, args=args, result=result, value=value, errors=errors, monotone=monotone
    )


def engine_call(function: str) -> Spelling:
    """The function of this name in every engine."""

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
    # Not ABS: Spark negates decimals with 34 digits only.
    functions.append(declared("abs_numeric", "abs", (NUMERIC,), same_type, integer_abs))
    return functions


def whole_type(_args: Sequence[SqlType]) -> SqlType:
    """A numeric of whole numbers."""
    return numeric(0)


def fraction(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    """What stands behind the point of a decimal, with its sign."""
    one = s.cast_to(s.num(1), s.decimal_type(38, typ.effective_scale))
    return s.try_op("mod", ast, one, engine)


def _whole_numeric(name: str) -> Spelling:
    """ceil, floor, trunc and round to a whole number; all results fit, since the scale goes away."""

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
    """The engines' CEIL and FLOOR give bigints in Spark, which would overflow: the largest doubles are whole already."""

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
            failed(round_to, OVERFLOW),
        )
    )
    functions.append(declared("trunc_numeric_to", "trunc", (NUMERIC, INTEGER), same_type, trunc_to))
    return functions


def _unit(places: int, scale: int) -> Ast:
    """10^-places as a decimal of the scale."""
    text = f"0.{'0' * (places - 1)}1" if places > 0 else f"1{'0' * -places}"
    return s.cast_to(s.text(text), s.decimal_type(NUMERIC_PRECISION, scale))


def _cut(ast: Ast, unit: Ast, scale: int, engine: Engine, *, half: bool) -> Ast:
    """A decimal as a multiple of `unit`: towards zero, or with `half` to the nearest, halves away from zero."""
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
        # Units from 10^-scale up to the largest that fits.
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


def domain(condition: Callable[[Ast], Ast], message: str) -> ErrorRule:
    """A rule over the first argument."""
    return ErrorRule(lambda _e, args, _t: condition(args[0].ast), message)


def _guarded(function: str, valid: Callable[[Ast], Ast]) -> Spelling:
    def value(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ast = s.double(args[0].ast)
        return s.call(function, s.case((valid(ast), ast)))

    return value


def _on_doubles(value: Spelling) -> Spelling:
    """A numeric's function by way of doubles."""

    def spelling(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        doubles = [
            Sql(decimal_to_double(arg.ast, engine), DOUBLE) if arg.typ.kind == "numeric" else arg
            for arg in args
        ]
        found = value(engine, doubles, DOUBLE)
        return s.try_cast_to(_plain_text(found, engine), s.decimal_type(38, typ.effective_scale))

    return spelling


def _plain_text(ast: Ast, engine: Engine) -> Ast:
    """A double's 15 significant digits: what the engines' libraries agree on."""
    fits = s.case((s.lt(s.call("ABS", ast), s.num("1e37")), ast))
    if engine is Engine.SPARK:
        return s.call("FORMAT_STRING", s.text("%.14e"), fits)
    return s.call("FORMAT", s.text("{:.14e}"), fits)


ANYTHING = s.is_not_null


def _not_negative(ast: Ast) -> Ast:
    return s.gte(ast, s.num(0))


def _positive(ast: Ast) -> Ast:
    return s.gt(ast, s.num(0))


def _zero(ast: Ast) -> Ast:
    return s.eq(ast, s.num(0))


def _negative(ast: Ast) -> Ast:
    return s.lt(ast, s.num(0))


def _numeric_default(_args: Sequence[SqlType]) -> SqlType:
    return numeric(DEFAULT_NUMERIC_SCALE)


def unary(
    name: str,
    function: str,
    valid: Callable[[Ast], Ast],
    *errors: ErrorRule,
    also_numeric: bool = True,
    overflow: bool = False,
) -> list[ScalarFunc]:
    """A function of a double, and of a numeric by way of one; `valid` says where it is defined."""
    value = _guarded(function, valid)
    rules = list(errors)
    if overflow:

        def beyond(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
            return s.and_(
                is_infinite(value(engine, args, typ), engine),
                s.not_(is_infinite(args[0].ast, engine)),
            )

        def vanished(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
            return s.and_(
                s.eq(value(engine, args, typ), s.num(0)),
                s.neq(args[0].ast, s.num(0)),
                s.not_(is_infinite(args[0].ast, engine)),
            )

        rules.append(ErrorRule(beyond, "value out of range: overflow"))
        rules.append(ErrorRule(vanished, "value out of range: underflow"))
    functions = [declared(f"{name}_double", name, (DOUBLE,), DOUBLE, value, *rules)]
    if also_numeric:
        by_double = _on_doubles(value)
        rule = failed(by_double, OVERFLOW)
        functions.append(
            declared(
                f"{name}_numeric", name, (NUMERIC,), _numeric_default, by_double, *errors, rule
            )
        )
    return functions


def _logarithms() -> list[ScalarFunc]:
    functions = []
    for name, function in (("ln", "LN"), ("log10", "LOG10"), ("log", "LOG10")):
        shown = "ln" if name == "ln" else "log10"
        zero = domain(_zero, f"function {shown} is not defined for zero")
        negative = domain(_negative, f"function {shown} is not defined for negative numbers")
        functions += unary(name, function, _positive, zero, negative)
    return functions


def _roots() -> list[ScalarFunc]:
    negative = domain(_negative, "cannot take square root of a negative number")
    functions = unary("sqrt", "SQRT", _not_negative, negative)
    functions += unary("cbrt", "CBRT", ANYTHING, also_numeric=False)
    functions += unary("exp", "EXP", ANYTHING, overflow=True)
    return functions


def _power() -> list[ScalarFunc]:
    def zero_to_negative(args: Sequence[Sql]) -> Ast:
        return s.and_(s.eq(args[0].ast, s.num(0)), s.lt(args[1].ast, s.num(0)))

    def complex_result(engine: Engine, args: Sequence[Sql]) -> Ast:
        exponent = s.double(args[1].ast)
        whole = (
            s.call("RINT", exponent)
            if engine is Engine.SPARK
            else s.call("ROUND_EVEN", exponent, s.num(0))
        )
        infinite = is_infinite(exponent, engine)
        return s.and_(s.lt(args[0].ast, s.num(0)), s.neq(whole, exponent), s.not_(infinite))

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        invalid = s.or_(zero_to_negative(args), complex_result(engine, args))
        base = s.case((s.not_(invalid), s.double(args[0].ast)))
        # PostgreSQL: 1 to any power is 1, any number to the power of 0 is 1, also with NaN; Java's POW says NaN.
        one = s.or_(s.eq(args[0].ast, s.num(1)), s.eq(args[1].ast, s.num(0)))
        known = s.and_(one, s.is_not_null(args[0].ast), s.is_not_null(args[1].ast))
        powered = s.call("POWER", base, s.double(args[1].ast))
        return s.case((known, s.double(s.num(1))), otherwise=powered)

    def overflows(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        finite = [s.not_(is_infinite(arg.ast, engine)) for arg in args]
        return s.and_(is_infinite(value(engine, args, typ), engine), *finite)

    def underflows(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        finite = [s.not_(is_infinite(arg.ast, engine)) for arg in args]
        return s.and_(
            s.eq(value(engine, args, typ), s.num(0)), s.neq(args[0].ast, s.num(0)), *finite
        )

    rules = (
        ErrorRule(
            lambda _e, args, _t: zero_to_negative(args),
            "zero raised to a negative power is undefined",
        ),
        ErrorRule(
            lambda e, args, _t: complex_result(e, args),
            "function pow cannot return complex numbers",
        ),
    )
    floats = (
        *rules,
        ErrorRule(overflows, "value out of range: overflow"),
        ErrorRule(underflows, "value out of range: underflow"),
    )
    by_double = _on_doubles(value)
    functions = []
    for name in ("power", "pow"):
        functions.append(declared(f"{name}_double", name, (DOUBLE, DOUBLE), DOUBLE, value, *floats))
        functions.append(
            declared(
                f"{name}_numeric",
                name,
                (NUMERIC, NUMERIC),
                _numeric_default,
                by_double,
                *rules,
                failed(by_double, OVERFLOW),
            )
        )
    return functions


def _log_of_base() -> list[ScalarFunc]:
    """``log(base, x)`` of numerics, by way of doubles."""

    def quotient(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        logs = [s.call("LN", s.case((_positive(arg.ast), s.double(arg.ast)))) for arg in args]
        return s.div(logs[1], s.nullif(logs[0], s.double(s.num(0))))

    value = _on_doubles(quotient)
    rules = []
    for place in (0, 1):
        for test, what in ((_zero, "zero"), (_negative, "negative numbers")):

            def holds(
                _engine: Engine,
                args: Sequence[Sql],
                _typ: SqlType,
                place: int = place,
                test: Callable[[Ast], Ast] = test,
            ) -> Ast:
                return test(args[place].ast)

            rules.append(ErrorRule(holds, f"function log is not defined for {what}"))
    one = ErrorRule(lambda _e, args, _t: s.eq(args[0].ast, s.num(1)), "division by zero")
    args = (NUMERIC, NUMERIC)
    return [
        declared(
            "log_base_numeric",
            "log",
            args,
            _numeric_default,
            value,
            *rules,
            one,
            failed(value, OVERFLOW),
        )
    ]


def _named_modulo() -> list[ScalarFunc]:
    """``mod(a, b)``: the operator under its other name."""
    rows = {f.key: f for f in (*arithmetic.FUNCTIONS, *numerics.FUNCTIONS)}
    functions = []
    for kind in (*INTEGERS, *FLOATS, "numeric"):
        row = rows[f"mod_{kind}"]
        functions.append(
            ScalarFunc(
                key=f"mod_function_{kind}",
                name="mod",
                args=row.args,
                result=row.result,
                value=row.value,
                explain=row.explain,
                errors=row.errors,
            )
        )
    return functions


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


#: Of what libraries compute: those that IEEE 754 or a single multiplication makes the same everywhere.
_PORTABLE = frozenset({"sqrt", "pi"})


def _from_libraries() -> list[ScalarFunc]:
    return [*_roots(), *_logarithms(), *_log_of_base(), *_power()]


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *_abs(),
    *_rounding(),
    *(replace(func, portable=func.name in _PORTABLE) for func in _from_libraries()),
    *_named_modulo(),
    *_sign(),
)
