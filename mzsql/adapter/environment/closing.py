"""Closing what has many parts, whatever fails.

Promise: every step is taken; the first failure is raised in the end, later ones are logged. Stores are waited for by `waiting`: a step
may go on with one that fails for some seconds, and once a step has failed each of the others asks but once. The trade-off: what a store
did not take is left to leases, which run out by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from mzsql.location import waiting
from mzsql.persist import Clock
from mzsql.persist.clock import Deadline

_log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""How long each step of a close may go on with a store that fails."""


def close_all(steps: Iterable[Callable[[], None]], clock: Clock) -> None:
    """Take all ``steps``, in order; then raise what the first failure raised, be it an error or Ctrl-C."""
    first: BaseException | None = None
    for step in steps:
        deadline = Deadline(clock, CLOSE_SECONDS if first is None else 0.0)
        try:
            with waiting(deadline.remaining):
                step()
        except BaseException as failure:
            if first is None:
                first = failure
            else:
                _log.warning("closing goes on: %s", failure)
    if first is not None:
        raise first
