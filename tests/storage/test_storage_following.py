"""Following collections: what others write is known here without being asked for, and quiet costs one wait."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from mzsql.location import Determinate, consensus_around, open_blob, open_consensus
from mzsql.persist import PersistClient, Settings
from mzsql.repr.errors import UndefinedTable
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import INTEGER, ColumnType
from mzsql.storage import Collection, Collections, Tables, WriteAheadLog

T = TypeVar("T")
VIEW = GlobalId("u7")
WAIT = 30.0


class Site:
    """Two processes' worth of clients on one store; what the first one asks of Consensus is counted."""

    def __init__(self, path: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.failing = False
        self.blob = open_blob(f"file:{path}/blob")
        url = f"sqlite:{path}/consensus.db"
        self.stores = [consensus_around(open_consensus(url), self._counted), open_consensus(url)]
        # A store that fails is asked again for as long as an operation may take.
        settings = Settings(timeout=2.0)
        here, self.there = (
            PersistClient(self.blob, store, settings=settings) for store in self.stores
        )
        self.shard = here.new_shard_id()
        log = WriteAheadLog(here, here.new_shard_id())
        self.collections = Collections(here, Tables(here, log))
        self.view = Collection(
            id=VIEW, name="v", shard=self.shard, columns=(ColumnType(INTEGER),), kind="shard"
        )
        self.writer, _ = self.there.open_shard(self.shard, self.view.schema)
        self.write(1)
        self.collections.register(self.view)
        self.clients = (here, self.there)

    def _counted(self, operation: str, act: Callable[[], T]) -> T:
        self.counts[operation] += 1
        if self.failing:
            raise Determinate("the store is away")
        return act()

    def write(self, upper: int) -> None:
        rows = pa.table({"c0": [upper], "mz_time": [upper - 1], "mz_diff": [1]})
        columns = pa.schema(self.view.schema)
        rows = rows.cast(
            pa.schema([*columns, pa.field("mz_time", pa.int64()), pa.field("mz_diff", pa.int64())])
        )
        self.writer.compare_and_append(rows, expected_upper=upper - 1, new_upper=upper)

    def close(self) -> None:
        self.failing = False
        self.collections.close()
        for client in self.clients:
            client.close()
        for store in self.stores:
            store.close()
        self.collections.join(WAIT)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()
    assert not [one for one in threading.enumerate() if one.name == f"mzsql-follow-{VIEW}"]


def until(told: threading.Semaphore, holds: Callable[[], Any]) -> None:
    while not holds():
        assert told.acquire(timeout=WAIT)


def test_what_another_process_writes_is_known_without_asking(site: Site) -> None:
    told = threading.Semaphore(0)
    collections = site.collections
    end = collections.watch(told.release)
    unfollow = collections.followers.follow(VIEW)
    until(told, lambda: collections.followers.told(VIEW))
    assert collections.seen_upper(VIEW) == 1
    for upper in (2, 3, 4):
        site.write(upper)
        until(told, lambda upper=upper: collections.known_upper(VIEW) == upper)
    site.counts.clear()
    for _ in range(100):
        assert collections.seen_upper(VIEW) == 4
    assert set(site.counts) <= {"wait"}
    unfollow()
    unfollow()
    end()


def test_a_store_that_fails_is_asked_again_and_then_trusted_again(site: Site) -> None:
    told = threading.Semaphore(0)
    end = site.collections.watch(told.release)
    site.collections.followers.follow(VIEW)
    until(told, lambda: site.collections.followers.told(VIEW))
    site.failing = True
    site.write(2)
    while site.collections.followers.told(VIEW):
        threading.Event().wait(0.01)
    site.failing = False
    until(told, lambda: site.collections.known_upper(VIEW) == 2)
    end()


def test_what_was_dropped_is_followed_no_more(site: Site) -> None:
    told = threading.Semaphore(0)
    end = site.collections.watch(told.release)
    site.collections.followers.follow(VIEW)
    until(told, lambda: site.collections.followers.told(VIEW))
    site.collections.forget(VIEW)
    until(told, lambda: not site.collections.followers.told(VIEW))
    with pytest.raises(UndefinedTable, match='"v" was dropped'):
        site.collections.seen_upper(VIEW)
    end()
