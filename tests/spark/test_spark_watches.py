"""A session that knows only where an environment is watches a skewed join hydrate elsewhere, node by node and worker by worker."""

from __future__ import annotations

import functools
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hydration_kit import HANG, Watcher

import mzsql
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings
from mzsql.persist.parts import PartWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class _Plain:
    """What the session reads by the data source, whose process is another one."""

    def __init__(self, spark: SparkSession, env: Path) -> None:
        self._spark, self._env = spark, str(env)

    def read(self, relation: str) -> list[Any]:
        reader = self._spark.read.format("mzsql").option("env", self._env)
        return reader.load(f"mz_internal.{relation}").collect()

    def nodes(self) -> dict[tuple[int, int], bool]:
        found = self.read("mz_compute_operator_hydration_statuses_per_worker")
        return {(int(row.plan_node_id), int(row.worker_id)): row.hydrated for row in found}


def test_a_plain_session_sees_a_hydration_while_it_is_under_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = {worker: threading.Event() for worker in (0, 1)}
    finish = PartWriter.finish

    def in_turn(self: PartWriter, **how: Any) -> Any:
        if self._worker is not None:
            assert gates[self._worker].wait(HANG)
        return finish(self, **how)

    plain = _Plain(spark.newSession(), tmp_path)

    def until(what: Any) -> Any:
        end = time.monotonic() + HANG
        while not (found := what()):
            assert time.monotonic() < end, plain.read("mz_unhydrated_objects")
        return found

    with mzsql.connect(tmp_path) as con, mzsql.connect(tmp_path, read_only=True) as beside:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        con.execute("CREATE TABLE a (k int, x int); CREATE TABLE b (k int, y int)")
        # Nine of ten rows have one key.
        con.execute(
            "INSERT INTO a SELECT CASE WHEN g % 10 = 0 THEN g ELSE 0 END, g FROM generate_series(1, 60000) AS g"
        )
        con.execute("INSERT INTO b SELECT g, g FROM generate_series(0, 60000) AS g")
        monkeypatch.setattr(PartWriter, "finish", in_turn)
        watcher = Watcher(beside)
        try:
            with watcher.at_work():
                con.execute(
                    "CREATE MATERIALIZED VIEW j AS SELECT a.x, b.y FROM a JOIN b ON a.k = b.k"
                )
                # An input is read, nothing is written.
                first = until(lambda: {n for n, done in plain.nodes().items() if done})
                (read,) = {node for node, _ in first}
                assert first == {(read, 0), (read, 1)}
                gates[0].set()
                more = until(lambda: {n for n, done in plain.nodes().items() if done} - first)
                ((arranged, worker),) = more
                assert (arranged, worker) == (read + 1, 0), "the other one's share is not written"
                put_out = until(lambda: plain.read("mz_compute_hydration_progress_unified"))
                assert {int(row.lir_id) for row in put_out} == {arranged}
                sizes = sorted(row.rows for row in put_out)
                assert sum(sizes) in (60000, 60001)
                ((reason, node),) = {
                    (row.reason, int(row.plan_node_id))
                    for row in plain.read("mz_unhydrated_objects")
                }
                assert node == arranged
                assert reason.startswith("computes and writes an arrangement")
                gates[1].set()
                until(lambda: all(row.hydrated for row in plain.read("mz_hydration_statuses")))
                assert all(plain.nodes().values())
        finally:
            for gate in gates.values():
                gate.set()
        watcher.check("j")


@pytest.mark.long
def test_tasks_of_spark_are_told_worker_by_worker(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but a few rows are one worker's, whose task takes that much longer."""
    settings = functools.partial(
        ComputeSettings, hydrate_here_bytes=-1, small_hydration_bytes=-1, inline_rows=0
    )
    monkeypatch.setattr(controller, "ComputeSettings", settings)
    with (
        mzsql.connect(tmp_path, spark=spark) as con,
        mzsql.connect(tmp_path, read_only=True) as beside,
    ):
        con.execute("CREATE TABLE a (k int, x int); CREATE TABLE b (k int, y int)")
        con.execute(
            "INSERT INTO a SELECT CASE WHEN g < 50 THEN g ELSE 0 END, g FROM generate_series(1, 2000000) AS g"
        )
        con.execute("INSERT INTO b SELECT g, g FROM generate_series(0, 50) AS g")
        watcher, seen, reasons = Watcher(beside), list[frozenset[Any]](), set[str]()
        sizes: dict[tuple[int, int], int] = {}
        end = time.monotonic() + HANG
        con.execute("CREATE MATERIALIZED VIEW j AS SELECT a.x, b.y FROM a JOIN b ON a.k = b.k")
        while True:
            found = watcher.look()
            seen.append(frozenset(row[2:4] for row, done in found.items() if done))
            if found and all(found.values()):
                break
            for row in beside.execute(
                "SELECT lir_id, worker_id, bytes FROM mz_internal.mz_compute_hydration_progress_unified"
                " WHERE worker_id IS NOT NULL"
            ).fetchall():
                sizes[row[0], row[1]] = max(sizes.get(row[:2], 0), row[2])
            reasons |= {
                one
                for (one,) in beside.execute("SELECT reason FROM mz_internal.mz_unhydrated_objects")
            }
            assert time.monotonic() < end, found
        watcher.check("j")
    # The node of the skewed input at a moment at which one worker was done and the other one was not.
    alone = [one for done in seen for one in done if (one[0], 1 - (one[1] or 0)) not in done]
    assert [one for one in alone if one[0] is not None]
    most = max(sizes, key=lambda one: sizes[one])
    assert sizes[most] > 100 * sizes.get((most[0], 1 - most[1]), 0)
    assert any("Spark tasks done" in one for one in reasons), reasons
