"""Reading dates and timestamps out of the texts of constants, in more forms than the patterns that engines read columns by.

Promise: beside ISO 8601's forms a compact date (``20240229``), ``BC``, ``AM`` and ``PM``, a time zone by name or offset, and ``epoch``;
anything else is not read, and left to the patterns to refuse.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo

from mzsql.repr.zone_abbreviations import ABBREVIATIONS

_DAY = 86_400_000_000
_FORM = re.compile(
    r"(?:(?P<y>\d{4,6})-(?P<m>\d{1,2})-(?P<d>\d{1,2})|(?P<cy>\d{4})(?P<cm>\d{2})(?P<cd>\d{2}))"
    r"(?:[ tT]+(?P<h>\d{1,2}):(?P<mi>\d{1,2})(?::(?P<s>\d{1,2})(?:\.(?P<f>\d*))?)?)?"
    r"(?:\s*(?P<half>[aApP][mM])\b)?"
    r"(?:\s*(?P<zone>[zZ]|[A-Za-z_]+(?:/[A-Za-z_+\-0-9]+)+|[A-Za-z]{3,5}|[+-]\d{1,2}(?::?\d{2})?))?"
    r"(?:\s+(?P<era>[bB][cC]|[aA][dD]))?"
)
_UTC = frozenset({"z", "utc", "gmt", "zulu"})


def read_datetime(text: str, *, zoned: bool) -> int | None:
    """Microseconds since 1970 of a timestamp; with `zoned` of UTC, else of the local time. None where the text is none."""
    said = text.strip()
    if said.lower() == "epoch":
        return 0
    match = _FORM.fullmatch(said)
    if match is None:
        return None
    era, zone = match["era"], match["zone"]
    if zone is not None and era is None and zone.lower() in ("bc", "ad"):
        era, zone = zone, None
    year, month, day = (int(match[n] or match[f"c{n}"]) for n in "ymd")
    if year == 0:
        return None
    if era is not None and era.lower() == "bc":
        year = 1 - year
    days = _days(year, month, day)
    clock = _clock(match)
    if days is None or clock is None or (match["h"] is None and (zone or match["half"])):
        return None
    micros = days * _DAY + clock
    offset = 0 if zone is None else _offset(zone, micros)
    return None if offset is None else micros - (offset if zoned else 0)


def _days(year: int, month: int, day: int) -> int | None:
    """Days since 1970 in the proleptic calendar, which repeats itself every 400 years."""
    cycle, within = divmod(year, 400)
    try:
        date = dt.date(within + 400, month, day)
    except ValueError:
        return None
    return date.toordinal() - dt.date(1970, 1, 1).toordinal() + (cycle - 1) * 146_097


def _clock(match: re.Match[str]) -> int | None:
    hour, minute, second = (int(match[n] or 0) for n in ("h", "mi", "s"))
    half = match["half"]
    if half is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half.lower() == "pm" else 0)
    if hour > 24 or minute > 59 or second > 60:
        return None
    fraction = (int((match["f"] or "0")[:7].ljust(7, "0")) + 5) // 10
    micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction
    return micros if micros <= _DAY else None


def _offset(zone: str, micros: int) -> int | None:
    """How far east of UTC a zone is at a local time, in microseconds."""
    if zone.lower() in _UTC:
        return 0
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        hours, minutes = (digits, "0") if len(digits) <= 2 else (digits[:-2], digits[-2:])
        if int(hours) > 15 or int(minutes) > 59:
            return None
        size = (int(hours) * 60 + int(minutes)) * 60_000_000
        return -size if zone[0] == "-" else size
    names = {name.lower(): name for name in zoneinfo.available_timezones()}
    found = names.get(zone.lower())
    if found is None:
        short = ABBREVIATIONS.get(zone.upper())
        return None if short is None else short * 1_000_000
    try:
        local = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)
        shift = local.replace(tzinfo=zoneinfo.ZoneInfo(found)).utcoffset()
    except OverflowError:
        return None
    return None if shift is None else shift // dt.timedelta(microseconds=1)
