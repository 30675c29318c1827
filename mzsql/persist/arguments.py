"""Checks of what a program gives to persist, by type, before anything is done.

Promise: what does not fit is refused with a usage error that says what would. What is kept in a shard's state must be of the very type
that its readers expect: a purpose that is no text, once committed, would keep every process from reading the shard.
"""

from __future__ import annotations

import math

from mzsql.location.errors import UsageError
from mzsql.persist.errors import InvalidBounds
from mzsql.repr.frontier import is_timestamp


def check_time(time: object, what: str) -> None:
    """Check that a time asked for is a number; whether it can be read is the reader's to say.

    Raises:
        InvalidBounds: it is not.
    """
    if not isinstance(time, int) or isinstance(time, bool):
        raise InvalidBounds(
            f"{what}: not a time: {time!r}", hint="A time is an int from 0 on, below 2**63 - 1."
        )


def check_frontier(frontier: object, what: str) -> None:
    """Check that a frontier is a time or `None`.

    Raises:
        InvalidBounds: it is not.
    """
    if frontier is not None and not is_timestamp(frontier):
        raise InvalidBounds(
            f"{what}: not a frontier: {frontier!r}",
            hint="A frontier is an int from 0 on, below 2**63 - 1, or None for the empty frontier.",
        )


def check_text(text: object, name: str, *, empty: bool = True) -> None:
    """Check that the argument ``name`` is text, of which the state may be made.

    Raises:
        UsageError: it is not, or it is empty where it must not be.
    """
    if not isinstance(text, str) or not (text or empty):
        wanted = "text" if empty else "text that is not empty"
        raise UsageError(f"{name} must be {wanted}, not {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        raise UsageError(f"{name} is no Unicode text: {failure}") from failure


def check_number(number: object, name: str, least: float, *, whole: bool) -> None:
    """Check that the argument ``name`` is a number of at least ``least``, and where it is ``whole`` of a size that a state can keep.

    Raises:
        UsageError: it is not.
    """
    fits = isinstance(number, int if whole else int | float) and not isinstance(number, bool)
    # Anything compares false to NaN.
    greatest = _GREATEST if whole else math.inf
    if not fits or not least <= number <= greatest:  # type: ignore[operator]
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{name} must be {kind} of at least {least:g}, not {number!r}")


_GREATEST = 2**63 - 1
