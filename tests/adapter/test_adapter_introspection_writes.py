"""What dataflows tell of themselves is written as often as time passes, however many transactions there are."""

from __future__ import annotations

import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.environment import opening
from mzsql.adapter.environment.opening import MANAGED
from mzsql.location import open_blob, open_consensus

TICKS = 16
#: An append, and what may go with it: letting go of history, or an upkeep of the shard.
WRITES_EACH = 2
#: So often the end of the hydrations before is told of at most.
HYDRATED = 4
#: The transaction itself, what its views are made durable with, and what compacts both.
WRITES_A_TICK = 5


class Written:
    """Opens backends as the registry does, and counts the writes to each log of Consensus."""

    def __init__(self) -> None:
        self.writes: Counter[str] = Counter()

    def open_blob(self, url: str) -> Any:
        return open_blob(url)

    def open_consensus(self, url: str) -> Any:
        consensus, writes = open_consensus(url), self.writes

        class Counted:
            def compare_and_set(self, key: str, *arguments: Any) -> bool:
                writes[key] += 1
                return consensus.compare_and_set(key, *arguments)

            def __getattr__(self, name: str) -> Any:
                return getattr(consensus, name)

        return Counted()


def test_what_is_told_of_ticks_grows_with_time_and_not_with_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written()
    monkeypatch.setattr(opening, "default_registry", lambda: written)
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")
        con.execute("CREATE MATERIALIZED VIEW m AS SELECT a, sum(b) AS s FROM t GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW over AS SELECT count(*) AS n FROM m")
        con.execute("INSERT INTO t VALUES (0, 0)")
        assert con.execute("SELECT n FROM over").fetchall() == [(1,)]
        written.writes.clear()
        begun = time.monotonic()
        for tick in range(1, TICKS + 1):
            con.execute(f"INSERT INTO t VALUES ({tick}, {tick})")
            assert con.execute("SELECT n FROM over").fetchall() == [(tick + 1,)]
        counted, seconds = written.writes.copy(), time.monotonic() - begun
        shards = dict(con.coordinator.env.catalog.state.managed)
    for (schema, name), kind in MANAGED.items():
        # What is written again sooner tells of hydrations, which are over by then.
        due = math.ceil(seconds / kind.pause) + 1 if kind.pause >= 1 else HYDRATED
        assert counted[shards[f"{schema}.{name}"]] <= WRITES_EACH * due, (name, counted, shards)
    others = sum(count for shard, count in counted.items() if shard not in shards.values())
    assert others <= WRITES_A_TICK * TICKS, counted
