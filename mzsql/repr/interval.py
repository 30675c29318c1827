"""Intervals as a person meets them: three numbers and their text.

Promise: months, days and microseconds are kept apart, as PostgreSQL and Materialize keep them; ``str()`` gives Materialize's text, which is
PostgreSQL's with whole words for months (``1 year 2 months -3 days +04:05:06.7``). `mzsql.repr.interval_text` reads it.
"""

from __future__ import annotations

import msgspec


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
        for count, name in ((years, "year"), (months, "month"), (self.days, "day")):
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
