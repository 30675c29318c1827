"""The protocols that backends implement: `Blob`, `Consensus`, `TimestampOracle`.

Promise: the protocols are structural (nothing to inherit), blocking, and callable from any thread. A backend raises
only `UsageError`, `Determinate` and `Indeterminate` (mzsql.location.errors). Optional abilities are protocols of their
own, found with `isinstance`, so that a minimal backend stays small. Sources: Materialize's persist and timestamp oracle
designs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

MAX_SEQNO = 2**63 - 1


class Versioned(NamedTuple):
    """An entry of a Consensus log: its sequence number, in ``[0, 2**63 - 1]``, and its bytes."""

    seqno: int
    data: bytes


@runtime_checkable
class Blob(Protocol):
    """A durable map from string keys to byte strings, linearizable per key.

    Keys consist of parts separated by ``/``; no part is empty, ``.`` or ``..``.
    """

    def get(self, key: str) -> bytes | None:
        """The value of ``key``, or `None`."""

    def set(self, key: str, value: bytes) -> None:
        """Set ``key`` to ``value``, atomically and durably: a reader sees the old or the new value."""

    def delete(self, key: str) -> int | None:
        """Remove ``key``; its former size in bytes, or `None` when there was none."""

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Each key that starts with ``prefix``, with its size in bytes, in no particular order."""

    def close(self) -> None:
        """Release the handle's resources. Idempotent."""


@runtime_checkable
class SparkReadable(Protocol):
    """A Blob store whose objects Spark can open by path."""

    def spark_path(self, key: str) -> str:
        """The path or URL under which Spark reads (or writes) the object, or the prefix, ``key``."""


@runtime_checkable
class RangeReadable(Protocol):
    """A Blob store that can read part of an object."""

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Up to ``length`` bytes from ``offset``; `None` when there is no such key."""


@runtime_checkable
class Adoptable(Protocol):
    """A Blob store into which others (Spark) write objects by path, without durability."""

    def make_durable(self, keys: Sequence[str]) -> None:
        """Make objects written by path as durable as `Blob.set` would have."""


@runtime_checkable
class ManyDeletable(Protocol):
    """A Blob store that removes many objects with few requests."""

    def delete_many(self, keys: Sequence[str]) -> None:
        """Remove all existing keys; missing ones are no error. After an error some may be removed: repeat the call."""


class Unfinished(NamedTuple):
    """An upload that was started and neither completed nor aborted: ``size`` bytes that no listing shows and that cost
    storage.

    ``key`` is the object that it was for, empty where the store does not know it; ``upload`` identifies it for
    `abort_unfinished`.
    """

    key: str
    upload: str
    started_ms: int
    size: int


@runtime_checkable
class UploadSweepable(Protocol):
    """A Blob store in which killed writers leave unfinished uploads (temporary files, multipart uploads)."""

    def list_unfinished(self) -> Iterator[Unfinished]:
        """Every running or abandoned upload, in no particular order."""

    def abort_unfinished(self, unfinished: Unfinished) -> None:
        """Abort one upload and free its bytes; one that does not exist any more is no error."""


@runtime_checkable
class Consensus(Protocol):
    """For each key a linearizable log of ``Versioned``; sequence numbers are contiguous and start at 0.

    A key's newest entry is never removed, so a key that was written once can never start from 0 again.
    """

    def head(self, key: str) -> Versioned | None:
        """A recent newest entry, or `None` when the key has none."""

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        """Append ``new`` iff the newest entry's seqno is ``expected`` (`None`: iff there is no entry).

        Raises:
            UsageError: ``new.seqno`` is not ``expected + 1`` (0 for `None`), or is out of range.
        """

    def scan(self, key: str, from_seqno: int, limit: int) -> list[Versioned]:
        """At most ``limit`` entries with ``seqno >= from_seqno``, ascending; empty when there are none."""

    def truncate(self, key: str, seqno: int) -> int:
        """Remove the entries below ``seqno``; how many were removed.

        Raises:
            UsageError: the key has no entry, or ``seqno`` is beyond the newest one.
        """

    def list_keys(self) -> Iterator[str]:
        """Every key that has an entry."""

    def close(self) -> None:
        """Release the handle's resources. Idempotent."""


@runtime_checkable
class ManyScannable(Protocol):
    """A Consensus that reads the logs of many keys with few requests."""

    def scan_many(self, starts: Mapping[str, int], limit: int) -> dict[str, list[Versioned]]:
        """For each key, what `Consensus.scan` with ``limit`` gives from the seqno that ``starts`` maps it to; keys without such entries
        may be left out. Each log is as of some moment of the call, not all of the same.
        """


@runtime_checkable
class ConsensusWait(Protocol):
    """A Consensus whose followers need not poll."""

    def wait(self, key: str, after_seqno: int, timeout: float) -> bool:
        """Block until ``key`` has an entry beyond ``after_seqno``, or ``timeout`` seconds have passed.

        Returns:
            Whether there is such an entry. May wake early and say `False`.
        """


@runtime_checkable
class TimestampOracle(Protocol):
    """The read and the write timestamp of one timeline, linearizable across processes.

    Invariants: ``read_ts <= write_ts``; every allocated timestamp is above every read timestamp returned before it.
    """

    def write_ts(self) -> int:
        """Allocate a timestamp: above all those allocated or read before, and not below the clock."""

    def peek_write_ts(self) -> int:
        """The most recently allocated write timestamp; allocates nothing."""

    def read_ts(self) -> int:
        """The read timestamp: at or above every applied write, below every write allocated later."""

    def apply_write(self, ts: int) -> None:
        """Mark the write at ``ts`` complete: both timestamps become at least ``ts``."""

    def close(self) -> None:
        """Release what the handle holds. Idempotent."""


@runtime_checkable
class Clocked(Protocol):
    """A timestamp oracle whose backend has a clock: the server's, or the machine's that all who can open it share.

    It tells a machine whose own clock is fast before it allocates a timestamp that is far ahead.
    """

    def clock_ms(self) -> int:
        """The backend's clock, asked for now: milliseconds since the epoch."""
