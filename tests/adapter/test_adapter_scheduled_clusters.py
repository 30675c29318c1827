"""SCHEDULE = ON REFRESH: clusters have a replica only where a view in them is to be refreshed, and the audit log tells why."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.dataflows.scheduled_clusters import is_due, is_fresh
from mzsql.repr.refresh import RefreshEvery, RefreshSchedule

_END = 60.0


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path / "env")) as made:
        made.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)")
        made.execute("ALTER SYSTEM SET cluster_check_scheduling_policies_interval = '100 ms'")
        made.execute("ALTER SYSTEM SET cluster_refresh_mv_compaction_estimate = 0")
        yield made


def rows(con: mzsql.Connection, text: str) -> list[tuple[Any, ...]]:
    return con.execute(text).fetchall()


def factor(con: mzsql.Connection, name: str) -> int | None:
    ((found,),) = rows(con, f"SELECT replication_factor FROM mz_clusters WHERE name = '{name}'")
    return None if found is None else int(found)


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + _END
    while not met():
        assert time.monotonic() < end, "it has not come so far"
        time.sleep(0.05)


def told_of_replicas(con: mzsql.Connection) -> list[tuple[str, str, dict[str, Any]]]:
    found = rows(
        con,
        'SELECT event_type, "user", details::text FROM mz_audit_events'
        " WHERE object_type = 'cluster-replica' ORDER BY id",
    )
    return [(event, user, json.loads(text)) for event, user, text in found]


def told(con: mzsql.Connection, cluster: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [one for one in told_of_replicas(con) if one[2]["cluster_name"] == cluster]


def test_a_cluster_is_on_while_a_view_is_to_be_refreshed(con: mzsql.Connection) -> None:
    con.execute("CREATE CLUSTER k (SIZE '1', SCHEDULE = ON REFRESH)")
    assert factor(con, "k") == 0
    con.execute(
        "CREATE MATERIALIZED VIEW v IN CLUSTER k WITH (REFRESH AT CREATION) AS SELECT sum(a) AS s FROM t"
    )
    assert rows(con, "SELECT s FROM v") == [(3,)]
    until(lambda: factor(con, "k") == 0)
    (on, off) = told(con, "k")
    ((gid,),) = rows(con, "SELECT id FROM mz_objects WHERE name = 'v'")
    empty: dict[str, object] = {
        "objects_needing_refresh": [],
        "objects_needing_compaction": [],
        "hydration_time_estimate": "00:00:00",
    }
    for (event, user, details), kind, policy in (
        (on, "create", empty | {"decision": "on", "objects_needing_refresh": [gid]}),
        (off, "drop", empty | {"decision": "off"}),
    ):
        assert (event, user, details["reason"]) == (kind, "mz_system", "schedule")
        assert details["scheduling_policies"] == {"on_refresh": policy}


def test_what_was_refreshed_lately_keeps_a_cluster_on(con: mzsql.Connection) -> None:
    con.execute("ALTER SYSTEM SET cluster_refresh_mv_compaction_estimate = '1 h'")
    con.execute("CREATE CLUSTER k (SIZE '1', SCHEDULE = ON REFRESH)")
    con.execute(
        "CREATE MATERIALIZED VIEW v IN CLUSTER k WITH (REFRESH AT CREATION) AS SELECT sum(a) AS s FROM t"
    )
    assert rows(con, "SELECT s FROM v") == [(3,)]
    con.execute("ALTER SYSTEM SET cluster_refresh_mv_compaction_estimate = 0")
    until(lambda: factor(con, "k") == 0)
    con.execute("ALTER SYSTEM SET cluster_refresh_mv_compaction_estimate = '1 h'")
    until(lambda: factor(con, "k") == 1)
    policy = told(con, "k")[-1][2]["scheduling_policies"]["on_refresh"]
    assert policy["objects_needing_compaction"]
    assert not policy["objects_needing_refresh"]


def test_a_schedule_outlives_the_process_and_is_taken_back(
    con: mzsql.Connection, tmp_path: Path
) -> None:
    con.execute(
        "CREATE CLUSTER k (SIZE '1', SCHEDULE = ON REFRESH (HYDRATION TIME ESTIMATE = '90 s'))"
    )
    con.close()
    with mzsql.connect(str(tmp_path / "env")) as again:
        schedules = (
            "SELECT s.type, s.refresh_hydration_time_estimate::text FROM mz_internal.mz_cluster_schedules AS s"
            " JOIN mz_clusters AS c ON c.id = s.cluster_id WHERE c.name = 'k'"
        )
        assert rows(again, schedules) == [("on-refresh", "00:01:30")]
        ((_, created),) = rows(again, "SHOW CREATE CLUSTER k")
        assert created.endswith("SCHEDULE = ON REFRESH (HYDRATION TIME ESTIMATE = '00:01:30'))")
        assert "REPLICATION FACTOR" not in created
        again.execute(created.replace('"k"', '"as_k"'))
        again.execute("ALTER CLUSTER k SET (INTROSPECTION INTERVAL = '2 s')")
        assert rows(again, schedules) == [("on-refresh", "00:01:30")]
        for statement, error in (
            (
                "SET (REPLICATION FACTOR = 1)",
                "REPLICATION FACTOR cannot be set if the cluster SCHEDULE is anything other than MANUAL",
            ),
            ("SET (MANAGED = false)", "explicitly set the SCHEDULE to MANUAL"),
        ):
            with pytest.raises(mzsql.ProgrammingError, match=error):
                again.execute(f"ALTER CLUSTER k {statement}")
        again.execute("ALTER CLUSTER k RESET (SCHEDULE)")
        assert rows(again, schedules) == [("manual", None)]
        again.execute("ALTER CLUSTER k SET (REPLICATION FACTOR = 1)")
        assert told(again, "k")[-1][2]["reason"] == "manual"
        again.execute("CREATE CLUSTER own REPLICAS (r (SIZE '1'))")
        with pytest.raises(mzsql.ProgrammingError, match="not supported for unmanaged clusters"):
            again.execute("ALTER CLUSTER own SET (SCHEDULE = ON REFRESH)")
        again.execute("ALTER SYSTEM SET enable_cluster_schedule_refresh = off")
        with pytest.raises(mzsql.NotSupportedError, match="cluster option is not available"):
            again.execute("ALTER CLUSTER k SET (SCHEDULE = ON REFRESH)")


def test_what_the_audit_log_tells_equals_documents_written_out(con: mzsql.Connection) -> None:
    con.execute("CREATE CLUSTER k REPLICAS (r (SIZE '1'))")
    known = {
        "cluster_name": "k",
        "logical_size": "1",
        "reason": "manual",
        "replica_name": "r",
    }
    ((details,),) = rows(
        con,
        "SELECT (details - 'cluster_id' - 'replica_id')::text FROM mz_audit_events"
        " WHERE object_type = 'cluster-replica'"
        f" AND details - 'cluster_id' - 'replica_id' = '{json.dumps(known)}'",
    )
    assert json.loads(details) == known


def test_a_cluster_shows_all_its_options(con: mzsql.Connection) -> None:
    con.execute("CREATE CLUSTER k (SIZE '1', REPLICATION FACTOR 2, INTROSPECTION INTERVAL '5 s')")
    assert rows(con, "SHOW CREATE CLUSTER k") == [
        (
            "k",
            'CREATE CLUSTER "k" (DISK = true, INTROSPECTION DEBUGGING = false,'
            " INTROSPECTION INTERVAL = INTERVAL '00:00:05', MANAGED = true, REPLICATION FACTOR = 2,"
            " SIZE = '1', SCHEDULE = MANUAL)",
        )
    ]


def test_when_a_refresh_is_due_and_when_it_was_lately() -> None:
    hourly = RefreshSchedule(everies=(RefreshEvery(3_600_000, 0),))
    once = RefreshSchedule(ats=(5_000,))
    hour = 3_600_000
    assert is_due(hourly, hour, hour)
    assert not is_due(hourly, hour, hour - 1)
    assert is_due(hourly, hour + 1, 2 * hour)
    assert not is_due(once, 5_001, 9_000)
    assert not is_due(once, None, 9_000)
    assert is_fresh(once, None, 5_000)
    assert not is_fresh(once, None, 5_001)
    assert is_fresh(hourly, hour + 1, hour)
    assert not is_fresh(hourly, hour, 1)


def test_a_cluster_that_may_have_no_replica_keeps_nobody_else_waiting(
    con: mzsql.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    con.execute("ALTER SYSTEM SET max_replicas_per_cluster = 0")
    con.execute("CREATE CLUSTER k (SIZE '1', SCHEDULE = ON REFRESH)")
    con.execute(
        "CREATE MATERIALIZED VIEW v IN CLUSTER k WITH (REFRESH AT CREATION) AS SELECT sum(a) AS s FROM t"
    )
    until(lambda: "cluster k is not switched by its schedule" in caplog.text)
    # Neither statements nor what the leader looks after besides notice.
    con.execute("CREATE TABLE other (a int); INSERT INTO other VALUES (7)")
    assert rows(con, "SELECT a FROM other") == [(7,)]
    con.execute("ALTER SYSTEM RESET max_replicas_per_cluster")
    until(lambda: len(told(con, "k")) == 2)
    assert rows(con, "SELECT s FROM v") == [(3,)]


def test_of_several_replicas_a_schedule_leaves_one(con: mzsql.Connection) -> None:
    con.execute("CREATE CLUSTER k (SIZE '1', REPLICATION FACTOR 2)")
    con.execute("ALTER CLUSTER k SET (SCHEDULE = ON REFRESH (HYDRATION TIME ESTIMATE = '1 hour'))")
    con.execute(
        "CREATE MATERIALIZED VIEW v IN CLUSTER k WITH (REFRESH EVERY '30 minutes') AS SELECT a FROM t"
    )
    until(lambda: factor(con, "k") == 1)


def test_only_the_coming_and_going_of_replicas_has_a_reason(con: mzsql.Connection) -> None:
    con.execute("CREATE CLUSTER k (SIZE '1')")
    con.execute("COMMENT ON CLUSTER REPLICA k.r1 IS 'the only one'")
    con.execute("DROP CLUSTER k")
    assert [(event, details.get("reason")) for event, _, details in told_of_replicas(con)] == [
        ("create", "manual"),
        ("comment", None),
        ("drop", "manual"),
    ]
