"""Who is compared: oracles as an environment opens them, and callers who each send the design's statements through a pool.

Each says how many queries its backend was asked, so that queries an operation can be told.
"""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
from mzsql_postgres import read_options
from mzsql_postgres.dialects import Postgres
from prometheus_client import CollectorRegistry
from psycopg_pool import ConnectionPool
from servers import Bare

from mzsql.location import open_consensus
from mzsql.oracle import (
    InMemoryOracle,
    Ledger,
    OracleMetrics,
    Serving,
    open_oracle,
    wall_clock_ms,
)


class Contender(Protocol):
    """One way to get timestamps."""

    def read(self) -> object:
        """What a read does before it may return its result."""

    def write(self) -> object:
        """What a commit does: allocate, then apply."""

    def queries(self) -> float:
        """How many its backend was asked so far."""

    def close(self) -> None:
        """Give everything up."""


def _queries(registry: CollectorRegistry) -> float:
    names = ("mz_ts_oracle_queries_succeeded_total", "mz_ts_oracle_queries_failed_total")
    return sum(
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name in names
    )


class Distributed:
    """The distributed oracle at a URL, with batching, skew guard and metrics."""

    def __init__(self, url: str) -> None:
        self._registry = CollectorRegistry()
        metrics = OracleMetrics(self._registry)
        self._oracle = open_oracle(url, f"bench-{uuid.uuid4()}", wall_clock_ms, metrics=metrics)
        self.read = self._oracle.read_ts

    def write(self) -> None:
        self._oracle.apply_write(self._oracle.write_ts())

    def queries(self) -> float:
        return _queries(self._registry)

    def close(self) -> None:
        self._oracle.close()


class InMemory:
    """Timestamps from memory, with leadership confirmed before a read's result would be returned."""

    def __init__(self, consensus_url: str) -> None:
        self._registry = CollectorRegistry()
        self._consensus = open_consensus(consensus_url)
        timeline = f"bench-{uuid.uuid4()}"
        ledger = Ledger(self._consensus, timeline, OracleMetrics(self._registry))
        self._oracle = InMemoryOracle(timeline, ledger, wall_clock_ms, "bench", serving=Serving())

    def read(self) -> int:
        ts = self._oracle.read_ts()
        self._oracle.confirm_leadership()
        return ts

    def write(self) -> None:
        self._oracle.apply_write(self._oracle.write_ts())

    def queries(self) -> float:
        return _queries(self._registry)

    def close(self) -> None:
        self._oracle.close()
        self._consensus.close()


class Queue:
    """Every caller for itself: the design's statements by psycopg, on a connection out of a queue of as many as the plugin's pool has.

    Connections are set up as the plugin's are, statements prepared. Nobody waits in line: few callers get nearly all there is, which costs
    few changes of threads, and the others starve.
    """

    def __init__(self, url: str) -> None:
        size = read_options(urlsplit(url)).limits.pool_max_size
        self._all = [Bare(url) for _ in range(size)]
        first = self._all[0]
        self._timeline = f"bench-{uuid.uuid4()}"
        first.execute(first.text("INSERT INTO {oracle} VALUES (%s, 0, 0)"), (self._timeline,))
        self._read = first.text("SELECT read_ts FROM {oracle} WHERE timeline = %s")
        self._allocate = first.text(
            "UPDATE {oracle} SET write_ts = GREATEST(write_ts + 1, %s) WHERE timeline = %s RETURNING write_ts"
        )
        self._apply = first.text(
            "UPDATE {oracle} SET write_ts = GREATEST(write_ts, %s), read_ts = GREATEST(read_ts, %s) WHERE timeline = %s"
        )
        self._free: queue.SimpleQueue[Bare] = queue.SimpleQueue()
        for one in self._all:
            self._free.put(one)

    def _lend(self, act: Callable[[Bare], object]) -> object:
        bare = self._free.get()
        try:
            return act(bare)
        finally:
            self._free.put(bare)

    def read(self) -> object:
        return self._lend(lambda bare: bare.execute(self._read, (self._timeline,)).fetchone())

    def write(self) -> object:
        def act(bare: Bare) -> object:
            now = wall_clock_ms()
            row = bare.execute(self._allocate, (now, self._timeline)).fetchone()
            assert row is not None
            return row[0]

        ts = self._lend(act)
        return self._lend(lambda bare: bare.execute(self._apply, (ts, ts, self._timeline)))

    def queries(self) -> float:
        return float("nan")

    def close(self) -> None:
        for bare in self._all:
            bare.close()


class Pool(Queue):
    """As `Queue`, with `psycopg_pool`, its connections set up alike: each waits its turn."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        options = read_options(urlsplit(url))

        class AsThePlugins(psycopg.Connection[Any]):
            @classmethod
            def connect(cls, *_: Any, **__: Any) -> Any:
                return options.connect(30)

        def configure(connection: psycopg.Connection[Any]) -> None:
            connection.execute(Postgres().settings(options.limits), prepare=False)
            connection.prepare_threshold = 0

        size = len(self._all)
        self._pool = ConnectionPool(
            connection_class=AsThePlugins,
            configure=configure,
            min_size=size,
            max_size=size,
            timeout=600,
            open=True,
        )
        self._pool.wait()

    def _lend(self, act: Callable[[Any], object]) -> object:
        with self._pool.connection() as connection:
            return act(connection)

    def close(self) -> None:
        self._pool.close()
        super().close()


POSTGRES, SQLITE = "distributed, PostgreSQL", "distributed, SQLite"
MEMORY_POSTGRES, MEMORY_SQLITE = "in-memory, PostgreSQL", "in-memory, SQLite"
POOL, QUEUE = "psycopg_pool", "queue of psycopg"


def contenders(postgres_url: str, folder: Path) -> dict[str, Callable[[], Contender]]:
    """Each by name, to be opened."""
    return {
        POSTGRES: lambda: Distributed(postgres_url),
        POOL: lambda: Pool(postgres_url),
        QUEUE: lambda: Queue(postgres_url),
        SQLITE: lambda: Distributed(f"sqlite:{folder}/oracle.db"),
        MEMORY_POSTGRES: lambda: InMemory(postgres_url),
        MEMORY_SQLITE: lambda: InMemory(f"sqlite:{folder}/consensus.db"),
    }
