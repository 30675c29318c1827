"""Dataflows of one process: what is wrong with one of them is that one's affair."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.session.session import Session
from mzsql.catalog.objects import Index, Item
from mzsql.catalog.state import CatalogState
from mzsql.compute.replica.dataflows.dataflow import Renderings
from mzsql.repr.ids import GlobalId
from mzsql.transform import OptimizerFeatures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HANG = 60.0


class Forgetful(Planner):
    """Has a bug that one object brings out."""

    broken: str | None = None

    def deploy(self, item: Item, *args: object, **kwargs: object) -> GlobalExpressions:
        if item.name == self.broken:
            raise KeyError("u99")
        return super().deploy(item, *args, **kwargs)  # type: ignore[arg-type]


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Environment]:
    """With two materialized views, which nobody maintains."""
    opened = Environment.open(locate(str(tmp_path / "env")))
    coordinator = Coordinator(opened, spark=None)
    text = "CREATE TABLE t (a int); CREATE VIEW v AS SELECT a FROM t"
    for name in ("first", "second"):
        text += f"; CREATE MATERIALIZED VIEW {name} AS SELECT a FROM v"
    coordinator.execute(Session(), text)
    yield opened
    coordinator.close()
    opened.close()


def no_spark() -> SparkSession:
    raise AssertionError("nothing is to run here")


def planner_of(env: Environment) -> Forgetful:
    return Forgetful(
        lambda: env.catalog.state, env.cache, OptimizerFeatures, Renderings(env.collections)
    )


def id_of(state: CatalogState, name: str) -> GlobalId:
    found = state.by_name("public", name)
    assert found is not None
    return found.id


@pytest.mark.parametrize("broken", ["first", "second"])
def test_a_bug_that_one_object_brings_out_is_its_failure_alone(
    env: Environment, broken: str
) -> None:
    planner = planner_of(env)
    planner.broken = broken
    dataflows = Dataflows(env, planner, no_spark, lead=True)
    try:
        dataflows.begin()
        assert dataflows.leads
        for name in ("first", "second"):
            gid = id_of(env.catalog.state, name)
            if name == broken:
                assert dataflows.failure(gid) == "internal error: KeyError: 'u99'"
            else:
                assert dataflows.deployed(gid) is not None
    finally:
        dataflows.close()


def test_a_bug_of_the_leader_ends_neither_the_opening_nor_the_leading(
    env: Environment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    planner, ticks, mended = planner_of(env), threading.Semaphore(0), threading.Event()
    synced = env.sync

    def sync() -> CatalogState:
        ticks.release()
        if not mended.is_set():
            raise LookupError("a bug")
        return synced()

    monkeypatch.setattr(env, "sync", sync)
    monkeypatch.setattr(env, "follow_catalog", lambda _: False)
    dataflows = Dataflows(env, planner, no_spark, lead=True)
    try:
        for _ in range(3):
            assert ticks.acquire(timeout=HANG)
        assert not dataflows.leads
        assert caplog.text.count("internal error: LookupError: a bug") == 1
        mended.set()
        for _ in range(3):
            assert ticks.acquire(timeout=HANG)
        assert dataflows.leads
    finally:
        dataflows.close()


def test_indexes_on_one_relation_do_not_read_each_other(env: Environment) -> None:
    """The older is planned anew when the younger is created, and counts from the next start on."""
    coordinator = Coordinator(env, spark=None)
    coordinator.execute(Session(), "CREATE INDEX older ON t (a)")
    coordinator.execute(Session(), "CREATE INDEX younger ON t (a); CREATE INDEX third ON v (a)")
    coordinator.close()
    state = env.catalog.state
    items = {item.name: item for item in state.of(Index)}
    older, younger = items["older"], items["younger"]
    reads = {name: planner_of(env).deploy(item).index_imports for name, item in items.items()}
    assert reads["older"] == ()
    assert reads["younger"] == (older.id,)
    assert reads["third"] != ()
    # What an earlier version has written is not taken.
    wrong = planner_of(env).deploy(older).replaced(index_imports=(younger.id,))
    planner_of(env).remember_all({older.id: wrong}, running={older.id})
    assert planner_of(env).deploy(older).index_imports == ()


def _explained(coordinator: Coordinator, replan: str = "") -> str:
    text = f"EXPLAIN PHYSICAL PLAN AS TEXT FOR {replan} MATERIALIZED VIEW second"
    (result,) = coordinator.execute(Session(), text)
    assert result.rows is not None
    found: str = result.rows.column(0)[0].as_py()
    return found


def test_every_process_explains_the_plan_that_runs(env: Environment, tmp_path: Path) -> None:
    """Whatever indexes come and go since; the next start runs what is planned with them."""
    leading, here = Coordinator(env, spark=no_spark), Coordinator(env, spark=None)
    there = Environment.open(locate(str(tmp_path / "env")))
    beside = Coordinator(there, spark=None)
    try:
        running = _explained(leading)
        leading.execute(Session(), "CREATE INDEX i ON t (a)")
        leading.execute(Session(), "CREATE INDEX j ON v (a)")
        assert [_explained(one) for one in (leading, here, beside)] == [running] * 3
        assert "_i" not in running
        planned = _explained(beside, "REPLAN")
        assert planned != running
        # Another process takes over, and runs what was planned anew.
        leading.close()
        there.sync()  # the lease was given back; else it would be seen whenever the leader's thread looks again
        leading = Coordinator(there, spark=no_spark)
        again = _explained(leading)
        assert leading._dataflows.leads
        assert again == planned
        assert _explained(here) == again
        # The index is kept for as long as this runs; a process that opens now is told so, too.
        leading.execute(Session(), "DROP INDEX i")
        leading.execute(Session(), "DROP INDEX j")
        again = _explained(leading)
        assert "[DELETED INDEX]" in again
        later = Environment.open(locate(str(tmp_path / "env")))
        try:
            late = Coordinator(later, spark=None)
            assert [_explained(one) for one in (late, here)] == [again] * 2
            late.close()
        finally:
            later.close()
    finally:
        for one in (beside, here, leading):
            one.close()
        there.close()
