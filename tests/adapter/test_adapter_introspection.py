"""What replicas tell of themselves: on one replica by `mz_introspection`, of all of them by the unified relations, from any process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.system import existing
from mzsql.catalog.objects import MaterializedView, Stored
from mzsql.compute.controller import introspection
from mzsql.compute.logs import FRONTIERS, LogPlan, get, over_logs
from mzsql.dbapi import Connection
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Call, Column
from mzsql.persist import PersistClient
from mzsql.repr.types import BIGINT

WAIT = 60.0
RELATIONS = (
    *("mz_arrangement_sizes", "mz_compute_exports", "mz_compute_frontiers", "mz_dataflows"),
    *("mz_compute_import_frontiers", "mz_dataflow_operators", "mz_lir_mapping"),
    *("mz_scheduling_elapsed", "mz_dataflow_operator_dataflows", "mz_dataflow_operator_parents"),
    *("mz_compute_error_counts", "mz_dataflow_arrangement_sizes", "mz_mappable_objects"),
)


@pytest.fixture
def env(tmp_path: Path) -> Path:
    with mzsql.connect(tmp_path) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")
        con.execute("INSERT INTO t VALUES (1, 2), (1, 3), (2, 4)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, sum(b) AS s FROM t GROUP BY a")
        con.execute("CREATE TABLE o (b int); INSERT INTO o VALUES (1), (2), (3)")
        con.execute("CREATE INDEX i ON o (b)")
    return tmp_path


@pytest.fixture
def con(env: Path) -> Iterator[Connection]:
    with mzsql.connect(env) as opened:
        yield opened


def rows(con: Connection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def until(con: Connection, query: str, done: Callable[[list[tuple[Any, ...]]], bool]) -> Any:
    deadline = time.monotonic() + WAIT
    while not done(found := rows(con, query)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def ids(con: Connection) -> dict[str, str]:
    return dict(rows(con, "SELECT name, id FROM mz_objects WHERE id LIKE 'u%'"))


def test_nodes_are_those_of_explain_and_frontiers_those_of_the_objects(con: Connection) -> None:
    v, i, t, o = (ids(con)[name] for name in "vito")
    ((text,),) = rows(con, "EXPLAIN PHYSICAL PLAN WITH (node_ids) FOR MATERIALIZED VIEW v")
    shown = {
        int(found[2]): (found[1].strip(), (len(found[1]) - len(found[1].lstrip())) // 2 - 1)
        for line in text.splitlines()
        if (found := re.match(r"(.*) // \{ node_id: (\d+) \}", line))
    }
    mapped = rows(con, "SELECT * FROM mz_introspection.mz_lir_mapping ORDER BY lir_id")
    of_view = [row for row in mapped if row[0] == v]
    assert {row[1]: (row[2], row[4]) for row in of_view} == shown
    (root,) = [row for row in of_view if row[3] is None]
    assert {row[3] for row in of_view} - {None} <= {row[1] for row in of_view}
    names = dict(rows(con, "SELECT id, name FROM mz_introspection.mz_dataflow_operators"))
    assert all(names[row[5]] == row[2] and row[6] == row[5] + 1 for row in mapped)
    parents = dict(
        rows(con, "SELECT id, parent_id FROM mz_introspection.mz_dataflow_operator_parents")
    )
    dataflows = dict(
        rows(con, "SELECT export_id, dataflow_id FROM mz_introspection.mz_compute_exports")
    )
    assert dataflows.keys() == {v, i}
    assert {parents[row[5]] for row in of_view} == {dataflows[v]}
    # What replicas tell comes soon, and follows the objects.
    con.execute("INSERT INTO t VALUES (3, 5)")
    uppers = "SELECT object_id, write_frontier FROM mz_internal.mz_frontiers ORDER BY 1"

    objects = "SELECT object_id, write_frontier FROM mz_catalog.mz_cluster_replica_frontiers"

    def follow(found: list[tuple[Any, ...]]) -> bool:
        now = dict(rows(con, uppers))
        return dict(found) == {v: now[v], i: now[i]} and now[v] > 0

    until(con, objects, follow)
    read = until(
        con,
        "SELECT export_id, import_id FROM mz_introspection.mz_compute_import_frontiers",
        lambda found: len(found) == 2,
    )
    assert set(read) == {(v, t), (i, o)}
    elapsed = "SELECT * FROM mz_introspection.mz_scheduling_elapsed"
    spent = dict(until(con, elapsed, lambda found: dataflows[v] in dict(found)))
    assert spent[dataflows[v]] >= spent[root[5]] > 0


def test_arrangements_add_up_over_workers_and_errors_are_counted(
    con: Connection, env: Path
) -> None:
    con.execute("CREATE MATERIALIZED VIEW e AS SELECT 10 / b AS x FROM t")
    con.execute("INSERT INTO t VALUES (9, 0), (9, 0)")
    counts = "SELECT export_id, count FROM mz_introspection.mz_compute_error_counts"
    found = until(con, counts, bool)
    assert found == [(ids(con)["e"], 2)]
    # Another process counts them, and leases nothing of which the log has no updates on their way.
    with mzsql.connect(env, read_only=True) as beside:
        there = beside.coordinator.env
        views = there.catalog.state.of(MaterializedView)
        quiet = {view.shard for view in views} - there.collections.logged()
        assert until(beside, counts, bool) == found
        assert not any(there.persist.holders(shard) for shard in quiet)
    con.execute("DELETE FROM t WHERE b = 0")
    until(con, counts, lambda found: not found)
    whole = rows(
        con, "SELECT operator_id, records, size FROM mz_introspection.mz_arrangement_sizes"
    )
    by_worker = rows(
        con,
        "SELECT operator_id, sum(records), sum(size), count(*)"
        " FROM mz_introspection.mz_arrangement_sizes_per_worker GROUP BY operator_id",
    )
    assert {row[:3] for row in by_worker} == set(whole)
    assert all(row[1] > 0 and row[2] > 0 for row in whole)
    # The default size has two workers.
    assert {row[3] for row in by_worker} == {2}
    known = rows(
        con,
        "SELECT export_id, lir_id, worker_id, hydrated"
        " FROM mz_introspection.mz_compute_operator_hydration_statuses_per_worker",
    )
    assert {row[2] for row in known} == {0, 1}
    assert all(row[3] for row in known)


def test_errors_of_what_never_changes_again_are_counted(con: Connection) -> None:
    con.execute("INSERT INTO t VALUES (8, 0)")
    con.execute(
        "CREATE MATERIALIZED VIEW once WITH (REFRESH AT CREATION) AS SELECT 10 / b AS x FROM t"
    )
    con.execute(
        "CREATE MATERIALIZED VIEW never AS SELECT 1 / (v - 1) AS x FROM (VALUES (1), (2)) AS z (v)"
    )
    counts = "SELECT export_id, count FROM mz_introspection.mz_compute_error_counts"
    known = ids(con)
    wanted = {known["once"]: 1, known["never"]: 1}
    until(con, counts, lambda found: wanted.items() <= dict(found).items())
    con.execute(
        "DROP MATERIALIZED VIEW once; DROP MATERIALIZED VIEW never; DELETE FROM t WHERE b = 0"
    )


def test_very_many_objects_are_asked_for_at_once_with_the_same_rows(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE CLUSTER idle REPLICAS ()")
    for n in range(3):  # views without a shard
        con.execute(f"CREATE MATERIALIZED VIEW w{n} IN CLUSTER idle AS SELECT a FROM t")
    con.execute("CREATE TABLE n (d int); INSERT INTO n VALUES (0), (0), (1)")
    con.execute("CREATE MATERIALIZED VIEW bad AS SELECT 1 / d AS x FROM n")
    until(
        con,
        "SELECT count(*) FROM mz_internal.mz_hydration_statuses WHERE hydrated",
        lambda found: found == [(3,)],
    )
    questions = (
        "SELECT o.name, f.write_frontier IS NULL OR f.write_frontier > 0 FROM mz_internal.mz_frontiers AS f"
        " JOIN mz_objects AS o ON o.id = f.object_id WHERE o.id LIKE 'u%' ORDER BY 1",
        "SELECT o.name, e.count FROM mz_internal.mz_compute_error_counts AS e JOIN mz_objects AS o ON o.id = e.object_id",
        "SELECT o.name, r.last_completed_refresh > 0 FROM mz_internal.mz_materialized_view_refreshes AS r"
        " JOIN mz_objects AS o ON o.id = r.materialized_view_id ORDER BY 1",
        "SELECT o.name, s.size_bytes > 0 FROM mz_catalog.mz_recent_storage_usage AS s"
        " JOIN mz_objects AS o ON o.id = s.object_id ORDER BY 1",
    )
    # One by one, which a few objects are.
    one_by_one = [rows(con, question) for question in questions]
    assert one_by_one[0] == [
        *(("bad", True), ("i", True), ("n", True), ("o", True), ("t", True), ("v", True)),
        *(("w0", False), ("w1", False), ("w2", False)),
    ]
    assert one_by_one[1] == [("bad", 2)]
    asked: list[int] = []
    shard_ids = PersistClient.shard_ids

    def listed(own: PersistClient, **options: Any) -> frozenset[str]:
        asked.append(1)
        return shard_ids(own, **options)

    monkeypatch.setattr(PersistClient, "shard_ids", listed)
    monkeypatch.setattr(existing, "_FEW", 0)
    assert [rows(con, question) for question in questions] == one_by_one
    assert len(asked) == len(questions)


def test_another_process_and_plain_reads_give_the_same_rows(env: Path) -> None:
    def asked(con: Connection) -> dict[str, set[tuple[Any, ...]]]:
        return {
            name: set(rows(con, f"SELECT * FROM mz_introspection.{name}"))
            for name in RELATIONS
            if name != "mz_scheduling_elapsed"
        }

    with mzsql.connect(env, read_only=True) as beside:
        with mzsql.connect(env) as con:
            # Those that are still being opened go on.
            opened = "SELECT * FROM mz_introspection.mz_compute_frontiers WHERE time > 0"
            until(con, opened, lambda r: len(r) == 2)
            deadline = time.monotonic() + WAIT
            while (here := asked(con)) != (there := asked(beside)):
                assert time.monotonic() < deadline, (here, there)
                time.sleep(0.1)
        # It may have told more since.
        last = asked(beside)
    # Nobody runs the replica any more: what it told last stands, as its status says.
    with mzsql.connect(env, read_only=True) as alone:
        assert asked(alone) == last
        offline = rows(alone, "SELECT status FROM mz_internal.mz_cluster_replica_statuses")
        assert offline == [("offline",)]
        assert rows(alone, "SELECT * FROM mz_internal.mz_cluster_replica_metrics") == []


def test_what_the_process_of_a_replica_takes_is_within_its_limits(con: Connection) -> None:
    within = "cpu_limit > 0 AND memory_bytes BETWEEN 1 AND memory_limit AND disk_bytes BETWEEN 0 AND disk_limit"
    found = f"SELECT replica_id, process_id, {within} FROM mz_internal.mz_cluster_replica_metrics"
    # Told by whoever leads, which the process that has just opened the environment need not do yet.
    assert until(con, found, bool) == [("u1", 0, True)]
    (percents,) = rows(
        con,
        "SELECT memory_percent, disk_percent FROM mz_internal.mz_cluster_replica_utilization",
    )
    assert all(0 <= percent <= 100 for percent in percents)


def test_replicas_that_are_dropped_stay_in_their_history(con: Connection) -> None:
    con.execute("CREATE CLUSTER pair REPLICAS (east (SIZE '1'), west (SIZE '2'))")
    con.execute("DROP CLUSTER REPLICA pair.west")
    assert rows(
        con,
        "SELECT replica_name, size, cluster_name, created_at <= now(), dropped_at >= created_at"
        " FROM mz_internal.mz_cluster_replica_history WHERE cluster_name = 'pair' ORDER BY 1",
    ) == [("east", "1", "pair", True, None), ("west", "2", "pair", True, True)]
    assert rows(
        con,
        "SELECT s.type, s.refresh_hydration_time_estimate FROM mz_internal.mz_cluster_schedules AS s"
        " JOIN mz_clusters AS c ON c.id = s.cluster_id WHERE c.name = 'pair'",
    ) == [("manual", None)]


def test_each_stored_object_has_its_shard(con: Connection) -> None:
    con.execute("CREATE TABLE stored (a int); CREATE VIEW computed AS SELECT a FROM stored")
    con.execute("CREATE MATERIALIZED VIEW kept AS SELECT a FROM stored")
    found = rows(
        con,
        "SELECT o.name, s.shard_id FROM mz_internal.mz_storage_shards AS s JOIN mz_objects AS o"
        " ON o.id = s.object_id WHERE o.name IN ('stored', 'computed', 'kept') ORDER BY 1",
    )
    assert found == [
        (name, one.shard)
        for name in ("kept", "stored")
        if isinstance(one := con.coordinator.env.catalog.state.by_name("public", name), Stored)
    ]
    assert len({shard for _, shard in found}) == 2


def test_one_replica_is_named_or_it_is_refused(con: Connection) -> None:
    con.execute("CREATE CLUSTER pair REPLICAS (east (SIZE '1'), west (SIZE '2'))")
    con.execute(
        "CREATE TABLE u (a int); CREATE MATERIALIZED VIEW w IN CLUSTER pair AS SELECT a FROM u"
    )
    con.execute("SET cluster = pair")
    query = "SELECT count(*) FROM mz_introspection.mz_dataflows_per_worker"
    with pytest.raises(mzsql.Error, match="log source reads must target a replica") as refused:
        rows(con, query)
    assert "east, west" in str(refused.value)
    con.execute("SET cluster_replica = east")
    assert rows(con, query) == [(1,)]
    assert rows(con, "SELECT * FROM u") == []
    con.execute("SET cluster_replica = eats")
    for asked in (query, "SELECT * FROM u"):
        with pytest.raises(mzsql.Error, match=r"unknown cluster replica 'pair\.eats'") as unknown:
            rows(con, asked)
        assert 'Perhaps you meant "east"' in str(unknown.value)
    for asked in (
        "EXPLAIN ANALYZE CPU FOR MATERIALIZED VIEW w",
        "EXPLAIN ANALYZE CLUSTER MEMORY",
    ):
        with pytest.raises(mzsql.Error, match=r"unknown cluster replica 'pair\.eats'"):
            rows(con, asked)
        rows(con, asked + " AS SQL")
    con.execute("SET cluster_replica = west")
    assert rows(con, "EXPLAIN ANALYZE CLUSTER CPU") != []
    with pytest.raises(mzsql.Error, match=r"unknown cluster replica 'quickstart\.west'"):
        rows(con, "EXPLAIN ANALYZE CPU FOR MATERIALIZED VIEW v")
    con.execute("RESET cluster_replica; SET cluster = quickstart")
    assert rows(con, query) == [(4,)]
    con.execute("CREATE CLUSTER none SIZE '1', REPLICATION FACTOR 0; SET cluster = none")
    with pytest.raises(mzsql.Error, match='CLUSTER "none" has no replicas'):
        rows(con, query)


def test_what_was_dropped_or_switched_off_leaves_nothing(con: Connection) -> None:
    told = "SELECT DISTINCT export_id FROM mz_internal.mz_compute_frontiers_unified ORDER BY 1"
    v, i = (ids(con)[name] for name in "vi")
    until(con, told, lambda found: found == [(v,), (i,)])
    con.execute("DROP INDEX i")
    until(con, told, lambda found: found == [(v,)])
    con.execute("ALTER SYSTEM SET enable_introspection_subscribes = off")
    until(con, told, lambda found: not found)
    con.execute("INSERT INTO t VALUES (5, 5)")
    assert rows(con, "SELECT s FROM v WHERE a = 5") == [(5,)]
    assert rows(con, told) == []
    con.execute("ALTER SYSTEM RESET enable_introspection_subscribes")
    until(con, told, lambda found: found == [(v,)])
    con.execute("CREATE CLUSTER brief SIZE '1'; CREATE INDEX j IN CLUSTER brief ON t (a)")
    until(con, told, lambda found: len(found) == 2)
    con.execute("DROP CLUSTER brief CASCADE")
    until(con, told, lambda found: found == [(v,)])


NODES = "SELECT DISTINCT object_id FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker ORDER BY 1"
OBJECTS = "SELECT object_id, hydrated FROM mz_internal.mz_hydration_statuses ORDER BY 1"


def test_nothing_is_told_of_nodes_where_that_is_switched_off(con: Connection, env: Path) -> None:
    v, i = (ids(con)[name] for name in "vi")
    hydrated = [(v, True), (i, True)]
    until(con, OBJECTS, lambda found: found == hydrated)
    con.execute("ALTER SYSTEM SET enable_introspection_subscribes = off")
    until(con, NODES, lambda found: not found)
    assert rows(con, OBJECTS) == hydrated
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM t")
    w = ids(con)["w"]
    until(con, OBJECTS, lambda found: found == sorted([*hydrated, (w, True)]))
    assert rows(con, "SELECT * FROM mz_internal.mz_unhydrated_objects") == []
    assert rows(con, NODES) == []
    con.close()
    # What is off when a replica begins is off as well, and what was told before does not come back.
    with mzsql.connect(env) as again:
        again.execute("INSERT INTO t VALUES (8, 8)")
        assert rows(again, "SELECT n FROM w") == [(4,)]
        assert rows(again, NODES) == []
        again.execute("ALTER SYSTEM RESET enable_introspection_subscribes")
        until(again, NODES, lambda found: found == sorted([(v,), (i,), (w,)]))
        query = "SELECT bool_and(hydrated) FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker"
        until(again, query, lambda found: found == [(True,)])


def test_a_cluster_says_how_often_its_replicas_tell_of_themselves(con: Connection) -> None:
    con.execute("CREATE CLUSTER mute SIZE '1', INTROSPECTION INTERVAL 0")
    con.execute("CREATE MATERIALIZED VIEW w IN CLUSTER mute AS SELECT count(*) AS n FROM t")
    v, i, w = (ids(con)[name] for name in "viw")
    told = "SELECT DISTINCT export_id FROM mz_internal.mz_compute_frontiers_unified ORDER BY 1"
    until(con, OBJECTS, lambda found: found == sorted([(v, True), (i, True), (w, True)]))
    until(con, told, lambda found: found == [(v,), (i,)])
    assert (w,) not in rows(con, NODES)
    shown = "SELECT introspection_interval::text FROM mz_clusters WHERE name = 'mute'"
    assert rows(con, shown) == [("00:00:00",)]
    con.execute("ALTER CLUSTER mute SET (INTROSPECTION INTERVAL '50 milliseconds')")
    assert rows(con, shown) == [("00:00:00.05",)]
    until(con, told, lambda found: (w,) in found)
    until(con, NODES, lambda found: (w,) in found)
    ((_, made),) = rows(con, "SHOW CREATE CLUSTER mute")
    assert "INTROSPECTION INTERVAL = INTERVAL '00:00:00.05'" in made
    con.execute("ALTER CLUSTER mute RESET (INTROSPECTION INTERVAL)")
    con.execute("CREATE CLUSTER two REPLICAS (a (SIZE '1', INTROSPECTION INTERVAL '2s'))")
    every = "SELECT name, introspection_interval::text FROM mz_cluster_replicas ORDER BY id"
    assert rows(con, every) == [("r1", "00:00:01"), ("r1", "00:00:01"), ("a", "00:00:02")]
    for text in ("'2 days'", "'1 month'", "'-1s'", "true"):
        with pytest.raises(mzsql.Error, match="INTROSPECTION INTERVAL"):
            con.execute(f"ALTER CLUSTER mute SET (INTROSPECTION INTERVAL {text})")


def test_a_subscribe_that_fails_leaves_nothing_and_no_other_fails(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = introspection.SUBSCRIBES
    arity = FRONTIERS.desc.arity
    failing = MapFilterProject.identity(arity).map([Call("text_to_bigint", (Column(0),), BIGINT)])
    plan = over_logs(LogPlan(get(FRONTIERS, failing.project([0, 2])), FRONTIERS.desc.typ))
    broken = introspection.IntrospectionSubscribe(first.relation, plan)
    monkeypatch.setattr(introspection, "SUBSCRIBES", (broken, *others))
    with mzsql.connect(env) as con:
        until(
            con, "SELECT * FROM mz_introspection.mz_compute_import_frontiers", lambda r: len(r) == 2
        )
        until(con, f"SELECT * FROM {first.relation}", lambda found: not found)
        assert rows(con, "SELECT count(*) FROM v") == [(2,)]


def test_what_each_node_takes_stands_beside_the_plan_that_runs(con: Connection) -> None:
    con.execute("INSERT INTO t VALUES (3, 5)")
    until(con, "SELECT * FROM mz_internal.mz_compute_elapsed_unified WHERE export_id = 'u2'", bool)
    nodes = rows(
        con,
        "SELECT operator, nesting FROM mz_introspection.mz_lir_mapping WHERE global_id = 'u2'",
    )
    cur = con.execute("EXPLAIN ANALYZE CPU, MEMORY, HYDRATION FOR MATERIALIZED VIEW v")
    assert [column[0] for column in cur.description or ()] == [
        *("operator", "total_elapsed", "total_memory", "total_records"),
        *("hydrated", "workers_hydrated", "workers"),
    ]
    found = cur.fetchall()
    assert {row[0] for row in found} == {" " * 2 * nesting + name for name, nesting in nodes}
    root = found[0]
    assert root[1].microseconds > 0
    assert root[2].endswith("bytes")
    assert root[3] >= 2
    assert root[4:] == (True, 2, 2)
    skewed = rows(con, "EXPLAIN ANALYZE MEMORY WITH SKEW FOR INDEX i")
    by_worker = [row for row in skewed if row[0] == "ArrangeBy"]
    assert [row[1] for row in by_worker] == [0, 1]
    assert sum(row[7] for row in by_worker) == by_worker[0][9] == 3
    ((text,),) = rows(con, "EXPLAIN ANALYZE HYDRATION FOR INDEX i AS SQL")
    assert rows(con, text) == rows(con, "EXPLAIN ANALYZE HYDRATION FOR INDEX i")
    for statement, message in (
        ("EXPLAIN ANALYZE CPU FOR MATERIALIZED VIEW i", "i is not a materialized view"),
        ("EXPLAIN ANALYZE CLUSTER HYDRATION", "EXPLAIN ANALYZE is supported for what runs"),
        ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN ANALYZE is supported for what runs all the time"),
    ):
        with pytest.raises(mzsql.Error, match=message):
            rows(con, statement)


def test_who_sees_that_a_view_is_hydrated_sees_what_that_took(env: Path) -> None:
    hydrated = "SELECT hydrated FROM mz_internal.mz_hydration_statuses AS h JOIN mz_objects AS o ON o.id = h.object_id WHERE name = '{}'"
    took = "EXPLAIN ANALYZE CPU FOR MATERIALIZED VIEW {}"
    with mzsql.connect(env) as con, mzsql.connect(env, read_only=True) as beside:
        for number in range(6):
            name = f"v{number}"
            if number == 3:
                # Of a replica that has just begun as well.
                con.execute("CREATE CLUSTER c SIZE '1'; SET cluster = c")
            con.execute(
                f"CREATE MATERIALIZED VIEW {name} AS SELECT a + {number} AS k, sum(b) + 1 AS s FROM t GROUP BY 1"
            )
            for who in (con, beside) if number % 2 else (beside, con):
                until(who, hydrated.format(name), lambda found: found == [(True,)])
                found = rows(who, took.format(name))
                # The root has the export's statement, and what it is made of the arrangement's.
                assert len([spent for _, spent in found if spent is not None]) == 2, found
                assert found[0][1] is not None


def test_what_everything_on_a_cluster_takes(con: Connection) -> None:
    con.execute("INSERT INTO t SELECT a + 10, b FROM t")
    con.execute("SELECT * FROM v").fetchall()
    named = ids(con)
    names = {"materialize.public.v": named["v"], "materialize.public.i": named["i"]}
    cur = con.execute("EXPLAIN ANALYZE CLUSTER CPU, MEMORY")
    assert [column[0] for column in cur.description or ()] == [
        *("object", "global_id", "total_elapsed", "total_memory", "total_records"),
    ]
    found = cur.fetchall()
    assert {row[0]: row[1] for row in found} == names

    def by_size(memory: list[tuple[Any, ...]]) -> bool:
        """Whether the one that takes the most comes first. What is asked for apart may be what has become of it since."""
        of_each = "SELECT export_id, sum(size), sum(records) FROM mz_internal.mz_arrangement_sizes_unified GROUP BY 1"
        sizes = {gid: (size, records) for gid, size, records in rows(con, of_each)}
        return [(row[1], row[3]) for row in memory] == [
            (gid, sizes[gid][1]) for gid in sorted(sizes, key=lambda gid: -sizes[gid][0])
        ]

    until(con, "EXPLAIN ANALYZE CLUSTER MEMORY", by_size)
    skewed = rows(con, "EXPLAIN ANALYZE CLUSTER MEMORY, CPU WITH SKEW")
    workers = [row[2] for row in skewed if row[0] == "materialize.public.i"]
    assert workers == [0, 1]
    for name in names:
        own = [row for row in skewed if row[0] == name]
        assert sum(row[8] for row in own) == own[0][10]
        # No worker has more of the whole than of the node of which it has the most.
        assert all(row[7] >= round(row[8] / row[9], 2) for row in own if row[9])
    ((text,),) = rows(con, "EXPLAIN ANALYZE CLUSTER MEMORY WITH SKEW AS SQL")
    until(con, text, lambda found: found == rows(con, "EXPLAIN ANALYZE CLUSTER MEMORY WITH SKEW"))
    con.execute("CREATE CLUSTER apart SIZE '1', REPLICATION FACTOR 0; SET cluster = apart")
    assert rows(con, "EXPLAIN ANALYZE CLUSTER CPU") == []
    con.execute("SET cluster = nowhere")
    with pytest.raises(mzsql.Error, match="unknown cluster 'nowhere'"):
        rows(con, "EXPLAIN ANALYZE CLUSTER CPU")


def test_how_far_views_are_behind_what_they_are_made_of(con: Connection) -> None:
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT count(*) FROM v")
    con.execute("CREATE CLUSTER none SIZE '1', REPLICATION FACTOR 0")
    con.execute("CREATE MATERIALIZED VIEW x IN CLUSTER none AS SELECT count(*) FROM v")
    named = ids(con)
    lag = "SELECT * FROM mz_internal.mz_materialization_lag"
    zero = mzsql.Interval(0, 0, 0)

    def caught_up(found: list[tuple[Any, ...]]) -> bool:
        by_id = {row[0]: row[1:] for row in found}
        return all(by_id[named[name]][:2] == (zero, zero) for name in "viw")

    found = {row[0]: row[1:] for row in until(con, lag, caught_up)}
    assert found[named["w"]][2:] == (named["v"], named["t"])
    assert found[named["v"]][2:] == (named["t"], named["t"])
    assert found[named["x"]] == (None, None, named["v"], named["t"])
    made_of = rows(con, "SELECT object_id, input_id FROM mz_internal.mz_compute_roots")
    assert sorted(made_of) == sorted(
        [*((named[name], named["t"]) for name in "vwx"), (named["i"], named["o"])]
    )
    behind = dict(rows(con, "SELECT * FROM mz_internal.mz_wallclock_global_lag"))
    assert behind[named["t"]] == behind[named["v"]] == zero
    assert behind[named["x"]] is None


def test_an_unknown_name_is_told_with_the_one_that_is_most_like_it(con: Connection) -> None:
    con.execute("CREATE SCHEMA s; CREATE TABLE s.orders (a int, amounts int)")
    con.execute("CREATE TYPE many_numbers AS LIST (ELEMENT TYPE = int4); CREATE ROLE reader")
    for statement, hint in (
        ("SELECT * FROM mz_materialised_views", 'Perhaps you meant "mz_materialized_views".'),
        ("SELECT * FROM orders", 'Perhaps you meant "s"."orders".'),
        ("SELECT * FROM s.ordres", 'Perhaps you meant "s"."orders".'),
        ("SELECT summ(a) FROM t", 'Perhaps you meant "sum".'),
        ("SELECT amuont FROM t AS u (amount)", 'Perhaps you meant the column "amount".'),
        ("CREATE INDEX j IN CLUSTER quickstar ON t (a)", 'Perhaps you meant "quickstart".'),
        ("SELECT orders.amount FROM s.orders", 'Perhaps you meant the column "amounts".'),
        ("SELECT ordres.a FROM s.orders", 'Perhaps you meant "orders".'),
        ("INSERT INTO s.orders (amount) VALUES (1)", 'Perhaps you meant the column "amounts".'),
        ("UPDATE s.orders SET amount = 1", 'Perhaps you meant the column "amounts".'),
        ("CREATE INDEX j ON s.orders (amount)", 'Perhaps you meant the column "amounts".'),
        ("COMMENT ON COLUMN s.orders.amount IS ''", 'Perhaps you meant the column "amounts".'),
        (
            "SELECT * FROM s.orders JOIN (SELECT 1 AS amount) AS u USING (amount)",
            'Perhaps you meant the column "amounts".',
        ),
        ("CREATE TABLE u (amounts int, PRIMARY KEY (amount))", "meant the column"),
        ("SELECT * FROM pg_catlog.pg_class", 'Perhaps you meant "pg_catalog".'),
        ("SELECT pg_catlog.abs(1)", 'Perhaps you meant "pg_catalog".'),
        ("SHOW TABLES FROM pg_catlog", 'Perhaps you meant "pg_catalog".'),
        ("SELECT mz_catalog.abs(1)", 'Perhaps you meant "pg_catalog"."abs".'),
        ("SELECT pg_catalog.abss(1)", 'Perhaps you meant "pg_catalog"."abs".'),
        ("SELECT * FROM generate_serie(1, 2)", 'Perhaps you meant "generate_series".'),
        ("SELECT summ(a) OVER () FROM t", 'Perhaps you meant "sum".'),
        ("SELECT 1::intger", 'Perhaps you meant "integer".'),
        ("CREATE TABLE u (a timestmp)", 'Perhaps you meant "timestamp".'),
        ("SELECT 'intger'::regtype", 'Perhaps you meant "integer".'),
        ("SELECT NULL::many_nubmers", 'Perhaps you meant "many_numbers".'),
        ("SELECT * FROM materialise.public.t", 'Perhaps you meant "materialize".'),
        ("SELECT materialise.pg_catalog.abs(1)", 'Perhaps you meant "materialize".'),
        ("CREATE SCHEMA materialise.u", 'Perhaps you meant "materialize".'),
        ("SHOW SCHEMAS FROM materialise", 'Perhaps you meant "materialize".'),
        ("SHOW clustr", 'Perhaps you meant "cluster".'),
        ("SELECT mz_nw()", 'Perhaps you meant "mz_now".'),
        ("SELECT row_nubmer() OVER ()", 'Perhaps you meant "row_number".'),
        ("SELECT pg_get_viewdeff(1)", 'Perhaps you meant "pg_get_viewdef".'),
        ("SELECT 'lenght'::regproc", 'Perhaps you meant "length".'),
        ("SELECT 's.ordres'::regclass", 'Perhaps you meant "s"."orders".'),
        ("WITH totals AS (SELECT 1) SELECT * FROM total", 'Perhaps you meant "totals".'),
        (
            "WITH totals AS (SELECT 1 AS a) SELECT a FROM t WHERE a IN (SELECT a FROM total)",
            'Perhaps you meant "totals".',
        ),
        ("SELECT 1 AS total ORDER BY totl", 'Perhaps you meant the column "total".'),
        (
            "SELECT a FROM s.orders WHERE EXISTS (SELECT FROM t WHERE amonuts = b)",
            'Perhaps you meant the column "amounts".',
        ),
        (
            "SELECT sum(a) OVER wine FROM t WINDOW win AS (ORDER BY a)",
            'Perhaps you meant "win".',
        ),
        (
            "EXPLAIN PHYSICAL PLAN WITH (node_identifier) FOR SELECT 1",
            'Perhaps you meant "node identifiers".',
        ),
        ("DROP ROLE readr", 'Perhaps you meant "reader".'),
        ("SET clustr = x", 'Perhaps you meant "cluster".'),
    ):
        with pytest.raises(mzsql.Error) as unknown:
            rows(con, statement)
        assert hint in str(unknown.value), statement
    con.execute("SET database = materialise")
    with pytest.raises(mzsql.Error, match="unknown catalog item 't'") as unknown:
        rows(con, "SELECT * FROM t")
    assert "The session's database 'materialise' does not exist" in str(unknown.value)
    con.execute("RESET database")
    with pytest.raises(mzsql.Error, match="unknown catalog item 'zzzzzzzzzz'") as unknown:
        rows(con, "SELECT * FROM zzzzzzzzzz")
    assert "Perhaps" not in str(unknown.value)


def test_what_sessions_of_this_process_do(env: Path) -> None:
    with mzsql.connect(env) as con, mzsql.connect(env) as beside:
        sessions = "SELECT id, connection_id, role_id FROM mz_internal.mz_sessions"
        known = rows(con, sessions)
        assert len({row[0] for row in known}) == len(known) >= 2
        ((role,),) = rows(con, "SELECT id FROM mz_roles WHERE name = current_user")
        assert {row[2] for row in known} == {role}
        beside.execute("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE v; FETCH 1 c")
        query = (
            "SELECT session_id, cluster_id, referenced_object_ids FROM mz_internal.mz_subscriptions"
        )
        ((session, cluster, read),) = rows(con, query)
        assert session in {row[0] for row in known}
        assert [(cluster,)] == rows(con, "SELECT id FROM mz_clusters WHERE name = 'quickstart'")
        assert read == [ids(con)["v"]]
        beside.execute("COMMIT")
        assert rows(con, query) == []
        # A query sees itself, and nothing once it is answered.
        peeks = rows(con, "SELECT object_id, type FROM mz_introspection.mz_active_peeks")
        assert [row[1] for row in peeks] == ["persist"]
        counted = "SELECT sum(count) FROM mz_introspection.mz_peek_durations_histogram"
        ((before,),) = rows(con, counted)
        rows(con, "SELECT * FROM o WHERE b = 2")
        ((after,),) = rows(con, counted)
        assert after == before + 2


def test_a_session_that_is_closed_is_not_shown_whoever_keeps_it(env: Path) -> None:
    sessions = "SELECT count(*) FROM mz_internal.mz_sessions"
    with mzsql.connect(env) as con:
        before = rows(con, sessions)
        closed, failed = mzsql.connect(env), mzsql.connect(env)
        assert rows(con, sessions) == [(before[0][0] + 2,)]
        closed.close()
        failed.execute("BEGIN; SELECT * FROM o")
        with pytest.raises(ZeroDivisionError), failed:
            raise ZeroDivisionError
        assert rows(con, sessions) == before
        # A second close is nothing new.
        closed.close()
        assert rows(con, sessions) == before


def test_ids_and_what_is_stored(con: Connection) -> None:
    same = rows(
        con, "SELECT id, global_id FROM mz_internal.mz_object_global_ids WHERE id LIKE 'u%'"
    )
    assert set(same) == {(gid, gid) for gid in ids(con).values()}
    made = rows(
        con,
        "SELECT l.id, l.event_type, l.occurred_at BETWEEN now() - INTERVAL '1 hour' AND now()"
        " FROM mz_internal.mz_object_lifetimes AS l JOIN mz_objects AS o ON o.id = l.id AND o.type = l.object_type",
    )
    assert set(made) == {(gid, "create", True) for gid in ids(con).values()}
    named = ids(con)
    # The view's shard is written once it is hydrated.
    usage = dict(
        until(
            con,
            "SELECT object_id, size_bytes FROM mz_catalog.mz_recent_storage_usage",
            lambda found: dict(found).get(named["v"], 0) > 0,
        )
    )
    assert usage.keys() == {named[name] for name in "tov"}
    ((shard_bytes,),) = rows(
        con, "SELECT size FROM mz_introspection.mz_dataflow_arrangement_sizes WHERE name LIKE '%.v'"
    )
    assert 0 < usage[named["v"]] < 100 * shard_bytes


def test_definitions_are_there_without_what_their_literals_say(con: Connection) -> None:
    con.execute("CREATE TABLE secret (a numeric(10, 2) DEFAULT 4711, b text DEFAULT 'hush')")
    con.execute(
        "CREATE VIEW told AS SELECT a + 815 AS n, b || 'psst' AS m FROM secret WHERE b LIKE 'x%' LIMIT 99"
    )
    con.execute(
        "CREATE MATERIALIZED VIEW kept AS SELECT a FROM secret WHERE b <> 'never' AND a > 12.5"
    )
    con.execute("CREATE INDEX seen ON secret (b || 'tail')")
    for relation, name in (
        ("mz_tables", "secret"),
        ("mz_views", "told"),
        ("mz_materialized_views", "kept"),
        ("mz_indexes", "seen"),
    ):
        ((shown, redacted),) = rows(
            con, f"SELECT create_sql, redacted_create_sql FROM {relation} WHERE name = '{name}'"
        )
        for literal in ("4711", "hush", "815", "psst", "x%", "99", "never", "12.5", "tail"):
            assert literal not in redacted
        assert redacted.count("'<REDACTED>'") >= 1
        # Nothing but literals is another.
        bare = re.sub(r"'<REDACTED>'|'[^']*'|\b\d+(\.\d+)?\b", "?", redacted)
        assert bare == re.sub(r"'[^']*'|\b\d+(\.\d+)?\b", "?", shown)
    ((text,),) = rows(con, "SELECT redacted_create_sql FROM mz_tables WHERE name = 'secret'")
    assert "(10, 2)" in text
    system = (
        "SELECT count(*) FROM mz_views WHERE create_sql <> redacted_create_sql AND id LIKE 's%'"
    )
    assert rows(con, system) == [(0,)]


def test_what_a_hydration_took_is_told_at_once_however_seldom_changes_are_looked_for(
    con: Connection,
) -> None:
    con.execute("CREATE CLUSTER seldom SIZE '1', INTROSPECTION INTERVAL '1 hour'")
    con.execute("CREATE MATERIALIZED VIEW first IN CLUSTER seldom AS SELECT max(b) AS m FROM t")
    taken = (
        "SELECT elapsed_ns > 0 FROM mz_internal.mz_compute_elapsed_unified WHERE export_id = '{}'"
    )
    until(con, taken.format(ids(con)["first"]), bool)
    # Nobody has subscribed since.
    con.execute("CREATE MATERIALIZED VIEW another IN CLUSTER seldom AS SELECT min(b) AS m FROM t")
    until(con, taken.format(ids(con)["another"]), bool)
