"""How work ends: several things that are to be done however the others of them end, such as giving up what a dataflow holds, and work
that nobody wants any more.

Promise: of several each is tried, in order; the first failure is raised when all were, and the others are logged. What nobody wants
any more goes on with a backend that does not answer for `UNWANTED_SECONDS`, long enough to keep what was made or to give it up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from mzsql.persist import Clock
from mzsql.repr.interrupt import NO_LIMIT

#: So long work goes on with a backend that fails, once nobody wants it.
UNWANTED_SECONDS = 5.0

_LOG = logging.getLogger(__name__)


def each_by_itself(jobs: Iterable[Callable[[], object]]) -> None:
    """Do all of it; the first failure is raised at the end."""
    first: Exception | None = None
    for job in jobs:
        try:
            job()
        except Exception as failure:
            if first is None:
                first = failure
            else:
                _LOG.warning("it has failed, too: %s", failure, exc_info=failure)
    if first is not None:
        raise first


def patience(unwanted: Callable[[], bool], clock: Clock) -> Callable[[], float]:
    """How many seconds work still waits for a backend, for `mzsql.location.waiting`: without a limit of its own while it is wanted."""
    until: float | None = None

    def left() -> float:
        nonlocal until
        if until is None:
            if not unwanted():
                return NO_LIMIT
            until = clock.monotonic() + UNWANTED_SECONDS
        return max(0.0, until - clock.monotonic())

    return left
