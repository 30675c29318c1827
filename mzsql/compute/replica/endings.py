"""Several things that are to be done however the others of them end, such as giving up what a dataflow holds.

Promise: each is tried, in order; the first failure is raised when all were, and the others are logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

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
