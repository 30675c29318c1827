"""``timezone_offset(zone, moment)``: the abbreviation and offsets of a zone at a moment.

Promise: the zone database's answer until 2100, and its last one for later moments. The zone must be constant: its spans
between changes become part of the expression, so that all engines agree.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, constant_text, scalar
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.repr.types import INTERVAL, TEXT, TIMESTAMPTZ, ColumnType, SqlType

_OFFSETS = SqlType(
    "record",
    fields=(
        ("abbrev", ColumnType(TEXT)),
        ("base_utc_offset", ColumnType(INTERVAL)),
        ("dst_offset", ColumnType(INTERVAL)),
    ),
)
_MICROS = 1_000_000
#: The seconds since 1970 between which changes are searched; no zone has changes before.
_FIRST, _LAST = -4_300_000_000, 4_102_444_800
#: The search step; changes of a zone are further apart.
_STEP = 7 * 86_400


@dataclass(frozen=True)
class _Clock:
    """The clocks of a zone for a span: abbreviation, and offsets in seconds."""

    name: str
    base: int
    daylight: int


def _clock(zone: zoneinfo.ZoneInfo, second: int) -> _Clock:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)
    local = moment.astimezone(zone)
    offset, daylight = local.utcoffset() or dt.timedelta(), local.dst() or dt.timedelta()
    return _Clock(
        local.tzname() or "",
        round((offset - daylight).total_seconds()),
        round(daylight.total_seconds()),
    )


def _change(zone: zoneinfo.ZoneInfo, low: int, high: int) -> int:
    """The second of the one change after ``low`` and not after ``high``."""
    old = _clock(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        if _clock(zone, middle) == old:
            low = middle
        else:
            high = middle
    return high


@lru_cache(64)
def _spans(name: str) -> tuple[tuple[int, _Clock], ...]:
    """The seconds since 1970 at which a zone's clocks change, in order; the first also stands for all time before."""
    zone = zoneinfo.ZoneInfo(name)
    spans = [(_FIRST, _clock(zone, _FIRST))]
    for second in range(_FIRST, _LAST, _STEP):
        after = second + _STEP
        while (found := _clock(zone, after)) != spans[-1][1]:
            at = _change(zone, max(second, spans[-1][0]), after)
            spans.append((at, _clock(zone, at)))
            if spans[-1][1] == found:
                break
    return tuple(spans)


def _zone(arg: Sql) -> str | None:
    text = constant_text(arg, "a time zone")
    if text is None:
        return None
    low = text.lower()
    return next((name for name in zoneinfo.available_timezones() if name.lower() == low), None)


def _interval(seconds: int, engine: Engine) -> Ast:
    made = s.struct(months=s.num(0), days=s.num(0), micros=s.num(seconds * _MICROS))
    return s.cast(made, INTERVAL, engine)


def _known_second(moment: Sql) -> int | None:
    """The second since 1970 of a constant moment; None for anything else."""
    found = s.literal_of(moment.ast)
    if found is None:
        return None
    try:
        known = dt.datetime.fromisoformat(found.name)
    except ValueError:
        return None
    # A moment without zone is in UTC.
    known = known if known.tzinfo else known.replace(tzinfo=dt.UTC)
    return (known - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(seconds=1)


def _offset(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    name = _zone(args[0])
    if name is None:
        return s.cast(s.null(), typ, engine)

    def shown(clock: _Clock) -> Ast:
        base, daylight = (_interval(seconds, engine) for seconds in (clock.base, clock.daylight))
        return s.cast(s.struct(f1=s.text(clock.name), f2=base, f3=daylight), typ, engine)

    spans, second = _spans(name), _known_second(args[1])
    if second is not None:
        return shown(next((clock for at, clock in reversed(spans) if at <= second), spans[0][1]))
    moment, which = s.variable("zo0"), s.variable("zo1")
    clocks = list(dict.fromkeys(clock for _, clock in spans))
    number = s.case(
        (s.is_null(moment), s.num(-1)),
        *(
            (s.gte(moment, s.num(at * _MICROS)), s.num(clocks.index(clock)))
            for at, clock in reversed(spans)
        ),
        otherwise=s.num(0),
    )
    found = s.case(*((s.eq(which, s.num(i)), shown(clock)) for i, clock in enumerate(clocks)))
    micros = epoch.micros(args[1].ast, "timestamptz", engine)
    return s.let(s.let(micros, "zo0", number, engine), "zo1", found, engine)


def _no_zone(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.boolean(constant_text(args[0], "a time zone") is not None and _zone(args[0]) is None)


def _refused(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.concat(
        s.text("invalid IANA Time Zone Database identifier: '"), args[0].ast, s.text("'")
    )


FUNCTIONS: tuple[ScalarFunc, ...] = (
    scalar(
        "timezone_offset",
        "timezone_offset",
        (TEXT, TIMESTAMPTZ),
        _OFFSETS,
        _offset,
        ErrorRule(_no_zone, _refused),
    ),
)
