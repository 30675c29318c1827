"""Reading an interval out of a text, with the fields that a literal may be cut to.

Promise: what Materialize reads is read and means the same: PostgreSQL's style (``1 year 2 mons -3 days``), the SQL standard's
(``1-2 3 4:05:06``), both mixed in any order and with any punctuation between, and ISO 8601's durations. A number counts nine digits
behind its point; what a field's fraction spills into smaller ones is rounded to microseconds field by field. A field that is named
twice is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from types import MappingProxyType

import msgspec

from mzsql.repr.errors import DataError, InvalidTextRepresentation
from mzsql.repr.interval import Interval

_DAY = 86_400_000_000
_I64 = 2**63

#: What one of a unit is worth.
_UNITS: dict[str, tuple[str, int]] = {
    "millennium": ("months", 12_000),
    "century": ("months", 1_200),
    "decade": ("months", 120),
    "year": ("months", 12),
    "month": ("months", 1),
    "week": ("days", 7),
    "day": ("days", 1),
    "hour": ("micros", 3_600_000_000),
    "minute": ("micros", 60_000_000),
    "second": ("micros", 1_000_000),
    "millisecond": ("micros", 1_000),
    "microsecond": ("micros", 1),
}
_NAMES = {
    "millennium": ("millenniums", "millennia", "mil", "mils"),
    "century": ("centuries", "c", "cent", "cents"),
    "decade": ("decades", "dec", "decs"),
    "year": ("years", "y", "yr", "yrs"),
    "month": ("months", "mon", "mons"),
    "week": ("weeks", "w"),
    "day": ("days", "d"),
    "hour": ("hours", "h", "hr", "hrs"),
    "minute": ("minutes", "m", "min", "mins"),
    "second": ("seconds", "s", "sec", "secs"),
    "millisecond": ("milliseconds", "ms", "msec", "msecs", "mseconds"),
    "microsecond": ("microseconds", "us", "usec", "usecs", "useconds"),
}
#: Every spelling of a unit to its name.
UNIT_OF: Mapping[str, str] = MappingProxyType(
    {word: unit for unit, words in _NAMES.items() for word in (unit, *words)}
)
#: The fields that a literal may be cut to, from the largest.
FIELDS = ("year", "month", "day", "hour", "minute", "second")

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)"
_ISO = re.compile(
    rf"(?P<sign>-?)p(?:(?P<year>{_NUMBER})y)?(?:(?P<month>{_NUMBER})m)?(?:(?P<week>{_NUMBER})w)?(?:(?P<day>{_NUMBER})d)?"
    rf"(?:t(?:(?P<hour>{_NUMBER})h)?(?:(?P<minute>{_NUMBER})m)?(?:(?P<second>{_NUMBER})s)?)?"
)
_DELIMITERS = re.compile(r"[^\w.:+\-]+")
_CLOCK = re.compile(r"([+-]?)(\d*):(\d*)(?::(\d*))?(\.\d*)?")
_YEAR_MONTH = re.compile(r"([+-]?)(\d+)-(\d*)")
_SIGNED = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)")


class Cut(msgspec.Struct, frozen=True):
    """The fields a literal is cut to: ``MONTH TO MINUTE``, ``SECOND(3)``; `high` is None where only the last is named."""

    low: str
    high: str | None = None
    precision: int | None = None


def parse_interval(text: str, cut: Cut | None = None) -> Interval:
    """The interval a text names.

    Raises:
        InvalidTextRepresentation: ``invalid input syntax for type interval: …``.
        DataError: a field out of range.
    """
    low = text.strip().lower()
    fields = _iso(low, text) if low.startswith(("p", "-p")) else _Reader(text, cut).fields
    span = _made(fields, text)
    return span if cut is None else _cut(span, cut, text)


def _invalid(text: str, why: str = "") -> InvalidTextRepresentation:
    detail = f"{why}: " if why else ""
    state = "22015" if detail.startswith("Overflows") else "22007"
    return InvalidTextRepresentation(
        f'invalid input syntax for type interval: {detail}"{text}"', sqlstate=state
    )


def _iso(low: str, text: str) -> dict[str, Decimal]:
    match = _ISO.fullmatch(low)
    if match is None or low.rstrip("t") in ("p", "-p"):
        raise _invalid(text)
    sign = -1 if match["sign"] else 1
    return {
        unit: sign * _number(found, text)
        for unit in ("year", "month", "week", "day", "hour", "minute", "second")
        if (found := match[unit]) is not None
    }


def _number(number: str, text: str) -> Decimal:
    """A number of at most nine digits behind the point, whose whole part fits 64 bits."""
    whole, _, fraction = number.partition(".")
    digits = whole.lstrip("+-") or "0"
    bound = _I64 if whole.startswith("-") else _I64 - 1
    if len(digits) > 40 or int(digits) > bound:
        why = f"Unable to parse value {digits} as a number: number too large to fit in target type"
        raise _invalid(text, why)
    magnitude = Decimal(f"{digits}.{fraction[:9] or '0'}")
    return -magnitude if whole.startswith("-") else magnitude


class _Reader:
    """Reads the parts of a text from left to right into `fields`."""

    def __init__(self, text: str, cut: Cut | None) -> None:
        self.text = text
        self.fields: dict[str, Decimal] = {}
        self._cut = cut
        self._pending: Decimal | None = None
        self._clock_seen = False
        for part in _DELIMITERS.split(text.lower().replace("_", " ")):
            if part:
                self._part(part)
        if self._pending is not None:
            self._put("second" if cut is None else cut.low, self._pending)
        if not self.fields:
            raise _invalid(text)

    def _put(self, unit: str, value: Decimal) -> None:
        if unit in self.fields or (unit == "second" and self._clock_seen):
            raise _invalid(self.text, f"{unit.upper()} field set twice")
        self.fields[unit] = value
        seconds = self.fields.get("second", Decimal(0))
        small = "millisecond" in self.fields or "microsecond" in self.fields
        if small and seconds != int(seconds):
            why = "Cannot set MILLISECONDS or MICROSECONDS field if SECOND field has a fraction component"
            raise _invalid(self.text, why)

    def _part(self, part: str) -> None:
        rest = part.lstrip(":")
        while rest:
            rest = self._piece(rest)

    def _piece(self, rest: str) -> str:
        """Reads one piece and gives what stands behind it."""
        if rest[0].isalpha():
            word = re.match(r"[^\W\d_]+", rest)
            assert word is not None
            self._word(word[0])
            return rest[word.end() :]
        clock = _CLOCK.match(rest)
        if clock is not None:
            if self._pending is not None:
                # The SQL standard's "3 04:05:06": the number before a time counts days.
                self._put("day", self._pending)
                self._pending = None
            self._clock(clock)
            return self._end(rest, clock.end())
        if self._pending is not None:
            self._days_before_hours()
        year_month = _YEAR_MONTH.match(rest)
        if year_month is not None:
            self._year_month(year_month)
            return self._end(rest, year_month.end())
        number = _SIGNED.match(rest)
        if number is None:
            raise _invalid(self.text, f"have unprocessed tokens {rest}")
        self._pending = _number(number[0], self.text)
        return self._end(rest, number.end())

    def _days_before_hours(self) -> None:
        """Takes a number for days that another one follows: "1 10" DAY TO HOUR."""
        if self._pending is None or self._cut is None or self._cut.low != "hour":
            raise _invalid(self.text)
        self._put("day", self._pending)
        self._pending = None

    def _end(self, rest: str, at: int) -> str:
        """What stands behind a number; it may be a unit, nothing else."""
        left = rest[at:]
        if left and not left[0].isalpha():
            fraction = re.match(r"\.(\d+)", left)
            shown = f".{fraction[1][:9]:0<9}" if fraction is not None else left
            raise _invalid(self.text, f"have unprocessed tokens {shown}")
        return left

    def _word(self, word: str) -> None:
        if word == "ago" and self._pending is None and self.fields:
            self.fields = {unit: -value for unit, value in self.fields.items()}
            return
        unit = UNIT_OF.get(word)
        if unit is None:
            raise _invalid(self.text, f"unknown units {word}")
        if self._pending is not None:
            self._put(unit, self._pending)
            self._pending = None
        elif not self.fields:
            raise _invalid(self.text)

    def _year_month(self, match: re.Match[str]) -> None:
        if "year" in self.fields or "month" in self.fields:
            raise _invalid(self.text, "YEAR or MONTH field set twice")
        sign = match[1]
        months = match[3] or "0"
        if len(months) > 2 or int(months) > 12:
            raise _invalid(self.text, f"MONTH must be [-12, 12], got {months}")
        self._put("year", _number(f"{sign}{match[2]}", self.text))
        self._put("month", _number(f"{sign}{months}", self.text))

    def _clock(self, match: re.Match[str]) -> None:
        if {"hour", "minute", "second"} & self.fields.keys():
            raise _invalid(self.text, "HOUR, MINUTE, SECOND field set twice")
        sign, first, second, third, fraction = match.groups()
        short = third is None
        if short and (fraction or self._counts_minutes()):
            hours, minutes, seconds = "", first, f"{second}{fraction or ''}"
        else:
            hours, minutes, seconds = first, second, f"{third or ''}{fraction or ''}"
        values = [_number(part or "0", self.text) for part in (hours, minutes, seconds)]
        for name, value, limit in (("MINUTE", values[1], 59), ("SECOND", values[2], 60)):
            if value > limit:
                got = int(value) if value == int(value) else value
                raise _invalid(self.text, f"{name} must be [-{limit}, {limit}], got {got}")
        for unit, value in zip(("hour", "minute", "second"), values, strict=True):
            self._put(unit, -value if sign == "-" else value)
        self._clock_seen = True

    def _counts_minutes(self) -> bool:
        cut = self._cut
        return cut is not None and cut.high == "minute" and cut.low == "second"


_LIMITS = {"months": 2**31, "days": 2**31, "micros": 2**63}
_CALLED = {"months": "months", "days": "days", "micros": "microseconds"}


def _made(fields: dict[str, Decimal], text: str) -> Interval:
    totals = {"months": 0, "days": 0, "micros": 0}

    def add(field: str, amount: int) -> None:
        limit = _LIMITS[field]
        totals[field] += amount
        if not -limit <= totals[field] < limit:
            name = _CALLED[field]
            why = f"Overflows maximum {name}; cannot exceed {limit - 1}/-{limit} {name}"
            raise _invalid(text, why)

    for unit in (*reversed(_UNITS),):
        value = fields.get(unit)
        if value is None:
            continue
        field, size = _UNITS[unit]
        whole = int(value)
        fraction = value - whole
        if field == "micros":
            # Both at once: the largest of each sign is a whole number of seconds and a fraction.
            add("micros", whole * size + _rounded(fraction * size))
            continue
        add(field, whole * size)
        if unit == "month":
            spilled = fraction * 30
            add("days", int(spilled))
            add("micros", _rounded((spilled - int(spilled)) * _DAY))
        elif field == "months":
            # A year's fraction is whole months; what is left is dropped.
            add("months", int(fraction * size))
        else:
            spilled = fraction * size
            add("days", int(spilled))
            add("micros", _rounded((spilled - int(spilled)) * _DAY))
    return Interval(totals["months"], totals["days"], totals["micros"])


def _rounded(micros: Decimal) -> int:
    return int(micros.to_integral_value(ROUND_HALF_UP))


_MICROS = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}


def _cut(span: Interval, cut: Cut, text: str) -> Interval:
    months, days, micros = span.months, span.days, span.microseconds
    if cut.high is not None:
        if cut.high != "year":
            months = _rest(months, 12) if cut.high == "month" else 0
        if cut.high in _MICROS:
            days = 0
        if cut.high in ("minute", "second"):
            micros = _rest(micros, _MICROS["hour" if cut.high == "minute" else "minute"])
    if cut.low == "second":
        micros = _to_precision(micros, cut.precision, text)
    elif cut.low in _MICROS:
        micros -= _rest(micros, _MICROS[cut.low])
    else:
        micros = 0
        days = days if cut.low == "day" else 0
        months -= _rest(months, 12) if cut.low == "year" else 0
    return Interval(months, days, micros)


def _rest(number: int, by: int) -> int:
    """The rest of a division that truncates."""
    rest = abs(number) % by
    return rest if number >= 0 else -rest


def _to_precision(micros: int, precision: int | None, text: str) -> int:
    if precision is None or precision >= 6:
        return micros
    unit = 10 ** (6 - precision)
    rounded: int = _rounded(Decimal(micros) / unit) * unit
    if not -_I64 <= rounded < _I64:
        raise DataError(f'interval field value out of range: "{text}"', sqlstate="22015")
    return rounded
