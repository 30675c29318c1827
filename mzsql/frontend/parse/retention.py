"""RETAIN HISTORY FOR: how long an object's history is readable.

Promise: the interval is checked when it is parsed; an object's stored definition has the latest setting.
"""

from __future__ import annotations

import dataclasses

from mzsql.frontend.parse import statements as st
from mzsql.repr.errors import InvalidParameter
from mzsql.repr.interval_text import parse_interval

OPTION = "retain history"
_DAY_MS = 86_400_000
#: Longer than the time since the timeline's epoch, so more would have no effect.
_MOST_MS = 100 * 366 * _DAY_MS


def retained_ms(text: str, position: int | None = None) -> int:
    """An interval such as ``1 day`` in milliseconds.

    Raises:
        InvalidParameter: it is no interval, too short, too long, or has months, whose length varies.
    """
    interval = parse_interval(text)
    if interval.months:
        raise InvalidParameter(
            f"RETAIN HISTORY FOR '{text}': months and years have no fixed length",
            position=position,
            hint="Say how many days.",
        )
    found = interval.days * _DAY_MS + interval.microseconds // 1000
    if not 0 < found <= _MOST_MS:
        raise InvalidParameter(
            f"RETAIN HISTORY FOR '{text}': it must be at least a millisecond, and at most a hundred years",
            position=position,
        )
    return found


def shown(retain: str) -> str:
    """The option as SHOW CREATE prints it."""
    return f"RETAIN HISTORY = FOR '{parse_interval(retain)}'"


def clause(retain: str | None) -> str:
    """A WITH clause with only this option, after a space; empty where the option is not set."""
    return "" if retain is None else f" WITH ({shown(retain)})"


def option(options: tuple[tuple[str, str], ...]) -> str | None:
    """The interval among a materialized view's options."""
    return next((value for kind, value in options if kind == OPTION), None)


def with_retention(statement: st.Statement, retain: str | None) -> st.Statement:
    """A CREATE statement with the option set to ``retain``."""
    if isinstance(statement, st.CreateView):
        options = tuple(one for one in statement.options if one[0] != OPTION)
        if retain is not None:
            options = (*options, (OPTION, retain))
        return dataclasses.replace(statement, options=options)
    assert isinstance(statement, st.CreateTable | st.CreateIndex)
    return dataclasses.replace(statement, retain=retain)
