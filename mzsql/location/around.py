"""Wrapping a backend's operations, to measure them, inject faults or schedule them.

Promise: `blob_around` and `consensus_around` have exactly the optional abilities of the wrapped backend, so code that
tests for an optional protocol with `isinstance` behaves the same with and without the wrapper. Each operation of the
inner backend happens inside one call of ``around(operation, act)``, whose result is the operation's; a listing happens
in one call per page.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from mzsql.location.abilities import Abilities, class_as_able
from mzsql.location.protocols import (
    Adoptable,
    Blob,
    Consensus,
    ConsensusWait,
    ManyDeletable,
    ManyScannable,
    RangeReadable,
    SparkReadable,
    Unfinished,
    UploadSweepable,
    Versioned,
)

T = TypeVar("T")

PAGE_KEYS = 1000
"""So many keys of a listing are one operation, as in an object store's pages."""


class Around(Protocol):
    """Wraps an operation."""

    def __call__(self, operation: str, act: Callable[[], T], /) -> T:
        """Return ``act()``, or raise an error of its own; ``operation`` is the method's name."""


Wrote = Callable[[str, int], None]
"""Called with the operation and the number of bytes that it wrote, after it succeeded."""


def _nobody(operation: str, size: int, /) -> None:
    """Ignore the bytes written."""


class _Wrapper:
    def __init__(self, inner: Any, around: Around, wrote: Wrote) -> None:
        self.inner = inner
        self._around = around
        self._wrote = wrote

    def _pages(self, operation: str, begin: Callable[[], Iterator[T]]) -> Iterator[T]:
        found = self._around(operation, begin)
        while page := self._around(operation, lambda: list(itertools.islice(found, PAGE_KEYS))):
            yield from page
            if len(page) < PAGE_KEYS:
                return

    def close(self) -> None:
        """Close the wrapped backend."""
        self.inner.close()


class _Blob(_Wrapper):
    inner: Blob

    def get(self, key: str) -> bytes | None:
        """As `Blob.get`."""
        return self._around("get", lambda: self.inner.get(key))

    def set(self, key: str, value: bytes) -> None:
        """As `Blob.set`."""
        self._around("set", lambda: self.inner.set(key, value))
        self._wrote("set", len(value))

    def delete(self, key: str) -> int | None:
        """As `Blob.delete`."""
        return self._around("delete", lambda: self.inner.delete(key))

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """As `Blob.list_keys_and_metadata`."""
        return self._pages(
            "list_keys_and_metadata", lambda: iter(self.inner.list_keys_and_metadata(prefix))
        )


class _Ranges(_Wrapper):
    inner: RangeReadable

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """As `RangeReadable.get_range`."""
        return self._around("get_range", lambda: self.inner.get_range(key, offset, length))


class _Paths(_Wrapper):
    inner: SparkReadable

    def spark_path(self, key: str) -> str:
        """As `SparkReadable.spark_path`; not wrapped, since it does no IO."""
        return self.inner.spark_path(key)


class _Adopts(_Wrapper):
    inner: Adoptable

    def make_durable(self, keys: Sequence[str]) -> None:
        """As `Adoptable.make_durable`."""
        self._around("make_durable", lambda: self.inner.make_durable(keys))


class _DeletesMany(_Wrapper):
    inner: ManyDeletable

    def delete_many(self, keys: Sequence[str]) -> None:
        """As `ManyDeletable.delete_many`."""
        self._around("delete_many", lambda: self.inner.delete_many(keys))


class _Sweeps(_Wrapper):
    inner: UploadSweepable

    def list_unfinished(self) -> Iterator[Unfinished]:
        """As `UploadSweepable.list_unfinished`."""
        return self._pages("list_unfinished", lambda: iter(self.inner.list_unfinished()))

    def abort_unfinished(self, unfinished: Unfinished) -> None:
        """As `UploadSweepable.abort_unfinished`."""
        self._around("abort_unfinished", lambda: self.inner.abort_unfinished(unfinished))


class _Consensus(_Wrapper):
    inner: Consensus

    def head(self, key: str) -> Versioned | None:
        """As `Consensus.head`."""
        return self._around("head", lambda: self.inner.head(key))

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        """As `Consensus.compare_and_set`."""
        done = self._around(
            "compare_and_set", lambda: self.inner.compare_and_set(key, expected, new)
        )
        if done:
            self._wrote("compare_and_set", len(new.data))
        return done

    def scan(self, key: str, from_seqno: int, limit: int) -> list[Versioned]:
        """As `Consensus.scan`."""
        return self._around("scan", lambda: self.inner.scan(key, from_seqno, limit))

    def truncate(self, key: str, seqno: int) -> int:
        """As `Consensus.truncate`."""
        return self._around("truncate", lambda: self.inner.truncate(key, seqno))

    def list_keys(self) -> Iterator[str]:
        """As `Consensus.list_keys`."""
        return self._pages("list_keys", lambda: iter(self.inner.list_keys()))


class _ScansMany(_Wrapper):
    inner: ManyScannable

    def scan_many(self, starts: Mapping[str, int], limit: int) -> dict[str, list[Versioned]]:
        """As `ManyScannable.scan_many`."""
        return self._around("scan_many", lambda: self.inner.scan_many(starts, limit))


class _Waits(_Wrapper):
    inner: ConsensusWait

    def wait(self, key: str, after_seqno: int, timeout: float) -> bool:
        """As `ConsensusWait.wait`."""
        return self._around("wait", lambda: self.inner.wait(key, after_seqno, timeout))


_BLOB_ABILITIES: Abilities = (
    (RangeReadable, _Ranges),
    (SparkReadable, _Paths),
    (Adoptable, _Adopts),
    (ManyDeletable, _DeletesMany),
    (UploadSweepable, _Sweeps),
)
_CONSENSUS_ABILITIES: Abilities = ((ConsensusWait, _Waits), (ManyScannable, _ScansMany))


def blob_around(inner: Blob, around: Around, wrote: Wrote = _nobody) -> Blob:
    """``inner`` with ``around`` about each operation, and the same optional abilities; ``wrote`` is called with the
    bytes written.
    """
    return class_as_able(inner, _Blob, _BLOB_ABILITIES)(inner, around, wrote)


def consensus_around(inner: Consensus, around: Around, wrote: Wrote = _nobody) -> Consensus:
    """``inner`` with ``around`` about each operation, and the same optional abilities; ``wrote`` is called with the
    bytes written.
    """
    return class_as_able(inner, _Consensus, _CONSENSUS_ABILITIES)(inner, around, wrote)
