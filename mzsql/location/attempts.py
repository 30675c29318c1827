"""What a backend asks of its server: told beside the call, for metrics of whoever calls it.

Promise: within `observing`, on the same thread, each attempt that a backend makes is told: whether it succeeded. A backend that tries
again by itself tells each attempt; one that does not need tell nothing, as one call is one attempt then. Trade-off: ambient, as the
deadlines are, so that the protocols stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Observer = Callable[[bool], None]

_observer: ContextVar[Observer | None] = ContextVar("mzsql_attempts", default=None)


def attempted(*, succeeded: bool) -> None:
    """Tell that a statement or request was sent to the server, or could not be, and whether it succeeded."""
    observer = _observer.get()
    if observer is not None:
        observer(succeeded)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Have attempts made within the block and on this thread told to ``observer``."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)
