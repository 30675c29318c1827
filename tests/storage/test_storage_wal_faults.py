"""The write-ahead log when backends fail, processes stop half way, and tables come and go; and what a commit costs."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from mzsql.location import LocationError
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, Settings, UpperMismatch
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import INTEGER, ColumnType
from mzsql.storage import Collection, Collections, Tables, WriteAheadLog, as_updates, unapplied_keys
from mzsql.storage.wal import REGISTER, WRITE, WalEntry, WalState, advance
from mzsql.testing import Faults, FaultyBlob, FaultyConsensus

COLUMNS = (ColumnType(INTEGER),)
ALL_IN_BLOB = Settings(inline_bytes=0)


class Clock:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.ms = 1_000_000.0

    def now_ms(self) -> int:
        return int(self.ms)

    def monotonic(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += seconds * 1000


class Process:
    """One process on shared stores, which may fail for it."""

    def __init__(
        self, site: Site, *, faults: Faults | None = None, settings: Settings | None = None
    ) -> None:
        faults = faults or Faults(0, 0.0)
        self.site = site
        self.persist = PersistClient(
            FaultyBlob(site.blob, faults),
            FaultyConsensus(site.consensus, faults),
            clock=site.clock,
            rng=random.Random(site.rng.random()),
            settings=settings,
            background=False,
        )
        self.wal = WriteAheadLog(self.persist, site.log, clock=site.clock)
        self.collections = Collections(self.persist, Tables(self.persist, self.wal))
        for name, shard in site.tables.items():
            self.collections.register(Collection(GlobalId(name), name, shard, COLUMNS))

    def write(self, ts: int, value: int, *tables: str) -> None:
        rows = as_updates(pa.table({"c0": pa.array([value], pa.int32())}))
        shards = self.site.tables
        batches = {
            shards[name]: self.collections.table(GlobalId(name)).batch(rows) for name in tables
        }
        self.wal.commit(ts, batches, expected=self.wal.follow(), register=batches)

    def read(self, name: str, as_of: int) -> Counter[int]:
        found = self.collections.snapshot(GlobalId(name), as_of)
        counts: Counter[int] = Counter()
        for value, diff in zip(found["c0"].to_pylist(), found["mz_diff"].to_pylist(), strict=True):
            counts[value] += diff
        return counts


class Site:
    """The stores of one environment."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.blob, self.consensus, self.clock = MemBlob(), MemConsensus(), Clock()
        new = PersistClient(self.blob, self.consensus, background=False).new_shard_id
        self.log = new()
        self.tables = {"u1": new(), "u2": new()}

    def objects(self) -> set[str]:
        return {key for key, _ in self.blob.list_keys_and_metadata("")}


def test_a_commit_costs_hardly_more_than_one_write_in_consensus() -> None:
    site = Site()
    one = Process(site)
    one.write(10, 0, "u1")
    before = one.persist.inspect(site.log).seqno
    commits = 160
    for ts in range(11, 11 + commits):
        one.write(ts, ts, "u1")
        assert one.read("u1", ts)[ts] == 1
    state = one.persist.inspect(site.log)
    # A commit each, letting go of history for every sixteenth, and the merges of compaction for every third.
    assert state.seqno - before <= 1.45 * commits
    assert state.since >= 11 + commits - 17
    assert len(state.trace) <= 12
    idle = state.seqno
    for ts in range(200, 200 + commits):
        one.wal.advance_past(ts)
    assert one.persist.inspect(site.log).seqno - idle <= 1.1 * commits


@pytest.mark.parametrize("seed", range(12))
def test_writes_on_failing_stores_are_whole_and_applied_once(seed: int) -> None:
    site = Site(seed)
    settings = Settings(
        timeout=0.03, inline_bytes=0 if seed % 2 else 65536, inline_total_bytes=3000
    )
    healthy = [Process(site, settings=settings) for _ in range(2)]
    faults = [Faults(seed * 10 + n, 0.0) for n in range(2)]
    flaky = [Process(site, faults=f, settings=settings) for f in faults]
    for one in faults:
        one._rate = 0.35
    acknowledged: set[int] = set()
    for ts in range(10, 70):
        who = site.rng.choice(flaky)
        try:
            who.write(ts, ts, "u1", "u2")
        except (LocationError, UpperMismatch):
            continue
        finally:
            if site.rng.random() < 0.5:
                reader = site.rng.choice([*flaky, *healthy])
                try:
                    counts = reader.read(site.rng.choice(["u1", "u2"]), ts)
                    assert set(counts.values()) <= {1}
                except LocationError:
                    pass
        acknowledged.add(ts)
    assert sum(f.injected for f in faults) > 50
    fresh = Process(site, settings=Settings())
    final = {name: fresh.read(name, 100) for name in site.tables}
    assert final["u1"] == final["u2"], "a commit is there in both tables or in none"
    assert set(final["u1"].values()) == {1}
    assert acknowledged <= set(final["u1"])
    for one in healthy:
        assert one.read("u1", 100) == final["u1"]


def test_an_application_that_stopped_between_two_entries_is_finished_by_another() -> None:
    site = Site()
    one, two = Process(site, settings=ALL_IN_BLOB), Process(site, settings=ALL_IN_BLOB)
    for ts in (10, 20, 30):
        one.write(ts, ts, "u1")
    table = one.collections.table(GlobalId("u1"))
    one.wal.follow()
    first, second, _ = one.wal.state.live[site.tables["u1"]]
    assert table.apply((first,)) == 11
    # The process is gone now. Whoever comes next finds what it has done in the table's upper.
    assert two.read("u1", 35) == Counter({10: 1, 20: 1, 30: 1})
    assert table.apply((first, second)) == 31
    assert one.read("u1", 35) == Counter({10: 1, 20: 1, 30: 1})


def test_the_objects_of_batches_that_are_not_applied_are_known() -> None:
    site = Site()
    one = Process(site, settings=ALL_IN_BLOB)
    assert unapplied_keys(one.persist, site.log) == frozenset()
    before = site.objects()
    one.write(10, 1, "u1", "u2")
    reader = PersistClient(site.blob, site.consensus, clock=site.clock, background=False)
    keys = unapplied_keys(reader, site.log)
    assert len(keys) == 2
    assert {k.split("/")[0] for k in keys} == set(site.tables.values())
    assert keys <= site.objects() - before
    assert one.wal.state.blob_keys() == keys
    one.read("u1", 10)
    one.write(11, 2, "u2")
    # The table's shard holds the first batch now, and the commit after that has taken it out of the log.
    left = unapplied_keys(reader, site.log)
    assert {k.split("/")[0] for k in left} == {site.tables["u2"]}
    assert len(left) == 2
    assert unapplied_keys(reader, reader.new_shard_id()) == frozenset()
    assert reader.inspect(site.log).readers.keys() == {one.wal._reader.reader_id}


def test_dropped_tables_are_forgotten_in_time() -> None:
    register, write = WalEntry("s1", 0, REGISTER), WalEntry("s1", 5, WRITE, b"x")
    other = WalEntry("s2", 0, REGISTER)
    state = advance(WalState(), [(register, 1), (other, 1), (write, 1)], 6)
    state = advance(state, [(write, -1), (register, -1)], 7)
    assert state.written_after("s1", 4), "who read it before its last write is in conflict"
    for n in range(3):
        extra = WalEntry(f"t{n}", 0, REGISTER)
        written = WalEntry(f"t{n}", 8 + n, WRITE, b"x")
        state = advance(state, [(extra, 1), (written, 1)], 9 + n)
        state = advance(state, [(extra, -1), (written, -1)], 10 + n)
    later = 3_600_000 + 100
    state = advance(state, [], later)
    assert state.last_write == {}
    assert state.floor == 10
    assert state.written_after("t2", 9), "what is forgotten is still told from the floor"
    assert not state.written_after("s2", 10)


def test_churn_of_tables_leaves_nothing_behind() -> None:
    site = Site()
    one = Process(site)
    one.write(10, 1, "u1")
    batch = one.collections.table(GlobalId("u1")).batch(
        as_updates(pa.table({"c0": pa.array([1], pa.int32())}))
    )
    hour = 3_600_000
    for n in range(1, 40):
        shard = one.persist.new_shard_id()
        state = one.wal.commit(
            n * hour, {shard: batch}, expected=one.wal.follow(), register=[shard]
        )
        state = one.wal.commit(n * hour + 1, {}, expected=state, forget=[shard])
        assert len(state.last_write) <= 3
        assert len(state.live) == 1
        assert state.registered == {site.tables["u1"]}
