"""What is derived of plans while one plan is optimized, kept until that is done.

Promise: a memo only holds answers of pure functions of what they are kept under (plans are immutable and equal by value), so nothing but
the time depends on it. It belongs to one run in one thread and goes with it; outside of a run nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_RUN: ContextVar[dict[str, dict[Any, Any]] | None] = ContextVar("_RUN", default=None)


@contextmanager
def remembering(*, apart: bool = False) -> Iterator[None]:
    """A run: what `memo` gives in the body is the same every time it is asked; a run inside another one shares its memos.

    With `apart` it does not: for what is planned in between and by itself, so that what was found out for it goes when it is done.
    """
    if _RUN.get() is not None and not apart:
        yield
        return
    token = _RUN.set({})
    try:
        yield
    finally:
        _RUN.reset(token)


def memo(function: str) -> dict[Any, Any]:
    """The answers of a pure function, by its arguments, in this run; a dict of its own where there is none."""
    run = _RUN.get()
    return {} if run is None else run.setdefault(function, {})
