"""Functions of timestamps other than arithmetic: bins, ages, time zones, construction from fields, units as values.

Promise: everything is computed in microseconds. A named time zone is the engine's; a fixed offset is arithmetic, with POSIX's sign (``+5``
is west) as in PostgreSQL. For Spark, zones must be constant.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Sequence

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, constant_text, failed, of, scalar
from mzsql.expr.functions.epoch import DAY_MICROS
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.time import intervals, operators
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import BIGINT, DOUBLE, INTERVAL, TEXT, TIME, TIMESTAMP, TIMESTAMPTZ, SqlType
from mzsql.repr.zone_abbreviations import ABBREVIATIONS

_STAMPS = ("timestamp", "timestamptz")
_OUT = "timestamp out of range"


# --- bins --------------------------------------------------------------------------------------------


def stride(arg: Sql) -> Ast:
    """The microseconds of an interval without its months, which are refused."""
    days, micros = (s.wide(s.field(arg.ast, name)) for name in ("days", "micros"))
    return s.add(s.mul(days, s.wide(s.num(DAY_MICROS))), micros)


def _bin(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    step = s.case((s.gt(stride(args[0]), s.num(0)), stride(args[0])))
    source = s.wide(epoch.micros(args[1].ast, args[1].typ.kind, engine))
    origin = (
        s.wide(epoch.micros(args[2].ast, args[2].typ.kind, engine))
        if len(args) > 2
        else s.wide(s.num(0))
    )
    row = s.variable("g0")
    t, size, start = (s.field(row, name) for name in ("t", "n", "o"))
    span = s.sub(t, start)
    rest = s.mod(s.add(s.mod(span, size), size), size)
    body = epoch.timestamp_of_micros(s.sub(t, rest), typ, engine)
    return s.let(s.struct(t=source, n=step, o=origin), "g0", body, engine)


_NANOS_LIMIT = 2**63 // 1000


def bin_rules() -> tuple[ErrorRule, ...]:
    """The errors of `date_bin`."""

    def far(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        source = s.wide(epoch.micros(args[1].ast, args[1].typ.kind, engine))
        if len(args) > 2:
            source = s.sub(source, s.wide(epoch.micros(args[2].ast, args[2].typ.kind, engine)))
        return s.gt(s.call("ABS", source), s.num(_NANOS_LIMIT))

    return (
        ErrorRule(
            lambda _engine, args, _typ: s.neq(s.field(args[0].ast, "months"), s.num(0)),
            "timestamps cannot be binned into intervals containing months or years",
        ),
        ErrorRule(
            lambda _engine, args, _typ: s.gt(stride(args[0]), s.num(_NANOS_LIMIT)),
            "stride cannot exceed 2^63 nanoseconds",
        ),
        ErrorRule(
            lambda _engine, args, _typ: s.lte(stride(args[0]), s.num(0)),
            "stride must be greater than zero",
        ),
        ErrorRule(far, "source and origin must not differ more than 2^63 nanoseconds"),
        failed(_bin, _OUT),
    )


def _bins() -> list[ScalarFunc]:
    functions = []
    for kind, suffix in (("timestamp", "ts"), ("timestamptz", "tstz")):
        typ, errors = of(kind), bin_rules()
        functions += [
            scalar(f"date_bin_{suffix}", "date_bin", (INTERVAL, typ, typ), typ, _bin, *errors),
            scalar(
                f"date_bin_unix_epoch_{suffix}", "date_bin", (INTERVAL, typ), typ, _bin, *errors
            ),
        ]
    return functions


# --- ages --------------------------------------------------------------------------------------------


def _age(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The calendar difference; borrowed days are those of the earlier month, as in PostgreSQL."""
    left, right = (epoch.micros(arg.ast, arg.typ.kind, engine) for arg in args)
    pair = s.variable("a0")
    a, b = s.field(pair, "a"), s.field(pair, "b")
    forward = s.gte(a, b)
    later = s.case((forward, a), otherwise=b)
    earlier = s.case((forward, b), otherwise=a)
    sign = s.case((forward, s.num(1)), otherwise=s.num(-1))
    body = s.let(
        _fields(later, earlier, sign, engine), "a1", _borrowed(s.variable("a1"), engine), engine
    )
    return s.let(s.struct(a=left, b=right), "a0", body, engine)


def _fields(later: Ast, earlier: Ast, sign: Ast, engine: Engine) -> Ast:
    parts: dict[str, Ast] = {"s": sign}
    for name, micros in (("l", later), ("e", earlier)):
        day = epoch.floor_div(micros, DAY_MICROS)
        parts[f"{name}d"] = epoch.date_of_days(day, engine)
        parts[f"{name}c"] = s.sub(micros, s.mul(day, s.num(DAY_MICROS)))
    return s.struct(**parts)


def _borrowed(row: Ast, engine: Engine) -> Ast:
    def months(name: str) -> Ast:
        date = s.field(row, name)
        return s.add(s.mul(s.big(s.call("YEAR", date)), s.num(12)), s.big(s.call("MONTH", date)))

    clock = s.sub(s.field(row, "lc"), s.field(row, "ec"))
    late = s.case((s.lt(clock, s.num(0)), s.num(1)), otherwise=s.num(0))
    micros = s.add(clock, s.mul(late, s.num(DAY_MICROS)))
    days = s.sub(
        s.sub(s.big(s.call("DAY", s.field(row, "ld"))), s.big(s.call("DAY", s.field(row, "ed")))),
        late,
    )
    month_days = s.big(s.call("DAY", s.call("LAST_DAY", s.field(row, "ed"))))
    short = s.lt(days, s.num(0))
    whole = s.sub(months("ld"), months("ed"))
    sign = s.field(row, "s")
    return intervals.build(
        s.mul(s.case((short, s.sub(whole, s.num(1))), otherwise=whole), sign),
        s.mul(s.case((short, s.add(days, month_days)), otherwise=days), sign),
        s.mul(micros, sign),
        engine,
    )


# --- time zones --------------------------------------------------------------------------------------

_OFFSET = re.compile(
    r"\s*(?:utc|gmt|z)?\s*([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?\s*", re.IGNORECASE
)
_ZERO = frozenset({"utc", "z", "gmt", "zulu"})


def _zone(arg: Sql) -> str | int | None:
    """The name of a zone, or its seconds east of UTC; None for NULL or an unknown name."""
    text = constant_text(arg, "a time zone")
    if text is None:
        return None
    low = text.strip().lower()
    if low in _ZERO:
        return 0
    match = _OFFSET.fullmatch(text)
    if match is not None:
        seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
        if int(match[2]) > 15 or int(match[3] or 0) > 59:
            return None
        return -seconds if match[1] == "+" else seconds
    named = next((name for name in zoneinfo.available_timezones() if name.lower() == low), None)
    return ABBREVIATIONS.get(low.upper()) if named is None else named


def _is_known(arg: Sql) -> bool:
    """Whether a zone is constant, NULL included."""
    try:
        constant_text(arg, "a time zone")
    except Unsupported:
        return False
    return True


_DIGITS = "^[ ]*([+-])([0-9]{1,2})(?::?([0-9]{2}))?[ ]*$"


def _in_zone_by_row(stamp: Sql, zone: Ast, typ: SqlType) -> Ast:
    """DuckDB: conversion by a zone from a column, by name or offset but not abbreviation; NULL for an unknown name."""
    engine = Engine.DUCKDB

    def part(group: int) -> Ast:
        found = s.nullif(s.regexp_group(zone, _DIGITS, group), s.text(""))
        return s.coalesce(s.big(found), s.big(s.num(0)))

    size = s.mul(s.add(s.mul(part(2), s.num(60)), part(3)), s.num(60_000_000))
    west = s.eq(s.regexp_group(zone, _DIGITS, 1), s.text("+"))
    offset = s.case((west, s.sub(s.num(0), size)), otherwise=size)
    inside = s.and_(s.lte(part(2), s.num(15)), s.lte(part(3), s.num(59)))
    moved = _moved(stamp, s.case((inside, offset)), typ, engine)
    # DuckDB fails on an unknown name even inside a CASE, so only known names are passed.
    low = s.call("LOWER", s.call("TRIM", zone))
    names = s.array(*(s.text(name) for name in sorted(zoneinfo.available_timezones())))
    same = s.lambda_(("zn1",), s.eq(s.call("LOWER", s.variable("zn1")), low))
    found = s.call("LIST_EXTRACT", s.call("LIST_FILTER", names, same), s.num(1))
    name = s.case((s.eq(low, s.text("z")), s.text("UTC")), otherwise=found)
    named = s.case(
        (s.is_not_null(s.variable("zn0")), s.call("TIMEZONE", s.variable("zn0"), stamp.ast))
    )
    return s.case(
        (s.matches(zone, _DIGITS, engine), moved),
        otherwise=s.cast(s.let(name, "zn0", named, engine), typ, engine),
    )


def _in_zone(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if engine is Engine.DUCKDB and not _is_known(args[0]):
        return _in_zone_by_row(args[1], args[0].ast, typ)
    zone, stamp = _zone(args[0]), args[1]
    if zone is None:
        return s.cast(s.null(), typ, engine)
    if isinstance(zone, int):
        return _moved(stamp, s.num(zone * 1_000_000), typ, engine)
    plain = s.cast(stamp.ast, TIMESTAMP, engine)
    if engine is Engine.SPARK:
        names = (zone, "UTC") if stamp.typ.kind == "timestamp" else ("UTC", zone)
        moved = s.call("CONVERT_TIMEZONE", s.text(names[0]), s.text(names[1]), plain)
        return s.cast(moved, typ, engine)
    return s.call("TIMEZONE", s.text(zone), stamp.ast)


def _moved(stamp: Sql, offset: Ast, typ: SqlType, engine: Engine) -> Ast:
    """A timestamptz as the local time at an offset in microseconds, or the reverse."""
    micros = s.wide(epoch.micros(stamp.ast, stamp.typ.kind, engine))
    moved = (s.add if stamp.typ.kind == "timestamptz" else s.sub)(micros, s.wide(offset))
    return epoch.timestamp_of_micros(moved, typ, engine)


def _by_interval(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    micros = s.big(s.field(args[0].ast, "micros"))
    whole = s.sub(micros, s.mod(micros, s.num(1_000_000)))
    return _moved(args[1], whole, typ, engine)


def _clock_in_zone(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    zone = _zone(args[0])
    if not isinstance(zone, int):
        return s.big(s.null())
    day = s.num(DAY_MICROS)
    return s.mod(s.add(s.add(args[1].ast, s.num(zone * 1_000_000)), day), day)


def _no_zone(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if engine is Engine.DUCKDB and not _is_known(args[0]) and args[1].typ.kind != "time":
        return s.is_null(_in_zone(engine, args, typ))
    return s.boolean(constant_text(args[0], "a time zone") is not None and _zone(args[0]) is None)


_UNKNOWN_ZONE = ErrorRule(
    _no_zone,
    lambda _engine, args, _typ: s.concat(s.text("invalid time zone '"), args[0].ast, s.text("'")),
)
_MONTHS = ErrorRule(
    lambda _engine, args, _typ: s.or_(
        *(s.neq(s.field(args[0].ast, name), s.num(0)) for name in ("months", "days"))
    ),
    "timezone interval must not contain months or days",
)


def _zones() -> list[ScalarFunc]:
    functions = []
    for kind, other, suffix in (
        ("timestamp", TIMESTAMPTZ, "ts"),
        ("timestamptz", TIMESTAMP, "tstz"),
    ):
        functions += [
            scalar(
                f"timezone_{suffix}", "timezone", (TEXT, of(kind)), other, _in_zone, _UNKNOWN_ZONE
            ),
            scalar(
                f"timezone_i{suffix}",
                "timezone",
                (INTERVAL, of(kind)),
                other,
                _by_interval,
                _MONTHS,
                failed(_by_interval, _OUT),
            ),
        ]
    clock = ErrorRule(
        lambda _engine, args, _typ: s.boolean(isinstance(_zone(args[0]), str)),
        "a time of day without a date has no offset in a named time zone",
    )
    functions.append(
        scalar("timezone_t", "timezone", (TEXT, TIME), TIME, _clock_in_zone, _UNKNOWN_ZONE, clock)
    )
    return functions


# --- from fields -------------------------------------------------------------------------------------


def _made(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    year, month, day, hour, minute = (s.big(arg.ast) for arg in args[:5])
    second = s.double(args[5].ast)
    valid = s.and_(
        s.between(year, s.num(-4712), s.num(294_276)),
        s.between(month, s.num(1), s.num(12)),
        s.between(day, s.num(1), s.num(31)),
        s.between(hour, s.num(0), s.num(23)),
        s.between(minute, s.num(0), s.num(59)),
        s.and_(s.gte(second, s.num(0)), s.lt(second, s.num(60))),
    )
    safe = {
        name: s.case((valid, value))
        for name, value in (("y", year), ("m", month), ("d", day), ("h", hour), ("i", minute))
    }
    row = s.variable("y0")
    body = _stamp_of(row, typ, engine)
    return s.let(s.struct(**safe, s=s.case((valid, second))), "y0", body, engine)


def _days_of(year: Ast, month: Ast, day: Ast) -> Ast:
    """The days since 1970 of a date in the proleptic calendar (Hinnant, days_from_civil)."""
    late = s.lte(month, s.num(2))
    y = s.case((late, s.sub(year, s.num(1))), otherwise=year)
    era = epoch.floor_div(y, 400)
    of_era = s.sub(y, s.mul(era, s.num(400)))
    shifted = s.case((late, s.add(month, s.num(9))), otherwise=s.sub(month, s.num(3)))
    of_year = s.add(
        s.int_div(s.add(s.mul(s.num(153), shifted), s.num(2)), s.big(s.num(5))),
        s.sub(day, s.num(1)),
    )
    leap = s.sub(
        s.add(s.mul(of_era, s.num(365)), s.int_div(of_era, s.big(s.num(4)))),
        s.int_div(of_era, s.big(s.num(100))),
    )
    return s.sub(s.add(s.mul(era, s.num(146_097)), s.add(leap, of_year)), s.num(719_468))


def _stamp_of(row: Ast, typ: SqlType, engine: Engine) -> Ast:
    year, month, day, hour, minute, second = (s.field(row, name) for name in "ymdhis")
    date = epoch.date_of_days(_days_of(year, month, day), engine)
    # The 31st of a month with 30 days becomes the 1st of the next.
    real = s.eq(s.big(s.call("DAY", date)), day)
    rounded = (
        s.call("RINT", s.mul(second, s.double(s.num(1_000_000))))
        if engine is Engine.SPARK
        else s.call("ROUND_EVEN", s.mul(second, s.double(s.num(1_000_000))), s.num(0))
    )
    clock = s.add(s.mul(s.add(s.mul(hour, s.num(60)), minute), s.num(60_000_000)), s.big(rounded))
    micros = s.add(epoch.micros(date, "date", engine), clock)
    return epoch.timestamp_of_micros(s.case((real, micros)), typ, engine)


# --- intervals ---------------------------------------------------------------------------------------

_MONTHS_OF = {
    "month": 1,
    "quarter": 3,
    "year": 12,
    "decade": 120,
    "century": 1200,
    "millennium": 12_000,
}
_MICROS_OF = {
    "microseconds": 1,
    "milliseconds": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}


def _truncated(unit: str) -> Spelling:
    """Truncation toward zero, by field; smaller units become zero."""

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        months, days, micros = (
            s.big(s.field(args[0].ast, name)) for name in ("months", "days", "micros")
        )
        none = s.num(0)
        if unit in _MONTHS_OF:
            months = s.sub(months, s.mod(months, s.num(_MONTHS_OF[unit])))
            days, micros = none, none
        elif unit == "day":
            micros = none
        else:
            micros = s.sub(micros, s.mod(micros, s.num(_MICROS_OF[unit])))
        made = s.cast(s.struct(months=months, days=days, micros=micros), typ, engine)
        return s.case((s.is_not_null(s.field(args[0].ast, "months")), made))

    return value


def _interval_truncations() -> list[ScalarFunc]:
    return [
        scalar(
            f"date_trunc_{unit}_iv", f"date_trunc_{unit}", (INTERVAL,), INTERVAL, _truncated(unit)
        )
        for unit in (*_MONTHS_OF, "day", *_MICROS_OF)
    ]


# --- units that are no literals ----------------------------------------------------------------------


def _any_unit(name: str, kind: str, found: dict[str, ScalarFunc]) -> ScalarFunc:
    """A function whose unit is a value: a CASE over all units."""
    sample = next(iter(found.values()))

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        low = s.call("LOWER", args[0].ast)
        branches = []
        for unit, func in found.items():
            words = [word for word, main in operators.UNITS.items() if main == unit]
            asked = s.or_(*(s.eq(low, s.text(word)) for word in words))
            own = func.result_type([args[1].typ])
            done = s.cast(func.value(engine, args[1:], own), typ, engine)
            branches.append((asked, done))
        return s.case(*branches)

    def unknown(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        low = s.call("LOWER", args[0].ast)
        words = [word for word, main in operators.UNITS.items() if main in found]
        return s.not_(s.or_(*(s.eq(low, s.text(word)) for word in words)))

    message = ErrorRule(
        unknown,
        lambda _engine, args, _typ: s.concat(
            s.text("unit '"), args[0].ast, s.text("' not recognized")
        ),
    )
    result = sample.result_type([of(kind)])
    shown = f"{name}{_SHOWN[kind]}({{0}}, {{1}})"
    key = f"{name}_any_{kind}"
    return scalar(key, name, (TEXT, of(kind)), result, value, message, explain=shown)


#: The name in EXPLAIN for the type of a function whose unit is a value.
_SHOWN = {"date": "d", "timestamp": "ts", "timestamptz": "tstz", "time": "t", "interval": "iv"}


def _any_units() -> list[ScalarFunc]:
    functions = []
    for name in ("date_trunc", "date_part"):
        by_kind: dict[str, dict[str, ScalarFunc]] = {}
        for func in (*operators.FUNCTIONS, *_interval_truncations()):
            if func.name.startswith(f"{name}_"):
                kind = func.args[0].kind
                by_kind.setdefault(kind, {})[func.name.removeprefix(f"{name}_")] = func
        functions += [_any_unit(name, kind, found) for kind, found in by_kind.items()]
    return functions


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *_bins(),
    *(
        scalar(
            f"age_{kind}",
            "age",
            (of(kind), of(kind)),
            INTERVAL,
            _age,
            failed(_age, "interval out of range"),
        )
        for kind in _STAMPS
    ),
    *_zones(),
    *_interval_truncations(),
    scalar(
        "make_timestamp",
        "make_timestamp",
        (BIGINT,) * 5 + (DOUBLE,),
        TIMESTAMP,
        _made,
        failed(_made, _OUT),
    ),
    *_any_units(),
)
