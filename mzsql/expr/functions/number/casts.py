"""Casts between numbers, and between numbers and booleans.

Promise: numerics round half away from zero, floats half to even, as in PostgreSQL; a value that does not fit is an
error that shows it rounded, in Materialize's words.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.cast_rows import ASSIGNMENT, EXPLICIT, IMPLICIT, Cast, cast_row, plain
from mzsql.expr.functions.declare import BOUNDS, FLOATS, INTEGERS, Ast, failed, of
from mzsql.expr.functions.number.arithmetic import in_range, is_infinite
from mzsql.expr.functions.number.numeric import OVERFLOW, at_scale, numeric, rescale
from mzsql.expr.functions.output.to_text import to_text
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql
from mzsql.repr.types import NUMERIC_PRECISION, SqlType, type_name


def shown_out_of_range(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The message ``"<value>" <type> out of range``."""
    shown = _rounded_text(args[0], engine)
    return s.concat(s.text('"'), shown, s.text(f'" {type_name(typ)} out of range'))


def _rounded_text(arg: Sql, engine: Engine) -> Ast:
    """The number that was too large for an integer, rounded, as text."""
    shown = to_text(arg.ast, arg.typ, engine)
    if arg.typ.kind == "numeric":
        return s.string(rescale(arg.ast, 0))
    if arg.typ.kind not in FLOATS:
        return shown
    ast = s.double(arg.ast)
    even = s.call("RINT", ast) if engine is Engine.SPARK else s.call("ROUND_EVEN", ast, s.num(0))
    exact = s.lt(s.call("ABS", ast), s.double(s.num(2**53)))
    return s.case(
        (exact, s.string(s.try_cast(s.case((exact, even)), of("bigint"), engine))),
        otherwise=s.let(shown, "w0", _spelled_out(s.variable("w0")), engine),
    )


def _spelled_out(shown: Ast) -> Ast:
    """An integer in scientific notation with all digits, padded with zeros; any other text unchanged."""
    mantissa = s.call("SPLIT_PART", shown, s.text("e"), s.num(1))
    exponent = s.integer(s.call("SPLIT_PART", shown, s.text("e"), s.num(2)))
    digits = s.call("REPLACE", mantissa, s.text("."), s.text(""))
    length = s.call("LENGTH", s.call("REPLACE", digits, s.text("-"), s.text("")))
    zeros = s.integer(s.sub(s.add(exponent, s.num(1)), length))
    filled = s.concat(digits, s.call("REPEAT", s.text("0"), zeros))
    scientific = s.gt(s.call("INSTR", shown, s.text("e+")), s.num(0))
    return s.case((scientific, filled), otherwise=shown)


def _between_integers() -> list[Cast]:
    casts = []
    for source in INTEGERS:
        for target in INTEGERS:
            if source == target:
                continue
            (low, high), (least, most) = BOUNDS[source], BOUNDS[target]

            def value(
                engine: Engine, args: Sequence[Sql], _typ: SqlType, target: str = target
            ) -> Ast:
                return in_range(args[0].ast, target, engine)

            if least <= low and high <= most:
                casts.append(cast_row(source, target, IMPLICIT, plain, monotone=True))
            else:
                rule = failed(value, shown_out_of_range)
                casts.append(cast_row(source, target, ASSIGNMENT, value, rule, monotone=True))
    return casts


def _fits_not(args: Sequence[SqlType], typ: SqlType) -> bool:
    """Whether an integer of this type may have more digits than the numeric has before the decimal point."""
    digits = len(str(BOUNDS[args[0].kind][1]))
    return digits > NUMERIC_PRECISION - typ.effective_scale


def _numeric_to_integer(target: str) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        # Round first, since Spark truncates when it casts a decimal to an integer.
        return in_range(rescale(args[0].ast, 0), target, engine)

    return value


def decimal_to_double(ast: Ast, engine: Engine) -> Ast:
    """The nearest double. DuckDB's own cast divides doubles; its parser rounds correctly."""
    return s.double(s.string(ast) if engine is Engine.DUCKDB else ast)


def _float_to_decimal(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    # From the shortest digits that identify the float, so that 1.1 stays 1.1. Larger magnitudes overflow anyway.
    ast = args[0].ast
    fits = s.lt(s.call("ABS", s.double(ast)), s.num("1e38"))
    return rescale(to_text(s.case((fits, ast)), args[0].typ, engine), typ.effective_scale)


def _float_to_integer(target: str) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        low, high = BOUNDS[target]
        ast = s.double(args[0].ast)
        even = (
            s.call("RINT", ast) if engine is Engine.SPARK else s.call("ROUND_EVEN", ast, s.num(0))
        )
        # The upper bound of bigint is no double; the next power of two is one, and is out of range.
        above = s.double(s.num(high + 1))
        inside = s.and_(s.gte(even, s.double(s.num(low))), s.lt(even, above))
        found = s.try_cast(s.case((inside, even)), of(target), engine)
        if target != "uint8":
            return found
        # As in Materialize, the double nearest to uint8's upper bound becomes that bound.
        return s.case((s.eq(even, above), s.cast(s.num(high), of(target), engine)), otherwise=found)

    return value


def _to_real(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.try_cast(args[0].ast, of("real"), engine)


def _real_overflow(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    value = _to_real(engine, args, typ)
    lost = s.or_(s.is_null(value), is_infinite(value, engine))
    return s.and_(lost, s.not_(is_infinite(args[0].ast, engine)))


def _real_underflow(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return s.and_(s.eq(_to_real(engine, args, typ), s.num(0)), s.neq(args[0].ast, s.num(0)))


def _decimal_to_real(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    carrier = s.typed(exp.DType.FLOAT)
    return s.cast_to(s.string(args[0].ast) if engine is Engine.DUCKDB else args[0].ast, carrier)


def _numbers() -> list[Cast]:
    casts = _between_integers()
    scale_zero = numeric(0)
    for kind in INTEGERS:
        full = ErrorRule(failed(at_scale, OVERFLOW).condition, OVERFLOW, _fits_not)
        casts.append(
            cast_row(
                kind,
                "numeric",
                IMPLICIT,
                at_scale,
                full,
                result=scale_zero,
                monotone=True,
            )
        )
        back = _numeric_to_integer(kind)
        rule = failed(back, shown_out_of_range)
        casts.append(cast_row("numeric", kind, ASSIGNMENT, back, rule, monotone=True))
        for target in FLOATS:
            casts.append(cast_row(kind, target, IMPLICIT, _integer_to_float, monotone=True))
            whole = _float_to_integer(kind)
            rule = failed(whole, shown_out_of_range)
            casts.append(cast_row(target, kind, ASSIGNMENT, whole, rule, monotone=True))
    for kind in FLOATS:
        value = _float_to_decimal
        finite = ErrorRule(
            _not_finite,
            f"function casting {type_name(of(kind))} to numeric is only defined for finite arguments",
        )
        casts.append(cast_row(kind, "numeric", ASSIGNMENT, value, finite, failed(value, OVERFLOW)))
    wider = ErrorRule(
        failed(at_scale, OVERFLOW).condition,
        OVERFLOW,
        lambda args, typ: typ.effective_scale > args[0].effective_scale,
    )
    overflow = ErrorRule(_real_overflow, "value out of range: overflow")
    underflow = ErrorRule(_real_underflow, "value out of range: underflow")
    casts += [
        cast_row("numeric", "numeric", IMPLICIT, at_scale, wider, monotone=True),
        cast_row("numeric", "double", IMPLICIT, _decimal_to_double, monotone=True),
        cast_row("numeric", "real", IMPLICIT, _decimal_to_real, monotone=True),
        cast_row("real", "double", IMPLICIT, plain, monotone=True),
        cast_row("double", "real", ASSIGNMENT, _to_real, overflow, underflow, monotone=True),
    ]
    return casts


def _not_finite(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    nan = s.cast_to(s.text("NaN"), s.typed(exp.DType.DOUBLE))
    return s.or_(is_infinite(args[0].ast, engine), s.eq(s.double(args[0].ast), nan))


def _decimal_to_double(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return decimal_to_double(args[0].ast, engine)


def _integer_to_float(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if args[0].typ.kind == "uint8" and engine is Engine.DUCKDB:
        return s.cast(s.string(args[0].ast), typ, engine)
    return s.cast(args[0].ast, typ, engine)


def _booleans() -> list[Cast]:
    casts = []
    for kind in ("integer", "bigint"):
        casts.append(cast_row("boolean", kind, EXPLICIT, plain))
        casts.append(
            cast_row(kind, "boolean", EXPLICIT, lambda _e, args, _t: s.neq(args[0].ast, s.num(0)))
        )
    return casts


CASTS: tuple[Cast, ...] = (*_numbers(), *_booleans())
