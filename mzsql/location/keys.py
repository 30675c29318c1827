"""Checks of Blob keys, Consensus steps and timestamps, common to all embedded backends."""

from __future__ import annotations

from collections.abc import Iterable

from mzsql.location.errors import UsageError
from mzsql.location.protocols import MAX_SEQNO

ORACLE_KEYS = "timestamp_oracle/"
"""With which the keys of a Consensus store begin that are no shards' but the timelines' of an oracle that serves from memory."""


def check_blob_key(key: str) -> str:
    """``key`` itself.

    Raises:
        UsageError: it has an empty, ``.`` or ``..`` part, or a NUL.
    """
    if "\0" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise UsageError(
            f"not a Blob key: {key!r}",
            hint="A key is made of parts separated by /, none of them empty, '.' or '..'.",
        )
    return key


def shard_keys(keys: Iterable[str]) -> list[str]:
    """Those keys of a Consensus store that are shards', in order."""
    return sorted(key for key in keys if not key.startswith(ORACLE_KEYS))


def check_step(key: str, expected: int | None, seqno: int) -> None:
    """Check that ``seqno`` follows ``expected``.

    Raises:
        UsageError: it does not, or is out of range.
    """
    if not 0 <= seqno <= MAX_SEQNO:
        raise UsageError(f"Consensus key {key!r}: sequence number {seqno} is out of range")
    if expected is not None and not 0 <= expected <= MAX_SEQNO:
        raise UsageError(f"Consensus key {key!r}: sequence number {expected} is out of range")
    follows = 0 if expected is None else expected + 1
    if seqno != follows:
        raise UsageError(
            f"Consensus key {key!r}: sequence numbers are contiguous, expected {follows}, got {seqno}"
        )


def check_truncate(key: str, seqno: int, head: int | None) -> None:
    """Check that a truncation leaves the newest entry.

    Raises:
        UsageError: there is no entry, or ``seqno`` is beyond the newest one.
    """
    if head is None:
        raise UsageError(f"Consensus key {key!r}: cannot truncate, there is no entry")
    if seqno > head:
        raise UsageError(
            f"Consensus key {key!r}: cannot truncate to {seqno}, the newest entry is {head}"
        )


def check_limit(limit: int) -> None:
    """Check the limit of a scan.

    Raises:
        UsageError: it is negative.
    """
    if limit < 0:
        raise UsageError(f"the limit of a scan cannot be negative, got {limit}")


def check_ts(ts: int) -> None:
    """Check a timestamp given to an oracle.

    Raises:
        UsageError: it is negative or does not fit.
    """
    if not 0 <= ts <= MAX_SEQNO - 1:
        raise UsageError(f"timestamp {ts} is out of range")
