"""`to_char` for timestamps and intervals: text by PostgreSQL's patterns.

Promise: all of PostgreSQL's patterns for dates and times with the modifiers FM, TM and TH; text in double quotes, and
any other text, is copied. What says nothing of an interval, such as the name of a month, is refused for one. The format
must be constant, since it is parsed when the expression is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, of
from mzsql.expr.functions.output.to_text import micros_of_day
from mzsql.expr.functions.table import Engine, ScalarFunc, Sql
from mzsql.repr.errors import DataError, Unsupported
from mzsql.repr.types import DATE, TEXT, TIMESTAMP, SqlType

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")


class _Fields:
    """The fields of a timestamp as bigints."""

    def __init__(self, arg: Sql, engine: Engine) -> None:
        local = s.cast(arg.ast, TIMESTAMP, engine)
        self._date = s.cast(local, DATE, engine)
        self._engine = engine
        self.clock = micros_of_day(arg.ast, arg.typ.kind, engine)

    def part(self, name: str) -> Ast:
        """YEAR (astronomical), MONTH, DAY, DAYOFYEAR, WEEKOFYEAR, QUARTER."""
        return s.big(s.call(name, self._date))

    def days(self) -> Ast:
        """The days since 1970-01-01."""
        return epoch.days(self._date, self._engine)

    def weekday(self) -> Ast:
        """The weekday; 0 is Sunday."""
        shifted = s.add(self.days(), s.num(4))
        return s.mod(s.add(s.mod(shifted, s.num(7)), s.num(7)), s.num(7))

    def iso_weekday(self) -> Ast:
        """The ISO weekday; 1 is Monday, 7 is Sunday."""
        return s.case((s.eq(self.weekday(), s.num(0)), s.num(7)), otherwise=self.weekday())

    def iso_year(self) -> Ast:
        """The ISO year: that of the week's Thursday."""
        return s.big(s.call("YEAR", self._thursday()))

    def _thursday(self) -> Ast:
        return epoch.date_of_days(
            s.add(self.days(), s.sub(s.num(4), self.iso_weekday())), self._engine
        )

    def year(self) -> Ast:
        """The year, counted without a year 0."""
        return _counted(self.part("YEAR"))

    def hour(self) -> Ast:
        return s.int_div(self.clock, s.num(3_600_000_000))

    def within(self, unit: int, many: int) -> Ast:
        """Whole units of the time of day, modulo ``many``."""
        return s.mod(s.int_div(self.clock, s.num(unit)), s.num(many))


def _counted(year: Ast) -> Ast:
    return s.case((s.lt(year, s.num(1)), s.sub(s.num(1), year)), otherwise=year)


def _number(build: Callable[[_Fields], Ast], width: int) -> Callable[[_Fields, bool], Ast]:
    """A number padded with zeros, except with FM."""

    def shown(fields: _Fields, bare: bool) -> Ast:
        text = s.string(build(fields))
        if bare or width < 2:
            return text
        size = s.case(
            (s.gt(s.call("LENGTH", text), s.num(width)), s.integer(s.call("LENGTH", text))),
            otherwise=s.num(width),
        )
        return s.call("LPAD", text, size, s.text("0"))

    return shown


def _named(
    build: Callable[[_Fields], Ast], names: Sequence[str], first: int, width: int
) -> Callable[[_Fields, bool], Ast]:
    """A name padded with blanks, except with FM."""

    def shown(fields: _Fields, bare: bool) -> Ast:
        number = build(fields)
        return s.case(
            *(
                (s.eq(number, s.num(i)), s.text(name if bare else name.ljust(width)))
                for i, name in enumerate(names, start=first)
            )
        )

    return shown


def _half(morning: str, evening: str) -> Callable[[_Fields, bool], Ast]:
    return lambda fields, _bare: s.case(
        (s.lt(fields.hour(), s.num(12)), s.text(morning)), otherwise=s.text(evening)
    )


def _era(after: str, before: str) -> Callable[[_Fields, bool], Ast]:
    return lambda fields, _bare: s.case(
        (s.lt(fields.part("YEAR"), s.num(1)), s.text(before)), otherwise=s.text(after)
    )


def _twelve(fields: _Fields) -> Ast:
    rest = s.mod(fields.hour(), s.num(12))
    return s.case((s.eq(rest, s.num(0)), s.num(12)), otherwise=rest)


def _century(fields: _Fields) -> Ast:
    year = fields.part("YEAR")
    after = s.int_div(s.add(year, s.num(99)), s.big(s.num(100)))
    before = s.int_div(s.sub(s.num(100), year), s.big(s.num(100)))
    return s.case((s.gt(year, s.num(0)), after), otherwise=s.sub(s.num(0), before))


def _tail(build: Callable[[_Fields], Ast], digits: int) -> Callable[[_Fields], Ast]:
    return lambda fields: s.mod(build(fields), s.num(10**digits))


def _comma_year(fields: _Fields, _bare: bool) -> Ast:
    year = fields.year()
    rest = s.call("LPAD", s.string(s.mod(year, s.num(1000))), s.num(3), s.text("0"))
    return s.concat(s.string(s.int_div(year, s.big(s.num(1000)))), s.text(","), rest)


def _week_of(name: str) -> Callable[[_Fields], Ast]:
    return lambda fields: s.add(
        s.int_div(s.sub(fields.part(name), s.num(1)), s.big(s.num(7))), s.num(1)
    )


def _iso_day(fields: _Fields) -> Ast:
    week = s.mul(s.sub(fields.part("WEEKOFYEAR"), s.num(1)), s.num(7))
    return s.add(week, fields.iso_weekday())


def _cased(
    name: str, build: Callable[[_Fields], Ast], names: Sequence[str], first: int, width: int
) -> dict[str, Callable[[_Fields, bool], Ast]]:
    """A pattern in upper case, lower case and capitalized."""
    forms: dict[str, Callable[[str], str]] = {
        name.upper(): str.upper,
        name.lower(): str.lower,
        name.capitalize(): str,
    }
    return {
        spelled: _named(build, [change(n) for n in names], first, width)
        for spelled, change in forms.items()
    }


def _year(fields: _Fields) -> Ast:
    return fields.year()


def _iso_year(fields: _Fields) -> Ast:
    return _counted(fields.iso_year())


def _month(fields: _Fields) -> Ast:
    return fields.part("MONTH")


def _weekday(fields: _Fields) -> Ast:
    return fields.weekday()


def _either(
    pattern: str, shown: Callable[[_Fields, bool], Ast]
) -> dict[str, Callable[[_Fields, bool], Ast]]:
    return {pattern: shown, pattern.lower(): shown}


def _fraction(digits: int) -> Callable[[_Fields, bool], Ast]:
    return _number(lambda fields: fields.within(10 ** (6 - digits), 10**digits), digits)


_PATTERNS: dict[str, Callable[[_Fields, bool], Ast]] = {
    **_either("HH24", _number(lambda f: f.hour(), 2)),
    **_either("HH12", _number(_twelve, 2)),
    **_either("HH", _number(_twelve, 2)),
    **_either("MI", _number(lambda f: f.within(60_000_000, 60), 2)),
    **_either("SSSSS", _number(lambda f: s.int_div(f.clock, s.num(1_000_000)), 1)),
    **_either("SSSS", _number(lambda f: s.int_div(f.clock, s.num(1_000_000)), 1)),
    **_either("SS", _number(lambda f: f.within(1_000_000, 60), 2)),
    **_either("MS", _number(lambda f: f.within(1_000, 1000), 3)),
    **_either("US", _number(lambda f: f.within(1, 1_000_000), 6)),
    **{f"FF{n}": _fraction(n) for n in range(1, 7)},
    "AM": _half("AM", "PM"), "PM": _half("AM", "PM"), "am": _half("am", "pm"), "pm": _half("am", "pm"),
    "A.M.": _half("A.M.", "P.M."), "P.M.": _half("A.M.", "P.M."),
    "a.m.": _half("a.m.", "p.m."), "p.m.": _half("a.m.", "p.m."),
    **_either("Y,YYY", _comma_year),
    **_either("YYYY", _number(_year, 4)),
    **_either("YYY", _number(_tail(_year, 3), 3)),
    **_either("YY", _number(_tail(_year, 2), 2)),
    **_either("Y", _number(_tail(_year, 1), 1)),
    **_either("IYYY", _number(_iso_year, 4)),
    **_either("IYY", _number(_tail(_iso_year, 3), 3)),
    **_either("IY", _number(_tail(_iso_year, 2), 2)),
    **_either("I", _number(_tail(_iso_year, 1), 1)),
    "BC": _era("AD", "BC"), "AD": _era("AD", "BC"), "bc": _era("ad", "bc"), "ad": _era("ad", "bc"),
    "B.C.": _era("A.D.", "B.C."), "A.D.": _era("A.D.", "B.C."),
    "b.c.": _era("a.d.", "b.c."), "a.d.": _era("a.d.", "b.c."),
    **_cased("MONTH", _month, _MONTHS, 1, 9),
    **_cased("MON", _month, [name[:3] for name in _MONTHS], 1, 3),
    **_either("MM", _number(_month, 2)),
    **_cased("DAY", _weekday, _DAYS, 0, 9),
    **_cased("DY", _weekday, [name[:3] for name in _DAYS], 0, 3),
    **_either("IDDD", _number(_iso_day, 3)),
    **_either("DDD", _number(lambda f: f.part("DAYOFYEAR"), 3)),
    **_either("DD", _number(lambda f: f.part("DAY"), 2)),
    **_either("ID", _number(lambda f: f.iso_weekday(), 1)),
    **_either("D", _number(lambda f: s.add(f.weekday(), s.num(1)), 1)),
    **_either("IW", _number(lambda f: f.part("WEEKOFYEAR"), 2)),
    **_either("WW", _number(_week_of("DAYOFYEAR"), 2)),
    **_either("W", _number(_week_of("DAY"), 1)),
    **_either("CC", _number(_century, 2)),
    **_either("J", _number(lambda f: s.add(f.days(), s.num(2_440_588)), 1)),
    **_either("Q", _number(lambda f: f.part("QUARTER"), 1)),
    "RM": _named(_month, _ROMAN, 1, 4),
    "rm": _named(_month, [name.lower() for name in _ROMAN], 1, 4),
}  # fmt: skip


class _Spans:
    """The fields of an interval as bigints, each with the sign of what it is made of."""

    def __init__(self, arg: Sql) -> None:
        self._months = s.big(s.field(arg.ast, "months"))
        self.days = s.big(s.field(arg.ast, "days"))
        self.clock = s.big(s.field(arg.ast, "micros"))

    def year(self) -> Ast:
        return s.int_div(self._months, s.num(12))

    def month(self) -> Ast:
        return s.mod(self._months, s.num(12))

    def all_days(self) -> Ast:
        """Days where each month has thirty."""
        return s.add(s.mul(self._months, s.num(30)), self.days)

    def hour(self) -> Ast:
        return s.int_div(self.clock, s.num(3_600_000_000))

    def within(self, unit: int, many: int) -> Ast:
        """Whole units of the time, modulo ``many``."""
        return s.mod(s.int_div(self.clock, s.num(unit)), s.num(many))


def _signed(
    build: Callable[[_Spans], Ast], width: int, *, whole: bool = False
) -> Callable[[_Spans, bool], Ast]:
    """A number padded with zeros after its sign, except with FM; with ``whole`` the sign counts, too."""

    def shown(spans: _Spans, bare: bool) -> Ast:
        number = build(spans)
        if bare or width < 2:
            return s.string(number)
        digits = s.string(s.call("ABS", number))
        below = s.lt(number, s.num(0))
        least = s.case((below, s.num(width - whole)), otherwise=s.num(width))
        size = s.call("GREATEST", s.integer(s.call("LENGTH", digits)), least)
        sign = s.case((below, s.text("-")), otherwise=s.text(""))
        return s.concat(sign, s.call("LPAD", digits, size, s.text("0")))

    return shown


def _clock_hour(spans: _Spans) -> Ast:
    rest = s.mod(spans.hour(), s.num(12))
    return s.case((s.eq(rest, s.num(0)), s.num(12)), otherwise=rest)


def _week(build: Callable[[_Spans], Ast]) -> Callable[[_Spans], Ast]:
    return lambda spans: s.add(s.int_div(s.sub(build(spans), s.num(1)), s.num(7)), s.num(1))


def _quarter(spans: _Spans, _bare: bool) -> Ast:
    month = spans.month()
    number = s.string(s.add(s.int_div(s.sub(month, s.num(1)), s.num(3)), s.num(1)))
    return s.case((s.eq(month, s.num(0)), s.text("")), otherwise=number)


def _grouped_year(spans: _Spans, _bare: bool) -> Ast:
    thousands = s.string(s.int_div(spans.year(), s.num(1000)))
    rest = _signed(lambda one: s.mod(one.year(), s.num(1000)), 3, whole=True)(spans, False)
    return s.concat(thousands, s.text(","), rest)


def _noon(morning: str, evening: str) -> Callable[[_Spans, bool], Ast]:
    return lambda spans, _bare: s.case(
        (s.gte(s.mod(spans.hour(), s.num(24)), s.num(12)), s.text(evening)),
        otherwise=s.text(morning),
    )


def _both(
    pattern: str, shown: Callable[[_Spans, bool], Ast]
) -> dict[str, Callable[[_Spans, bool], Ast]]:
    return {pattern: shown, pattern.lower(): shown}


def _years(digits: int) -> Callable[[_Spans, bool], Ast]:
    return _signed(lambda spans: s.mod(spans.year(), s.num(10**digits)), digits)


def _parts(digits: int) -> Callable[[_Spans, bool], Ast]:
    return _signed(lambda spans: spans.within(10 ** (6 - digits), 10**digits), digits)


_OF_INTERVALS: dict[str, Callable[[_Spans, bool], Ast]] = {
    **_both("HH24", _signed(lambda spans: spans.hour(), 2)),
    **_both("HH12", _signed(_clock_hour, 2)),
    **_both("HH", _signed(_clock_hour, 2)),
    **_both("MI", _signed(lambda spans: spans.within(60_000_000, 60), 2)),
    **_both("SSSSS", _signed(lambda spans: s.int_div(spans.clock, s.num(1_000_000)), 1)),
    **_both("SSSS", _signed(lambda spans: s.int_div(spans.clock, s.num(1_000_000)), 1)),
    **_both("SS", _signed(lambda spans: spans.within(1_000_000, 60), 2)),
    **_both("MS", _parts(3)),
    **_both("US", _parts(6)),
    **{f"FF{n}": _parts(n) for n in range(1, 7)},
    **{half: _noon("AM", "PM") for half in ("AM", "PM")},
    **{half: _noon("am", "pm") for half in ("am", "pm")},
    **{half: _noon("A.M.", "P.M.") for half in ("A.M.", "P.M.")},
    **{half: _noon("a.m.", "p.m.") for half in ("a.m.", "p.m.")},
    **_both("Y,YYY", _grouped_year),
    **_both("YYYY", _signed(lambda spans: spans.year(), 4)),
    **_both("YYY", _years(3)),
    **_both("YY", _years(2)),
    **_both("Y", _years(1)),
    **_both("MM", _signed(lambda spans: spans.month(), 2)),
    **_both("DDD", _signed(lambda spans: spans.all_days(), 3, whole=True)),
    **_both("DD", _signed(lambda spans: spans.days, 2, whole=True)),
    **_both("WW", _signed(_week(lambda spans: spans.all_days()), 2)),
    **_both("W", _signed(_week(lambda spans: spans.days), 1)),
    **_both("CC", _signed(lambda spans: s.int_div(spans.year(), s.num(100)), 2)),
    **_both("Q", _quarter),
}
#: What PostgreSQL makes of an interval although it says nothing of one.
_UNLIKELY = frozenset({"J", "RM", "IW", "IYYY", "IYY", "IY", "I", "IDDD"})
_ZONES = {
    "TZ": "UTC",
    "tz": "utc",
    "TZH": "+00",
    "TZM": "00",
    "OF": "+00",
    "tzh": "+00",
    "tzm": "00",
    "of": "+00",
}
_WORDS = sorted([*_PATTERNS, *_ZONES], key=len, reverse=True)
_TOKEN = re.compile(
    r'"((?:[^"\\]|\\.)*)"|(FM|fm|TM|tm)?(' + "|".join(map(re.escape, _WORDS)) + r")(TH|th)?|(.)",
    re.DOTALL,
)


def _ordinal(text: Ast, lower: bool) -> Ast:
    """The suffix ``ST``, ``ND``, ``RD`` or ``TH``."""
    last = s.call("RIGHT", text, s.num(1))
    teen = s.and_(
        s.gt(s.call("LENGTH", text), s.num(1)),
        s.eq(s.call("LEFT", s.call("RIGHT", text, s.num(2)), s.num(1)), s.text("1")),
    )
    endings = [("1", "st"), ("2", "nd"), ("3", "rd")]
    return s.case(
        (teen, s.text("th" if lower else "TH")),
        *((s.eq(last, s.text(d)), s.text(e if lower else e.upper())) for d, e in endings),
        otherwise=s.text("th" if lower else "TH"),
    )


def _pieces(fields: _Fields, form: str, zoned: bool) -> list[Ast]:
    pieces: list[Ast] = []
    for quoted, bare, word, ending, other in _TOKEN.findall(form):
        if word in _ZONES:
            pieces.append(
                s.text(_ZONES[word] if zoned else ("" if word.lower() == "tz" else _ZONES[word]))
            )
        elif word:
            shown = _PATTERNS[word](fields, bool(bare))
            pieces.append(shown)
            if ending:
                pieces.append(_ordinal(shown, ending == "th"))
        else:
            pieces.append(s.text(other or re.sub(r"\\(.)", r"\1", quoted)))
    return pieces


def _pieces_of_interval(spans: _Spans, form: str) -> list[Ast]:
    pieces: list[Ast] = []
    for quoted, bare, word, ending, other in _TOKEN.findall(form):
        if not word:
            pieces.append(s.text(other or re.sub(r"\\(.)", r"\1", quoted)))
            continue
        if word.upper() in _UNLIKELY:
            raise Unsupported(f"to_char of an interval with {word} is not supported")
        if word not in _OF_INTERVALS:
            raise DataError(
                "invalid format specification for an interval value",
                hint="Intervals are not tied to specific calendar dates.",
                sqlstate="22007",
            )
        shown = _OF_INTERVALS[word](spans, bool(bare))
        pieces.append(shown)
        if ending:
            pieces.append(_ordinal(shown, ending == "th"))
    return pieces


#: The maximum length of a format, whose parts become an expression.
_LONGEST = 1_000


def _to_char(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    ast = args[1].ast
    while isinstance(ast, exp.Cast | exp.Paren):
        ast = ast.this
    if isinstance(ast, exp.Null):
        return s.string(s.null())
    if not isinstance(ast, exp.Literal):
        raise Unsupported("to_char with a format that is not a constant is not supported")
    if len(ast.name) > _LONGEST:
        raise Unsupported(
            f"to_char with a format of more than {_LONGEST} characters is not supported"
        )
    if args[0].typ.kind == "interval":
        pieces = _pieces_of_interval(_Spans(args[0]), ast.name)
    else:
        pieces = _pieces(_Fields(args[0], engine), ast.name, args[0].typ.kind == "timestamptz")
    present = s.is_not_null(args[0].ast)
    return s.case((present, s.concat(s.text(""), *pieces)))


FUNCTIONS: tuple[ScalarFunc, ...] = tuple(
    ScalarFunc(
        key=f"to_char_{suffix}",
        name="to_char",
        args=(of(kind), TEXT),
        result=TEXT,
        value=_to_char,
    )
    for kind, suffix in (("timestamp", "ts"), ("timestamptz", "tstz"), ("interval", "interval"))
)
