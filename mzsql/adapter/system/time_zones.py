"""The rows of the builtin sources about time zones."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo, available_timezones

from mzsql.adapter.system.source import Rows, Source
from mzsql.repr.zone_abbreviations import ABBREVIATIONS, DAYLIGHT


def time_zones(_: Source) -> Rows:
    """Every time zone name."""
    for name in sorted(available_timezones()):
        yield (name,)


def pg_time_zones(_: Source) -> Rows:
    """PostgreSQL's pg_timezone_names: each zone's present abbreviation, offset from UTC, and whether it is daylight
    saving time.
    """
    now = datetime.datetime.now(datetime.UTC)
    for name in sorted(available_timezones()):
        there = now.astimezone(ZoneInfo(name))
        offset = there.utcoffset() or datetime.timedelta()
        micros = offset // datetime.timedelta(microseconds=1)
        interval = {"months": 0, "days": 0, "micros": micros}
        yield name, there.tzname(), interval, bool(there.dst())


def pg_time_zone_abbreviations(_: Source) -> Rows:
    """PostgreSQL's pg_timezone_abbrevs: abbreviations with their offsets."""
    for name, seconds in sorted(ABBREVIATIONS.items()):
        yield name, {"months": 0, "days": 0, "micros": seconds * 1_000_000}, name in DAYLIGHT
