"""Memos of what is derived from plans while one plan is optimized.

Promise: a memo holds only results of pure functions, keyed by their arguments (plans are immutable and equal by value),
so it affects nothing but time. It belongs to one run in one thread and ends with it; outside a run nothing is kept.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from typing import Any


class _Memos(dict[str, dict[Any, Any]]):
    """The memos of a run by their names; each begins empty."""

    def __missing__(self, function: str) -> dict[Any, Any]:
        made = self[function] = {}
        return made


_RUN: ContextVar[_Memos | None] = ContextVar("_RUN", default=None)


class _Remembering(ContextDecorator):
    """See `remembering`. A class, as every statement is planned in several runs, and a generator costs three times as much."""

    __slots__ = ("_apart", "_token")

    def __init__(self, apart: bool) -> None:
        self._apart = apart
        self._token: Token[_Memos | None] | None = None

    def __enter__(self) -> None:
        if self._apart or _RUN.get() is None:
            self._token = _RUN.set(_Memos())

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _RUN.reset(self._token)

    def _recreate_cm(self) -> _Remembering:
        """Each call of a decorated function is a run of its own."""
        return _Remembering(self._apart)


def remembering(*, apart: bool = False) -> _Remembering:
    """A run, within whose block `memo` returns the same dicts; a nested run shares those of the outer one. Also a decorator.

    With ``apart`` it does not: for a plan made in between on its own, whose memos go when it is done.
    """
    return _Remembering(apart)


def memo(function: str) -> dict[Any, Any]:
    """The memo of a pure function in this run: results by arguments. Outside a run, a new dict."""
    run = _RUN.get()
    return {} if run is None else run[function]
