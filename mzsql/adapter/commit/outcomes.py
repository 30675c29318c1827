"""What a session is told of a commit that may be in, in so many words.

Promise: these errors are typed (`CommitOutcomeUnknown`), say what to look at before anything is written again, and never tell "not
written" of what may be. The trade-off: a bug whose place is not known counts as one that came after the append, so a session may be
told that nobody knows of a write that is surely out.
"""

from __future__ import annotations

import logging

from mzsql.repr.errors import CommitOutcomeUnknown
from mzsql.repr.frontier import Timestamp

_log = logging.getLogger(__name__)


def unknown(detail: str) -> CommitOutcomeUnknown:
    """The error of an append of which nobody can tell whether it is in."""
    return CommitOutcomeUnknown(
        "whether the transaction was committed is not known",
        detail=detail,
        hint="Look at the tables before you write again.",
    )


def unknown_by_bug(ts: Timestamp, bug: BaseException) -> CommitOutcomeUnknown:
    """The error of an append that failed in a way that says nothing about what became of it; logs it."""
    _log.error("what became of the append at %d is not known", ts, exc_info=bug)
    return unknown(f"{type(bug).__name__}: {bug}")


def untold(ts: Timestamp, why: str) -> CommitOutcomeUnknown:
    """The error of an append that is in, of which the oracle does not know."""
    return CommitOutcomeUnknown(
        f"committed at {ts}, but the timestamp oracle could not be told: reads may not show it for now",
        detail=why,
        hint="Do not write it again: it shows once the oracle has passed that time.",
    )
