"""Intervals: months, days and microseconds, kept apart.

Promise: the three fields are added and negated separately, without carry; only multiplication and division move
fractions to smaller fields (a month is 30 days, a day 24 hours), as in PostgreSQL. A field out of range is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, of
from mzsql.expr.functions.epoch import DAY_MICROS
from mzsql.expr.functions.output.to_text import interval_text, to_text
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.interval import Interval
from mzsql.repr.types import DOUBLE, INTERVAL, SqlType

_FIELDS = ("months", "days", "micros")


def build(months: Ast, days: Ast, micros: Ast, engine: Engine) -> Ast:
    """The interval of wide numbers; NULL if one is NULL or out of its field's range."""
    fields = s.struct(
        months=s.try_cast(months, of("integer"), engine),
        days=s.try_cast(days, of("integer"), engine),
        micros=s.try_cast(micros, of("bigint"), engine),
    )
    row = s.variable("b0")
    whole = s.and_(*(s.is_not_null(s.field(row, name)) for name in _FIELDS))
    return s.let(fields, "b0", s.case((whole, s.cast(row, INTERVAL, engine))), engine)


def known(ast: Ast) -> Interval | None:
    """The interval in a literal's AST; None for anything else."""
    while isinstance(ast, exp.Cast | exp.Paren):
        ast = ast.this
    if not isinstance(ast, exp.Struct):
        return None
    numbers = [s.known_integer(item.expression) for item in ast.expressions]
    if any(number is None for number in numbers):
        return None
    months, days, micros = (int(number or 0) for number in numbers)
    return Interval(months, days, micros)


def _parts(arg: Sql) -> list[Ast]:
    return [s.wide(s.field(arg.ast, name)) for name in _FIELDS]


def _sum(sign: int) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        join = s.add if sign > 0 else s.sub
        months, days, micros = (
            join(a, b) for a, b in zip(*(_parts(arg) for arg in args), strict=True)
        )
        return build(months, days, micros, engine)

    return value


def _negated(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    months, days, micros = (s.sub(s.wide(s.num(0)), part) for part in _parts(args[0]))
    return build(months, days, micros, engine)


def _scaled(*, divide: bool) -> Spelling:
    """Each field multiplied or divided; a month's fraction becomes days, a day's fraction microseconds."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        factor = s.double(args[1].ast)
        if divide:
            factor = s.nullif(factor, s.double(s.num(0)))
        apply = s.div if divide else s.mul
        constant = known(args[0].ast)
        if constant is not None and not constant.months and not constant.days:
            # Without months and days nothing moves between fields. Plans of relations have many such products, of a number of seconds.
            micros = _round(apply(s.double(s.num(constant.microseconds)), factor), engine)
            return build(s.num(0), s.num(0), _bounded(micros, engine), engine)
        fields = {
            short: apply(s.double(s.field(args[0].ast, name)), factor)
            for short, name in zip("mdu", _FIELDS, strict=True)
        }
        spilled = s.let(s.struct(**fields), "i0", _spill_months(s.variable("i0"), engine), engine)
        return s.let(spilled, "i1", _spill_days(s.variable("i1"), engine), engine)

    return value


def _spill_months(row: Ast, engine: Engine) -> Ast:
    """Whole months; the rest as days, rounded to a millionth of a day as in PostgreSQL; whole days of both."""
    million = s.double(s.num(1_000_000))
    months, days = s.field(row, "m"), s.field(row, "d")
    whole = _truncate(months, engine)
    spilled = s.mul(s.mul(s.sub(months, whole), s.double(s.num(30))), million)
    return s.struct(
        m=whole,
        s=s.div(_round(spilled, engine), million),
        w=_truncate(days, engine),
        d=days,
        u=s.field(row, "u"),
    )


def _spill_days(row: Ast, engine: Engine) -> Ast:
    """The sum of the fractions of days: a whole day is carried, the rest becomes microseconds."""
    spill, whole = s.field(row, "s"), s.field(row, "w")
    spilled = _truncate(spill, engine)
    rest = s.add(s.sub(s.field(row, "d"), whole), s.sub(spill, spilled))
    inner = s.variable("i2")
    carried = _truncate(s.field(inner, "r"), engine)
    down = s.mul(s.sub(s.field(inner, "r"), carried), s.double(s.num(DAY_MICROS)))
    micros = _round(s.add(s.field(inner, "u"), _round(down, engine)), engine)
    body = build(
        _bounded(s.field(inner, "m"), engine),
        _bounded(s.add(s.field(inner, "w"), carried), engine),
        _bounded(micros, engine),
        engine,
    )
    parts = s.struct(m=s.field(row, "m"), w=s.add(whole, spilled), r=rest, u=s.field(row, "u"))
    return s.let(parts, "i2", body, engine)


def _truncate(ast: Ast, engine: Engine) -> Ast:
    """Truncation toward zero, as a double; in Spark NULL beyond bigint, which is out of a field's range anyway."""
    if engine is Engine.DUCKDB:
        return s.call("TRUNC", ast)
    return s.double(s.try_cast_to(ast, s.typed(exp.DType.BIGINT)))


def _round(ast: Ast, engine: Engine) -> Ast:
    return s.call("RINT", ast) if engine is Engine.SPARK else s.call("ROUND_EVEN", ast, s.num(0))


def _bounded(ast: Ast, engine: Engine) -> Ast:
    """An integral double as an integer of 38 digits; NULL beyond, and for NaN and infinities. Its range is checked
    afterwards.
    """
    return s.try_cast_to(
        s.call("TRUNC", ast) if engine is Engine.DUCKDB else ast, s.decimal_type(38, 0)
    )


def _out_of_range(symbol: str) -> Spelling:
    def message(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        shown = [_shown(arg, engine) for arg in args]
        body = (
            [s.text('"'), shown[0]]
            if len(shown) == 1
            else [s.text('"'), shown[0], s.text(f" {symbol} "), shown[1]]
        )
        return s.concat(*body, s.text('" interval out of range'))

    return message


def _shown(arg: Sql, engine: Engine) -> Ast:
    if arg.typ.kind != "interval":
        return to_text(arg.ast, arg.typ, engine)
    constant = known(arg.ast)
    return interval_text(arg.ast) if constant is None else s.text(str(constant))


def _lost(value: Spelling) -> Spelling:
    return lambda engine, args, typ: s.is_null(value(engine, args, typ))


def _binary(
    key: str, symbol: str, args: tuple[SqlType, ...], value: Spelling, *errors: ErrorRule
) -> ScalarFunc:
    return ScalarFunc(
        key=key,
        name=symbol,
        args=args,
        result=INTERVAL,
        value=value,
        explain=f"({{0}} {symbol} {{1}})" if len(args) == 2 else "-({0})",
        errors=(*errors, ErrorRule(_lost(value), _out_of_range(symbol))),
    )


def _seconds(micros: Ast, unit: str) -> tuple[Ast, int]:
    minute = s.mod(micros, s.num(60_000_000))
    return minute, {"second": 6, "milliseconds": 3}.get(unit, 0)


def field(unit: str, ast: Ast) -> tuple[Ast, int]:
    """A field of an interval as an integer in units of 10^-n, and n; all truncate toward zero."""
    months, days, micros = (s.big(s.field(ast, name)) for name in _FIELDS)
    years = s.int_div(months, s.num(12))
    match unit:
        case "millennium" | "century" | "decade":
            size = {"millennium": 1000, "century": 100, "decade": 10}[unit]
            return s.int_div(years, s.num(size)), 0
        case "year":
            return years, 0
        case "quarter":
            return s.add(s.int_div(s.mod(months, s.num(12)), s.num(3)), s.num(1)), 0
        case "month":
            return s.mod(months, s.num(12)), 0
        case "day":
            return days, 0
        case "hour":
            return s.int_div(micros, s.num(3_600_000_000)), 0
        case "minute":
            return s.mod(s.int_div(micros, s.num(60_000_000)), s.num(60)), 0
        case "epoch":
            # For the epoch, a year is 365.25 days and a month 30.
            year_micros = s.mul(s.wide(years), s.num(31_557_600_000_000))
            month_micros = s.mul(s.wide(s.mod(months, s.num(12))), s.num(30 * DAY_MICROS))
            day_micros = s.mul(s.wide(days), s.num(DAY_MICROS))
            return s.add(s.add(year_micros, month_micros), s.add(day_micros, s.wide(micros))), 6
        case _:
            return _seconds(micros, unit)


_DIVISION = ErrorRule(lambda _engine, args, _typ: s.eq(args[1].ast, s.num(0)), "division by zero")


def _justified(*, days: bool) -> Spelling:
    """The functions `justify_days` (whole months of days) and `justify_hours` (whole days of hours)."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        months, day, micros = _parts(args[0])
        row = s.variable("k0")
        h, low = s.field(row, "h"), s.field(row, "l")
        if days:
            return s.let(
                _carry(months, day, 30, engine), "k0", build(h, low, micros, engine), engine
            )
        carried = _carry(day, micros, DAY_MICROS, engine)
        return s.let(carried, "k0", build(months, h, low, engine), engine)

    return value


def _justified_wholly(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The function `justify_interval`: days of hours, months of days, then all fields with one sign."""
    months, day, micros = _parts(args[0])
    clock, span = s.variable("k0"), s.variable("k1")
    high, low = s.field(span, "h"), s.field(span, "l")
    rest = s.field(span, "c")
    one, month, unit = (s.wide(s.num(n)) for n in (1, 30, DAY_MICROS))
    # Carry a month, then a day.
    up = s.and_(
        s.gt(high, s.num(0)),
        s.or_(s.lt(low, s.num(0)), s.and_(s.eq(low, s.num(0)), s.lt(rest, s.num(0)))),
    )
    down = s.and_(
        s.lt(high, s.num(0)),
        s.or_(s.gt(low, s.num(0)), s.and_(s.eq(low, s.num(0)), s.gt(rest, s.num(0)))),
    )
    last = s.variable("k2")
    h, d, c = (s.field(last, name) for name in ("h", "l", "c"))
    later = s.and_(s.gt(d, s.num(0)), s.lt(c, s.num(0)))
    sooner = s.and_(s.lt(d, s.num(0)), s.gt(c, s.num(0)))
    done = build(
        h,
        s.case((later, s.sub(d, one)), (sooner, s.add(d, one)), otherwise=d),
        s.case((later, s.add(c, unit)), (sooner, s.sub(c, unit)), otherwise=c),
        engine,
    )
    signed = s.struct(
        h=s.wide(s.case((up, s.sub(high, one)), (down, s.add(high, one)), otherwise=high)),
        l=s.wide(s.case((up, s.add(low, month)), (down, s.sub(low, month)), otherwise=low)),
        c=rest,
    )
    whole = _plain_carry(months, s.field(clock, "h"), 30, engine)
    joined = s.struct(h=whole[0], l=whole[1], c=s.field(clock, "l"))
    inner = s.let(joined, "k1", s.let(signed, "k2", done, engine), engine)
    days, left = _plain_carry(day, micros, DAY_MICROS, engine)
    return s.let(s.struct(h=days, l=left), "k0", inner, engine)


def _plain_carry(high: Ast, small: Ast, unit: int, engine: Engine) -> tuple[Ast, Ast]:
    rest = s.mod(small, s.wide(s.num(unit)))
    return s.wide(s.add(high, _exact(s.sub(small, rest), unit, engine))), s.wide(rest)


def _exact(multiple: Ast, unit: int, engine: Engine) -> Ast:
    if engine is Engine.SPARK:
        return s.wide(s.int_div(multiple, s.wide(s.num(unit))))
    return s.wide(s.int_div(s.hugeint(multiple), s.hugeint(s.num(unit))))


def _carry(high: Ast, small: Ast, unit: int, engine: Engine) -> Ast:
    """Whole units of ``small`` carried into ``high``, with one sign afterwards: a struct of h and l."""
    rest = s.mod(small, s.wide(s.num(unit)))
    carried = s.struct(h=s.add(high, _exact(s.sub(small, rest), unit, engine)), l=rest)
    row = s.variable("j0")
    h, low = s.field(row, "h"), s.field(row, "l")
    up = s.and_(s.gt(h, s.num(0)), s.lt(low, s.num(0)))
    down = s.and_(s.lt(h, s.num(0)), s.gt(low, s.num(0)))
    one, size = s.wide(s.num(1)), s.wide(s.num(unit))
    signed = s.struct(
        h=s.wide(s.case((up, s.sub(h, one)), (down, s.add(h, one)), otherwise=h)),
        l=s.wide(s.case((up, s.add(low, size)), (down, s.sub(low, size)), otherwise=low)),
    )
    return s.let(carried, "j0", signed, engine)


def _justify(name: str, *, days: bool) -> ScalarFunc:
    value = _justified(days=days)
    return ScalarFunc(
        key=name,
        name=name,
        args=(INTERVAL,),
        result=INTERVAL,
        value=value,
        errors=(ErrorRule(_lost(value), _out_of_range("")),),
    )


def swapped(value: Spelling) -> Spelling:
    """A function of two arguments with these the other way round."""
    return lambda engine, args, typ: value(engine, [args[1], args[0]], typ)


FUNCTIONS: tuple[ScalarFunc, ...] = (
    _binary("add_interval", "+", (INTERVAL, INTERVAL), _sum(1)),
    # As in Materialize, what is subtracted is negated first, which must not be lost either.
    _binary(
        "sub_interval",
        "-",
        (INTERVAL, INTERVAL),
        _sum(-1),
        ErrorRule(
            lambda engine, args, typ: s.is_null(_negated(engine, [args[1]], typ)),
            _out_of_range("-"),
        ),
    ),
    _binary("neg_interval", "-", (INTERVAL,), _negated),
    _binary("mul_interval_double", "*", (INTERVAL, DOUBLE), _scaled(divide=False)),
    _binary("mul_double_interval", "*", (DOUBLE, INTERVAL), swapped(_scaled(divide=False))),
    _binary("div_interval_double", "/", (INTERVAL, DOUBLE), _scaled(divide=True), _DIVISION),
    ScalarFunc(
        key="justify_interval",
        name="justify_interval",
        args=(INTERVAL,),
        result=INTERVAL,
        value=_justified_wholly,
        errors=(ErrorRule(_lost(_justified_wholly), _out_of_range("")),),
    ),
    _justify("justify_hours", days=False),
    _justify("justify_days", days=True),
)
