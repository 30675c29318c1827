"""Intervals as a person meets them: three numbers, PostgreSQL's text, and the reading of that text.

Promise: months, days and microseconds are kept apart, as PostgreSQL and Materialize keep them; ``str()`` gives PostgreSQL's default style
(``1 year 2 mons -3 days +04:05:06.7``), and `parse_interval` reads that, the SQL standard's ``1-2 3 4:05:06`` and ISO 8601's durations.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

import msgspec

from mzsql.repr.errors import DataError, InvalidTextRepresentation

_DAY = 86_400_000_000

#: Fields in the order in which a text may name them: (months, microseconds) of one.
_UNITS: dict[str, tuple[str, Decimal]] = {
    "millennium": ("months", Decimal(12_000)),
    "century": ("months", Decimal(1_200)),
    "decade": ("months", Decimal(120)),
    "year": ("months", Decimal(12)),
    "month": ("months", Decimal(1)),
    "week": ("days", Decimal(7)),
    "day": ("days", Decimal(1)),
    "hour": ("micros", Decimal(3_600_000_000)),
    "minute": ("micros", Decimal(60_000_000)),
    "second": ("micros", Decimal(1_000_000)),
    "millisecond": ("micros", Decimal(1_000)),
    "microsecond": ("micros", Decimal(1)),
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
    "millisecond": ("milliseconds", "ms", "msec", "msecs"),
    "microsecond": ("microseconds", "us", "usec", "usecs"),
}
_UNIT_OF = {word: unit for unit, words in _NAMES.items() for word in (unit, *words)}

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?"
_TOKEN = re.compile(
    rf"\s*(?:(?P<clock>[+-]?\d+:\d+(?::\d+(?:\.\d*)?)?)|(?P<yearmonth>[+-]?\d+-\d+)|(?P<number>{_NUMBER})|(?P<word>[a-z]+))",
)
_ISO = re.compile(
    rf"(?P<sign>-?)p(?:(?P<year>{_NUMBER})y)?(?:(?P<month>{_NUMBER})m)?(?:(?P<week>{_NUMBER})w)?(?:(?P<day>{_NUMBER})d)?"
    rf"(?:t(?:(?P<hour>{_NUMBER})h)?(?:(?P<minute>{_NUMBER})m)?(?:(?P<second>{_NUMBER})s)?)?"
)


class Interval(msgspec.Struct, frozen=True, order=True):
    """A span of time: months, days and microseconds, none of them carried into another.

    Comparison is Materialize's: by months, then days, then microseconds.
    """

    months: int = 0
    days: int = 0
    microseconds: int = 0

    def __str__(self) -> str:
        parts: list[str] = []
        negative = False
        years, months = _quotient(self.months, 12)
        for count, name in ((years, "year"), (months, "mon"), (self.days, "day")):
            if count:
                sign = "+" if negative and count > 0 else ""
                parts.append(f"{sign}{count} {name}{'' if count == 1 else 's'}")
                negative = count < 0
        if self.microseconds or not parts:
            sign = "-" if self.microseconds < 0 else "+" if negative else ""
            parts.append(sign + clock_text(abs(self.microseconds)))
        return " ".join(parts)


def _quotient(number: int, by: int) -> tuple[int, int]:
    """Quotient and rest of a division that truncates."""
    quotient = abs(number) // by
    quotient = quotient if number >= 0 else -quotient
    return quotient, number - quotient * by


def clock_text(micros: int) -> str:
    """``HH:MM:SS[.ffffff]`` of non-negative microseconds."""
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{hour:02d}:{minute:02d}:{second:02d}{tail}"


def parse_interval(text: str) -> Interval:
    """The interval a text names.

    Raises:
        InvalidTextRepresentation: ``invalid input syntax for type interval: …``.
        DataError: a field out of range.
    """
    low = text.strip().lower()
    fields = _iso(low) if low.startswith(("p", "-p")) else _words(low, text)
    return _made(fields, text)


def _invalid(text: str, why: str = "") -> InvalidTextRepresentation:
    detail = f"{why}: " if why else ""
    return InvalidTextRepresentation(f'invalid input syntax for type interval: {detail}"{text}"')


def _iso(low: str) -> dict[str, Decimal]:
    match = _ISO.fullmatch(low)
    if match is None or low.rstrip("t") in ("p", "-p"):
        raise _invalid(low.upper())
    sign = -1 if match["sign"] else 1
    return {
        unit: sign * Decimal(found)
        for unit in ("year", "month", "week", "day", "hour", "minute", "second")
        if (found := match[unit]) is not None
    }


def _words(low: str, text: str) -> dict[str, Decimal]:
    fields: dict[str, Decimal] = {}

    def put(unit: str, value: Decimal) -> None:
        if unit in fields:
            raise _invalid(text, f"{unit.upper()} field set twice")
        fields[unit] = value

    pending: Decimal | None = None
    ago, position = False, 0
    while position < len(low.rstrip()):
        match = _TOKEN.match(low, position)
        if match is None:
            raise _invalid(text, f"have unprocessed tokens {low[position:].strip()}")
        position = match.end()
        if (word := match["word"]) is not None:
            if word == "ago" and pending is None and fields:
                ago = True
                continue
            unit = _UNIT_OF.get(word)
            if unit is None or pending is None:
                raise _invalid(text, f"unknown units {word}" if unit is None else "")
            put(unit, pending)
            pending = None
            continue
        if pending is not None and (match["number"] is not None or match["yearmonth"] is not None):
            raise _invalid(text)
        if match["number"] is not None:
            pending = _decimal(match["number"], text)
        elif match["yearmonth"] is not None:
            _year_month(match["yearmonth"], put)
        else:
            if pending is not None:
                # The SQL standard's "3 04:05:06": the number before a time counts days.
                put("day", pending)
                pending = None
            _clock(match["clock"], put)
    if pending is not None:
        put("second", pending)
    if not fields:
        raise _invalid(text)
    return {unit: -value for unit, value in fields.items()} if ago else fields


def _decimal(number: str, text: str) -> Decimal:
    try:
        return Decimal(number)
    except InvalidOperation:
        raise _invalid(text) from None


def _year_month(token: str, put: object) -> None:
    assert callable(put)
    sign = -1 if token.startswith("-") else 1
    years, months = token.lstrip("+-").split("-")
    if int(months) > 12:
        raise _invalid(token, f"MONTH must be [-12, 12], got {months}")
    put("year", Decimal(sign * int(years)))
    put("month", Decimal(sign * int(months)))


def _clock(token: str, put: object) -> None:
    assert callable(put)
    sign = -1 if token.startswith("-") else 1
    parts = token.lstrip("+-").split(":")
    if len(parts) == 2 and "." in parts[1]:
        parts = ["0", *parts]
    hours, minutes = int(parts[0]), int(parts[1])
    seconds = Decimal(parts[2]) if len(parts) == 3 else Decimal(0)
    for name, value, limit in (("MINUTE", minutes, 59), ("SECOND", seconds, 60)):
        if value > limit:
            raise _invalid(token, f"{name} must be [-{limit}, {limit}], got {value}")
    put("hour", Decimal(sign * hours))
    put("minute", Decimal(sign * minutes))
    put("second", sign * seconds)


def _made(fields: dict[str, Decimal], text: str) -> Interval:
    months = days = micros = Decimal(0)
    for unit, value in fields.items():
        field, size = _UNITS[unit]
        total = value * size
        if field == "micros":
            micros += total
            continue
        if field == "months":
            whole = Decimal(int(total))
            months += whole
            # A month's fraction is days of thirty, a day's fraction hours of twenty-four.
            total = (total - whole) * 30
        whole = Decimal(int(total))
        days += whole
        micros += (total - whole) * _DAY
    result = Interval(int(months), int(days), round(micros))
    limits = ((result.months, 2**31), (result.days, 2**31), (result.microseconds, 2**63))
    if any(not -limit <= value < limit for value, limit in limits):
        raise DataError(f'interval field value out of range: "{text}"', sqlstate="22015")
    return result
