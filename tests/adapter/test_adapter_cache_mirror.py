"""What the expression cache's own tests hold of it, seen from outside: by connections, EXPLAIN and what openings had to plan."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mzsql
from mzsql.adapter.environment.cache_entries import GlobalExpressions

PATIENCE = 120.0
DEFINED = (
    "ALTER SYSTEM SET step_engine = 'duckdb'",
    "CREATE TABLE t (a int, b int)",
    "CREATE VIEW v AS SELECT a, b + 1 AS b FROM t",
    "CREATE INDEX i ON t (a)",
    "CREATE MATERIALIZED VIEW by_index AS SELECT x.a, v.b FROM t AS x JOIN v ON x.a = v.a",
    "CREATE MATERIALIZED VIEW apart AS SELECT count(*) AS n FROM v",
)
MAINTAINED = ("i", "by_index", "apart")


def opened(path: Path, **options: object) -> tuple[tuple[int, int], dict[str, str]]:
    """Of an opening, once all is taken up: how many plans the cache had of how many, and the plan of each view."""
    with mzsql.connect(path, **options) as con:  # type: ignore[arg-type]
        assert con.coordinator.env.startup.wait(PATIENCE)
        names = con.execute("SELECT name FROM mz_materialized_views WHERE id LIKE 'u%'").fetchall()
        plans = {
            name: con.execute(f"EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW {name}").fetchall()[0][
                0
            ]
            for (name,) in names
        }
        return con.plans_from_cache, plans


def local(path: Path) -> str:
    with mzsql.connect(path, read_only=True) as con:
        shown: str = con.execute("EXPLAIN LOCALLY OPTIMIZED PLAN FOR VIEW v").fetchall()[0][0]
        return shown


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with mzsql.connect(tmp_path / "env") as con:
        assert con.plans_from_cache == (0, 0), "an empty one opens empty"
        for text in DEFINED:
            con.execute(text)
    return tmp_path / "env"


def test_an_opening_finds_what_the_one_before_it_has_left(path: Path) -> None:
    (found, plans), again = opened(path), opened(path)
    assert found == (3, 3)
    assert again == (found, plans)
    assert "i" in plans["by_index"]
    with mzsql.connect(path) as con:
        con.execute("DROP MATERIALIZED VIEW apart")
    (found, left), again = opened(path), opened(path)
    assert found == (2, 2)
    assert left == {"by_index": plans["by_index"]}
    assert again == (found, left), "what was dropped stays away"


def test_a_dropped_index_takes_the_plans_that_read_it_and_no_views_own(path: Path) -> None:
    _, before = opened(path)
    own = local(path)
    with mzsql.connect(path) as con:
        con.execute("DROP INDEX i")
        ((shown,),) = con.execute("EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW by_index").fetchall()
        assert "[DELETED INDEX]" in shown
        named = shown.replace("[DELETED INDEX]", "materialize.public.i")
        assert named == before["by_index"], "it runs as it did"
    found, after = opened(path)
    assert found == (2, 2), "it was planned anew at once"
    assert after["by_index"] != before["by_index"]
    assert local(path) == own


def test_plans_that_the_cache_has_not_are_made_once(path: Path) -> None:
    """So that who asks what runs, in a process that writes none, does not have all of it planned each time."""
    with mzsql.connect(path) as con:
        env = con.coordinator.env
        assert env.startup.wait(PATIENCE)
        for view in ("by_index", "apart"):
            # Where nothing is arranged yet, nobody looks for the nodes that arrange it.
            con.execute(f"SELECT * FROM {view}").fetchall()
        env.cache.insert_expressions(invalidate_ids=env.catalog.state.items)
        with mzsql.connect(path, read_only=True) as other:
            asked = "SELECT * FROM mz_internal.mz_arrangement_sizes_unified"
            planner = other.coordinator.planner
            first = {item.name: plan for item, plan in planner.running({})}
            assert first.keys() == set(MAINTAINED)
            other.execute(asked).fetchall()
            outlined = {item.name: plan for item, plan in planner.running({})}
            assert all(plan.outline is not None for plan in outlined.values())
            other.execute(asked).fetchall()
            again = {item.name: plan for item, plan in planner.running({})}
            assert all(again[name] is plan for name, plan in outlined.items())
            con.execute("DROP INDEX i")
            other.execute("SELECT 1").fetchall()
            left = {item.name: plan for item, plan in planner.running({})}
            assert left.keys() == {"by_index", "apart"}
            # What the index was for is planned without it: by who dropped it, or here.
            assert not any(plan.index_imports for plan in left.values())


# --- every process tells the same ---------------------------------------------------------------

TOLD = (
    "SELECT o.name, n.notice_type, n.message, n.hint FROM mz_internal.mz_notices n "
    "JOIN mz_objects o ON o.id = n.object_id ORDER BY 1, 2, 3"
)
MEANWHILE = (
    "CREATE MATERIALIZED VIEW m{n} AS SELECT x.a, v.b FROM t AS x JOIN v ON x.a = v.a WHERE v.b > {n}",
    "CREATE MATERIALIZED VIEW m{n} AS SELECT a FROM v WHERE b = {n} OR a = NULL",
    "CREATE INDEX i{n} ON t (a)",
    "CREATE INDEX i{n} ON v (a)",
    "CREATE INDEX i{n} ON t (b)",
    "DROP INDEX IF EXISTS i{before}",
    "DROP INDEX i",
    "ALTER SYSTEM SET enable_eager_delta_joins = {flag}",
)


class Processes:
    """Two that write, of which one leads, and one that only reads, all of them on one environment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self.leads = mzsql.connect(path)
        assert self.leads.coordinator.env.startup.wait(PATIENCE)
        self.beside = mzsql.connect(path, maintenance="elsewhere")
        self.reads = mzsql.connect(path, read_only=True)

    def close(self) -> None:
        for con in (self.leads, self.beside, self.reads):
            con.close()

    def step(self, what: str, choice: int, *, flag: bool) -> None:
        if what == "restart":
            self.leads.close()
            self.leads = mzsql.connect(self.path)
            assert self.leads.coordinator.env.startup.wait(PATIENCE)
        elif what == "another reader":
            self.reads.close()
            self.reads = mzsql.connect(self.path, read_only=True)
        else:
            self.number += 1
            text = what.format(n=self.number, before=choice, flag="on" if flag else "off")
            with contextlib.suppress(mzsql.ProgrammingError):  # what is dropped may be gone
                (self.beside if flag else self.leads).execute(text)

    def _running(self) -> dict[str, GlobalExpressions]:
        """The plans that the one that leads runs, once it runs all."""
        deadline = time.monotonic() + PATIENCE
        while True:
            wanted = self.leads.coordinator.env.sync().maintained
            for con in (self.leads, self.beside):
                con.coordinator.env.sync()
                found = {one.name: con.coordinator.dataflows.deployed(one.id) for one in wanted}
                if all(found.values()):
                    return {name: plan for name, plan in found.items() if plan is not None}
            assert time.monotonic() < deadline, "not everything was taken up"
            time.sleep(0.02)

    @staticmethod
    def _told(con: mzsql.Connection) -> tuple[dict[str, str], list[object]]:
        found = con.execute(
            "SELECT id, name, type FROM mz_objects WHERE id LIKE 'u%' AND type IN ('index', 'materialized-view')"
        ).fetchall()
        shown = {
            name: con.execute(
                f"EXPLAIN PHYSICAL PLAN FOR {kind.replace('-', ' ').upper()} {name}"
            ).fetchall()[0][0]
            for _, name, kind in found
        }
        return shown, con.execute(TOLD).fetchall()

    def check(self) -> dict[str, str]:
        """All tell the same, and that is what the one that leads runs; the plans."""
        running = self._running()
        told = self._told(self.leads)
        assert self._told(self.beside) == told
        assert self._told(self.reads) == told
        for con in (self.leads, self.beside, self.reads):
            for item in con.coordinator.env.catalog.state.maintained:
                known, runs = con.coordinator.planner.deployed(item), running[item.name]
                assert (known.mir, known.plan) == (runs.mir, runs.plan), item.full_name
        return told[0]


def test_every_process_shows_the_plan_that_runs_whatever_indexes_come_and_go(path: Path) -> None:
    processes = Processes(path)
    with contextlib.closing(processes):
        first = processes.check()
        assert "[DELETED INDEX]" not in first["by_index"]
        for flag in (False, True):
            processes.step("CREATE INDEX j{n} ON v (a)", 0, flag=flag)
            assert processes.check()["by_index"] == first["by_index"]
        processes.step("DROP INDEX i", 0, flag=True)
        without = processes.check()
        assert "[DELETED INDEX]" in without["by_index"]
        processes.step("another reader", 0, flag=False)
        assert processes.check() == without
        processes.step(
            "CREATE MATERIALIZED VIEW later AS SELECT a FROM t WHERE b = NULL", 0, flag=True
        )
        processes.step("restart", 0, flag=False)
        after = processes.check()
        assert "[DELETED INDEX]" not in after["by_index"]
        assert "j" in after["by_index"], "it is planned for the indexes that there are"


@pytest.mark.long
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([*MEANWHILE, "restart", "another reader"]),
            st.integers(1, 8),
            st.booleans(),
        ),
        min_size=3,
        max_size=8,
    )
)
def test_every_process_shows_the_plan_that_runs_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("processes") / "env"
    with mzsql.connect(path) as con:
        for text in DEFINED:
            con.execute(text)
    processes = Processes(path)
    with contextlib.closing(processes):
        for what, choice, flag in steps:
            processes.step(what, choice, flag=flag)
            processes.check()
