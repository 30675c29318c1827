"""Ending work in an orderly way: run several clean-up actions even if some fail, and bound how long unwanted work
retries.

Promise: `each_by_itself` tries every action in order, raises the first failure after all were tried, and logs the
other failures. Work that is no longer wanted (its dataflow was dropped, or the replica closes) keeps retrying an
unresponsive backend for `UNWANTED_SECONDS` more, long enough to save or delete what it has made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from mzsql.persist import Clock
from mzsql.repr.interrupt import NO_LIMIT

#: How long, in seconds, work that nobody wants any more keeps retrying a failing backend.
UNWANTED_SECONDS = 5.0

_LOG = logging.getLogger(__name__)


class Closes(Protocol):
    """What ends some time."""

    @property
    def closing(self) -> bool:
        """Whether it is about to end, so that no work is begun any more."""


class Unwanted:
    """Whether nobody wants a dataflow any more: it was dropped, or its replica closes."""

    def __init__(self, replica: Closes) -> None:
        self._replica = replica
        self.dropped = False

    def __call__(self) -> bool:
        """Whether it is so now."""
        return self.dropped or self._replica.closing


def each_by_itself(jobs: Iterable[Callable[[], object]]) -> None:
    """Run all jobs, whether or not some fail; failures beyond the first are logged.

    Raises:
        Exception: whatever the first job that failed has raised, after all were run.
    """
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
    """Make a function for `mzsql.location.waiting` that says how many more seconds work may wait for a backend.

    It answers `NO_LIMIT` until `unwanted()` first is true, then counts `UNWANTED_SECONDS` down.
    """
    until: float | None = None

    def left() -> float:
        nonlocal until
        if until is None:
            if not unwanted():
                return NO_LIMIT
            until = clock.monotonic() + UNWANTED_SECONDS
        return max(0.0, until - clock.monotonic())

    return left
