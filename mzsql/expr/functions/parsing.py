"""Reading values out of texts in SQL, strictly by pattern.

Promise: a text is read as PostgreSQL reads it, but in ISO forms only for dates and times; anything else is
``invalid input syntax for type …`` with the text quoted. Patterns use what Java's and RE2's regular expressions share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.expr.functions import calendar
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.arithmetic import is_infinite
from mzsql.expr.functions.declare import BOUNDS, FLOATS, INTEGERS, Ast, of
from mzsql.expr.functions.encodings import unescaped
from mzsql.expr.functions.numeric import OVERFLOW, rescale
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql
from mzsql.repr.errors import SqlError
from mzsql.repr.interval import Interval
from mzsql.repr.interval_text import parse_interval
from mzsql.repr.moment_text import read_moment
from mzsql.repr.types import SqlType, type_name


@dataclass(frozen=True)
class Parser:
    """How a type is read from text."""

    value: Spelling
    errors: tuple[ErrorRule, ...]


def _invalid(kind: str, detail: Spelling | str = "") -> Spelling:
    """``invalid input syntax for type <type>: [detail: ]"<text>"``."""

    def message(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        shown = detail if isinstance(detail, str) else ""
        middle = [s.text(f"{shown}: ")] if shown else []
        if callable(detail):
            middle = [detail(engine, args, typ), s.text(": ")]
        lead = s.text(f"invalid input syntax for type {type_name(of(kind))}: ")
        return s.concat(lead, *middle, s.text('"'), args[0].ast, s.text('"'))

    return message


def _null_fails(value: Spelling, message: str | Spelling) -> ErrorRule:
    return ErrorRule(lambda e, args, typ: s.is_null(value(e, args, typ)), message)


_UNFIT = "to fit in target type"


def _integer(kind: str) -> Parser:
    low, high = BOUNDS[kind]
    sign = "[+-]?" if low < 0 else "[+]?"

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        trimmed = s.trim_space(args[0].ast, engine)
        digits = s.case((s.matches(trimmed, f"^{sign}[0-9]+$", engine), trimmed))
        if kind in ("smallint", "integer", "bigint"):
            return s.try_cast(digits, of(kind), engine)
        wide = rescale(digits, 0)
        return s.try_cast(
            s.case((s.between(wide, s.num(low), s.num(high)), wide)), of(kind), engine
        )

    def detail(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        trimmed = s.trim_space(args[0].ast, engine)
        branches = [
            (s.eq(trimmed, s.text("")), s.text("cannot parse integer from empty string")),
            (s.matches(trimmed, "^[+]?[0-9]+$", engine), s.text(f"number too large {_UNFIT}")),
        ]
        if low < 0:
            small = s.text(f"number too small {_UNFIT}")
            branches.append((s.matches(trimmed, "^-[0-9]+$", engine), small))
        return s.case(*branches, otherwise=s.text("invalid digit found in string"))

    return Parser(value, (_null_fails(value, _invalid(kind, detail)),))


_DECIMAL = "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
#: Exponents of more digits would let an engine build numbers of billions of digits.
_SHORT_EXPONENT = "^[^eE]*([eE][+-]?0*[0-9]{1,4})?$"


def _numeric() -> Parser:
    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        trimmed = s.trim_space(args[0].ast, engine)
        good = s.and_(
            s.matches(trimmed, _DECIMAL, engine), s.matches(trimmed, _SHORT_EXPONENT, engine)
        )
        return rescale(s.case((good, trimmed)), typ.effective_scale)

    def unreadable(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return s.not_(s.matches(s.trim_space(args[0].ast, engine), _DECIMAL, engine))

    return Parser(value, (ErrorRule(unreadable, _invalid("numeric")), _null_fails(value, OVERFLOW)))


_FLOAT_WORD = "^[+-]?(inf|infinity|nan)$"


def _float(kind: str) -> Parser:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        low = s.call("LOWER", s.trim_space(args[0].ast, engine))

        def word(name: str) -> Ast:
            return s.cast(s.text(name), of(kind), engine)

        return s.case(
            (s.matches(low, "^[+]?inf(inity)?$", engine), word("Infinity")),
            (s.matches(low, "^-inf(inity)?$", engine), word("-Infinity")),
            (s.matches(low, "^[+-]?nan$", engine), word("NaN")),
            (s.matches(low, _DECIMAL, engine), s.try_cast(low, of(kind), engine)),
        )

    def unreadable(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        low = s.call("LOWER", s.trim_space(args[0].ast, engine))
        return s.not_(s.or_(s.matches(low, _DECIMAL, engine), s.matches(low, _FLOAT_WORD, engine)))

    def beyond(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        low = s.call("LOWER", s.trim_space(args[0].ast, engine))
        found = value(engine, args, typ)
        infinite = s.or_(s.is_null(found), is_infinite(found, engine))
        vanished = s.and_(s.eq(found, s.num(0)), s.matches(low, "^[+-]?[0-9.]*[1-9]", engine))
        words = s.matches(low, _FLOAT_WORD, engine)
        return s.or_(s.and_(infinite, s.not_(words)), vanished)

    def beyond_message(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        tail = s.text(f'" is out of range for type {type_name(of(kind))}')
        return s.concat(s.text('"'), args[0].ast, tail)

    return Parser(value, (ErrorRule(unreadable, _invalid(kind)), ErrorRule(beyond, beyond_message)))


def _boolean() -> Parser:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        low = s.call("LOWER", s.trim_space(args[0].ast, engine))
        return s.case(
            (s.matches(low, "^(t|tr|tru|true|y|ye|yes|on|1)$", engine), s.boolean(True)),
            (s.matches(low, "^(f|fa|fal|fals|false|n|no|of|off|0)$", engine), s.boolean(False)),
        )

    return Parser(value, (_null_fails(value, _invalid("boolean")),))


_DATE = "([0-9]{4,6})-([0-9]{1,2})-([0-9]{1,2})"
_TIME = "([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:[.]([0-9]*))?)?"
_ZONE = "[ ]*(?:([zZ]|UTC|utc)|([+-])([0-9]{1,2}):?([0-9]{2})?)?"
_STAMP = f"^{_DATE}(?:[ tT]+{_TIME}{_ZONE})?$"


def _groupless(pattern: str) -> str:
    """The pattern without its capturing groups: DuckDB hands out nine of them at most."""
    return pattern.replace("(", "(?:").replace("(?:?:", "(?:")


#: The same with groups for the sign, hours and minutes of the zone only.
_STAMP_ZONE = (
    f"^{_groupless(_DATE)}[ tT]+{_groupless(_TIME)}[ ]*([+-])([0-9]{{1,2}}):?([0-9]{{2}})?$"
)


def _part(text: Ast, pattern: str, group: int, default: str = "0") -> Ast:
    """An integer out of a group, `default` where the group is empty."""
    found = s.nullif(s.regexp_group(text, pattern, group), s.text(""))
    return s.big(s.coalesce(found, s.text(default)))


def _fraction(text: Ast, pattern: str, group: int) -> Ast:
    """Microseconds of the digits behind a point, the seventh rounded."""
    digits = s.call(
        "RPAD",
        s.call("LEFT", s.regexp_group(text, pattern, group), s.num(7)),
        s.num(7),
        s.text("0"),
    )
    return s.int_div(s.add(s.big(digits), s.num(5)), s.num(10))


def _clock(text: Ast, pattern: str, first: int) -> tuple[Ast, Ast]:
    """Microseconds of a time of day whose groups begin at `first`, and whether its fields are in range."""
    hours, minutes, seconds = (_part(text, pattern, first + i) for i in range(3))
    total = s.add(
        s.mul(
            s.add(s.add(s.mul(hours, s.num(3600)), s.mul(minutes, s.num(60))), seconds),
            s.num(1_000_000),
        ),
        _fraction(text, pattern, first + 3),
    )
    valid = s.and_(
        s.lte(minutes, s.num(59)),
        s.lte(seconds, s.num(60)),
        s.lte(total, s.num(calendar.DAY_MICROS)),
    )
    return total, valid


def _day(text: Ast, pattern: str) -> Ast:
    """The date in groups 1 to 3; NULL where there is no such day."""
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
    # There is no year 0; five digits and more need a sign for Spark and none for DuckDB, so they are left to arithmetic.
    real = s.neq(_part(text, pattern, 1), s.num(0))
    return s.try_cast_to(s.case((real, padded)), s.typed(exp.DType.DATE))


def _known_moment(arg: Sql, kind: str) -> int | None:
    """Microseconds since 1970 that the text of a constant stands for, within the calendar; None of anything else."""
    known = s.literal_of(arg.ast)
    if known is None or not known.is_string:
        return None
    found = read_moment(known.name, zoned=kind == "timestamptz")
    inside = found is not None and calendar.MIN_MICROS <= found <= calendar.MAX_MICROS
    return found if inside else None


def _date_parser() -> Parser:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        known = _known_moment(args[0], "date")
        if known is not None:
            return calendar.date_of_days(s.num(known // calendar.DAY_MICROS), engine)
        text = s.trim_space(args[0].ast, engine)
        return s.case((s.matches(text, _STAMP, engine), _day(text, _STAMP)))

    return Parser(value, _calendar_errors("date", _STAMP, value))


def _calendar_errors(kind: str, pattern: str, value: Spelling) -> tuple[ErrorRule, ...]:
    def unreadable(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        if kind != "time" and _known_moment(args[0], kind) is not None:
            return s.boolean(False)
        return s.not_(s.matches(s.trim_space(args[0].ast, engine), pattern, engine))

    def out_of_range(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return s.concat(s.text('date/time field value out of range: "'), args[0].ast, s.text('"'))

    return (ErrorRule(unreadable, _invalid(kind)), _null_fails(value, out_of_range))


def _stamp_parser(kind: str) -> Parser:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        known = _known_moment(args[0], kind)
        if known is not None:
            return calendar.timestamp_of_micros(s.num(known), of(kind), engine)
        body = _stamp(s.variable("t0"), kind, engine)
        return s.let(s.trim_space(args[0].ast, engine), "t0", body, engine)

    return Parser(value, _calendar_errors(kind, _STAMP, value))


def _stamp(text: Ast, kind: str, engine: Engine) -> Ast:
    clock, valid = _clock(text, _STAMP, 4)
    # Wide: the last days that there are have no microseconds in 64 bits.
    days = s.wide(calendar.days(_day(text, _STAMP), engine))
    micros = s.add(s.mul(days, s.wide(s.num(calendar.DAY_MICROS))), s.wide(clock))
    if kind == "timestamptz":
        minutes = s.add(s.mul(_part(text, _STAMP_ZONE, 2), s.num(60)), _part(text, _STAMP_ZONE, 3))
        offset = s.mul(minutes, s.num(60_000_000))
        west = s.eq(s.regexp_group(text, _STAMP_ZONE, 1), s.text("-"))
        micros = s.sub(micros, s.wide(s.case((west, s.sub(s.num(0), offset)), otherwise=offset)))
    good = s.and_(s.matches(text, _STAMP, engine), valid)
    return calendar.timestamp_of_micros(s.case((good, micros)), of(kind), engine)


def _mz_timestamp_parser() -> Parser:
    """Milliseconds since 1970, or a date and time."""
    stamp = _stamp_parser("timestamptz")
    digits = "^[+]?[0-9]{1,19}$"

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        trimmed = s.trim_space(args[0].ast, engine)
        number = s.wide(s.case((s.matches(trimmed, digits, engine), trimmed)))
        moment = stamp.value(engine, args, of("timestamptz"))
        millis = calendar.floor_div(calendar.micros(moment, "timestamptz", engine), 1000)
        found = s.coalesce(number, s.wide(millis))
        low, high = BOUNDS["mz_timestamp"]
        inside = s.between(found, s.num(low), s.num(high))
        return s.cast(s.case((inside, found)), of("mz_timestamp"), engine)

    def unreadable(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        trimmed = s.trim_space(args[0].ast, engine)
        return s.not_(s.or_(s.matches(trimmed, digits, engine), s.matches(trimmed, _STAMP, engine)))

    lead = "could not parse mz_timestamp: "
    detail = (
        "could not parse as number of milliseconds since epoch; could not parse as date and time"
    )
    return Parser(
        value,
        (
            ErrorRule(unreadable, _invalid("mz_timestamp", lead + detail)),
            _null_fails(value, _invalid("mz_timestamp", f"{lead}out of range for mz_timestamp")),
        ),
    )


def _time_parser() -> Parser:
    pattern = f"^{_TIME}$"

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        text = s.trim_space(args[0].ast, engine)
        clock, valid = _clock(text, pattern, 1)
        return s.case((s.and_(s.matches(text, pattern, engine), valid), clock))

    return Parser(value, _calendar_errors("time", pattern, value))


def _uuid() -> Parser:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        low = s.call("LOWER", s.trim_space(args[0].ast, engine))
        bare = s.regexp_replace(low, "[-{}]", "", engine)
        form = "^[{]?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}[}]?$"
        pieces = [
            s.call("SUBSTRING", bare, s.num(at), s.num(count))
            for at, count in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
        ]
        joined: list[Ast] = [pieces[0]]
        for piece in pieces[1:]:
            joined += [s.text("-"), piece]
        return s.case((s.matches(low, form, engine), s.concat(*joined)))

    return Parser(value, (_null_fails(value, _invalid("uuid")),))


def _bytea() -> Parser:
    r"""``\x`` and hexadecimal digits; any other text as its UTF-8 bytes, with ``\\`` and ``\ooo`` for a backslash and a byte."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ast = args[0].ast
        digits = s.call("SUBSTRING", ast, s.num(3))
        plain = (
            s.call("ENCODE", ast, s.text("UTF-8"))
            if engine is Engine.SPARK
            else s.call("ENCODE", ast)
        )
        return s.case(
            (s.matches(ast, "^[\\\\]x([0-9a-fA-F]{2})*$", engine), s.call("UNHEX", digits)),
            (s.not_(s.matches(ast, "[\\\\]", engine)), plain),
            (s.not_(s.matches(ast, "^[\\\\]x", engine)), unescaped(ast, engine)),
        )

    def detail(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ast = args[0].ast
        foreign = s.regexp_replace(s.call("SUBSTRING", ast, s.num(3)), "[0-9a-fA-F]", "", engine)
        digit = s.concat(
            s.text('invalid hexadecimal digit: "'),
            s.call("SUBSTRING", foreign, s.num(1), s.num(1)),
            s.text('"'),
        )
        ends = s.matches(s.regexp_replace(ast, _ESCAPES, "", engine), "[\\\\]$", engine)
        return s.case(
            (
                s.matches(ast, "^[\\\\]x", engine),
                s.case(
                    (s.neq(foreign, s.text("")), digit),
                    otherwise=s.text("invalid hexadecimal data: odd number of digits"),
                ),
            ),
            (ends, s.text("ends with escape character")),
            otherwise=s.text("invalid escape sequence"),
        )

    return Parser(value, (_null_fails(value, _invalid("bytea", detail)),))


#: What a backslash may begin in bytes that are no hexadecimal digits.
_ESCAPES = "[\\\\]{2}|[\\\\][0-3][0-7][0-7]"


_INTERVAL_UNITS: tuple[tuple[str, str, int], ...] = (
    ("months", "millenniums?|millennia|mils?", 12_000),
    ("months", "century|centuries|cent|c", 1_200),
    ("months", "decades?|decs?", 120),
    ("months", "years?|yrs?|y", 12),
    ("months", "months?|mons?", 1),
    ("days", "weeks?|w", 7),
    ("days", "days?|d", 1),
    ("micros", "hours?|hrs?|h", 3_600_000_000),
    ("micros", "minutes?|mins?|m", 60_000_000),
    ("micros", "seconds?|secs?|s", 1_000_000),
    ("micros", "milliseconds?|msecs?|ms", 1_000),
    ("micros", "microseconds?|usecs?|us", 1),
)
_NAMES = "|".join(words for _, words, _ in _INTERVAL_UNITS)
#: What is read out of a column: whole numbers with units (seconds also with a fraction) and at most one time of day.
_INTERVAL = (
    f"^([ ]*[+-]?([0-9]{{1,15}}[ ]*({_NAMES})|[0-9]{{1,15}}[.][0-9]+[ ]*(seconds?|secs?|s))([ ]+|$))*"
    "([+-]?[0-9]{1,10}:[0-9]{1,2}(:[0-9]{1,2}([.][0-9]*)?)?)?[ ]*$"
)


def _interval() -> Parser:
    """A constant is read here, by `parse_interval` with all it knows; a column by pattern, in PostgreSQL's own output style."""

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        known = s.literal_of(args[0].ast)
        if known is not None:
            span = _parsed(known.name)
            if isinstance(span, str):
                return s.cast(s.null(), typ, engine)
            months, days, micros = span.months, span.days, span.microseconds
            fields = s.struct(months=s.num(months), days=s.num(days), micros=s.num(micros))
            return s.cast(fields, typ, engine)
        low = s.call("LOWER", s.trim_space(args[0].ast, engine))
        # A number alone counts seconds.
        bare = s.matches(low, "^[+-]?[0-9]+([.][0-9]+)?$", engine)
        low = s.case((bare, s.concat(low, s.text(" s"))), otherwise=low)
        return s.let(low, "t0", _column_interval(s.variable("t0"), typ, engine), engine)

    def unreadable(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        known = s.literal_of(args[0].ast)
        if known is not None:
            return s.boolean(isinstance(_parsed(known.name), str))
        return s.is_null(value(engine, args, typ))

    def message(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        known = s.literal_of(args[0].ast)
        failure = None if known is None else _parsed(known.name)
        if isinstance(failure, str):
            return s.text(failure)
        spelling = _invalid("interval")
        assert callable(spelling)
        return spelling(engine, args, typ)

    return Parser(value, (ErrorRule(unreadable, message),))


def _parsed(text: str) -> Interval | str:
    """The interval of a text, or the message that it is none."""
    try:
        return parse_interval(text)
    except SqlError as failure:
        return failure.message


def _column_interval(low: Ast, typ: SqlType, engine: Engine) -> Ast:
    totals: dict[str, Ast] = {name: s.wide(s.num(0)) for name in ("months", "days", "micros")}
    for field, words, size in _INTERVAL_UNITS:
        pattern = f"(?:^|[ ])([+-]?[0-9]{{1,15}})[ ]*(?:{words})(?:[ ]|$)"
        found = s.nullif(s.regexp_group(low, pattern, 1), s.text(""))
        count = s.coalesce(s.wide(found), s.wide(s.num(0)))
        totals[field] = s.add(totals[field], s.mul(count, s.wide(s.num(size))))
    fraction = "(?:^|[ ])([+-]?)([0-9]{1,15})[.]([0-9]+)[ ]*(?:seconds?|secs?|s)(?:[ ]|$)"
    clock = "(?:^|[ ])([+-]?)([0-9]{1,10}):([0-9]{1,2})(?::([0-9]{1,2})(?:[.]([0-9]*))?)?$"
    seconds = s.add(s.mul(_part(low, fraction, 2), s.num(1_000_000)), _fraction(low, fraction, 3))
    hours = s.mul(s.wide(_part(low, clock, 2)), s.wide(s.num(3_600_000_000)))
    rest = s.add(s.mul(_part(low, clock, 3), s.num(60)), _part(low, clock, 4))
    time = s.add(hours, s.add(s.mul(rest, s.num(1_000_000)), _fraction(low, clock, 5)))
    for sign, amount in ((fraction, seconds), (clock, time)):
        negative = s.eq(s.regexp_group(low, sign, 1), s.text("-"))
        signed = s.case((negative, s.sub(s.wide(s.num(0)), amount)), otherwise=amount)
        totals["micros"] = s.add(totals["micros"], s.wide(signed))
    parts = {
        "months": s.try_cast(totals["months"], of("integer"), engine),
        "days": s.try_cast(totals["days"], of("integer"), engine),
        "micros": s.try_cast(totals["micros"], of("bigint"), engine),
    }
    readable = s.and_(s.matches(low, _INTERVAL, engine), s.matches(low, "[0-9]", engine))
    known = s.and_(readable, *(s.is_not_null(part) for part in parts.values()))
    return s.case((known, s.cast(s.struct(**parts), typ, engine)))


PARSERS: dict[str, Parser] = {
    **{kind: _integer(kind) for kind in (*INTEGERS, "oid")},
    **{kind: _float(kind) for kind in FLOATS},
    "numeric": _numeric(),
    "boolean": _boolean(),
    "date": _date_parser(),
    "timestamp": _stamp_parser("timestamp"),
    "timestamptz": _stamp_parser("timestamptz"),
    "time": _time_parser(),
    "mz_timestamp": _mz_timestamp_parser(),
    "uuid": _uuid(),
    "bytea": _bytea(),
    "interval": _interval(),
}
