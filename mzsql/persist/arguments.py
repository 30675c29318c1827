"""Checks the types of what a program passes to persist, before anything is done.

Promise: a misfit is refused with a usage error that says what would fit; no code of the caller's objects runs for
it. What is kept in a shard's state must have exactly the type that its readers expect: a purpose that is not text,
once committed, would keep every process from reading the shard.
"""

from __future__ import annotations

import math
from typing import NoReturn
from uuid import UUID

from mzsql.location.errors import UsageError
from mzsql.persist.errors import InvalidBounds
from mzsql.repr.frontier import is_timestamp
from mzsql.repr.shown import plain

_GREATEST = 2**63 - 1


def given(value: object) -> str:
    """Return a value as a message shows it."""
    return plain(value) or type(value).__name__


def refuse(name: str, wanted: str, value: object) -> NoReturn:
    """Refuse an argument.

    Raises:
        UsageError: always; it names the argument, what is wanted and what was given.
    """
    raise UsageError(f"{name} must be {wanted}, not {given(value)}")


def check_time(time: object, what: str) -> None:
    """Check that a time to read at is an integer; whether it can be read is checked by the reader.

    Raises:
        InvalidBounds: it is not.
    """
    if not isinstance(time, int) or isinstance(time, bool) or not -_GREATEST <= time <= _GREATEST:
        raise _no_time(time, what)


def check_since(since: object) -> None:
    """Check that the since of a new shard is a time.

    Raises:
        InvalidBounds: it is not.
    """
    if not is_timestamp(since):
        raise _no_time(since, "the since of a new shard")


def _no_time(value: object, what: str) -> InvalidBounds:
    return InvalidBounds(
        f"{what}: not a time: {given(value)}", hint="A time is an int from 0 on, below 2**63 - 1."
    )


def check_frontier(frontier: object, what: str) -> None:
    """Check that a frontier is a time or `None`.

    Raises:
        InvalidBounds: it is not.
    """
    if frontier is not None and not is_timestamp(frontier):
        raise InvalidBounds(
            f"{what}: not a frontier: {given(frontier)}",
            hint="A frontier is an int from 0 on, below 2**63 - 1, or None for the empty frontier.",
        )


def check_text(text: object, name: str, *, empty: bool = True) -> None:
    """Check that the argument ``name`` is text that can be encoded.

    Raises:
        UsageError: it is not, or it is empty although ``empty`` is false.
    """
    if not isinstance(text, str) or not (len(text) or empty):
        refuse(name, "text" if empty else "text that is not empty", text)
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        raise UsageError(f"{name} is no Unicode text: {failure}") from failure


def check_number(number: object, name: str, least: float, *, whole: bool) -> None:
    """Check that the argument ``name`` is a number of at least ``least``; if it must be ``whole``, an integer that fits
    64 bits.

    Raises:
        UsageError: it is not.
    """
    fits = isinstance(number, int if whole else int | float) and not isinstance(number, bool)
    # The comparison is negated below, because every comparison with NaN is false.
    greatest = _GREATEST if whole else math.inf
    if not fits or not least <= number <= greatest:  # type: ignore[operator]
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{name} must be {kind} of at least {least:g}, not {given(number)}")


def check_shard_id(shard_id: object) -> None:
    """Check that a shard id is "s" and a UUID.

    Raises:
        UsageError: it is not.
    """
    try:
        valid = (
            isinstance(shard_id, str)
            and shard_id[:1] == "s"
            and str(UUID(shard_id[1:])) == shard_id[1:]
        )
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(f"not a shard id: {given(shard_id)}", hint='A shard id is "s" and a UUID.')
