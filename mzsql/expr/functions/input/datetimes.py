"""Parsing dates and times of day from text.

Promise: columns are parsed in ISO formats, constants also in those of `read_datetime`. The error for a text with all
fields names the wrong one; the error for one without a day says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import BOUNDS, Ast, of
from mzsql.expr.functions.input.syntax import Parser, invalid, null_fails
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql
from mzsql.repr.datetime_text import read_datetime
from mzsql.repr.types import SqlType

_DATE = "([0-9]{4,6})-([0-9]{1,2})-([0-9]{1,2})"
_TIME = "([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:[.]([0-9]*))?)?"
_OFFSET = "([+-])(0?[0-9]|1[0-5]):?([0-5][0-9])?"
_ZONE = f"[ ]*(?:([zZ]|UTC|utc)|{_OFFSET})?"
_STAMP = f"^{_DATE}(?:[ tT]+{_TIME}{_ZONE})?$"


def _groupless(pattern: str) -> str:
    """The pattern without capturing groups, of which DuckDB returns at most nine."""
    return pattern.replace("(", "(?:").replace("(?:?:", "(?:")


#: The same pattern, with groups only for sign, hours and minutes of the zone.
_STAMP_ZONE = f"^{_groupless(_DATE)}[ tT]+{_groupless(_TIME)}[ ]*{_OFFSET}$"


def part(text: Ast, pattern: str, group: int, default: str = "0") -> Ast:
    """The integer in a group, or ``default`` for an empty group."""
    found = s.nullif(s.regexp_group(text, pattern, group), s.text(""))
    return s.big(s.coalesce(found, s.text(default)))


def micros_behind(text: Ast, pattern: str, group: int) -> Ast:
    """The microseconds in the digits after a decimal point; the seventh digit rounds."""
    digits = s.call(
        "RPAD",
        s.call("LEFT", s.regexp_group(text, pattern, group), s.num(7)),
        s.num(7),
        s.text("0"),
    )
    return s.int_div(s.add(s.big(digits), s.num(5)), s.num(10))


def _clock(text: Ast, pattern: str, first: int) -> tuple[Ast, Ast]:
    """The microseconds of a time of day in the groups from ``first`` on, and whether its fields are in range."""
    hours, minutes, seconds = (part(text, pattern, first + i) for i in range(3))
    total = s.add(
        s.mul(
            s.add(s.add(s.mul(hours, s.num(3600)), s.mul(minutes, s.num(60))), seconds),
            s.num(1_000_000),
        ),
        micros_behind(text, pattern, first + 3),
    )
    valid = s.and_(
        s.lte(minutes, s.num(59)),
        s.lte(seconds, s.num(60)),
        s.lte(total, s.num(epoch.DAY_MICROS)),
    )
    return total, valid


def _day(text: Ast, pattern: str) -> Ast:
    """The date in groups 1 to 3; NULL if there is no such day."""
    padded = s.concat(
        s.call(
            "LPAD",
            s.regexp_group(text, pattern, 1),
            s.call(
                "GREATEST", s.integer(s.call("LENGTH", s.regexp_group(text, pattern, 1))), s.num(4)
            ),
            s.text("0"),
        ),
        s.text("-"),
        s.call("LPAD", s.regexp_group(text, pattern, 2), s.num(2), s.text("0")),
        s.text("-"),
        s.call("LPAD", s.regexp_group(text, pattern, 3), s.num(2), s.text("0")),
    )
    # There is no year 0. Years of five or more digits need a sign in Spark and none in DuckDB, so they are computed.
    real = s.neq(part(text, pattern, 1), s.num(0))
    return s.try_cast_to(s.case((real, padded)), s.typed(exp.DType.DATE))


def _known_moment(arg: Sql, kind: str) -> int | None:
    """The microseconds since 1970 in a constant text, within the calendar; None for anything else."""
    known = s.literal_of(arg.ast)
    if known is None or not known.is_string:
        return None
    found = read_datetime(known.name, zoned=kind == "timestamptz")
    inside = found is not None and epoch.MIN_MICROS <= found <= epoch.MAX_MICROS
    return found if inside else None


def date_parser() -> Parser:
    """The parser of dates."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        known = _known_moment(args[0], "date")
        if known is not None:
            return epoch.date_of_days(s.num(known // epoch.DAY_MICROS), engine)
        text = s.trim_space(args[0].ast, engine)
        return s.case((s.matches(text, _STAMP, engine), _day(text, _STAMP)))

    return Parser(value, _calendar_errors("date", _STAMP, value))


def _calendar_errors(kind: str, pattern: str, value: Spelling) -> tuple[ErrorRule, ...]:
    def unreadable(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        if kind != "time" and _known_moment(args[0], kind) is not None:
            return s.boolean(False)
        return s.not_(s.matches(s.trim_space(args[0].ast, engine), pattern, engine))

    def out_of_range(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        text = s.trim_space(args[0].ast, engine)
        detail = s.case(*_wrong_fields(text, pattern, kind))
        other = s.concat(s.text('date/time field value out of range: "'), args[0].ast, s.text('"'))
        said = invalid(kind, lambda *_: detail)(engine, args, typ)
        return s.case((s.is_not_null(detail), said), otherwise=other)

    return (
        ErrorRule(unreadable, invalid(kind) if kind == "time" else _incomplete(kind)),
        null_fails(value, out_of_range),
    )


def _short(engine: Engine, args: Sequence[Sql]) -> Ast:
    """Whether a text is a date that ends too early."""
    text = s.trim_space(args[0].ast, engine)
    return s.matches(text, "^[0-9]+(-[0-9]+)?-?$", engine)


def _incomplete(kind: str) -> Spelling:
    def message(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        missing = invalid(kind, "YEAR, MONTH, DAY are all required")
        return s.case(
            (_short(engine, args), missing(engine, args, typ)),
            otherwise=invalid(kind)(engine, args, typ),
        )

    return message


def _wrong_fields(text: Ast, pattern: str, kind: str) -> list[tuple[Ast, Ast]]:
    """Conditions on the fields of a complete text, each with its error message."""
    dated = kind != "time"
    clock = () if kind == "date" else (("HOUR", 0, 23), ("MINUTE", 0, 59), ("SECOND", 0, 60))
    fields = ((("MONTH", 1, 12), ("DAY", 1, 31)) if dated else ()) + clock
    first = 2 if dated else 1
    found = []
    if dated:
        no_year = s.eq(part(text, pattern, 1), s.num(0))
        found.append((no_year, s.text("YEAR cannot be zero")))
    for group, (name, low, high) in enumerate(fields, start=first):
        value = part(text, pattern, group)
        said = s.concat(s.text(f"{name} must be [{low}, {high}], got "), s.string(value))
        found.append((s.not_(s.between(value, s.num(low), s.num(high))), said))
    if dated:
        no_day = s.is_null(_day(text, pattern))
        found.append((no_day, s.text("invalid or out-of-range date")))
    return found


def stamp_parser(kind: str) -> Parser:
    """The parser of timestamps, with or without time zone."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        known = _known_moment(args[0], kind)
        if known is not None:
            return epoch.timestamp_of_micros(s.num(known), of(kind), engine)
        body = _stamp(s.variable("t0"), kind, engine)
        return s.let(s.trim_space(args[0].ast, engine), "t0", body, engine)

    return Parser(value, _calendar_errors(kind, _STAMP, value))


def _stamp(text: Ast, kind: str, engine: Engine) -> Ast:
    clock, valid = _clock(text, _STAMP, 4)
    # Wide, since the microseconds of the calendar's last days exceed 64 bits.
    days = s.wide(epoch.days(_day(text, _STAMP), engine))
    micros = s.add(s.mul(days, s.wide(s.num(epoch.DAY_MICROS))), s.wide(clock))
    if kind == "timestamptz":
        minutes = s.add(s.mul(part(text, _STAMP_ZONE, 2), s.num(60)), part(text, _STAMP_ZONE, 3))
        offset = s.mul(minutes, s.num(60_000_000))
        west = s.eq(s.regexp_group(text, _STAMP_ZONE, 1), s.text("-"))
        micros = s.sub(micros, s.wide(s.case((west, s.sub(s.num(0), offset)), otherwise=offset)))
    good = s.and_(s.matches(text, _STAMP, engine), valid)
    return epoch.timestamp_of_micros(s.case((good, micros)), of(kind), engine)


def mz_timestamp_parser() -> Parser:
    """The parser of milliseconds since 1970, or of a date and time."""
    stamp = stamp_parser("timestamptz")
    digits = "^[+]?[0-9]{1,19}$"

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        trimmed = s.trim_space(args[0].ast, engine)
        number = s.wide(s.case((s.matches(trimmed, digits, engine), trimmed)))
        moment = stamp.value(engine, args, of("timestamptz"))
        millis = epoch.floor_div(epoch.micros(moment, "timestamptz", engine), 1000)
        found = s.coalesce(number, s.wide(millis))
        low, high = BOUNDS["mz_timestamp"]
        inside = s.between(found, s.num(low), s.num(high))
        return s.cast(s.case((inside, found)), of("mz_timestamp"), engine)

    def unreadable(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        trimmed = s.trim_space(args[0].ast, engine)
        return s.not_(s.or_(s.matches(trimmed, digits, engine), s.matches(trimmed, _STAMP, engine)))

    lead = "could not parse mz_timestamp: "
    neither = (
        "could not parse as number of milliseconds since epoch; could not parse as date and time: "
    )

    def detail(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return s.concat(s.text(f"{lead}{neither}"), _incomplete("timestamptz")(engine, args, typ))

    return Parser(
        value,
        (
            ErrorRule(unreadable, invalid("mz_timestamp", detail)),
            null_fails(value, invalid("mz_timestamp", f"{lead}out of range for mz_timestamp")),
        ),
    )


def time_parser() -> Parser:
    """The parser of times of day."""
    pattern = f"^{_TIME}$"

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        text = s.trim_space(args[0].ast, engine)
        clock, valid = _clock(text, pattern, 1)
        return s.case((s.and_(s.matches(text, pattern, engine), valid), clock))

    return Parser(value, _calendar_errors("time", pattern, value))
