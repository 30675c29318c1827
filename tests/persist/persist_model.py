"""A plain model, and clients to run against it, for the tests of shards."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa

from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, Settings

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


class ManualClock:
    """Wall time that moves when told; waiting moves it too."""

    def __init__(self):
        self.ms = 1_000_000

    def now_ms(self):
        return self.ms

    def monotonic(self):
        return self.ms / 1000

    def sleep(self, seconds):
        self.ms += max(1, round(seconds * 1000))


def updates(rows, schema=SCHEMA):
    """A table of updates from tuples of the columns, time and diff."""
    full = pa.schema([*schema, ("mz_time", pa.int64()), ("mz_diff", pa.int64())])
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in full]
    return pa.table(
        [pa.array(list(c), f.type) for c, f in zip(columns, full, strict=True)], schema=full
    )


def counted(table):
    """A table of updates as {(row, time): sum of diffs}, without zeros."""
    counts = Counter()
    for *row, time, diff in zip(*(c.to_pylist() for c in table.columns), strict=True):
        counts[(*row, time)] += diff
    return {row: diff for row, diff in counts.items() if diff}


def expected_at(history, as_of):
    """What a list of update tuples accumulates to at ``as_of``."""
    counts = Counter()
    for *row, time, diff in history:
        if time <= as_of:
            counts[(*row, as_of)] += diff
    return {row: diff for row, diff in counts.items() if diff}


def mem_client(**settings):
    """A client on fresh memory, everything inline in its calls, with a seeded identity."""
    return PersistClient(
        MemBlob(),
        MemConsensus(),
        clock=ManualClock(),
        rng=random.Random(7),
        settings=Settings(**settings),
        background=False,
    )


def another(client, **settings):
    """A second client, as another process would have it, on the same backends and clock."""
    return PersistClient(
        client.blob,
        client.consensus,
        clock=client._context.clock,
        rng=random.Random(11),
        settings=Settings(**settings),
        background=False,
    )


def blobs(client, prefix=""):
    return {key for key, _ in client.blob.list_keys_and_metadata(prefix)}


def referenced(state):
    """Every object a state names."""
    live = {p.key for b in state.trace for p in b.parts if hasattr(p, "key")}
    return live | {k for ks in state.garbage.values() for k in ks} | set(state.rollups.values())
