"""Reporting a backend's requests to its server, for the metrics of its caller.

Promise: within `observing`, on the same thread, every request that a backend reports is passed to the observer, with
whether it succeeded. A backend that retries by itself reports each attempt; one that does not need not report, since a
call is one attempt then. The trade-off: the observer is a context variable, like deadlines, so that the protocols stay
small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Observer = Callable[[bool], None]

_observer: ContextVar[Observer | None] = ContextVar("mzsql_attempts", default=None)


def attempted(*, succeeded: bool) -> None:
    """Report that a request was sent to the server, or could not be, and whether it succeeded."""
    observer = _observer.get()
    if observer is not None:
        observer(succeeded)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Pass attempts made within the block and on this thread to ``observer``."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)
