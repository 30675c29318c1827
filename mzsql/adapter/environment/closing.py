"""Closing something that has many parts, whichever of them fails.

Promise: every step runs; the first failure is raised at the end, later ones are logged. A step may spend
`CLOSE_SECONDS` on a store that fails; once one step has failed, each of the others tries once. The trade-off: leases
that a failing store did not release stay until they expire.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from mzsql.location import waiting
from mzsql.persist import Clock
from mzsql.persist.clock import Deadline

_log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""How many seconds each closing step may go on retrying a store that fails."""


def close_all(steps: Iterable[Callable[[], None]], clock: Clock) -> None:
    """Run all ``steps`` in order.

    Raises:
        BaseException: what the first failing step raised, KeyboardInterrupt included.
    """
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
