"""What the system's relations and EXPLAIN promise, they give."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.environment.status_collections import StatusCollections, register_managed
from mzsql.adapter.session.session import Session
from mzsql.compute import ObjectHydrationStatus, OperatorHydrationStatus, Status
from mzsql.repr.errors import SqlError
from mzsql.repr.ids import GlobalId


class Place:
    def __init__(self, path: Path) -> None:
        self.env = Environment.open(locate(str(path)))
        self.coordinator = Coordinator(self.env, spark=None)
        self.session = Session()

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        found = self.coordinator.execute(self.session, text)[-1].rows
        assert found is not None
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def run(self, text: str) -> None:
        self.coordinator.execute(self.session, text)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path / "env")
    opened.run(
        "CREATE TABLE t (a int); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT a FROM t;"
        "CREATE INDEX i ON v (a); CREATE MATERIALIZED VIEW mv AS SELECT a + 1 AS b FROM v;"
        "CREATE MATERIALIZED VIEW over AS SELECT b FROM mv"
    )
    yield opened
    opened.coordinator.close()
    opened.env.close()


def test_indexes_have_frontiers(place: Place) -> None:
    found = place.rows(
        "SELECT o.name, f.read_frontier <= f.write_frontier OR f.write_frontier = 0 "
        "FROM mz_internal.mz_frontiers f JOIN mz_objects o ON o.id = f.object_id"
    )
    assert sorted(found) == [("i", True), ("mv", True), ("over", True), ("t", True)]


def test_an_index_that_is_read_stands_for_what_it_is_on(place: Place) -> None:
    named = (
        "SELECT o.name, d.name FROM mz_internal.mz_compute_dependencies c "
        "JOIN mz_objects o ON o.id = c.object_id JOIN mz_objects d ON d.id = c.dependency_id"
    )
    assert sorted(place.rows(named)) == [("i", "t"), ("mv", "i"), ("over", "mv")]
    # What runs does not change by another index.
    place.run("CREATE INDEX j ON mv (b)")
    assert sorted(place.rows(named)) == [("i", "t"), ("j", "mv"), ("mv", "i"), ("over", "mv")]


def _sink(place: Place, monotonic: Callable[[], float] = lambda: 0.0) -> StatusCollections:
    return StatusCollections(place.env.manager, monotonic, lambda: 1_000_000)


def test_a_hydration_that_was_not_measured_has_no_time(place: Place) -> None:
    register_managed(place.env)
    now = [1.0]  # by the monotonic clock
    times = "SELECT object_id, hydration_time::text FROM mz_internal.mz_compute_hydration_statuses"
    gid, again = GlobalId("u1"), GlobalId("u2")
    node, other = (OperatorHydrationStatus(one, 0, "u1", 0, False) for one in (gid, again))
    done, other_done = (msgspec.structs.replace(one, hydrated=True) for one in (node, other))
    sink = _sink(place, lambda: now[0])
    sink.update([(node, 1), (ObjectHydrationStatus(gid, "u1", False), 1)])
    now[0] += 1.5
    sink.stands(Status(gid, "u1", "hydrating", 0, 5, False, reason="computes", plan_node_id=0))
    now[0] += 2.5
    sink.update(
        [
            (node, -1),
            (done, 1),
            (ObjectHydrationStatus(gid, "u1", False), -1),
            (ObjectHydrationStatus(gid, "u1", True), 1),
            # One that was there when it was opened.
            (other_done, 1),
            (ObjectHydrationStatus(again, "u1", True), 1),
        ]
    )
    place.env.manager.flush(sink.times)
    assert sorted(place.rows(times)) == [("u1", "00:00:02.5"), ("u2", None)]
    queued = "SELECT object_id, queue_time::text FROM mz_internal.mz_compute_hydration_times"
    assert place.rows(queued) == [("u1", "00:00:01.5")]
    for one in (gid, again):
        sink.stands(Status(one, "u1", "dropped", 0, 5, True))
    place.env.manager.flush(sink.times)
    assert not place.rows(times)
    assert not place.rows(queued)


def test_what_a_replica_tells_while_it_is_deleted_is_there_or_not_but_never_taken_back_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_managed(place.env)
    sink, gid, manager = _sink(place), GlobalId("u1"), place.env.manager
    relation = "mz_internal.mz_compute_frontiers_unified"
    delete, telling = manager.delete, list[threading.Thread]()

    def tell() -> None:
        sink.introspected(relation, "u9", [((gid, 5), 1)], anew=True)

    def deleting(of: GlobalId, predicate: Callable[[Any], bool]) -> None:
        if not telling:
            telling.append(threading.Thread(target=tell))
            telling[0].start()
            telling[0].join(1)
        delete(of, predicate)

    monkeypatch.setattr(manager, "delete", deleting)
    sink.delete_replica("u9")
    telling[0].join()
    rows = f"SELECT export_id, time::text::int FROM {relation} WHERE replica_id = 'u9'"
    manager.flush(sink._unified[relation])
    assert place.rows(rows) == [("u1", 5)]
    sink.introspected(relation, "u9", [((gid, 5), -1), ((gid, 6), 1)], anew=False)
    manager.flush(sink._unified[relation])
    assert place.rows(rows) == [("u1", 6)]


def test_what_was_told_stays_over_a_restart_until_it_is_told_anew(place: Place) -> None:
    register_managed(place.env)
    gid, gone = GlobalId("u1"), GlobalId("u2")
    sink = _sink(place)
    for one in (gid, gone):
        sink.update(
            [
                (OperatorHydrationStatus(one, 0, "u1", 0, True), 1),
                (OperatorHydrationStatus(one, 1, "u1", 0, True), 1),
                (ObjectHydrationStatus(one, "u1", False), 1),
                (ObjectHydrationStatus(one, "u1", True), 1),
            ]
        )
    rows = "SELECT object_id, plan_node_id, hydrated FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker"
    times = "SELECT object_id FROM mz_internal.mz_compute_hydration_times"
    both = [(one, node, True) for one in ("u1", "u2") for node in (0, 1)]
    assert sorted(place.rows(rows)) == both
    place.env.manager.close()
    # Another process takes over: it has told nothing yet.
    register_managed(place.env)
    sink = _sink(place)
    sink.connected("u1")
    assert sorted(place.rows(rows)) == both
    sink.update([(OperatorHydrationStatus(gid, 0, "u1", 0, False), 1)])
    assert sorted(place.rows(rows)) == [("u1", 0, False), *both[2:]]
    sink.keep({(gid, "u1")})
    assert place.rows(rows) == [("u1", 0, False)]
    assert place.rows(times) == [("u1",)], "a hydration that was found done keeps its time"


def test_all_that_was_told_of_a_replica_goes_with_it(place: Place) -> None:
    register_managed(place.env)
    sink = _sink(place)
    gid = GlobalId("u1")
    for replica in ("u7", "u8"):
        operator = OperatorHydrationStatus(gid, 1, replica, 0, False)
        sink.update([(operator, 1), (ObjectHydrationStatus(gid, replica, True), 1)])
    sink.delete_replica("u7")
    for relation in (
        "mz_compute_hydration_statuses",
        "mz_compute_operator_hydration_statuses_per_worker",
    ):
        assert place.rows(f"SELECT replica_id FROM mz_internal.{relation}") == [("u8",)]


def test_the_cluster_that_explain_names_is_there(place: Place) -> None:
    (text,) = place.rows("EXPLAIN SELECT name FROM mz_tables")[0]
    assert "Target cluster: mz_catalog_server" in text
    clusters = {"mz_catalog_server", "quickstart"}
    assert {name for (name,) in place.rows("SELECT name FROM mz_clusters")} == clusters
    assert {row[0] for row in place.rows("SHOW CLUSTERS")} == clusters
    place.run("SET cluster = mz_catalog_server")
    assert not place.session.notices
    assert ("t",) in place.rows("SELECT name FROM mz_tables")
    with pytest.raises(SqlError, match='is not allowed from the "mz_catalog_server" cluster'):
        place.rows("SELECT a FROM t")
    for change in (
        "DROP CLUSTER mz_catalog_server",
        "ALTER CLUSTER mz_catalog_server SET (SIZE '2')",
        "CREATE CLUSTER REPLICA mz_catalog_server.r SIZE '1'",
        "CREATE INDEX k IN CLUSTER mz_catalog_server ON t (a)",
        "CREATE MATERIALIZED VIEW w IN CLUSTER mz_catalog_server AS SELECT 1",
    ):
        with pytest.raises(SqlError, match="system cluster 'mz_catalog_server' cannot be modified"):
            place.run(change)


def test_a_replica_is_ready_while_somebody_runs_its_dataflows(place: Place) -> None:
    place.run("CREATE CLUSTER idle SIZE '1'")
    assert [(row[0], row[3]) for row in place.rows("SHOW CLUSTER REPLICAS")] == [
        ("idle", True),
        ("quickstart", False),
    ]

    def no_spark() -> Any:
        raise RuntimeError("nothing is to run here")

    leading = Coordinator(place.env, spark=no_spark)
    try:
        assert all(row[3] for row in place.rows("SHOW CLUSTER REPLICAS"))
    finally:
        leading.close()


@pytest.mark.parametrize(
    "option",
    [
        "linear chains",
        "raw plans",
    ],
)
def test_explain_refuses_an_option_that_it_does_not_heed(place: Place, option: str) -> None:
    with pytest.raises(SqlError, match="not supported"):
        place.run(f"EXPLAIN WITH ({option}) SELECT a FROM t")


def test_explain_refuses_to_plan_anew_what_runs(place: Place) -> None:
    option = "enable eager delta joins = false"
    with pytest.raises(SqlError, match="not supported") as raised:
        place.run(f"EXPLAIN WITH ({option}) FOR MATERIALIZED VIEW mv")
    assert "REPLAN" in str(raised.value.hint)
    place.run(f"EXPLAIN WITH ({option}) FOR REPLAN MATERIALIZED VIEW mv")


def _told(place: Place, text: str) -> list[str]:
    place.run(text)
    return [one.message for one in place.session.take_notices()]


def test_a_setting_that_nothing_asks_for_is_told(place: Place) -> None:
    place.session.take_notices()
    assert _told(place, "SET extra_float_digits = 0") == ["extra_float_digits has no effect"]
    assert _told(place, "SET extra_float_digits = 3") == []
    assert _told(place, "SET sql_safe_updates = on") == ["sql_safe_updates has no effect"]
    assert _told(place, "ALTER SYSTEM SET max_sinks = 7") == ["max_sinks has no effect"]
    assert _told(place, "ALTER SYSTEM SET enable_eager_delta_joins = on") == []
    assert _told(place, "ALTER SYSTEM RESET max_sinks") == []


def test_client_min_messages_is_heeded(place: Place) -> None:
    place.session.take_notices()
    skipped, warned = "CREATE TABLE IF NOT EXISTS t (a int)", "COMMIT"
    assert len(_told(place, skipped)) == len(_told(place, warned)) == 1
    place.run("SET client_min_messages = warning")
    assert (len(_told(place, skipped)), len(_told(place, warned))) == (0, 1)
    place.run("SET client_min_messages = error")
    assert (len(_told(place, skipped)), len(_told(place, warned))) == (0, 0)


def test_an_option_of_explain_is_given_once(place: Place) -> None:
    with pytest.raises(SqlError, match="ARITY specified more than once"):
        place.run("EXPLAIN WITH (arity, arity = false) SELECT a FROM t")


def test_what_keeps_a_view_back_is_told_though_another_reads_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {
        str(name): GlobalId(str(gid)) for gid, name in place.rows("SELECT id, name FROM mz_objects")
    }
    dataflows = place.coordinator.dataflows
    assert "fails" not in place.coordinator.reports.who(ids["over"])
    monkeypatch.setattr(
        type(dataflows), "failure", lambda _, gid: "no room" if gid == ids["mv"] else None
    )
    assert place.coordinator.reports.who(ids["mv"]) == "Its dataflow fails: no room."
    told = 'It reads materialized view "materialize.public.mv", whose dataflow fails: no room.'
    assert place.coordinator.reports.who(ids["over"]) == told
    assert "fails" not in place.coordinator.reports.who(ids["i"])
