"""Writers, followers and readers of shards over failing backends, and the judge of what became of their writes.

Two clients, as of two processes. On the first shard three writers append rows that nobody else has, by compare_and_append, small ones
inline and large ones as objects; a call that failed is never repeated by the test. On the second shard two writers append the same definite
data and each repeats what failed until it is acknowledged. A follower listens and a reader takes snapshots all the while, and
compaction, rollups and collection run in the background.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from functools import partial

import pyarrow as pa
from fault_ledger import Ledger
from fault_place import Place
from prometheus_client import CollectorRegistry

from mzsql.location import Indeterminate
from mzsql.location.deadlines import LEAST_SECONDS
from mzsql.persist import PersistClient, ReadHandle, Settings, UpperMismatch, WriteHandle
from mzsql.persist.errors import ReadTimeout

SCHEMA = pa.schema([("writer", pa.string()), ("n", pa.int64()), ("pad", pa.binary())])
TIMEOUT = 2.0
"""Seconds given to each call."""
BOUND = TIMEOUT + LEAST_SECONDS + 3.0
"""A last attempt at a backend has so long; the rest is for a busy machine. The URLs' own limits, up to 45 s, do not count."""
CLOSING = 60.0
SETTINGS = Settings(
    inline_bytes=1500, rollup_interval=8, compaction_fanout=3, max_batches=12, timeout=TIMEOUT
)
Key = tuple[str, int]


def pad_of(writer: str, n: int) -> bytes:
    """A row's ballast: too much to travel inline for every other row; the same each time."""
    return hashlib.shake_128(f"{writer} {n}".encode()).digest(4000 if n % 2 else 40)


def rows_of(keys: list[Key], times: list[int]) -> pa.Table:
    """Rows as updates."""
    columns = {
        "writer": [writer for writer, _ in keys],
        "n": [n for _, n in keys],
        "pad": [pad_of(*key) for key in keys],
        "mz_time": times,
        "mz_diff": [1] * len(keys),
    }
    return pa.table(
        columns,
        schema=SCHEMA.append(pa.field("mz_time", "int64")).append(pa.field("mz_diff", "int64")),
    )


def counted(table: pa.Table) -> Counter[Key]:
    """How many times each row is there; each has the ballast it was written with."""
    found: Counter[Key] = Counter()
    for one in table.to_pylist():
        assert one["pad"] == pad_of(one["writer"], one["n"]), "a row is not what was written"
        found[one["writer"], one["n"]] += one["mz_diff"]
    return found


class PersistLoad:
    """The workload. ``ledger`` has its calls, its threads run from `start` until the ledger stops them."""

    def __init__(self, place: Place, ledger: Ledger) -> None:
        self._place = place
        self._ledger = ledger
        self._lock = threading.Lock()
        self.acknowledged: dict[Key, int] = {}
        self.refused: set[Key] = set()
        self.doubtful: set[Key] = set()
        self._clients = [self._client() for _ in range(2)]
        first = self._clients[0]
        self.log, self.definite = first.new_shard_id(), first.new_shard_id()
        for shard in (self.log, self.definite):
            first.open_writer(shard, SCHEMA, timeout=30).append(None, lower=0, upper=1, timeout=30)
        self._writers = {
            name: client.open_writer(self.log, SCHEMA, timeout=30)
            for name, client in zip("abc", (first, *self._clients), strict=True)
        }
        self._next = dict.fromkeys(self._writers, 0)
        self._reader = first.open_reader(self.log, SCHEMA, timeout=30)
        self._follower = self._clients[1].open_reader(self.log, SCHEMA, timeout=30)
        self.heard: dict[Key, int] = {}
        self._frontier = 1
        self._seen = (0, 0)
        self._reached: list[int] = []

    def _client(self) -> PersistClient:
        return PersistClient.open(
            blob=self._place.patient_blob,
            consensus=self._place.patient_consensus,
            settings=SETTINGS,
            registry=CollectorRegistry(),
        )

    def start(self) -> None:
        """Begin."""
        for name in self._writers:
            self._ledger.run(f"writer {name}", partial(self._write, name))
        for number, client in enumerate(self._clients):
            writer = client.open_writer(self.definite, SCHEMA, timeout=30)
            self._reached.append(1)
            self._ledger.run(f"definite {number}", partial(self._append, number, writer))
        self._ledger.run("listener", self._listen)
        self._ledger.run("reader", partial(self._read, self._reader))

    def loops(self) -> list[str]:
        """The calls that each loop has to get done to be well."""
        definite = [f"append {number}" for number in range(2)]
        return (
            [f"compare_and_append {name}" for name in self._writers]
            + definite
            + ["snapshot", "listen"]
        )

    def _write(self, name: str) -> None:
        write: WriteHandle = self._writers[name]
        key = (name, self._next[name])
        upper = write.upper
        assert upper is not None
        outcome = self._ledger.call(
            f"compare_and_append {name}",
            BOUND,
            lambda: write.compare_and_append(
                rows_of([key], [upper]), expected_upper=upper, new_upper=upper + 1, timeout=TIMEOUT
            ),
            expected=(UpperMismatch,),
        )
        with self._lock:
            if isinstance(outcome.error, UpperMismatch):
                return
            self._next[name] += 1
            if outcome.ok:
                self.acknowledged[key] = upper
            elif isinstance(outcome.error, Indeterminate):
                self.doubtful.add(key)
            else:
                self.refused.add(key)
        # A little less than as fast as it can, as others want to write too.
        time.sleep(0.05)

    def _append(self, number: int, write: WriteHandle) -> None:
        at = self._reached[number]
        times = [at, at + 1]
        outcome = self._ledger.call(
            f"append {number}",
            BOUND,
            lambda: write.append(
                rows_of([("definite", t) for t in times], times),
                lower=at,
                upper=at + 2,
                timeout=TIMEOUT,
            ),
        )
        if outcome.ok:
            self._reached[number] = at + 2
        time.sleep(0.08)

    def _listen(self) -> None:
        """Listen until a pair does not come; the next listen goes on where this one ended."""
        listening = self._follower.listen(self._frontier - 1, timeout=TIMEOUT)
        while not self._ledger.stopping.is_set():
            outcome = self._ledger.call(
                "listen", BOUND, lambda: next(listening), expected=(ReadTimeout,)
            )
            if not outcome.ok:
                return
            self._hear(*outcome.get())

    def _hear(self, updates: pa.Table, frontier: int | None) -> None:
        assert frontier is not None
        assert frontier > self._frontier, "the frontier of a listen went back"
        for one in updates.select(["writer", "n", "mz_time", "mz_diff"]).to_pylist():
            key = (one["writer"], one["n"])
            assert key not in self.heard, f"{key} was heard twice"
            assert one["mz_diff"] == 1
            assert self._frontier <= one["mz_time"] < frontier
            self.heard[key] = one["mz_time"]
        self._frontier = frontier

    def _read(self, read: ReadHandle) -> None:
        with self._lock:
            before = dict(self.acknowledged)
        upper = self._ledger.call("fetch_upper", BOUND, lambda: read.fetch_upper(timeout=TIMEOUT))
        if not upper.ok:
            return
        at = upper.get()
        assert at is not None
        assert at > max(before.values(), default=0), "the upper is not beyond an acknowledged write"
        found = self._ledger.call(
            "snapshot", BOUND, lambda: read.snapshot_arrow(at - 1, timeout=TIMEOUT)
        )
        since = read.since
        assert since is not None
        assert self._seen[0] <= at, "upper went back"
        assert self._seen[1] <= since, "since went back"
        self._seen = (at, since)
        if not found.ok:
            return
        rows = counted(found.get())
        assert set(rows.values()) <= {1}, "a write is there twice"
        assert before.keys() <= rows.keys(), "an acknowledged write is not in a later snapshot"
        with self._lock:
            assert not self.refused & rows.keys(), "what surely was not written is there"
        behind = at - 15
        if behind > since:
            self._ledger.call(
                "downgrade_since", BOUND, lambda: read.downgrade_since(behind, timeout=TIMEOUT)
            )
        time.sleep(0.08)

    def judge(self) -> None:
        """The threads have stopped and all works: compare what is there with what was said. The judge has a client of its own."""
        with PersistClient.open(
            blob=self._place.direct_blob,
            consensus=self._place.direct_consensus,
            settings=Settings(maintenance="elsewhere"),
            registry=CollectorRegistry(),
        ) as judge:
            read = judge.open_reader(self.log)
            upper = read.fetch_upper()
            assert upper is not None
            found = counted(read.snapshot_arrow(upper - 1))
            self._judge_log(found)
            while self._frontier < upper:
                self._hear(*next(self._follower.listen(self._frontier - 1, timeout=30)))
            assert self.heard.keys() == found.keys(), "listen and snapshot disagree"
            wrong = {k for k, t in self.acknowledged.items() if self.heard[k] != t}
            assert not wrong, "a write was heard at another time than it was acknowledged at"
            self._judge_definite(judge)
            self._judge_maintained(judge, found)

    def _judge_log(self, found: Counter[Key]) -> None:
        lost = self.acknowledged.keys() - found.keys()
        assert not lost, f"acknowledged and lost: {sorted(lost)}"
        doubled = {key for key, count in found.items() if count != 1}
        assert not doubled, f"there more than once: {sorted(doubled)}"
        ghosts = found.keys() & self.refused
        assert not ghosts, f"surely not written and there: {sorted(ghosts)}"
        strangers = found.keys() - self.acknowledged.keys() - self.doubtful
        assert not strangers, f"written by nobody: {sorted(strangers)}"

    def _judge_definite(self, judge: PersistClient) -> None:
        read = judge.open_reader(self.definite)
        upper = read.fetch_upper()
        assert upper is not None
        assert upper >= max(self._reached)
        found = counted(read.snapshot_arrow(upper - 1))
        assert found == {("definite", t): 1 for t in range(1, upper)}

    def _judge_maintained(self, judge: PersistClient, found: Counter[Key]) -> None:
        """The shard can be compacted, and has the same contents after."""
        judge.maintain(self.log, full=True, timeout=60)
        read = judge.open_reader(self.log)
        upper = read.fetch_upper()
        assert upper is not None
        assert counted(read.snapshot_arrow(upper - 1)) == found

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients:
            client.close()
