"""Backends wrapped by `blob_around` and `consensus_around`: same abilities, same contracts, every operation seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from mzsql.location import (
    Adoptable,
    Blob,
    Consensus,
    ConsensusWait,
    Determinate,
    ManyScannable,
    RangeReadable,
    SparkReadable,
    Versioned,
    blob_around,
    consensus_around,
    open_blob,
    open_consensus,
)
from mzsql.location.around import PAGE_KEYS
from mzsql.location.file import FileBlob
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.location.sqlite import SqliteConsensus
from mzsql.testing import BlobContract, ConsensusContract

T = TypeVar("T")


class Seen:
    def __init__(self) -> None:
        self.operations: list[str] = []

    def __call__(self, operation: str, act: Callable[[], T], /) -> T:
        self.operations.append(operation)
        return act()


class OnOneStore:
    """Handles of one process on one store in memory for each test: what the wrapper does wrong shows there as anywhere."""

    processes = False

    @pytest.fixture(autouse=True)
    def _on_one_store(self) -> None:
        self.blob, self.consensus = MemBlob(), MemConsensus()


class TestMemBlobAround(OnOneStore, BlobContract):
    def open_blob(self, place: object) -> Blob:  # noqa: ARG002 - there is one
        return blob_around(self.blob, Seen())


class TestMemConsensusAround(OnOneStore, ConsensusContract):
    def open_consensus(self, place: object) -> Consensus:  # noqa: ARG002 - there is one
        return consensus_around(self.consensus, Seen())


@pytest.mark.parametrize(
    "case", ["ranges", "delete_many", "unfinished_uploads", "paths_for_spark", "adoption"]
)
def test_every_ability_of_files_passes_through(case: str, tmp_path: Path) -> None:
    getattr(TestFileBlobAround(), f"test_{case}")(tmp_path)


@pytest.mark.long
class TestFileBlobAround(BlobContract):
    def open_blob(self, place: object) -> Blob:
        return blob_around(open_blob(f"file:{place}/blob"), Seen())


@pytest.mark.long
class TestSqliteConsensusAround(ConsensusContract):
    def open_consensus(self, place: object) -> Consensus:
        return consensus_around(open_consensus(f"sqlite:{place}/one.db"), Seen())


def test_a_wrapper_has_the_abilities_of_what_it_wraps(tmp_path: Path) -> None:
    file, memory = blob_around(FileBlob(tmp_path), Seen()), blob_around(MemBlob(), Seen())
    for wrapped, inner in ((file, FileBlob(tmp_path)), (memory, MemBlob())):
        for ability in (Adoptable, RangeReadable, SparkReadable):
            assert isinstance(wrapped, ability) == isinstance(inner, ability)
    assert isinstance(file, SparkReadable)
    assert not isinstance(memory, SparkReadable)
    consensus = consensus_around(SqliteConsensus(tmp_path / "c.db"), Seen())
    assert isinstance(consensus, ConsensusWait)
    assert isinstance(consensus, ManyScannable)


def test_every_operation_passes_through(tmp_path: Path) -> None:
    seen = Seen()
    blob = blob_around(FileBlob(tmp_path), seen)
    blob.set("a/b", b"x")
    blob.get("a/b")
    assert isinstance(blob, RangeReadable)
    blob.get_range("a/b", 0, 1)
    blob.delete("a/b")
    consensus = consensus_around(MemConsensus(), seen)
    consensus.compare_and_set("k", None, Versioned(0, b""))
    consensus.head("k")
    consensus.scan("k", 0, 1)
    consensus.truncate("k", 0)
    assert seen.operations == [
        *("set", "get", "get_range", "delete"),
        *("compare_and_set", "head", "scan", "truncate"),
    ]


def test_a_listing_is_one_act_for_each_page() -> None:
    seen, inner = Seen(), MemBlob()
    keys = {f"k{number}" for number in range(2 * PAGE_KEYS + 1)}
    for key in keys:
        inner.set(key, b"")
    assert {key for key, _ in blob_around(inner, seen).list_keys_and_metadata("k")} == keys
    assert seen.operations == ["list_keys_and_metadata"] * 4  # begun, and three pages


def test_an_error_around_an_operation_is_the_operations() -> None:
    def refuse(operation: str, _act: Callable[[], T], /) -> T:
        raise Determinate(f"no {operation}")

    with pytest.raises(Determinate, match="no get"):
        blob_around(MemBlob(), refuse).get("a")
