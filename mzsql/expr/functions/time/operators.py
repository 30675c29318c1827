"""Arithmetic, fields and truncation of dates, times, timestamps and intervals.

Promise: everything is computed with integers of days and microseconds, so both engines agree and never throw. Adding
months keeps to the last day of a shorter month. Weeks are ISO 8601's. Results outside the calendar are errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, failed, of
from mzsql.expr.functions.epoch import DAY_MICROS
from mzsql.expr.functions.number.numeric import numeric
from mzsql.expr.functions.table import Engine, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.time import intervals
from mzsql.repr.types import DATE, DOUBLE, INTEGER, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ, SqlType

_SYNONYMS: dict[str, tuple[str, ...]] = {
    "microseconds": ("microsecond", "us", "usec", "usecs", "useconds"),
    "milliseconds": ("millisecond", "ms", "msec", "msecs", "mseconds"),
    "second": ("seconds", "s", "sec", "secs"),
    "minute": ("minutes", "m", "min", "mins"),
    "hour": ("hours", "h", "hr", "hrs"),
    "day": ("days", "d"),
    "week": ("weeks", "w"),
    "month": ("months", "mon", "mons"),
    "quarter": ("quarters", "qtr"),
    "year": ("years", "y", "yr", "yrs"),
    "decade": ("decades", "dec", "decs"),
    "century": ("centuries", "c", "cent"),
    "millennium": ("millenniums", "millennia", "mil", "mils"),
    "epoch": (),
    "dow": (),
    "isodow": (),
    "doy": (),
}
#: All spellings of the units of time, with the suffix in functions' names; any other is ``unit 'x' not recognized``.
UNITS: Mapping[str, str] = {
    word: unit for unit, others in _SYNONYMS.items() for word in (unit, *others)
}

#: The kinds' suffixes in keys and EXPLAIN: ``extract_year_d``.
_SUFFIX = {"date": "d", "timestamp": "ts", "timestamptz": "tstz", "time": "t", "interval": "iv"}
_OUT_OF_RANGE = "timestamp out of range"


def _plus_interval(kind: str, sign: int) -> Spelling:
    """Addition of an interval: months in the calendar, then days, then microseconds."""

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        start = epoch.micros(args[0].ast, kind, engine)
        known = intervals.known(args[1].ast)
        if known is not None:
            months, micros = (
                sign * known.months,
                sign * (known.days * DAY_MICROS + known.microseconds),
            )
            if months:
                start = _months_later(start, s.num(months), engine)
            return epoch.timestamp_of_micros(
                s.add(s.wide(start), s.wide(s.num(micros))), typ, engine
            )
        months_ast, days, rest = (
            s.field(args[1].ast, name) for name in ("months", "days", "micros")
        )
        factor = s.num(sign)
        total = s.add(
            s.mul(s.wide(days), s.wide(s.num(sign * DAY_MICROS))), s.mul(s.wide(rest), factor)
        )
        moved = s.wide(_months_later(start, s.mul(s.big(months_ast), factor), engine))
        return epoch.timestamp_of_micros(s.add(moved, total), typ, engine)

    return value


def _months_later(micros: Ast, months: Ast, engine: Engine) -> Ast:
    """Microseconds since 1970, some months later."""
    row = s.variable("n0")
    body = _shifted(s.field(row, "t"), s.field(row, "n"), engine)
    return s.let(s.struct(t=micros, n=months), "n0", body, engine)


def _shifted(micros: Ast, months: Ast, engine: Engine) -> Ast:
    day = epoch.floor_div(micros, DAY_MICROS)
    moved = epoch.add_months(epoch.date_of_days(day, engine), months, engine)
    clock = s.sub(micros, s.mul(day, s.num(DAY_MICROS)))
    shifted = s.add(epoch.micros(moved, "date", engine), clock)
    return s.case((s.eq(months, s.num(0)), micros), otherwise=shifted)


def _binary(
    key: str,
    symbol: str,
    args: tuple[SqlType, SqlType],
    result: SqlType,
    value: Spelling,
    error: str | None = _OUT_OF_RANGE,
    *,
    monotone: bool = False,
) -> ScalarFunc:
    return ScalarFunc(
        key=key,
        name=symbol,
        args=args,
        result=result,
        value=value,
        explain=f"({{0}} {symbol} {{1}})",
        errors=() if error is None else (failed(value, error),),
        monotone=monotone,
    )


def _with_intervals() -> list[ScalarFunc]:
    functions = []
    for kind in ("date", "timestamp", "timestamptz"):
        result = TIMESTAMP if kind == "date" else of(kind)
        plus, minus = _plus_interval(kind, 1), _plus_interval(kind, -1)
        functions += [
            _binary(f"add_{kind}_interval", "+", (of(kind), INTERVAL), result, plus, monotone=True),
            _binary(
                f"sub_{kind}_interval", "-", (of(kind), INTERVAL), result, minus, monotone=True
            ),
            _binary(
                f"add_interval_{kind}", "+", (INTERVAL, of(kind)), result, intervals.swapped(plus)
            ),
        ]

    def clock(sign: int) -> Spelling:
        def value(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
            day = s.num(DAY_MICROS)
            delta = s.mul(s.mod(s.field(args[1].ast, "micros"), day), s.num(sign))
            return s.mod(s.add(s.add(args[0].ast, delta), day), day)

        return value

    functions += [
        _binary("add_time_interval", "+", (TIME, INTERVAL), TIME, clock(1), None),
        _binary("sub_time_interval", "-", (TIME, INTERVAL), TIME, clock(-1), None),
        _binary(
            "add_interval_time", "+", (INTERVAL, TIME), TIME, intervals.swapped(clock(1)), None
        ),
    ]
    return functions


def _days_later(sign: int) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        shift = s.mul(s.big(args[1].ast), s.num(sign))
        return epoch.date_of_days(s.add(epoch.days(args[0].ast, engine), shift), engine)

    return value


def _differences() -> list[ScalarFunc]:
    def dates(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return s.integer(s.sub(*(epoch.days(arg.ast, engine) for arg in args)))

    def stamps(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        left, right = (epoch.micros(arg.ast, arg.typ.kind, engine) for arg in args)
        span = s.sub(s.wide(left), s.wide(right))
        day = s.wide(s.num(DAY_MICROS))
        rest = s.mod(span, day)
        days = s.integer(epoch.whole_days(s.sub(span, rest), engine))
        return intervals.build(s.num(0), days, rest, engine)

    def times(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        span = s.sub(args[0].ast, args[1].ast)
        return intervals.build(s.num(0), s.num(0), span, engine)

    def moment(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        micros = s.add(epoch.micros(args[0].ast, "date", engine), args[1].ast)
        return epoch.timestamp_of_micros(micros, typ, engine)

    return [
        _binary("sub_date", "-", (DATE, DATE), INTEGER, dates, None),
        _binary("sub_timestamp", "-", (TIMESTAMP, TIMESTAMP), INTERVAL, stamps, None),
        _binary("sub_timestamptz", "-", (TIMESTAMPTZ, TIMESTAMPTZ), INTERVAL, stamps, None),
        _binary("sub_time", "-", (TIME, TIME), INTERVAL, times, None),
        _binary(
            "add_date_integer", "+", (DATE, INTEGER), DATE, _days_later(1), "date out of range"
        ),
        _binary(
            "sub_date_integer", "-", (DATE, INTEGER), DATE, _days_later(-1), "date out of range"
        ),
        _binary(
            "add_integer_date",
            "+",
            (INTEGER, DATE),
            DATE,
            intervals.swapped(_days_later(1)),
            "date out of range",
        ),
        _binary("add_date_time", "+", (DATE, TIME), TIMESTAMP, moment),
        _binary("add_time_date", "+", (TIME, DATE), TIMESTAMP, intervals.swapped(moment)),
    ]


def _year(ast: Ast) -> Ast:
    """The astronomical year, where 1 BC is 0."""
    return s.big(s.call("YEAR", ast))


def _calendar_year(ast: Ast) -> Ast:
    year = _year(ast)
    return s.case((s.lt(year, s.num(1)), s.sub(year, s.num(1))), otherwise=year)


def _era(ast: Ast, length: int) -> Ast:
    """The century (100) or millennium (1000) as in PostgreSQL, without a zeroth."""
    year = _year(ast)
    after = s.int_div(s.add(year, s.num(length - 1)), s.big(s.num(length)))
    before = s.int_div(s.sub(s.num(length), year), s.big(s.num(length)))
    return s.case((s.gt(year, s.num(0)), after), otherwise=s.sub(s.num(0), before))


def _decade(ast: Ast) -> Ast:
    return epoch.floor_div(_year(ast), 10)


def _weekday(ast: Ast, engine: Engine, *, iso: bool) -> Ast:
    # 1970-01-01 was a Thursday.
    shifted = s.add(epoch.days(ast, engine), s.num(3 if iso else 4))
    rest = s.mod(s.add(s.mod(shifted, s.num(7)), s.num(7)), s.num(7))
    return s.add(rest, s.num(1)) if iso else rest


def day_field(unit: str, ast: Ast, engine: Engine) -> Ast | None:
    """A field of a date; None for a unit of the time of day."""
    match unit:
        case "year":
            return _calendar_year(ast)
        case "quarter" | "month" | "day":
            return s.call(unit.upper(), ast)
        case "week":
            return s.call("WEEKOFYEAR", ast)
        case "doy":
            return s.call("DAYOFYEAR", ast)
        case "dow" | "isodow":
            return _weekday(ast, engine, iso=unit == "isodow")
        case "decade":
            return _decade(ast)
        case "century":
            return _era(ast, 100)
        case "millennium":
            return _era(ast, 1000)
        case _:
            return None


def _clock_field(unit: str, micros: Ast) -> tuple[Ast, int]:
    """A field of the microseconds since midnight, and the number of its decimals."""
    minute = s.mod(micros, s.num(60_000_000))
    match unit:
        case "hour":
            return s.int_div(micros, s.num(3_600_000_000)), 0
        case "minute":
            return s.mod(s.int_div(micros, s.num(60_000_000)), s.num(60)), 0
        case "second":
            return minute, 6
        case "milliseconds":
            return minute, 3
        case _:
            return minute, 0


_DAY_UNITS = ("millennium", "century", "decade", "year", "quarter", "month", "week", "day")
_DAY_FIELDS = (*_DAY_UNITS, "dow", "isodow", "doy")
_CLOCK_UNITS = ("hour", "minute", "second", "milliseconds", "microseconds")
_FIELDS = {
    "date": (*_DAY_FIELDS, "epoch"),
    "timestamp": (*_DAY_FIELDS, *_CLOCK_UNITS, "epoch"),
    "timestamptz": (*_DAY_FIELDS, *_CLOCK_UNITS, "epoch"),
    "time": (*_CLOCK_UNITS, "epoch"),
    "interval": (
        "millennium",
        "century",
        "decade",
        "year",
        "quarter",
        "month",
        "day",
        *_CLOCK_UNITS,
        "epoch",
    ),
}


def _field(unit: str, arg: Sql, engine: Engine) -> tuple[Ast, int]:
    """A field as an integer in units of 10^-n, and n."""
    kind, ast = arg.typ.kind, arg.ast
    if kind == "interval":
        return intervals.field(unit, ast)
    if unit == "epoch":
        return (ast if kind == "time" else epoch.micros(ast, kind, engine)), 6
    if kind == "time":
        return _clock_field(unit, ast)
    local = ast
    if kind == "timestamptz":
        local = s.cast(ast, TIMESTAMP, engine)
    found = (
        day_field(unit, local, engine)
        if kind == "date"
        else day_field(unit, s.cast(local, DATE, engine), engine)
    )
    if found is not None:
        return found, 0
    day = s.num(DAY_MICROS)
    micros = epoch.micros(ast, kind, engine)
    return _clock_field(unit, s.mod(s.add(s.mod(micros, day), day), day))


_DIGITS = {"second": 6, "milliseconds": 3, "epoch": 6}


def _extracts() -> list[ScalarFunc]:
    functions = []
    for kind, units in _FIELDS.items():
        for unit in units:

            def exact(engine: Engine, args: Sequence[Sql], typ: SqlType, unit: str = unit) -> Ast:
                found, digits = _field(unit, args[0], engine)
                if digits == 0:
                    return s.cast(s.wide(found), typ, engine)
                part = s.cast_to(s.num(f"0.{'0' * (digits - 1)}1"), s.decimal_type(digits, digits))
                return s.cast(s.mul(s.wide(found), part), typ, engine)

            def rough(engine: Engine, args: Sequence[Sql], _typ: SqlType, unit: str = unit) -> Ast:
                found, digits = _field(unit, args[0], engine)
                return s.div(s.double(found), s.double(s.num(10**digits)))

            suffix = _SUFFIX[kind]
            functions.append(
                ScalarFunc(
                    key=f"extract_{unit}_{suffix}",
                    name=f"extract_{unit}",
                    args=(of(kind),),
                    result=numeric(_DIGITS.get(unit, 0)),
                    value=exact,
                    monotone=unit in ("year", "epoch", "decade", "century", "millennium"),
                )
            )
            functions.append(
                ScalarFunc(
                    key=f"date_part_{unit}_{suffix}",
                    name=f"date_part_{unit}",
                    args=(of(kind),),
                    result=DOUBLE,
                    value=rough,
                    monotone=unit in ("year", "epoch", "decade", "century", "millennium"),
                )
            )
    return functions


_UNIT_MICROS = {
    "microseconds": 1,
    "milliseconds": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": DAY_MICROS,
}


def _truncated_day(unit: str, ast: Ast, engine: Engine) -> Ast:
    """The first day of the unit that contains a date."""
    months = {"month": 1, "quarter": 3, "year": 12}
    first = s.sub(epoch.days(ast, engine), s.sub(s.call("DAY", ast), s.num(1)))
    month = s.sub(s.call("MONTH", ast), s.num(1))
    if unit == "week":
        monday = s.sub(_weekday(ast, engine, iso=True), s.num(1))
        return epoch.date_of_days(s.sub(epoch.days(ast, engine), monday), engine)
    back: Ast
    if unit in months:
        back = s.mod(month, s.num(months[unit]))
    else:
        # Decades begin with year 0, centuries and millennia with year 1.
        length, offset = {"decade": (10, 0), "century": (100, 1), "millennium": (1000, 1)}[unit]
        shifted = s.sub(_year(ast), s.num(offset))
        size = s.num(length)
        into = s.mod(s.add(s.mod(shifted, size), size), size)
        back = s.add(s.mul(into, s.num(12)), month)
    start = epoch.date_of_days(first, engine)
    return epoch.add_months(start, s.sub(s.num(0), s.big(back)), engine)


def _truncations() -> list[ScalarFunc]:
    functions = []
    for kind in ("timestamp", "timestamptz"):
        for unit in (*_DAY_UNITS, *_CLOCK_UNITS):

            def value(
                engine: Engine,
                args: Sequence[Sql],
                typ: SqlType,
                unit: str = unit,
                kind: str = kind,
            ) -> Ast:
                ast = args[0].ast
                if unit in _UNIT_MICROS:
                    size = _UNIT_MICROS[unit]
                    micros = epoch.micros(ast, kind, engine)
                    whole = s.mul(epoch.floor_div(micros, size), s.num(size))
                    return epoch.timestamp_of_micros(whole, typ, engine)
                local = ast if kind == "timestamp" else s.cast(ast, TIMESTAMP, engine)
                day = _truncated_day(unit, s.cast(local, DATE, engine), engine)
                return epoch.timestamp_of_micros(epoch.micros(day, "date", engine), typ, engine)

            functions.append(
                ScalarFunc(
                    key=f"date_trunc_{unit}_{_SUFFIX[kind]}",
                    name=f"date_trunc_{unit}",
                    args=(of(kind),),
                    result=of(kind),
                    value=value,
                    errors=(failed(value, _OUT_OF_RANGE),),
                    monotone=True,
                )
            )
    return functions


def _to_timestamp(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    micros = s.mul(s.double(args[0].ast), s.double(s.num(1_000_000)))
    low, high = s.double(s.num(epoch.MIN_MICROS)), s.double(s.num(epoch.MAX_MICROS))
    safe = s.case((s.between(micros, low, high), micros))
    even = s.call("RINT", safe) if engine is Engine.SPARK else s.call("ROUND_EVEN", safe, s.num(0))
    return epoch.timestamp_of_micros(s.big(even), typ, engine)


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *_with_intervals(),
    *_differences(),
    *intervals.FUNCTIONS,
    *_extracts(),
    *_truncations(),
    ScalarFunc(
        key="to_timestamp",
        name="to_timestamp",
        args=(DOUBLE,),
        result=TIMESTAMPTZ,
        value=_to_timestamp,
        errors=(failed(_to_timestamp, _OUT_OF_RANGE),),
        monotone=True,
    ),
)
