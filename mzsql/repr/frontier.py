"""Timestamps and frontiers over totally ordered time.

Promise: a `Timestamp` is a non-negative `int` of milliseconds that fits Arrow's `int64`; a `Frontier` is one timestamp, or `None`
for the empty frontier, which lies beyond every time. All functions are pure. The trade-off: general antichains (partially ordered
times) are given up, so a frontier is a plain value that travels in any format.
"""

from __future__ import annotations

from typing import TypeAlias

Timestamp: TypeAlias = int
Frontier: TypeAlias = int | None

MIN_TIMESTAMP: Timestamp = 0
MAX_TIMESTAMP: Timestamp = 2**63 - 2  # one below int64's maximum, so that `t + 1` always exists


def is_timestamp(value: object) -> bool:
    """Whether ``value`` is a time a collection may carry."""
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and MIN_TIMESTAMP <= value <= MAX_TIMESTAMP
    )


def less_equal(a: Frontier, b: Frontier) -> bool:
    """Whether every time in advance of ``b`` is in advance of ``a`` (``a <= b``, `None` the greatest)."""
    return b is None if a is None else b is None or a <= b


def less_than(a: Frontier, b: Frontier) -> bool:
    """Whether ``a`` is strictly earlier than ``b``."""
    return a != b and less_equal(a, b)


def contains(frontier: Frontier, time: Timestamp) -> bool:
    """Whether ``time`` is at or beyond ``frontier`` (for an upper: not complete; for a since: readable)."""
    return frontier is not None and frontier <= time


def meet(*frontiers: Frontier) -> Frontier:
    """The earliest of the frontiers; `None` for none of them."""
    finite = [f for f in frontiers if f is not None]
    return min(finite) if finite else None


def join(*frontiers: Frontier) -> Frontier:
    """The latest of the frontiers; the minimum time for none of them."""
    latest = MIN_TIMESTAMP
    for frontier in frontiers:
        if frontier is None:
            return None
        latest = max(latest, frontier)
    return latest


def show(frontier: Frontier) -> str:
    """The frontier as a person reads it: ``[5]``, or ``[]`` when empty."""
    return "[]" if frontier is None else f"[{frontier}]"
