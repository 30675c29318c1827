"""`datediff`: the number of units between two timestamps.

Promise: for weeks and smaller units, whole units passed, truncated toward zero; for months and larger ones, how often
the calendar's number of the unit has changed. A unit that is no literal becomes a CASE over all units.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, of, scalar
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.time import operators
from mzsql.repr.types import BIGINT, DATE, TEXT, TIMESTAMP, SqlType

_MICROS = {
    "microseconds": 1,
    "milliseconds": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": epoch.DAY_MICROS,
    "week": 7 * epoch.DAY_MICROS,
}
_CALENDAR = ("month", "quarter", "year", "decade", "century", "millennium")
_UNITS = (*_MICROS, *_CALENDAR)


def _micros(arg: Sql, engine: Engine) -> Ast:
    return arg.ast if arg.typ.kind == "time" else epoch.micros(arg.ast, arg.typ.kind, engine)


def _number(unit: str, arg: Sql, engine: Engine) -> Ast:
    """The calendar's number of the unit, counted through all years."""
    local = s.cast(arg.ast, TIMESTAMP, engine) if arg.typ.kind == "timestamptz" else arg.ast
    date = local if arg.typ.kind == "date" else s.cast(local, DATE, engine)
    if unit in ("month", "quarter"):
        # PostgreSQL's year before 1 is -1; the calendar's has a year 0.
        year = s.big(s.call("YEAR", date))
        many = 12 if unit == "month" else 4
        return s.add(s.mul(year, s.num(many)), s.big(s.call(unit.upper(), date)))
    if unit == "year":
        return s.big(s.call("YEAR", date))
    found = operators.day_field(unit, date, engine)
    assert found is not None
    return s.big(found)


def _between(unit: str, args: Sequence[Sql], engine: Engine) -> Ast:
    start, end = args
    if unit in _MICROS:
        span = s.sub(s.wide(_micros(end, engine)), s.wide(_micros(start, engine)))
        size = s.wide(s.num(_MICROS[unit]))
        exact = s.sub(span, s.mod(span, size))
        if engine is Engine.SPARK:
            return s.big(s.int_div(exact, size))
        return s.big(s.int_div(s.hugeint(exact), s.hugeint(size)))
    return s.sub(_number(unit, end, engine), _number(unit, start, engine))


def _words(unit: str) -> list[str]:
    return [word for word, main in operators.UNITS.items() if main == unit]


def _asked(arg: Sql, units: Sequence[str]) -> Ast:
    low = s.call("LOWER", arg.ast)
    return s.or_(*(s.eq(low, s.text(word)) for unit in units for word in _words(unit)))


def _spelling(kind: str) -> Spelling:
    units = tuple(_MICROS)[:5] if kind == "time" else _UNITS

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        known = s.literal_of(args[0].ast)
        if known is not None:
            unit = operators.UNITS.get(known.name.lower(), "")
            return _between(unit, args[1:], engine) if unit in units else s.big(s.null())
        return s.case(
            *((_asked(args[0], [unit]), _between(unit, args[1:], engine)) for unit in units)
        )

    return value


def _rules(kind: str) -> tuple[ErrorRule, ...]:
    units = tuple(_MICROS)[:5] if kind == "time" else _UNITS
    others = [u for u in dict.fromkeys(operators.UNITS.values()) if u not in units]
    unsupported = ErrorRule(
        lambda _engine, args, _typ: _asked(args[0], others),
        lambda _engine, args, _typ: s.concat(
            s.text("unit '"),
            s.call("LOWER", args[0].ast),
            s.text(f"' not supported for type {kind}"),
        ),
    )
    unknown = ErrorRule(
        lambda _engine, args, _typ: s.not_(_asked(args[0], [*units, *others])),
        lambda _engine, args, _typ: s.concat(
            s.text("unit '"), args[0].ast, s.text("' not recognized")
        ),
    )
    return (unsupported, unknown)


FUNCTIONS: tuple[ScalarFunc, ...] = tuple(
    scalar(
        f"datediff_{kind}",
        "datediff",
        (TEXT, of(kind), of(kind)),
        BIGINT,
        _spelling(kind),
        *_rules(kind),
    )
    for kind in ("timestamp", "timestamptz", "date", "time")
)
