"""The errors for a commit whose outcome is in doubt.

Promise: they are typed (`CommitOutcomeUnknown`), say what to check before writing again, and never claim that nothing
was written where something may be. The trade-off: a bug at an unknown place counts as one after the append, so a
session may be told that an outcome is unknown although nothing was written.
"""

from __future__ import annotations

import logging

from mzsql.repr.errors import CommitOutcomeUnknown
from mzsql.repr.frontier import Timestamp

_log = logging.getLogger(__name__)


def unknown(detail: str) -> CommitOutcomeUnknown:
    """The error for an append that may or may not be in."""
    return CommitOutcomeUnknown(
        "whether the transaction was committed is not known",
        detail=detail,
        hint="Look at the tables before you write again.",
    )


def unknown_by_bug(ts: Timestamp, bug: BaseException) -> CommitOutcomeUnknown:
    """The error for an append that failed with an unexpected exception, which is logged."""
    _log.error("what became of the append at %d is not known", ts, exc_info=bug)
    return unknown(f"{type(bug).__name__}: {bug}")


def untold(ts: Timestamp, why: str) -> CommitOutcomeUnknown:
    """The error for an append that is in, but was not applied to the oracle."""
    return CommitOutcomeUnknown(
        f"committed at {ts}, but the timestamp oracle could not be told: reads may not show it for now",
        detail=why,
        hint="Do not write it again: it shows once the oracle has passed that time.",
    )
