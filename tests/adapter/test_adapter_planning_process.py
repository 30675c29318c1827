"""A second process that plans: what it makes is what this one would make, and nothing depends on it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.dataflows import dataflows
from mzsql.adapter.environment import opening
from mzsql.adapter.planning import process
from mzsql.adapter.planning.process import PlanningProcess
from mzsql.repr.errors import Fenced

PATIENCE = 120.0
DEFINED = (
    "CREATE VIEW v AS SELECT a, b + 1 AS b FROM t",
    "CREATE MATERIALIZED VIEW joined AS SELECT t.a, u.b FROM t JOIN u ON t.a = u.a",
    "CREATE INDEX i ON u (a)",
    "CREATE MATERIALIZED VIEW grouped AS SELECT v.a, sum(u.b) AS s FROM v JOIN u ON v.a = u.a GROUP BY v.a",
    "CREATE MATERIALIZED VIEW chained AS SELECT max(s) AS s FROM grouped",
)
NAMES = ("joined", "grouped", "chained")


@pytest.fixture
def env(tmp_path: Path) -> Path:
    path = tmp_path / "env"
    with mzsql.connect(path) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        con.execute("CREATE TABLE t (a int, b int); CREATE TABLE u (a int, b int)")
        con.execute("INSERT INTO t VALUES (1, 2), (2, 3); INSERT INTO u VALUES (1, 10), (1, 20)")
        for text in DEFINED:
            con.execute(text)
        assert con.execute("SELECT s FROM chained").fetchall() == [(30,)]
    return path


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_makes_what_this_process_would_make(env: Path) -> None:
    with mzsql.connect(env, read_only=True) as con:
        coordinator = con.coordinator
        state, planner = coordinator.env.catalog.state, coordinator.planner
        items = state.maintained
        assert len(items) == 4
        ahead = PlanningProcess(state, planner.features(), [item.id for item in items])
        try:
            for item in items:
                made = []
                until(lambda item=item, made=made: made.append(ahead.take(item.id)) or made[-1])  # type: ignore[misc]
                afresh = coordinator.planner.outlined(planner.deploy(item, fresh=True))
                assert made[-1] == afresh, item.full_name
                assert ahead.take(item.id) is None, "once"
            assert ahead.fits(state, planner.features())
        finally:
            ahead.close()


@pytest.mark.parametrize("works", [True, False])
def test_an_opening_with_much_to_plan_has_it_planned_beside(
    env: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """It is taken where it is there, written with the rest, and not missed where the process cannot be started."""
    monkeypatch.setattr(process, "PAYS", 1)
    monkeypatch.setattr(opening, "VERSION", "0.1.9")
    taken = []
    take = PlanningProcess.take

    def waits(self: PlanningProcess, gid: str) -> object:
        found = None
        while found is None and works:
            found = take(self, gid)
            time.sleep(0.01)
        taken.append(found)
        return found

    monkeypatch.setattr(PlanningProcess, "take", waits)
    if not works:
        monkeypatch.setattr(process.sys, "executable", str(env / "nothing"))
    with mzsql.connect(env) as con:
        assert con.coordinator.env.startup.wait(PATIENCE)
        con.execute("INSERT INTO u VALUES (2, 5)")
        assert con.execute("SELECT s FROM chained").fetchall() == [(30,)]
        assert con.execute("SELECT count(*) FROM joined").fetchall() == [(3,)]
        phases = con.execute("SELECT phase, objects FROM mz_internal.mz_startup_phases").fetchall()
        assert ("optimization", 4) in phases
    assert len(taken) == 4
    assert all((one is not None) == works for one in taken)
    with mzsql.connect(env) as con:
        assert con.coordinator.env.startup.wait(PATIENCE)
        assert con.plans_from_cache == (4, 4)


@pytest.mark.parametrize("early", [True, False])
def test_how_it_has_failed_is_logged(
    env: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, early: bool
) -> None:
    """One that fails as it begins, so that it may not even be asked, and one that fails at its work."""
    start = subprocess.Popen

    def failing(arguments: list[str], **given: Any) -> Any:
        last = "import sys; sys.exit('it has planned enough')"
        program = last if early else arguments[-1].replace("main()", f"main(); {last}")
        return start([*arguments[:-1], program], **given)

    with mzsql.connect(env, read_only=True) as con:
        state, features = con.coordinator.env.catalog.state, con.coordinator.planner.features()
        monkeypatch.setattr(process.subprocess, "Popen", failing)
        ahead = PlanningProcess(state, features, [item.id for item in state.maintained])
        ahead._thread.join(PATIENCE)
        ahead.close()
    # Threads of environments that other tests had open may warn of something else meanwhile.
    own = [one for one in caplog.records if one.name == process.__name__]
    (told,) = [one.getMessage() for one in own if one.levelname == "WARNING"]
    assert "has ended with exit code 1" in told
    assert told.endswith("it has planned enough")


def test_one_that_is_ended_is_not_told_of_as_failed(
    env: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mzsql.connect(env, read_only=True) as con:
        state, features = con.coordinator.env.catalog.state, con.coordinator.planner.features()
        ahead = PlanningProcess(state, features, [item.id for item in state.maintained])
        until(lambda: ahead._process)
        ahead.close()
    assert not [one for one in caplog.records if one.levelname == "WARNING"]


def test_who_leads_no_more_has_nothing_planned(env: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PAYS", 1)
    monkeypatch.setattr(opening, "VERSION", "0.1.9")
    monkeypatch.setattr(dataflows, "AT_ONCE", 1)
    install, resign = dataflows.Dataflows._install, dataflows.Dataflows._resign
    before: list[PlanningProcess | None] = []
    after: list[PlanningProcess | None] = []

    def taken_over(self: dataflows.Dataflows, *given: Any) -> None:
        install(self, *given)
        if not before:
            before.append(self._ahead._process)
            raise Fenced("the holds were taken over by another process")

    def resigning(self: dataflows.Dataflows) -> None:
        resign(self)
        after.append(self._ahead._process)

    monkeypatch.setattr(dataflows.Dataflows, "_install", taken_over)
    monkeypatch.setattr(dataflows.Dataflows, "_resign", resigning)
    with mzsql.connect(env) as con:
        until(lambda: after)
        assert after == [None]
        (planning,) = before
        assert planning is not None
        assert planning._process is not None
        assert planning._process.poll() is not None
        # It leads again, as nobody has taken the lead.
        con.execute("INSERT INTO u VALUES (2, 5)")
        assert con.execute("SELECT count(*) FROM joined").fetchall() == [(3,)]


def test_what_was_planned_under_another_catalog_is_not_taken(env: Path) -> None:
    with mzsql.connect(env) as con:
        coordinator = con.coordinator
        state, features = coordinator.env.catalog.state, coordinator.planner.features()
        ahead = PlanningProcess(state, features, [])
        try:
            con.execute("CREATE INDEX other ON t (a)")
            assert not ahead.fits(coordinator.env.catalog.state, features)
        finally:
            ahead.close()


def test_a_deployment_that_waits_has_it_planned_beside_too(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PAYS", 1)
    taken = []
    take = PlanningProcess.take

    def waits(self: PlanningProcess, gid: str) -> object:
        found = None
        while found is None:
            found = take(self, gid)
            time.sleep(0.01)
        taken.append(gid)
        return found

    monkeypatch.setattr(PlanningProcess, "take", waits)
    with mzsql.connect(env) as old, monkeypatch.context() as newer:
        newer.setattr(opening, "VERSION", "0.1.9")
        with mzsql.connect(env, deploy_generation=1) as new:
            found = new.coordinator.env
            until(lambda: not found.preparations.lacking(found.sync(), 1))
            assert len(taken) == 4
            assert new.execute("SELECT s FROM chained").fetchall() == [(30,)]
            new.promote()
            until(lambda: not found.preparations.all())
            new.execute("INSERT INTO u VALUES (2, 5)")
            assert new.execute("SELECT count(*) FROM joined").fetchall() == [(3,)]
        with pytest.raises(mzsql.OperationalError, match="fenced by"):
            old.execute("SELECT 1")
