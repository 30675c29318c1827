"""Opening an environment: what runs before dataflows are taken up, what is taken up first, and that plans are what they would be afresh."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mzsql
from mzsql.adapter.dataflows import dataflows
from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.planning.planner import Planner
from mzsql.catalog.objects import Maintained
from mzsql.compute.controller.controller import ComputeController
from mzsql.compute.replica.scheduling import lifecycle

HANG = 60.0


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """A chain of three views, and two beside it."""
    path = tmp_path / "env"
    with mzsql.connect(path) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int)")
        con.execute("INSERT INTO t VALUES (1), (2), (3)")
        for name, query in (
            ("apart", "SELECT count(*) AS c FROM t"),
            ("beside", "SELECT max(a) AS m FROM t"),
            ("one", "SELECT a + 1 AS a FROM t"),
            ("two", "SELECT a + 1 AS a FROM one"),
            ("three", "SELECT sum(a) AS s FROM two"),
        ):
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        for name, answer in (("three", 12), ("apart", 3), ("beside", 3)):
            assert con.execute(f"SELECT * FROM {name}").fetchall() == [(answer,)]
    return path


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No plan is got before this is set."""
    go, deploy = threading.Event(), Planner.deploy

    def waiting(self: Planner, *args: object, **kwargs: object) -> GlobalExpressions:
        assert go.wait(HANG)
        return deploy(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Planner, "deploy", waiting)
    yield go
    go.set()


def test_statements_run_before_any_dataflow_is_taken_up(env: Path, held: threading.Event) -> None:
    with mzsql.connect(env) as con:
        assert con.execute("SELECT 1").fetchall() == [(1,)]
        assert con.execute("SELECT sum(a) FROM t").fetchall() == [(6,)]
        assert con.execute("SELECT name FROM mz_materialized_views WHERE name = 'two'").fetchall()
        con.execute("INSERT INTO t VALUES (4)")
        assert not con.coordinator.env.startup.wait(0)
        held.set()
        assert con.execute("SELECT s FROM three").fetchall() == [(18,)]
        assert con.execute("SELECT c FROM apart").fetchall() == [(4,)]


OPENING = """
import sys
import mzsql
from mzsql.catalog import builtin

con = mzsql.connect(sys.argv[1], read_only=True)
con.execute("SELECT 1").fetchall()
print(builtin._read.cache_info().currsize)
con.execute("SELECT count(*) FROM mz_tables").fetchall()
print(builtin._read.cache_info().currsize)
"""


def test_a_first_answer_waits_for_no_builtin_relations_to_be_read(env: Path) -> None:
    run = [sys.executable, "-c", OPENING, str(env)]
    told = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True, timeout=HANG)
    assert told.stdout.split() == ["0", "1"]


def test_what_somebody_waits_for_is_taken_up_first(
    env: Path, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataflows, "AT_ONCE", 1)
    order: list[str] = []
    opened = lifecycle.DataflowLifecycle.open

    def told(self: lifecycle.DataflowLifecycle) -> bool:
        order.append(self.spec.name.rpartition(".")[2])
        return opened(self)

    monkeypatch.setattr(lifecycle.DataflowLifecycle, "open", told)
    with mzsql.connect(env) as con:
        con.execute("INSERT INTO t VALUES (4)")
        env_ = con.coordinator.env
        answers: list[object] = []
        reader = threading.Thread(
            target=lambda: answers.extend(con.execute("SELECT s FROM three").fetchall())
        )
        reader.start()
        while not env_.collections.awaited():
            assert reader.is_alive()
            time.sleep(0.01)
        held.set()
        reader.join(HANG)
        assert answers == [(18,)]
        assert env_.startup.wait(HANG)
    first = order.index("one")
    assert order[first : first + 3] == ["one", "two", "three"]
    assert "beside" not in order[:first]


def test_garbage_is_looked_for_again_once_all_are_taken_up_or_the_process_closes(
    env: Path, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataflows, "AT_ONCE", 1)
    was, install, during = gc.isenabled(), ComputeController.install, list[bool]()

    def told(self: ComputeController, *args: object) -> None:
        during.append(gc.isenabled())
        install(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ComputeController, "install", told)
    gc.enable()
    held.set()
    try:
        with mzsql.connect(env) as con:
            assert con.coordinator.env.startup.wait(HANG)
            assert len(during) == 5
            assert not any(during)
            assert con.execute("SELECT s FROM three").fetchall() == [(12,)]
            _soon(gc.isenabled)
        held.clear()
        with mzsql.connect(env):
            _soon(lambda: not gc.isenabled())
            held.set()
        _soon(gc.isenabled)
        # What takes long has the collector back.
        monkeypatch.setattr(dataflows, "UNDISTURBED_SECONDS", -1.0)
        during.clear()
        with mzsql.connect(env) as con:
            assert con.coordinator.env.startup.wait(HANG)
            assert any(during)
    finally:
        gc.enable() if was else gc.disable()


def _soon(found: Callable[[], bool]) -> None:
    until = time.monotonic() + HANG
    while not found():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_phases_are_told(env: Path) -> None:
    with mzsql.connect(env) as con:
        assert con.coordinator.env.startup.wait(HANG)
        told = con.execute("SELECT phase, seconds, objects FROM mz_internal.mz_startup_phases")
        phases = {name: (seconds, objects) for name, seconds, objects in told.fetchall()}
    assert {"catalog", "plans", "taking up", "complete"} <= phases.keys()
    assert phases["taking up"][1] == phases["plans"][1] == 5
    assert "optimization" not in phases
    assert all(0 <= seconds <= phases["complete"][0] + 1 for seconds, _ in phases.values())


def test_what_is_planned_anew_for_the_next_start_is_rendered_by_then(env: Path) -> None:
    """An index made, or dropped, has others planned anew: nothing of that is left to the start that takes them up."""
    for statement in ("CREATE INDEX by_a ON t (a)", "DROP INDEX by_a"):
        with mzsql.connect(env) as con:
            assert con.coordinator.env.startup.wait(HANG)
            con.execute(statement)
        with mzsql.connect(env) as con:
            assert con.coordinator.env.startup.wait(HANG)
            told = con.execute("SELECT phase, objects FROM mz_internal.mz_startup_phases")
            phases = dict(told.fetchall())
            assert phases["plans"] >= 5
            assert "optimization" not in phases


def test_nothing_is_rendered_for_views_without_changes(env: Path) -> None:
    with mzsql.connect(env) as con:
        assert con.coordinator.env.startup.wait(HANG)
        con.execute("CREATE TABLE u (a int); INSERT INTO u VALUES (1)")
        assert con.execute("SELECT s FROM three").fetchall() == [(12,)]
        (client,) = con.coordinator.dataflows.controller.replicas
        installed = client._link._installed.all()  # type: ignore[attr-defined]
        assert len(installed) == 5
        assert [flow.spec.name for flow in installed if flow.rendered.is_rendered] == []
        con.execute("INSERT INTO t VALUES (4)")
        assert con.execute("SELECT s FROM three").fetchall() == [(18,)]


# --- plans are what they would be afresh -------------------------------------------------------

STATEMENTS = (
    "CREATE VIEW v{n} AS SELECT a, b + {n} AS b FROM {on} WHERE a <> {n}",
    "CREATE MATERIALIZED VIEW m{n} AS SELECT a, sum(b) AS b FROM {on} GROUP BY a",
    "CREATE MATERIALIZED VIEW m{n} AS SELECT x.a, y.b FROM {on} AS x JOIN t AS y ON x.a = y.a WHERE y.b > {n}",
    "CREATE INDEX i{n} ON {on} (a)",
    "CREATE INDEX i{n} ON t (b)",
    "DROP {kind} IF EXISTS {on} CASCADE",
    "DROP INDEX IF EXISTS i{m}",
    "ALTER SYSTEM SET enable_eager_delta_joins = {flag}",
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*STATEMENTS, "restart", "damage", "read"]),
        st.integers(0, 9),
        st.booleans(),
    ),
    min_size=4,
    max_size=10,
)


class Planned:
    """An environment whose plans are compared with those made without a cache."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self.con = mzsql.connect(path)
        self.con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")

    def names(self) -> list[tuple[str, str]]:
        return self.con.execute(
            "SELECT name, type FROM mz_objects WHERE id LIKE 'u%' AND type <> 'index' ORDER BY id"
        ).fetchall()

    def step(self, what: str, choice: int, flag: bool) -> None:
        if what == "restart":
            self.con.close()
            self.con = mzsql.connect(self.path)
            return
        if what == "damage":
            self._damage(choice)
            return
        self.number += 1
        names = self.names()
        on, kind = names[choice % len(names)]
        spelled = {"table": "VIEW", "view": "VIEW", "materialized-view": "MATERIALIZED VIEW"}[kind]
        if what == "read":
            self.con.execute(f"SELECT * FROM {on}").fetchall()
        elif not (what.startswith("DROP {kind}") and kind == "table"):
            text = what.format(
                n=self.number, m=choice, on=on, kind=spelled, flag="on" if flag else "off"
            )
            self.con.execute(text)

    def _damage(self, choice: int) -> None:
        """Junk in place of an entry."""
        cache = self.con.coordinator.env.cache

        def junk(entries: object) -> None:
            keys = sorted(entries.entries())  # type: ignore[attr-defined]
            if keys:
                entries.apply(lambda _: {keys[choice % len(keys)]: b"junk"})  # type: ignore[attr-defined]

        cache._with_map(junk)

    def check(self) -> None:
        """What the next start is to run is what is planned now of the same catalog under the same features."""
        coordinator = self.con.coordinator
        planner, state = coordinator.planner, coordinator.env.catalog.state
        for item in state.maintained:
            assert isinstance(item, Maintained)
            served, afresh = planner.deploy(item), planner.deploy(item, fresh=True)
            assert (served.mir, served.plan) == (afresh.mir, afresh.plan), item.full_name


def _planned_as_afresh(path: Path, steps: list[tuple[str, int, bool]]) -> None:
    planned = Planned(path)
    try:
        for step in steps:
            planned.step(*step)
            planned.check()
    finally:
        planned.con.close()


@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_the_plan_served_is_the_plan_made_afresh(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, bool]]
) -> None:
    _planned_as_afresh(tmp_path_factory.mktemp("planned") / "env", steps)


@pytest.mark.soak
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_the_plan_served_is_the_plan_made_afresh_of_many(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, bool]]
) -> None:
    _planned_as_afresh(tmp_path_factory.mktemp("planned") / "env", steps)
