"""Part of a store seen as a whole one: keys below a prefix, so that the kit may run on a bucket or a database that is in use.

Promise: nothing outside the prefix is read, written or listed, and the view has every optional ability of the backend behind it and no
other. Keys reach the backend with the prefix before them, so what it refuses of a key it still refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mzsql.location import (
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
from mzsql.location.abilities import Abilities, class_as_able


class _View:
    def __init__(self, inner: Any, prefix: str) -> None:
        self.inner = inner
        self.prefix = prefix

    def close(self) -> None:
        """Close the backend behind."""
        self.inner.close()


class _Blob(_View):
    inner: Blob

    def get(self, key: str) -> bytes | None:
        """As `Blob.get`."""
        return self.inner.get(self.prefix + key)

    def set(self, key: str, value: bytes) -> None:
        """As `Blob.set`."""
        self.inner.set(self.prefix + key, value)

    def delete(self, key: str) -> int | None:
        """As `Blob.delete`."""
        return self.inner.delete(self.prefix + key)

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """As `Blob.list_keys_and_metadata`; a key outside the prefix, which the backend should not have listed, is shown as it is."""
        for key, size in self.inner.list_keys_and_metadata(self.prefix + prefix):
            yield key.removeprefix(self.prefix), size


class _Ranges(_View):
    inner: RangeReadable

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """As `RangeReadable.get_range`."""
        return self.inner.get_range(self.prefix + key, offset, length)


class _Paths(_View):
    inner: SparkReadable

    def spark_path(self, key: str) -> str:
        """As `SparkReadable.spark_path`."""
        return self.inner.spark_path(self.prefix + key)


class _Adopts(_View):
    inner: Adoptable

    def make_durable(self, keys: Sequence[str]) -> None:
        """As `Adoptable.make_durable`."""
        self.inner.make_durable([self.prefix + key for key in keys])


class _DeletesMany(_View):
    inner: ManyDeletable

    def delete_many(self, keys: Sequence[str]) -> None:
        """As `ManyDeletable.delete_many`."""
        self.inner.delete_many([self.prefix + key for key in keys])


class _Sweeps(_View):
    inner: UploadSweepable

    def list_unfinished(self) -> Iterator[Unfinished]:
        """As `UploadSweepable.list_unfinished`; of the prefix, or of keys the store does not know."""
        for one in self.inner.list_unfinished():
            if one.key == "" or one.key.startswith(self.prefix):
                yield one._replace(key=one.key.removeprefix(self.prefix))

    def abort_unfinished(self, unfinished: Unfinished) -> None:
        """As `UploadSweepable.abort_unfinished`."""
        key = self.prefix + unfinished.key if unfinished.key else ""
        self.inner.abort_unfinished(unfinished._replace(key=key))


class _Consensus(_View):
    inner: Consensus

    def head(self, key: str) -> Versioned | None:
        """As `Consensus.head`."""
        return self.inner.head(self.prefix + key)

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        """As `Consensus.compare_and_set`."""
        return self.inner.compare_and_set(self.prefix + key, expected, new)

    def scan(self, key: str, from_seqno: int, limit: int) -> list[Versioned]:
        """As `Consensus.scan`."""
        return self.inner.scan(self.prefix + key, from_seqno, limit)

    def truncate(self, key: str, seqno: int) -> int:
        """As `Consensus.truncate`."""
        return self.inner.truncate(self.prefix + key, seqno)

    def list_keys(self) -> Iterator[str]:
        """As `Consensus.list_keys`."""
        for key in self.inner.list_keys():
            if key.startswith(self.prefix):
                yield key.removeprefix(self.prefix)


class _ScansMany(_View):
    inner: ManyScannable

    def scan_many(self, starts: Mapping[str, int], limit: int) -> dict[str, list[Versioned]]:
        """As `ManyScannable.scan_many`."""
        asked = {self.prefix + key: start for key, start in starts.items()}
        found = self.inner.scan_many(asked, limit)
        return {key.removeprefix(self.prefix): log for key, log in found.items()}


class _Waits(_View):
    inner: ConsensusWait

    def wait(self, key: str, after_seqno: int, timeout: float) -> bool:
        """As `ConsensusWait.wait`."""
        return self.inner.wait(self.prefix + key, after_seqno, timeout)


_BLOB_ABILITIES: Abilities = (
    (RangeReadable, _Ranges),
    (SparkReadable, _Paths),
    (Adoptable, _Adopts),
    (ManyDeletable, _DeletesMany),
    (UploadSweepable, _Sweeps),
)
_CONSENSUS_ABILITIES: Abilities = ((ConsensusWait, _Waits), (ManyScannable, _ScansMany))


def prefixed_blob(inner: Blob, prefix: str) -> Blob:
    """The objects of ``inner`` whose keys start with ``prefix``, under the rest of their keys; ``inner`` itself for an empty one."""
    return class_as_able(inner, _Blob, _BLOB_ABILITIES)(inner, prefix) if prefix else inner


def prefixed_consensus(inner: Consensus, prefix: str) -> Consensus:
    """The logs of ``inner`` whose keys start with ``prefix``, under the rest of their keys; ``inner`` itself for an empty one."""
    if not prefix:
        return inner
    return class_as_able(inner, _Consensus, _CONSENSUS_ABILITIES)(inner, prefix)
