"""What the expression cache's own tests hold of it, seen from outside: by connections, EXPLAIN and what openings had to plan."""

from __future__ import annotations

from pathlib import Path

import pytest

import mzsql

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
