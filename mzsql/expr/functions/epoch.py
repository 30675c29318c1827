"""Conversion between dates or timestamps and numbers, for both engines.

Promise: nothing throws. A number of days or microseconds outside the calendar becomes NULL; the calendar is from
PostgreSQL's first day, in 4714 BC, to the end of 262142, Materialize's last year. Sessions run in UTC, so timestamps
with and without time zone have the same microseconds.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import Engine
from mzsql.repr.types import TIMESTAMP, TIMESTAMPTZ, SqlType

DAY_MICROS = 86_400_000_000
#: 4714-11-24 BC and 262142-12-31 in days since 1970-01-01, and the first and last microsecond.
MIN_DAYS, MAX_DAYS = -2440588, 95026236
MIN_MICROS, MAX_MICROS = MIN_DAYS * DAY_MICROS, MAX_DAYS * DAY_MICROS + DAY_MICROS - 1


def micros(ast: Ast, kind: str, engine: Engine) -> Ast:
    """The microseconds since 1970 of a timestamp, timestamptz or date, as bigint."""
    if kind == "date":
        return s.mul(days(ast, engine), s.num(DAY_MICROS))
    if engine is Engine.DUCKDB:
        return s.call("EPOCH_US", ast)
    return s.call("UNIX_MICROS", ast if kind == "timestamptz" else s.cast(ast, TIMESTAMPTZ, engine))


def days(ast: Ast, engine: Engine) -> Ast:
    """The days since 1970 of a date, as bigint."""
    if engine is Engine.SPARK:
        return s.big(s.call("UNIX_DATE", ast))
    return s.big(s.sub(ast, s.cast_to(s.text("1970-01-01"), s.typed(exp.DType.DATE))))


def date_of_days(ast: Ast, engine: Engine) -> Ast:
    """The date with this number of days since 1970; NULL outside the calendar."""
    if not s.is_simple(ast):
        return s.let(ast, "d0", _date(s.variable("d0"), engine), engine)
    return _date(ast, engine)


def _date(ast: Ast, engine: Engine) -> Ast:
    safe = s.integer(s.case((s.between(ast, s.num(MIN_DAYS), s.num(MAX_DAYS)), ast)))
    if engine is Engine.SPARK:
        return s.call("DATE_FROM_UNIX_DATE", safe)
    return s.add(s.cast_to(s.text("1970-01-01"), s.typed(exp.DType.DATE)), safe)


def midnight(date: Ast, typ: SqlType, engine: Engine) -> Ast:
    """The first instant of a date, in UTC; NULL outside the calendar."""
    first, last = -(-MIN_MICROS // DAY_MICROS), MAX_MICROS // DAY_MICROS
    if not s.is_simple(date):
        return timestamp_of_micros(micros(date, "date", engine), typ, engine)
    inside = s.between(days(date, engine), s.num(first), s.num(last))
    return s.cast(s.case((inside, date)), typ, engine)


def timestamp_of_micros(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    """The timestamp with this number of microseconds since 1970, of any integer type; NULL outside the calendar."""
    if not s.is_simple(ast):
        return s.let(ast, "m0", _timestamp(s.variable("m0"), typ, engine), engine)
    return _timestamp(ast, typ, engine)


def _timestamp(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    safe = s.big(s.case((s.between(ast, s.num(MIN_MICROS), s.num(MAX_MICROS)), ast)))
    if engine is Engine.SPARK:
        zoned = s.call("TIMESTAMP_MICROS", safe)
        return zoned if typ.kind == "timestamptz" else s.cast(zoned, TIMESTAMP, engine)
    plain = s.call("MAKE_TIMESTAMP", safe)
    return plain if typ.kind == "timestamp" else s.cast(plain, typ, engine)


def add_months(date: Ast, months: Ast, engine: Engine) -> Ast:
    """The date that many months later, or the last day of a shorter month; NULL outside the calendar."""
    # No two dates of the calendar are further apart, and no engine overflows at this distance.
    safe = s.integer(s.case((s.between(months, s.num(-3_600_000), s.num(3_600_000)), months)))
    if engine is Engine.SPARK:
        return date_of_days(s.call("UNIX_DATE", s.call("ADD_MONTHS", date, safe)), engine)
    moved = s.call(
        "TRY", s.cast_to(s.add(date, s.call("TO_MONTHS", safe)), s.typed(exp.DType.DATE))
    )
    return date_of_days(days(moved, engine), engine)


def floor_div(left: Ast, right: int) -> Ast:
    """The quotient of an integer and a positive integer rounded down, as bigint."""
    by = s.num(right)
    rest = s.mod(s.add(s.mod(left, by), by), by)
    return s.int_div(s.big(s.sub(left, rest)), s.big(by))


def whole_days(micros: Ast, engine: Engine) -> Ast:
    """A wide multiple of a day's microseconds as days. The division leaves no remainder, so it is exact in each engine."""
    day = s.num(DAY_MICROS)
    if engine is Engine.SPARK:
        return s.int_div(micros, s.wide(day))
    return s.int_div(s.hugeint(micros), s.hugeint(day))
