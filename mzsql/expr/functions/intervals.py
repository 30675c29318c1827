"""Intervals: months, days and microseconds, each on its own.

Promise: the three fields are added and negated separately and never carried into each other; only multiplication and division spill
fractions downwards (a month is 30 days, a day 24 hours), as PostgreSQL does. What leaves a field's range is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.calendar import DAY_MICROS
from mzsql.expr.functions.declare import Ast, of
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.texts import interval_text, to_text
from mzsql.repr.interval import Interval
from mzsql.repr.types import DOUBLE, INTERVAL, SqlType

_FIELDS = ("months", "days", "micros")


def build(args: Sequence[Sql], months: Ast, days: Ast, micros: Ast, engine: Engine) -> Ast:
    """An interval of wide numbers; NULL where an argument is NULL or a field leaves its range."""
    fields = (
        s.try_cast(months, of("integer"), engine),
        s.try_cast(days, of("integer"), engine),
        s.try_cast(micros, of("bigint"), engine),
    )
    whole = s.and_(*(s.is_not_null(part) for part in fields))
    made = s.cast(s.struct(months=fields[0], days=fields[1], micros=fields[2]), INTERVAL, engine)
    present = s.and_(*(s.is_not_null(arg.ast) for arg in args))
    return s.case((s.and_(present, whole), made))


def known(ast: Ast) -> Interval | None:
    """The interval that a literal's AST stands for; None of anything else."""
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
        return build(args, months, days, micros, engine)

    return value


def _negated(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    months, days, micros = (s.sub(s.wide(s.num(0)), part) for part in _parts(args[0]))
    return build(args, months, days, micros, engine)


def _scaled(*, divide: bool) -> Spelling:
    """Each field times the factor; a month's fraction becomes days of 30, a day's fraction microseconds."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        factor = s.double(args[1].ast)
        if divide:
            factor = s.nullif(factor, s.double(s.num(0)))
        apply = s.div if divide else s.mul
        fields = {
            short: apply(s.double(s.field(args[0].ast, name)), factor)
            for short, name in zip("mdu", _FIELDS, strict=True)
        }
        spilled = s.let(s.struct(**fields), "i0", _spill_months(s.variable("i0"), engine), engine)
        body = _spill_days(s.variable("i1"), args, engine)
        return s.let(spilled, "i1", body, engine)

    return value


def _spill_months(row: Ast, engine: Engine) -> Ast:
    """Whole months; the rest as days, rounded to a millionth of a day as PostgreSQL does."""
    million = s.double(s.num(1_000_000))
    months = s.field(row, "m")
    whole = _truncate(months, engine)
    rest = _round(s.mul(s.mul(s.sub(months, whole), s.double(s.num(30))), million), engine)
    return s.struct(m=whole, s=s.div(rest, million), d=s.field(row, "d"), u=s.field(row, "u"))


def _spill_days(row: Ast, args: Sequence[Sql], engine: Engine) -> Ast:
    """Whole days of both; the rest as microseconds."""
    days, spill, micros = (s.field(row, name) for name in ("d", "s", "u"))
    whole, spill_whole = _truncate(days, engine), _truncate(spill, engine)
    rest = s.add(s.sub(days, whole), s.sub(spill, spill_whole))
    # Two fractions may make a day more.
    carried = _truncate(rest, engine)
    down = _round(s.mul(s.sub(rest, carried), s.double(s.num(DAY_MICROS))), engine)
    return build(
        args,
        _bounded(s.field(row, "m"), 2**31, engine),
        _bounded(s.add(s.add(whole, spill_whole), carried), 2**31, engine),
        _bounded(_round(s.add(micros, down), engine), 2**63, engine),
        engine,
    )


def _truncate(ast: Ast, engine: Engine) -> Ast:
    """Towards zero, as a double; NULL beyond 2^52, far outside a field's range."""
    safe = s.case((s.lt(s.call("ABS", ast), s.double(s.num(2**52))), ast))
    if engine is Engine.DUCKDB:
        return s.call("TRUNC", safe)
    up, down = s.double(s.call("CEIL", safe)), s.double(s.call("FLOOR", safe))
    return s.case((s.lt(safe, s.num(0)), up), otherwise=down)


def _round(ast: Ast, engine: Engine) -> Ast:
    return s.call("RINT", ast) if engine is Engine.SPARK else s.call("ROUND_EVEN", ast, s.num(0))


def _bounded(ast: Ast, limit: int, engine: Engine) -> Ast:
    bound = s.double(s.num(limit))
    low = s.double(s.num(-limit))
    inside = s.and_(s.gte(ast, low), s.lt(ast, bound))
    return s.try_cast(s.case((inside, ast)), of("bigint"), engine)


def _out_of_range(symbol: str) -> Spelling:
    def message(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        shown = [
            interval_text(arg.ast)
            if arg.typ.kind == "interval"
            else to_text(arg.ast, arg.typ, engine)
            for arg in args
        ]
        body = (
            [s.text(f'"{symbol}'), shown[0]]
            if len(shown) == 1
            else [s.text('"'), shown[0], s.text(f" {symbol} "), shown[1]]
        )
        return s.concat(*body, s.text('" interval out of range'))

    return message


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
    """A field of an interval as an integer that counts 10^-n, and n; all truncate towards zero."""
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
            # A year is 365.25 days, a month 30.
            year_micros = s.mul(s.wide(years), s.num(31_557_600_000_000))
            month_micros = s.mul(s.wide(s.mod(months, s.num(12))), s.num(30 * DAY_MICROS))
            day_micros = s.mul(s.wide(days), s.num(DAY_MICROS))
            return s.add(s.add(year_micros, month_micros), s.add(day_micros, s.wide(micros))), 6
        case _:
            return _seconds(micros, unit)


_DIVISION = ErrorRule(lambda _engine, args, _typ: s.eq(args[1].ast, s.num(0)), "division by zero")


def _justified(days: bool, hours: bool) -> Spelling:
    """Whole days of hours, whole months of days, all fields of one sign (`justify_days`, `_hours`, `_interval`)."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        months, day, micros = _parts(args[0])
        if hours:
            rest = s.mod(micros, s.wide(s.num(DAY_MICROS)))
            whole = _exact(s.sub(micros, rest), DAY_MICROS, engine)
            day, micros = s.add(day, whole), rest
            day, micros = _one_sign(day, micros, DAY_MICROS)
        if days:
            rest = s.mod(day, s.wide(s.num(30)))
            whole = _exact(s.sub(day, rest), 30, engine)
            months, day = s.add(months, whole), rest
            months, day = _one_sign(months, day, 30)
        return build(args, months, day, micros, engine)

    return value


def _exact(multiple: Ast, unit: int, engine: Engine) -> Ast:
    if engine is Engine.SPARK:
        return s.wide(s.int_div(multiple, s.wide(s.num(unit))))
    return s.wide(s.int_div(s.hugeint(multiple), s.hugeint(s.num(unit))))


def _one_sign(high: Ast, low: Ast, unit: int) -> tuple[Ast, Ast]:
    up = s.and_(s.gt(high, s.num(0)), s.lt(low, s.num(0)))
    down = s.and_(s.lt(high, s.num(0)), s.gt(low, s.num(0)))
    one, size = s.wide(s.num(1)), s.wide(s.num(unit))
    return (
        s.case((up, s.sub(high, one)), (down, s.add(high, one)), otherwise=high),
        s.case((up, s.add(low, size)), (down, s.sub(low, size)), otherwise=low),
    )


def _justify(name: str, *, days: bool, hours: bool) -> ScalarFunc:
    value = _justified(days, hours)
    return ScalarFunc(
        key=name,
        name=name,
        args=(INTERVAL,),
        result=INTERVAL,
        value=value,
        errors=(ErrorRule(_lost(value), _out_of_range("")),),
    )


def _swap(value: Spelling) -> Spelling:
    return lambda engine, args, typ: value(engine, [args[1], args[0]], typ)


FUNCTIONS: tuple[ScalarFunc, ...] = (
    _binary("add_interval", "+", (INTERVAL, INTERVAL), _sum(1)),
    _binary("sub_interval", "-", (INTERVAL, INTERVAL), _sum(-1)),
    _binary("neg_interval", "-", (INTERVAL,), _negated),
    _binary("mul_interval_double", "*", (INTERVAL, DOUBLE), _scaled(divide=False)),
    _binary("mul_double_interval", "*", (DOUBLE, INTERVAL), _swap(_scaled(divide=False))),
    _binary("div_interval_double", "/", (INTERVAL, DOUBLE), _scaled(divide=True), _DIVISION),
    _justify("justify_hours", days=False, hours=True),
    _justify("justify_days", days=True, hours=False),
)
