"""Parsing values from text in SQL, strictly by pattern.

Promise: a text is parsed as in PostgreSQL, except that dates and times must be in ISO format; any other text is
``invalid input syntax for type …`` with the text quoted. Patterns use the regular expressions common to Java and RE2.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import BOUNDS, FLOATS, INTEGERS, Ast, of
from mzsql.expr.functions.input.datetimes import (
    date_parser,
    micros_behind,
    mz_timestamp_parser,
    part,
    stamp_parser,
    time_parser,
)
from mzsql.expr.functions.input.syntax import Parser, invalid, null_fails
from mzsql.expr.functions.number.arithmetic import is_infinite
from mzsql.expr.functions.number.numeric import OVERFLOW, rescale
from mzsql.expr.functions.table import Engine, ErrorRule, Sql
from mzsql.expr.functions.text.encodings import unescaped
from mzsql.repr.errors import SqlError
from mzsql.repr.interval import Interval
from mzsql.repr.interval_text import parse_interval
from mzsql.repr.types import SqlType, type_name

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

    return Parser(value, (null_fails(value, invalid(kind, detail)),))


_DECIMAL = "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
#: Longer exponents would make an engine build numbers with billions of digits.
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

    return Parser(value, (ErrorRule(unreadable, invalid("numeric")), null_fails(value, OVERFLOW)))


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

    return Parser(value, (ErrorRule(unreadable, invalid(kind)), ErrorRule(beyond, beyond_message)))


def _boolean() -> Parser:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        low = s.call("LOWER", s.trim_space(args[0].ast, engine))
        return s.case(
            (s.matches(low, "^(t|tr|tru|true|y|ye|yes|on|1)$", engine), s.boolean(True)),
            (s.matches(low, "^(f|fa|fal|fals|false|n|no|of|off|0)$", engine), s.boolean(False)),
        )

    return Parser(value, (null_fails(value, invalid("boolean")),))


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

    return Parser(value, (null_fails(value, invalid("uuid")),))


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

    return Parser(value, (null_fails(value, invalid("bytea", detail)),))


#: The valid escapes in bytes that are not hexadecimal.
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
#: The intervals parsed in columns: integers with units (seconds may have a fraction), and at most one time of day.
_INTERVAL = (
    f"^([ ]*[+-]?([0-9]{{1,15}}[ ]*({_NAMES})|[0-9]{{1,15}}[.][0-9]+[ ]*(seconds?|secs?|s))([ ]+|$))*"
    "([+-]?[0-9]{1,10}:[0-9]{1,2}(:[0-9]{1,2}([.][0-9]*)?)?)?[ ]*$"
)


def _interval() -> Parser:
    """A constant is parsed by `parse_interval`; a column by patterns for PostgreSQL's own output format."""

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
        # A number without a unit counts seconds.
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
        spelling = invalid("interval")
        assert callable(spelling)
        return spelling(engine, args, typ)

    return Parser(value, (ErrorRule(unreadable, message),))


def _parsed(text: str) -> Interval | str:
    """The interval in a text, or the error message."""
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
    seconds = s.add(
        s.mul(part(low, fraction, 2), s.num(1_000_000)), micros_behind(low, fraction, 3)
    )
    hours = s.mul(s.wide(part(low, clock, 2)), s.wide(s.num(3_600_000_000)))
    rest = s.add(s.mul(part(low, clock, 3), s.num(60)), part(low, clock, 4))
    time = s.add(hours, s.add(s.mul(rest, s.num(1_000_000)), micros_behind(low, clock, 5)))
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
    "date": date_parser(),
    "timestamp": stamp_parser("timestamp"),
    "timestamptz": stamp_parser("timestamptz"),
    "time": time_parser(),
    "mz_timestamp": mz_timestamp_parser(),
    "uuid": _uuid(),
    "bytea": _bytea(),
    "interval": _interval(),
}
