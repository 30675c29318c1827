"""Lookups in indexes against the same queries without them: in the process that maintains them and in one that only reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.compute.peek.index import IndexReads
from mzsql.compute.peek.outflow import Limits
from mzsql.repr.errors import DataError
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.transform.fast_path import PeekIndexPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

#: Seconds that an index may take to catch up.
PATIENCE = 120


def rows(coordinator: Coordinator, text: str, cluster: str = "quickstart") -> list[tuple[Any, ...]]:
    session = Session()
    session.set("cluster", [cluster])
    result = coordinator.execute(session, text)[-1]
    if result.rows is None:
        return []
    return list(zip(*(c.to_pylist() for c in result.rows.columns), strict=True))


def outcome(coordinator: Coordinator, text: str, cluster: str) -> object:
    try:
        return sorted(rows(coordinator, text, cluster), key=repr)
    except DataError as failed:
        return str(failed)


class Looked:
    """How many lookups indexes answered, by index."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[str] = []
        self.asked: list[tuple[PeekIndexPlan, Timestamp]] = []
        read = IndexReads.rows

        def counted(own: IndexReads, plan: PeekIndexPlan, as_of: Timestamp) -> pa.Table | None:
            table = read(own, plan, as_of)
            self.asked.append((plan, as_of))
            if table is not None:
                self.found.append(str(plan.index_id))
            return table

        monkeypatch.setattr(IndexReads, "rows", counted)

    def await_lookup(self, coordinator: Coordinator, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            before = len(self.found)
            rows(coordinator, text)
            if len(self.found) > before:
                return
            time.sleep(0.2)
        raise AssertionError(f"no index answers {text}")


@pytest.fixture
def processes(tmp_env: Path, spark: SparkSession) -> Iterator[tuple[Coordinator, Coordinator]]:
    """One that maintains, and one that cannot."""
    leads = Environment.open(locate(tmp_env))
    reads = Environment.open(locate(tmp_env))
    made = (Coordinator(leads, spark=lambda: spark), Coordinator(reads, spark=None, lead=False))
    yield made
    for one in reversed(made):
        one.close()
        one.env.close()


QUERIES = (
    "SELECT * FROM t WHERE k = 7",
    "SELECT s, k + 1 FROM t WHERE k = 7 AND x > 1",
    "SELECT k FROM t WHERE k = 7 ORDER BY x DESC LIMIT 2",
    "SELECT * FROM t WHERE k IN (3, 7, 4000)",
    "SELECT * FROM t WHERE k = 4000",
    "SELECT 10 / x FROM t WHERE k = 5",
    "SELECT count(*) FROM t WHERE k = 7",
    "SELECT * FROM sums WHERE s = 'v3'",
    "SELECT n * 2 FROM sums WHERE s = 'v3'",
    "SELECT * FROM sums WHERE s = 'nobody'",
    "SELECT k FROM days WHERE at = '12020-01-02'",
    "SELECT k FROM days WHERE at IN ('12020-01-02', '2020-01-01')",
    "SELECT * FROM shares WHERE k = 7",
    "SELECT * FROM shares WHERE k = 5",
)


def test_as_without_indexes(
    processes: tuple[Coordinator, Coordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, reader = processes
    looked = Looked(monkeypatch)
    rows(leader, "CREATE CLUSTER other REPLICAS ()")
    rows(leader, "CREATE TABLE t (k int, s text, x int)")
    rows(
        leader,
        "INSERT INTO t SELECT g % 100, 'v' || (g % 7)::text, g % 6 FROM generate_series(1, 400) g",
    )
    rows(leader, "CREATE VIEW sums AS SELECT s, count(*) AS n, sum(x) AS x FROM t GROUP BY s")
    rows(leader, "CREATE VIEW shares AS SELECT k, 10 / (x - 100) AS share FROM t")
    rows(leader, "CREATE TABLE days (k int, at date)")
    rows(
        leader, "INSERT INTO days VALUES (1, '2020-01-01'), (2, '12020-01-01'), (3, '12020-01-02')"
    )
    for on in ("t (k)", "sums (s)", "shares (k)", "days (at)"):
        rows(leader, f"CREATE INDEX ON {on}")
    conditions = ("t WHERE k = 7", "sums WHERE s = 'v1'", "shares WHERE k = 1")
    for one in (*conditions, "days WHERE at = '2020-01-01'"):
        looked.await_lookup(leader, f"SELECT 1 FROM {one}")
    # A cluster without indexes answers from the tables.
    for kept in (True, False):
        for coordinator in processes:
            if not kept:
                coordinator.inputs.kept._entry_bytes = 0
                coordinator.inputs.kept._kept.clear()
            looked.found.clear()
            for query in QUERIES:
                found = outcome(coordinator, query, "quickstart")
                assert found == outcome(coordinator, query, "other"), query
            assert len(set(looked.found)) == 4
    _bounded(reader, looked)
    # The index is passed over until it has what was acknowledged, and used again then.
    rows(reader, "INSERT INTO t VALUES (7, 'v3', 1000)")
    for _ in range(3):
        for coordinator in processes:
            assert (7, "v3", 1000) in rows(coordinator, "SELECT * FROM t WHERE k = 7")
    looked.await_lookup(reader, "SELECT * FROM t WHERE k = 7")
    assert (7, "v3", 1000) in rows(reader, "SELECT * FROM t WHERE k = 7")
    _held_by_nobody(reader, looked)
    _forgotten_while_it_is_read(reader, looked)
    # With errors in it an index cannot say which of them a query meets.
    rows(leader, "INSERT INTO t VALUES (8, 'v0', 100)")
    assert outcome(reader, "SELECT * FROM shares WHERE k = 8", "quickstart") == "division by zero"
    assert len(rows(reader, "SELECT * FROM shares WHERE k = 7")) == 5
    # What is dropped is let go of, also while a query is about to read it.
    registered = IndexReads._collection

    def dropped(own: IndexReads, *args: Any) -> object:
        found = registered(own, *args)
        monkeypatch.setattr(IndexReads, "_collection", registered)
        rows(leader, "DROP INDEX t_k_idx")
        rows(reader, "SELECT count(*) FROM t")
        assert own is reader._peeker.indexes
        assert str(args[0].id) not in map(str, own._registered)
        return found

    monkeypatch.setattr(IndexReads, "_collection", dropped)
    assert len(rows(reader, "SELECT * FROM t WHERE k = 7")) == 5
    assert IndexReads._collection is registered
    for name in ("sums_s_idx", "shares_k_idx", "days_at_idx"):
        rows(leader, f"DROP INDEX {name}")
    looked.found.clear()
    for coordinator in processes:
        for query in QUERIES[:-1]:
            outcome(coordinator, query, "quickstart")
        assert not coordinator._peeker.indexes._registered
    assert not looked.found


def _bounded(reader: Coordinator, looked: Looked) -> None:
    """What a lookup brings here is bounded by the rows found, however many there are besides."""
    query = "SELECT * FROM t WHERE k = 7"
    expected = outcome(reader, query, "other")
    indexes = reader._peeker.indexes
    for limits, used in (
        (Limits(rows=4), True),
        (Limits(rows=3), False),
        (Limits(bytes=4096), True),
        (Limits(bytes=8), False),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(indexes, "_limits", limits)
            looked.found.clear()
            assert outcome(reader, query, "quickstart") == expected
            assert bool(looked.found) is used, limits


def _held_by_nobody(reader: Coordinator, looked: Looked) -> None:
    """The history of an index passes the time of a query that is about to read it."""
    plan, as_of = looked.asked[-1]
    rows(reader, "INSERT INTO t VALUES (9, 'v3', 2000)")
    looked.await_lookup(reader, "SELECT * FROM t WHERE k = 7")
    indexes, collections = reader._peeker.indexes, reader.env.collections
    shard, since = collections.meta(plan.index_id).shard, collections.since

    def passed(gid: GlobalId) -> Frontier:
        before = since(gid)
        end = time.monotonic() + PATIENCE
        # The shard follows some seconds later, and nobody writes anything meanwhile.
        while (after := since(gid)) is not None and after <= as_of:
            assert time.monotonic() < end
            collections.release_history(reader.env.fresh_timestamp())
            time.sleep(0.2)
        assert before is not None
        assert before <= as_of
        return before

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collections, "since", passed)
        assert indexes.rows(plan, as_of) is None
    # The replica that maintains it has let go of that, too.
    end = time.monotonic() + PATIENCE
    while True:
        report = reader.env.persist.report(shard)
        assert report is not None
        own = [one for one in report.readers if one.purpose.startswith("arrangement ")]
        assert own
        if all(one.frontier is not None and one.frontier > as_of for one in own):
            break
        assert time.monotonic() < end, (as_of, report.readers)
        time.sleep(0.2)
    looked.await_lookup(reader, "SELECT * FROM t WHERE k = 7")


def _forgotten_while_it_is_read(reader: Coordinator, looked: Looked) -> None:
    """Another query registers an index anew while one lets go of it."""
    indexes, collections = reader._peeker.indexes, reader.env.collections
    query = "SELECT * FROM t WHERE k = 7"
    looked.await_lookup(reader, query)
    gid = looked.asked[-1][0].index_id
    forget = collections.forget
    threads: list[threading.Thread] = []

    def slowly(gone: GlobalId) -> None:
        if not threads:
            threads.append(threading.Thread(target=rows, args=(reader, query)))
            threads[0].start()
            threads[0].join(2)
        forget(gone)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collections, "forget", slowly)
        indexes._forget(indexes._registered[gid])
        threads[0].join(60)
    assert gid not in indexes._registered or gid in collections.ids()
    looked.await_lookup(reader, query)
