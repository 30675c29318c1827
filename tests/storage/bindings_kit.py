"""A source in memory, instances that crash at any backend operation, and a plain model of bindings."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa

from mzsql.location import Determinate, Indeterminate
from mzsql.location.around import blob_around, consensus_around
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, Settings
from mzsql.storage import BindingMinter, SourceWriter

T = TypeVar("T")

SCHEMA = pa.schema([("partition", pa.string()), ("offset", pa.int64()), ("payload", pa.string())])


class Clock:
    """Time that passes where somebody waits, or is told to."""

    def __init__(self) -> None:
        self.ms = 1_000.0

    def now_ms(self) -> int:
        return int(self.ms)

    def monotonic(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += seconds * 1000


class Crash(BaseException):
    """The process is no more."""


class Perils:
    """What befalls the backend operations of one process: faults at a rate, its end before or after some operation, others' acts."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.rate = 0.0
        self.left: int | None = None
        self.dead = False
        #: what others do before some operation, and how many come before that one
        self.meanwhile: Callable[[], object] | None = None
        self.spared = 0

    def __call__(self, operation: str, act: Callable[[], T], /) -> T:
        if self.dead:
            raise Crash
        if self.meanwhile is not None:
            self.spared -= 1
            if self.spared < 0:
                others_act, self.meanwhile = self.meanwhile, None
                others_act()
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.dead = True
                if self._rng.random() < 0.5:
                    act()
                raise Crash
        if self._rng.random() >= self.rate:
            return act()
        how = self._rng.choice(["refused", "not done", "done"])
        if how == "refused":
            raise Determinate(f"injected: {operation} was refused")
        if how == "done":
            act()
        raise Indeterminate(f"injected: {operation} timed out")


class MemorySource:
    """Partitions as lists; the offset is the place, less those that were compacted away as Kafka does."""

    def __init__(self) -> None:
        self.messages: dict[str, dict[int, str]] = {}
        self.next: dict[str, int] = {}
        self.meanwhile: Callable[[], object] | None = None

    def produce(self, partition: str, count: int, gap: int = 0) -> None:
        first = self.next.get(partition, 0) + gap
        for offset in range(first, first + count):
            self.messages.setdefault(partition, {})[offset] = f"{partition}/{offset}"
        self.next[partition] = first + count

    def high_watermarks(self) -> Mapping[str, int]:
        return {partition: offset - 1 for partition, offset in self.next.items()}

    def table(self, rows: list[tuple[str, int, str]]) -> pa.Table:
        columns = list(zip(*rows, strict=True)) if rows else [[], [], []]
        return pa.table(
            [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )

    def read(self, ranges: Mapping[str, tuple[int, int]]) -> pa.RecordBatchReader:
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        rows = [
            (partition, offset, payload)
            for partition, (first, last) in ranges.items()
            for offset, payload in self.messages[partition].items()
            if first <= offset <= last
        ]
        return pa.RecordBatchReader.from_batches(SCHEMA, self.table(rows).to_batches(3))


class Instance:
    """One process: a minter and a writer, each of which may be there."""

    def __init__(self, site: Site, *, asks: bool, skew: int = 0) -> None:
        self.site = site
        self.perils = Perils(random.Random(site.rng.random()))
        self.persist = PersistClient(
            blob_around(site.blob, self.perils),
            consensus_around(site.consensus, self.perils),
            clock=site.clock,
            rng=random.Random(site.rng.random()),
            settings=site.settings,
            background=False,
        )
        self.minter = BindingMinter(
            self.persist, site.bindings, now=lambda: max(0, site.clock.now_ms() + skew)
        )
        self.writer = SourceWriter(
            self.persist,
            site.source,
            bindings=site.bindings,
            shard_id=site.data,
            schema=SCHEMA,
            minter=self.minter if asks else None,
        )


class Site:
    """The stores, the source, and an auditor that follows the bindings as they are minted."""

    def __init__(self, seed: int = 1, **settings: object) -> None:
        self.rng = random.Random(seed)
        self.blob, self.consensus, self.clock = MemBlob(), MemConsensus(), Clock()
        self.source = MemorySource()
        self.settings = Settings(timeout=0.05, rollup_interval=16, **settings)  # type: ignore[arg-type]
        self.persist = PersistClient(
            self.blob,
            self.consensus,
            clock=self.clock,
            rng=random.Random(seed + 1),
            settings=Settings(reader_lease_ms=10**12),  # the auditor never loses its place
            background=False,
        )
        self.bindings, self.data = self.persist.new_shard_id(), self.persist.new_shard_id()
        self._reader = self.persist.open_reader(
            self.bindings, pa.schema([("partition", pa.string()), ("offset", pa.int64())])
        )
        self._seen = 0
        #: per partition its bindings (offset, ts), as they were minted
        self.model: dict[str, list[tuple[int, int]]] = {}

    def audit(self) -> int:
        """Take new bindings into the model and let their history go; the bindings' upper."""
        upper = self._reader.fetch_upper()
        assert upper is not None
        if upper > self._seen:
            rows = self._reader.updates(self._seen, upper)
            found = sorted(
                (row["mz_time"], row["mz_diff"], row["partition"], row["offset"])
                for row in rows.to_pylist()
            )
            for ts, diff, partition, offset in found:
                minted = self.model.setdefault(partition, [])
                if diff > 0:
                    assert not minted or minted[-1][0] < offset, "a binding covers what was bound"
                    assert not minted or minted[-1][1] < ts
                    minted.append((offset, ts))
            self._seen = upper
            self._reader.downgrade_since(upper - 1)
        return upper

    def time_of(self, partition: str, offset: int) -> int | None:
        """By the seed's words: the lowest binding that covers the source timestamp."""
        covering = [b for b in self.model.get(partition, []) if b[0] >= offset]
        return min(covering)[1] if covering else None

    def check_data(self) -> int:
        """All of the data shard against the model; how many messages it holds."""
        reader = self.persist.open_reader(self.data, SCHEMA)
        upper = reader.fetch_upper()
        assert upper is not None
        rows = reader.updates(0, upper).to_pylist()
        reader.expire()
        found = sorted(
            (r["partition"], r["offset"], r["payload"], r["mz_time"], r["mz_diff"]) for r in rows
        )
        expected = sorted(
            (partition, offset, payload, ts, 1)
            for partition, messages in self.source.messages.items()
            for offset, payload in messages.items()
            if (ts := self.time_of(partition, offset)) is not None and ts < upper
        )
        assert found == expected
        return len(found)
