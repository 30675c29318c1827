"""Somebody on call asks which node is stuck: `sql/diagnostics/which_node_is_stuck.sql` says why, whatever the reason is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.replica.hydration import here as hydration_here

HANG = 60.0


def diagnosis(name: str) -> str:
    return resources.files("mzsql.scripts").joinpath("diagnostics", name).read_text("utf-8")


def stuck(con: mzsql.Connection) -> dict[str, tuple[Any, ...]]:
    """By object: reason, node, workers of it that are done, nodes that are, nodes."""
    rows = con.execute(diagnosis("which_node_is_stuck.sql")).fetchall()
    return {row[0]: row[2:7] for row in rows}


def until(con: mzsql.Connection, done: Callable[[dict[str, tuple[Any, ...]]], bool]) -> Any:
    deadline = time.monotonic() + HANG
    while not done(found := stuck(con)):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


@pytest.fixture
def env(tmp_path: Path) -> Path:
    with mzsql.connect(tmp_path) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")
        con.execute("INSERT INTO t VALUES (1, 2), (1, 3), (2, 4)")
    return tmp_path


class Gate:
    """What hydrations write waits here, or fails."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.error: Exception | None = None
        self.only_exports = False  # whether what arrangements write passes


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made, write = Gate(), hydration_here.HydrationHere._write

    def wait(self: Any, *args: Any, **kwargs: Any) -> None:
        if made.error is not None:
            raise made.error
        if args[0].target is None or not made.only_exports:
            made.opened.wait()  # until the test ends, at the latest
        write(self, *args, **kwargs)

    monkeypatch.setattr(hydration_here.HydrationHere, "_write", wait)
    # However long the gate is shut, others wait for their turn.
    patient = partial(ComputeSettings, hydration_patience=1e9)
    monkeypatch.setattr(controller, "ComputeSettings", patient)
    yield made
    made.opened.set()


def test_nobody_computes_and_inputs_that_never_come(env: Path) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE CLUSTER empty SIZE '1', REPLICATION FACTOR 0")
        con.execute("CREATE MATERIALIZED VIEW below IN CLUSTER empty AS SELECT a, b FROM t")
        con.execute("CREATE MATERIALIZED VIEW above AS SELECT a, sum(b) FROM below GROUP BY a")
        con.execute("CREATE INDEX beside ON t (a)")
        found = until(con, lambda rows: set(rows) == {"below", "above"})
        assert found["below"] == ("its cluster has no replica", None, None, None, None)
        ((below,),) = con.execute("SELECT id FROM mz_objects WHERE name = 'below'").fetchall()
        found = until(con, lambda rows: rows["above"][0].startswith("waits until"))
        reason, node, _, hydrated, nodes = found["above"]
        assert reason.startswith(f"waits until {below} is complete at ")
        assert (node, hydrated) == (None, 0)
        assert nodes >= 2
    with mzsql.connect(env, read_only=True) as beside:
        found = stuck(beside)
        assert found["above"][0] == "its replica is offline: no process leads"
        assert "beside" not in found


def test_what_computes_and_what_waits_for_its_turn(env: Path, gate: Gate) -> None:
    with mzsql.connect(env) as con, mzsql.connect(env, read_only=True) as beside:
        for name in ("one", "two", "three"):
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS SELECT a, sum(b) FROM t GROUP BY a")

        def turns(rows: dict[str, tuple[Any, ...]]) -> bool:
            at = [row[0] for row in rows.values()]
            return (
                sum(reason.startswith("computes and writes") for reason in at) == 2
                and at.count("waits for its turn to be hydrated") == 1
            )

        found = until(con, turns)
        assert set(until(beside, turns)) == set(found), "another process sees the same"
        for reason, node, workers, hydrated, nodes in found.values():
            assert hydrated < nodes
            if reason.startswith("computes"):
                assert node is not None
                assert workers is not None
        # While it computes it says so, again and again, though nothing of it changes.
        seconds = {row[0] for row in found.values()}
        until(
            con,
            lambda rows: (
                not {row[0] for row in rows.values()}
                & seconds - {"waits for its turn to be hydrated"}
            ),
        )
        gate.opened.set()
        until(con, lambda rows: not rows)
        assert until(beside, lambda rows: not rows) == {}


def test_an_error_and_when_it_is_tried_again(env: Path, gate: Gate) -> None:
    gate.error = OSError("the disk is full")
    with mzsql.connect(env) as con:
        con.execute("CREATE MATERIALIZED VIEW sums AS SELECT a, sum(b) FROM t GROUP BY a")
        found = until(con, lambda rows: "sums" in rows and "is tried again" in rows["sums"][0])
        reason, node, workers, hydrated, _ = found["sums"]
        assert reason.startswith("it fails: OSError: the disk is full; it is tried again")
        assert node is not None
        assert (workers, hydrated) == (0, 0), "a failed write takes back what was said of it"
        ((name, status, error),) = [
            (row[0], row[2], row[3])
            for row in con.execute(diagnosis("which_dataflow_fails.sql")).fetchall()
        ]
        assert (name, status, error) == ("sums", "failed", "OSError: the disk is full")
        gate.error = None
        gate.opened.set()
        until(con, lambda rows: not rows)
        assert con.execute(diagnosis("which_dataflow_fails.sql")).fetchall() == []


def test_arrangements_are_done_and_the_export_is_being_written(env: Path, gate: Gate) -> None:
    gate.only_exports = True
    with mzsql.connect(env) as con:
        con.execute("CREATE MATERIALIZED VIEW sums AS SELECT a, sum(b) + 1 AS s FROM t GROUP BY a")
        found = until(
            con,
            lambda rows: (
                "sums" in rows and rows["sums"][0].startswith("computes and writes the ex")
            ),
        )
        _, node, workers, hydrated, nodes = found["sums"]
        assert hydrated < nodes, "never are all nodes done while the object is not"
        assert node is not None
        assert workers is not None
        ((name, _, done, of),) = con.execute(diagnosis("hydration_progress.sql")).fetchall()
        assert (name, of) == ("sums", nodes)
        assert done < of
        gate.opened.set()
        until(con, lambda rows: not rows)
        ((_, _, done, of),) = con.execute(diagnosis("hydration_progress.sql")).fetchall()
        assert done == of == nodes


def test_a_view_that_waits_for_its_refresh_says_until_when(env: Path) -> None:
    with mzsql.connect(env) as con:
        con.execute(
            "CREATE MATERIALIZED VIEW later WITH (REFRESH AT mz_now()::text::int8 + 86400000)"
            " AS SELECT a, sum(b) FROM t GROUP BY a"
        )
        found = until(con, lambda rows: rows["later"][0].startswith("waits until"))
        assert " complete at " in found["later"][0]


def test_what_views_depend_on_read_and_cost(env: Path) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE MATERIALIZED VIEW sums AS SELECT a, sum(b) AS s FROM t GROUP BY a")
        con.execute("CREATE VIEW above AS SELECT max(s) FROM sums")
        until(con, lambda rows: not rows)
        con.execute("INSERT INTO t VALUES (1, 5)")
        assert sorted(con.execute("SELECT * FROM sums").fetchall()) == [(1, 10), (2, 4)]
        depends = con.execute(diagnosis("what_depends_on_what.sql")).fetchall()
        assert depends == [
            ("above", "view", "sums", "materialized-view"),
            ("sums", "materialized-view", "t", "table"),
        ]
        read = diagnosis("what_does_a_refresh_read.sql")
        deadline = time.monotonic() + HANG
        while len(found := con.execute(read).fetchall()) < 2:
            assert time.monotonic() < deadline, found
        # A step reads the one row that was added; it retracts a sum and adds the new one.
        assert [(row[0], row[1], row[4]) for row in found] == [
            ("sums", "step", 2),
            ("sums", "hydration", 2),
        ]
        assert found[0][3] == 1
        costs = con.execute(diagnosis("what_does_a_view_cost.sql")).fetchall()
        assert {row[0] for row in costs} == {"sums"}
        assert all(row[5] > 0 for row in costs)
        nodes = con.execute("SELECT lir_id FROM mz_introspection.mz_lir_mapping").fetchall()
        assert {row[2] for row in costs} <= {lir for (lir,) in nodes}


def test_each_diagnosis_says_how_to_read_its_answer() -> None:
    files = [
        one
        for one in resources.files("mzsql.scripts").joinpath("diagnostics").iterdir()
        if one.name.endswith(".sql")
    ]
    assert len(files) >= 6
    for one in files:
        assert "\n-- How to read it: " in one.read_text("utf-8"), one.name
