"""What is to be seen of a hydration while it is under way, and that what is true of it stays so whatever becomes of who computes it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hydration_kit import HANG, SHOWN, Watcher, until

import mzsql
from mzsql.compute.replica.scheduling.sessions import DataflowSessions
from mzsql.persist.parts import PartWriter

REASON = "SELECT reason FROM mz_internal.mz_unhydrated_objects"


@pytest.fixture
def env(tmp_path: Path) -> Path:
    with mzsql.connect(tmp_path) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (k int, x int)")
        con.execute("INSERT INTO t SELECT g, g % 100 FROM generate_series(1, 40000) AS g")
    return tmp_path


def test_workers_are_done_one_by_one_and_what_they_have_put_out_is_told_meanwhile(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, finish = threading.Event(), PartWriter.finish

    def last_worker_waits(self: PartWriter, **how: Any) -> Any:
        if self._worker == 1:
            assert opened.wait(HANG)
        return finish(self, **how)

    monkeypatch.setattr(PartWriter, "finish", last_worker_waits)
    with mzsql.connect(env) as con, mzsql.connect(env, read_only=True) as beside:
        try:
            con.execute("CREATE MATERIALIZED VIEW a AS SELECT k, sum(x) AS m FROM t GROUP BY k")
            ((plan,),) = con.execute(
                "EXPLAIN PHYSICAL PLAN WITH (node_ids) FOR MATERIALIZED VIEW a"
            ).fetchall()
            assert "Reduce" in plan
            root = 1

            def by_worker(found: list[Any]) -> dict[tuple[int, int], bool]:
                return {
                    (node, worker): done for _, _, node, worker, done in found if node is not None
                }

            shown = by_worker(until(beside, SHOWN, lambda found: by_worker(found).get((root, 0))))
            assert not shown[root, 1], "its share is not written"
            assert (shown[0, 0], shown[0, 1]) == (True, True), (
                "the node below has put out all it has"
            )
            assert (None, False) in {(row[2], row[4]) for row in con.execute(SHOWN).fetchall()}
            put_out = until(
                beside,
                "SELECT lir_id, worker_id, rows, bytes > 0"
                " FROM mz_internal.mz_compute_hydration_progress_unified ORDER BY worker_id",
                bool,
            )
            assert [row[:2] for row in put_out] == [(root, 0), (root, 1)]
            assert sum(row[2] for row in put_out) == 40000
            assert all(row[3] for row in put_out)
            told = until(beside, REASON, lambda found: "40000 rows" in found[0][0])
            until(beside, REASON, lambda found: found and found != told)
        finally:
            opened.set()
        until(beside, SHOWN, lambda found: all(row[4] for row in found))
        told_of = "SELECT * FROM mz_internal.mz_compute_hydration_progress_unified"
        until(beside, told_of, lambda found: not found)


@pytest.mark.spark
def test_who_waits_for_spark_to_start_says_so_all_the_time(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, session = threading.Event(), DataflowSessions.hydration

    def slowly(self: DataflowSessions) -> Any:
        assert begun.wait(HANG)
        return session(self)

    monkeypatch.setattr(DataflowSessions, "hydration", slowly)
    with mzsql.connect(env) as con:
        try:
            con.execute("ALTER SYSTEM SET step_engine = 'spark'")
            con.execute("CREATE MATERIALIZED VIEW a AS SELECT k, sum(x) AS m FROM t GROUP BY k")
            waits = "waits until Spark has started for "
            first = until(con, REASON, lambda found: found and found[0][0].startswith(waits))
            until(con, REASON, lambda found: found[0][0].startswith(waits) and found != first)
        finally:
            begun.set()
        until(con, REASON, lambda found: not found)


def hydrated(found: list[Any]) -> bool:
    return bool(found) and all(row[4] for row in found)


def test_what_is_hydrated_stays_so_through_restart_take_over_drop_and_sealed_inputs(
    env: Path,
) -> None:
    with mzsql.connect(env, read_only=True) as beside:
        watcher = Watcher(beside)
        with watcher.at_work():
            first = mzsql.connect(env)
            first.execute("CREATE MATERIALIZED VIEW a AS SELECT x, sum(k) AS s FROM t GROUP BY x")
            first.execute("CREATE TABLE u (x int); CREATE INDEX i ON u (x)")
            first.execute("CREATE MATERIALIZED VIEW dropped AS SELECT count(*) AS n FROM t")
            first.execute(
                "CREATE MATERIALIZED VIEW sealed AS SELECT v, count(*) AS n FROM (VALUES (1), (2)) AS z (v) GROUP BY v"
            )
            first.execute(
                "CREATE MATERIALIZED VIEW b WITH (REFRESH AT CREATION) AS SELECT max(k) AS m FROM t"
            )
            until(beside, REASON, lambda found: not found)
            until(
                beside,
                SHOWN,
                lambda found: {row[0] for row in found} == {"a", "b", "i", "dropped", "sealed"},
            )
            # Restarted.
            first.close()
            first = mzsql.connect(env)
            first.execute("INSERT INTO t VALUES (0, 1)")
            assert first.execute("SELECT count(*) FROM a").fetchall() == [(100,)]
            # Taken over.
            second = mzsql.connect(env)
            first.close()
            second.execute("INSERT INTO t VALUES (0, 1000)")
            assert second.execute("SELECT count(*) FROM a").fetchall() == [(101,)]
            watcher.dropping("dropped")
            second.execute("DROP MATERIALIZED VIEW dropped")
            until(
                beside, SHOWN, lambda found: {row[0] for row in found} == {"a", "b", "i", "sealed"}
            )
            assert hydrated(beside.execute(SHOWN).fetchall())
            second.close()
        watcher.check("a", "b", "i", "dropped", "sealed")
