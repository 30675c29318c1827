"""Real code over a backend whose operations fail and take long: nothing acknowledged is lost, nothing is there twice.

Persist runs on the backend under test (and, for the other of Blob and Consensus, on memory) as two clients that append in turn, read,
and collect garbage, while operations are refused, lost without acting, done but not answered, or slow. Every appended row is unique, so
that a lost and a doubled one are seen. A timestamp oracle is put under the threads of `mzsql.testing.concurrent` instead. Pauses of
persist's retries are skipped, so a run takes as long as the backend's operations do; the seed decides everything.
"""

from __future__ import annotations

import random
import time
from collections import Counter

import pyarrow as pa
from prometheus_client import CollectorRegistry

from mzsql.location import Blob, Consensus, Indeterminate, LocationError
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, ReadHandle, Settings, WriteHandle
from mzsql.testing.concurrent import run_threads
from mzsql.testing.contract import Site
from mzsql.testing.expect import expect, expect_equal
from mzsql.testing.faults import Faults, FaultyBlob, FaultyConsensus, FaultyOracle
from mzsql.testing.sites import BlobSite, ConsensusSite, OracleSite

RATE = 0.15
"""The share of operations that fail."""

_SCHEMA = pa.schema([("row", pa.int64()), ("text", pa.string())])
_PATIENCE = 1e6
"""Seconds, of a clock that skips pauses: a call with so many ends when it succeeds."""


STEP_SECONDS = 60.0
"""After so long, of real time, one step of persist counts as one that never ends."""


class SkippingClock:
    """The machine's clock plus all pauses, none of which is made.

    As pauses do not end a call that has patience for ever, real time does: `monotonic`, which every loop of retries asks, raises
    `AssertionError` once more than `STEP_SECONDS` have passed since `step`.
    """

    def __init__(self) -> None:
        self._skipped = 0.0
        self._begun = time.monotonic()

    def step(self) -> None:
        """Another step begins."""
        self._begun = time.monotonic()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return round((time.time() + self._skipped) * 1000)

    def monotonic(self) -> float:
        """Seconds, never backwards."""
        now = time.monotonic()
        expect(
            now - self._begun < STEP_SECONDS,
            f"a step of persist did not end within {STEP_SECONDS:g} s: the backend refuses for ever, or does not hold what it acknowledged",
        )
        return now + self._skipped

    def sleep(self, seconds: float) -> None:
        """Let the time have passed."""
        self._skipped += max(seconds, 0.001)


class _Run:
    """Two clients on one shard; ``rows`` is what must be there."""

    def __init__(self, site: Site, blobs: list[Blob], stores: list[Consensus]) -> None:
        self.rng = random.Random(site.seed)  # noqa: S311 - a schedule to replay, not a secret
        self.faults = Faults(site.seed, RATE, slow=0.02, slow_seconds=0.005)
        self.clock = SkippingClock()
        tuning = Settings(
            inline_bytes=self.rng.choice((0, 600)),
            inline_total_bytes=4_000,
            rollup_interval=5,
            compaction_fanout=3,
            timeout=2.0,
            reader_lease_ms=10**12,
        )
        self.clients = [
            PersistClient(
                FaultyBlob(blob, self.faults),
                FaultyConsensus(consensus, self.faults),
                clock=self.clock,
                rng=random.Random(self.rng.random()),  # noqa: S311 - as above
                settings=tuning,
                background=False,
                registry=CollectorRegistry(),
            )
            for blob, consensus in zip(blobs, stores, strict=True)
        ]
        self.shard_id = self.clients[0].new_shard_id()
        self.writers: list[WriteHandle] = []
        self.readers: list[ReadHandle] = []
        for client in self.clients:
            write, read = client.open_shard(self.shard_id, _SCHEMA, timeout=_PATIENCE)
            self.writers.append(write)
            self.readers.append(read)
        self.rows: set[int] = set()
        self.written = 0
        self.upper = 0

    def append(self, who: int) -> None:
        """Append some rows; where it is not known whether they are there, the shard's upper tells."""
        self.clock.step()
        new = range(self.written, self.written + self.rng.randint(1, 4))
        self.written += len(new)
        size = self.rng.choice((1, 300))
        table = pa.table(
            {
                "row": pa.array(new, pa.int64()),
                "text": pa.array(["x" * size] * len(new), pa.string()),
                "mz_time": pa.array([self.upper] * len(new), pa.int64()),
                "mz_diff": pa.array([1] * len(new), pa.int64()),
            }
        )
        try:
            self.writers[who].compare_and_append(
                table,
                expected_upper=self.upper,
                new_upper=self.upper + 1,
                timeout=self.rng.choice((0.001, 0.5, _PATIENCE)),
            )
        except Indeterminate:
            if self.readers[who].fetch_upper(timeout=_PATIENCE) == self.upper:
                return  # not committed; and as another commit follows at this upper, it never is
        except LocationError:
            found = self.readers[who].fetch_upper(timeout=_PATIENCE)
            expect_equal(found, self.upper, "upper after an append that was refused")
            return
        self.rows |= set(new)
        self.upper += 1

    def read(self, who: int) -> None:
        """What is there at the latest time is what must be there, once."""
        self.clock.step()
        if not self.upper:
            return
        found = self.readers[who].snapshot_arrow(self.upper - 1, timeout=_PATIENCE)
        counts: Counter[int] = Counter()
        for row, diff in zip(found["row"].to_pylist(), found["mz_diff"].to_pylist(), strict=True):
            counts[row] += diff
        there = {row for row, count in counts.items() if count}
        expect(self.rows <= there, f"acknowledged rows are lost: {sorted(self.rows - there)}")
        expect(there <= self.rows, f"rows never acknowledged are there: {there - self.rows}")
        doubled = {row: count for row, count in counts.items() if count not in (0, 1)}
        expect(not doubled, f"rows are there more than once: {doubled}")


def _persist(site: Site, blobs: list[Blob], stores: list[Consensus]) -> None:
    run = _Run(site, blobs, stores)
    for step in range(site.sized(40, 400)):
        who = run.rng.randrange(2)
        run.append(who)
        if step % 5 == 4:
            run.read(1 - who)
            run.clock.step()
            since = max(run.readers[who].since or 0, run.upper - 4)
            run.readers[who].downgrade_since(since, timeout=_PATIENCE)
    expect(run.faults.injected > site.sized(10, 100), "hardly any operation was made to fail")
    expect(run.upper > site.sized(10, 100), f"only {run.upper} appends were acknowledged")
    run.faults.heal()
    for client in run.clients:
        run.clock.step()
        client.maintain(run.shard_id, full=True)
    for who in range(2):
        run.read(who)
    later = PersistClient(
        blobs[0], stores[0], background=False, registry=CollectorRegistry(), clock=SkippingClock()
    )
    run.readers.append(later.open_reader(run.shard_id, timeout=_PATIENCE))
    run.read(2)


def blob_faults(site: BlobSite) -> None:
    """Persist on it loses and doubles nothing while its operations fail before and after they act, or take long."""
    consensus = MemConsensus()
    _persist(site, [site.open(), site.open()], [consensus, consensus])


def consensus_faults(site: ConsensusSite) -> None:
    """Persist on it loses and doubles nothing while its operations fail before and after they act, or take long."""
    blob = MemBlob()
    _persist(site, [blob, blob], [site.open(), site.open()])


def oracle_faults(site: OracleSite) -> None:
    """What threads do is linearizable while operations fail before and after they act, or take long."""
    faults = Faults(site.seed, RATE, slow=0.1, slow_seconds=0.002)
    run_threads(site, "oracle", lambda clock: FaultyOracle(site.open(clock), faults))
    expect(faults.injected > 10, "hardly any operation was made to fail")
