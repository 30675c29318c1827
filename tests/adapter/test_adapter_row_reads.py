"""Row-wise reads over Arrow against the same queries in DuckDB; kept contents against contents read afresh."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.compute.peek.query import PlannedQuery
from mzsql.compute.peek.snapshots import SnapshotCache
from mzsql.location import Determinate
from mzsql.repr.errors import DataError
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.transform import fast_path

COLUMNS = {
    "i": ["NULL", "-1", "0", "1", "2", "7"],
    "b": ["NULL", "-5", "3", "9000000000"],
    "s": ["NULL", "''", "'a'", "'B'", "'é'", "'ab'"],
    "d": ["NULL", "'2020-01-01'", "'1969-12-31'"],
    "z": ["NULL", "'2020-01-01 00:00:00.000001'", "'1960-01-01'"],
    "f": ["NULL", "'NaN'", "0.5", "-0.0"],
    "n": ["NULL", "1.5", "-2.25"],
    "o": ["NULL", "true", "false"],
}
TYPES = {
    "i": "int",
    "b": "bigint",
    "s": "text",
    "d": "date",
    "z": "timestamp",
    "f": "double precision",
    "n": "numeric(10, 2)",
    "o": "boolean",
}


def rows(
    coordinator: Coordinator, text: str, session: Session | None = None
) -> list[tuple[Any, ...]]:
    result = coordinator.execute(session or Session(), text)[-1]
    if result.rows is None:
        return []
    columns = [column.to_pylist() for column in result.rows.columns]
    return list(zip(*columns, strict=True))


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    env = Environment.open(locate(tmp_path_factory.mktemp("row_reads") / "env"))
    made = Coordinator(env, spark=None, lead=False)
    columns = ", ".join(f"{name} {typ}" for name, typ in TYPES.items())
    rows(made, f"CREATE TABLE r ({columns})")
    for number in range(40):
        values = (
            f"{choices[(number * (7 + place)) % len(choices)]}::{TYPES[name]}"
            for place, (name, choices) in enumerate(COLUMNS.items())
        )
        rows(made, f"INSERT INTO r VALUES ({', '.join(values)})")
    # Rows that are there several times.
    rows(made, "INSERT INTO r SELECT * FROM r WHERE i >= 1")
    yield made
    made.close()
    env.close()


comparisons = st.sampled_from(sorted(COLUMNS)).flatmap(
    lambda name: st.builds(
        lambda op, value, turned: (
            f"{value}::{TYPES[name]} {op} {name}"
            if turned
            else f"{name} {op} {value}::{TYPES[name]}"
        ),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        st.sampled_from(COLUMNS[name]),
        st.booleans(),
    )
)
lists = st.sampled_from(["i", "b", "s"]).flatmap(
    lambda name: st.lists(st.sampled_from(COLUMNS[name][1:]), min_size=1, max_size=3).map(
        lambda values: f"{name} IN ({', '.join(values)})"
    )
)
others = st.sampled_from(["s IS NULL", "10 / i > 1", "NOT o", "i + b = 8", "i = 1 OR s = 'a'"])
queries = st.builds(
    lambda items, where, order, limit: (
        f"SELECT {', '.join(items)} FROM r"
        + (f" WHERE {' AND '.join(where)}" if where else "")
        + (f" ORDER BY {', '.join(order)}" if order else "")
        + limit
    ),
    st.lists(
        st.sampled_from(
            [*COLUMNS, "1 AS one", "NULL AS nothing", "'x' AS x", "i + 1 AS j", "10 / i AS q"]
        ),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.lists(comparisons | lists | others, max_size=3),
    st.lists(
        st.builds(
            str.__add__,
            st.sampled_from(sorted(COLUMNS)),
            st.sampled_from(["", " DESC", " NULLS FIRST"]),
        ),
        max_size=2,
        unique=True,
    ),
    st.sampled_from(["", " LIMIT 3", " LIMIT 0", " LIMIT 5 OFFSET 2", " OFFSET 30"]),
)


#: Queries that need no engine.
plain = st.builds(
    lambda items, where, order, limit: (
        f"SELECT {', '.join(items)} FROM r WHERE {' AND '.join(where)}"
        + (f" ORDER BY {', '.join(order)}" if order else "")
        + limit
    ),
    st.lists(st.sampled_from("ibsdzon"), min_size=1, max_size=4, unique=True),
    st.lists(
        st.sampled_from("ibsdz").flatmap(
            lambda name: st.builds(
                lambda op, value: f"{name} {op} {value}::{TYPES[name]}",
                st.sampled_from(["=", "<", "<=", ">", ">="]),
                st.sampled_from(COLUMNS[name][1:]),
            )
        )
        | lists,
        min_size=1,
        max_size=2,
    ),
    st.lists(
        st.builds(str.__add__, st.sampled_from("ibsn"), st.sampled_from(["", " DESC"])), max_size=2
    ),
    st.sampled_from(["", "", " LIMIT 3", " LIMIT 5 OFFSET 2"]),
)


def outcome(coordinator: Coordinator, text: str) -> object:
    try:
        found = rows(coordinator, text)
    except DataError as failed:
        return str(failed)
    # NaN is not equal to itself.
    return [tuple(repr(value) for value in row) for row in found]


@given(queries | plain)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_as_in_the_engine(coordinator: Coordinator, text: str) -> None:
    found = outcome(coordinator, text)
    patch = pytest.MonkeyPatch()
    with patch.context() as without:
        plain = PlannedQuery.__init__

        def no_reads(self: PlannedQuery, *args: Any) -> None:
            plain(self, *args)
            self.read = None

        without.setattr(PlannedQuery, "__init__", no_reads)
        coordinator._queries.plans._kept.clear()
        expected = outcome(coordinator, text)
        coordinator._queries.plans._kept.clear()
    assert found == expected


def test_equal_queries_are_planned_once(coordinator: Coordinator) -> None:
    plans = coordinator._queries.plans
    rows(coordinator, "SELECT s || 'x' FROM r WHERE i = 2")
    before = plans.misses
    rows(coordinator, "SELECT s || 'x' FROM r WHERE i = 2")
    assert plans.misses == before
    rows(coordinator, "CREATE VIEW r_view AS SELECT 1")
    rows(coordinator, "SELECT s || 'x' FROM r WHERE i = 2")
    assert plans.misses == before + 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT s FROM r WHERE i = 7 AND s = 'no such'", []),
        ("SELECT 40 + 2, upper('a') || 'b'", [(42, "Ab")]),
        ("SELECT q.x FROM (SELECT 1 AS x) q", [(1,)]),
    ],
)
def test_what_needs_no_plan_is_not_planned(
    coordinator: Coordinator, text: str, expected: list[tuple[Any, ...]]
) -> None:
    plans = coordinator._queries.plans
    before = plans.hits + plans.misses
    assert rows(coordinator, text) == expected
    assert plans.hits + plans.misses == before


def test_numerics_are_put_in_order_without_a_plan(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "SELECT i, n FROM r WHERE i = 7 ORDER BY n, i"
    expected = rows(coordinator, text + " -- planned")
    assert len(expected) > 1

    def plan(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was planned")

    monkeypatch.setattr(fast_path, "optimize_dataflow", plan)
    assert rows(coordinator, text) == expected
    assert [n for _, n in expected if n is not None] == sorted(
        n for _, n in expected if n is not None
    )


def test_a_read_waits_on_where_a_look_met_a_busy_backend(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections, looks = coordinator.env.collections, list[float]()

    def busy(gid: GlobalId, past: Timestamp, timeout: float) -> Any:
        del gid, past
        looks.append(timeout)
        raise Determinate("cannot compare and set: database is locked")

    monkeypatch.setattr(collections, "known_upper", lambda _: 2**62 if len(looks) >= 3 else 0)
    monkeypatch.setattr(collections, "wait_for_upper", busy)
    items = coordinator.env.catalog.state.items.values()
    table = next(one.id for one in items if one.name == "r")
    coordinator.inputs.wait([table], 5, 60.0)
    assert len(looks) == 3
    looks.clear()
    with pytest.raises(Determinate, match="database is locked"):
        coordinator.inputs.wait([table], 5, 0.0)
    assert looks == [0.0]


def test_a_constant_that_fails_fails(coordinator: Coordinator) -> None:
    with pytest.raises(DataError, match="division by zero"):
        rows(coordinator, "SELECT 1 / 0")


def test_rows_spelled_out_in_a_transaction_are_not_planned(coordinator: Coordinator) -> None:
    plans, session = coordinator._queries.plans, Session()
    rows(coordinator, "CREATE TABLE spelled (a int, b text)")
    before = plans.misses
    for _ in range(2):
        rows(coordinator, "BEGIN", session)
        for number in range(3):
            rows(coordinator, f"INSERT INTO spelled VALUES ({number}, 'x'), (7, NULL)", session)
        rows(coordinator, "COMMIT", session)
    assert plans.misses == before
    assert len(rows(coordinator, "SELECT * FROM spelled")) == 12
    rows(coordinator, "DROP TABLE spelled")


def test_queries_that_spell_out_much_are_not_kept(coordinator: Coordinator) -> None:
    plans = coordinator._queries.plans
    values = ", ".join(f"({number})" for number in range(1500))
    numbers = ", ".join(map(str, range(1500)))
    for query, expected in {
        f"SELECT count(*) FROM (VALUES {values}) AS v (a)": 1500,
        f"SELECT count(*) FROM r WHERE i + 0 IN ({numbers}) AND 10 / (i + 100) < 0": 0,
        f"SELECT count(*) FROM r WHERE s || 'x' = '{'y' * 20_000}'": 0,
    }.items():
        before = list(plans._kept)
        assert rows(coordinator, query) == [(expected,)]
        assert list(plans._kept) == before, query[:50]
    rows(coordinator, "SELECT count(*) FROM (VALUES (1), (2)) AS v (a)")
    assert len(plans._kept) == len(before) + 1


class FakeContents:
    """Contents in memory, with every read counted."""

    key = "fake"

    def __init__(self) -> None:
        self.updates_: list[tuple[int, Timestamp, int]] = []
        self.reads = 0
        self.update_reads = 0
        self.size = 10
        self.change_size = 10

    def contents_at(self, as_of: Timestamp) -> Timestamp | None:
        return as_of

    def stored(self, _at: Timestamp) -> tuple[int, int]:
        return len(self.updates_), self.size

    def changed(self, lower: Timestamp, upper: Timestamp) -> bool:
        return any(lower <= time < upper for _, time, _ in self.updates_)

    def changed_bytes(self, lower: Timestamp, upper: Timestamp) -> int:
        return self.change_size if self.changed(lower, upper) else 0

    def _table(self, found: list[tuple[int, Timestamp, int]]) -> pa.Table:
        columns = list(zip(*found, strict=True)) or [(), (), ()]
        names = ("c0", "mz_time", "mz_diff")
        return pa.table({n: pa.array(c, pa.int64()) for n, c in zip(names, columns, strict=True)})

    def model(self, at: Timestamp) -> dict[int, int]:
        counts: dict[int, int] = {}
        for value, time, diff in self.updates_:
            if time <= at:
                counts[value] = counts.get(value, 0) + diff
        return {value: count for value, count in counts.items() if count}

    def snapshot(self, at: Timestamp) -> pa.Table:
        self.reads += 1
        return self._table([(value, at, count) for value, count in self.model(at).items()])

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        self.update_reads += 1
        return self._table([one for one in self.updates_ if lower <= one[1] < upper])


steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "read", "past"]), st.integers(0, 3), st.sampled_from([1, 1, -1])
    ),
    max_size=40,
)


@given(steps)
def test_what_is_kept_is_the_contents(history: list[tuple[str, int, int]]) -> None:
    contents, cache, now = FakeContents(), SnapshotCache(), 0
    for kind, value, diff in history:
        now += 1
        if kind == "write":
            if diff > 0 or contents.model(now).get(value, 0) > 0:
                contents.updates_.append((value, now, diff))
            continue
        at = now if kind == "read" else max(0, now - 3)
        found = cache.read(contents, at)
        assert found is not None
        counted = dict(
            zip(*(c.to_pylist() for c in found.select(["c0", "mz_diff"]).columns), strict=True)
        )
        assert counted == contents.model(at)


def test_what_is_unchanged_is_read_once_and_what_is_large_is_not_kept() -> None:
    contents, cache = FakeContents(), SnapshotCache(entry_bytes=1000)
    contents.updates_.append((1, 1, 1))
    for now in range(2, 12):
        assert cache.read(contents, now) is not None
    assert contents.reads == 1
    large = FakeContents()
    large.size = 1001
    assert SnapshotCache(entry_bytes=1000).read(large, 1) is None
    assert large.reads == 0


def test_updates_that_are_larger_than_the_bound_are_not_read() -> None:
    contents, cache = FakeContents(), SnapshotCache(entry_bytes=1000)
    contents.updates_.append((1, 1, 1))
    assert cache.read(contents, 1) is not None
    # Much was written and taken back: the contents are small, what led to them is not.
    contents.updates_ += [(2, 2, 1), (2, 3, -1), (3, 3, 1)]
    contents.change_size = 1001
    found = cache.read(contents, 3)
    assert found is not None
    assert sorted(found.column("c0").to_pylist()) == [1, 3]
    assert (contents.reads, contents.update_reads) == (2, 0)
    contents.change_size = 1000
    contents.updates_.append((4, 4, 1))
    found = cache.read(contents, 4)
    assert found is not None
    assert sorted(found.column("c0").to_pylist()) == [1, 3, 4]
    assert (contents.reads, contents.update_reads) == (2, 1)


def test_nothing_stays_of_reads_that_are_over() -> None:
    cache = SnapshotCache(total_bytes=200)
    together = threading.Barrier(4, timeout=60)

    def work() -> None:
        for number in range(50):
            contents = FakeContents()
            contents.key = f"fake {number}"
            contents.size = cache._entry_bytes + number % 2
            contents.updates_ = [(i, 1, 1) for i in range(5)]
            together.wait()
            cache.read(contents, 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not together.broken
    assert not cache._loading
    assert cache.bytes <= 200


def test_the_bound_on_all_that_is_kept() -> None:
    cache = SnapshotCache(total_bytes=200)
    for number in range(50):
        contents = FakeContents()
        contents.key = f"fake {number}"
        contents.updates_ = [(i, 1, 1) for i in range(5)]
        assert cache.read(contents, 2) is not None
        assert cache.bytes <= 200


def test_several_processes_see_each_others_writes_in_kept_contents(tmp_env: Path) -> None:
    envs = [Environment.open(locate(tmp_env)) for _ in range(3)]
    coordinators = [Coordinator(env, spark=None, lead=False) for env in envs]
    try:
        rows(coordinators[0], "CREATE TABLE t (a int, who int)")
        failures: list[str] = []

        def work(who: int) -> None:
            mine = coordinators[who]
            for number in range(15):
                rows(mine, f"INSERT INTO t VALUES ({number}, {who})")
                found = rows(mine, f"SELECT count(*) FROM t WHERE who = {who}")
                row_wise = rows(mine, f"SELECT a FROM t WHERE who = {who}")
                if found != [(number + 1,)] or len(row_wise) != number + 1:
                    failures.append(f"{who}: {found} and {len(row_wise)} rows after {number + 1}")
                if number % 5 == 4:
                    rows(mine, f"DELETE FROM t WHERE who = {who} AND a = {number}")
                    rows(mine, f"INSERT INTO t VALUES ({number}, {who})")

        threads = [threading.Thread(target=work, args=(who,)) for who in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not failures
        for coordinator in coordinators:
            assert rows(coordinator, "SELECT count(*) FROM t") == [(45,)]
    finally:
        for coordinator, env in zip(coordinators, envs, strict=True):
            coordinator.close()
            env.close()


@pytest.mark.parametrize("query", ["SELECT * FROM t", "SELECT a FROM t WHERE a + 0 > 0"])
def test_kept_contents_whose_history_was_given_up_are_read_afresh(
    coordinator: Coordinator, query: str
) -> None:
    rows(coordinator, "CREATE TABLE t (a int)")
    try:
        rows(coordinator, "INSERT INTO t VALUES (1)")
        assert rows(coordinator, query) == [(1,)]
        for value in (10, 100):
            rows(coordinator, f"INSERT INTO t VALUES ({value})")
        gid = next(i.id for i in coordinator.env.catalog.state.items.values() if i.name == "t")
        collections = coordinator.env.collections
        # Nothing reads it meanwhile: the snapshot has the shard know of the writes, then all that came before is given up.
        ts = coordinator.env.fresh_timestamp()
        collections.snapshot(gid, ts)
        collections.release_history(ts)
        (kept,) = (k.at for key, k in coordinator.inputs.kept._kept.items() if gid in key)
        since = collections.since(gid)
        assert since is not None
        assert since > kept + 1
        for _ in range(2):
            assert sum(1 for _ in rows(coordinator, query)) == 3
        assert sorted(rows(coordinator, "SELECT a FROM t")) == [(1,), (10,), (100,)]
    finally:
        rows(coordinator, "DROP TABLE t")


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_days_that_python_has_not_in_what_is_not_kept(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(coordinator.inputs.kept, "_entry_bytes", 0)
    rows(coordinator, f"CREATE TABLE days (a int, at {kind})")
    try:
        rows(
            coordinator,
            "INSERT INTO days VALUES (1, '2020-01-01'), (2, '12020-01-01'), (3, '12020-01-02'), (4, NULL)",
        )
        for condition, expected in {
            "= '12020-01-01'": [2],
            "IN ('12020-01-02', '2020-01-01')": [1, 3],
            "< '12020-01-02'": [1, 2],
            "<= '12020-01-01'": [1, 2],
            "> '2020-01-01'": [2, 3],
            ">= '12020-01-02'": [3],
            "> '13000-01-01'": [],
        }.items():
            found = rows(coordinator, f"SELECT a FROM days WHERE at {condition} ORDER BY a")
            assert found == [(a,) for a in expected], condition
    finally:
        rows(coordinator, "DROP TABLE days")
