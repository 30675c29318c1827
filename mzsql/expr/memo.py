"""Memos of what is derived from plans while one plan is optimized.

Promise: a memo holds only results of pure functions, keyed by their arguments (plans are immutable and equal by value),
so it affects nothing but time. It belongs to one run in one thread and ends with it; outside a run nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class _Memos(dict[str, dict[Any, Any]]):
    """The memos of a run by their names; each begins empty."""

    def __missing__(self, function: str) -> dict[Any, Any]:
        made = self[function] = {}
        return made


_RUN: ContextVar[_Memos | None] = ContextVar("_RUN", default=None)


@contextmanager
def remembering(*, apart: bool = False) -> Iterator[None]:
    """A run, within whose block `memo` returns the same dicts; a nested run shares those of the outer one.

    With ``apart`` it does not: for a plan made in between on its own, whose memos go when it is done.
    """
    if _RUN.get() is not None and not apart:
        yield
        return
    token = _RUN.set(_Memos())
    try:
        yield
    finally:
        _RUN.reset(token)


def memo(function: str) -> dict[Any, Any]:
    """The memo of a pure function in this run: results by arguments. Outside a run, a new dict."""
    run = _RUN.get()
    return {} if run is None else run[function]
