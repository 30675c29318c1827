"""An environment opened to read only: it sees fresh data, and changes nothing but leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import mzsql
from mzsql.adapter.dataflows import reports
from mzsql.adapter.environment import cache_shard, opening
from mzsql.adapter.planning import planner
from mzsql.location import blob_around, open_blob
from mzsql.oracle.errors import OracleReadOnly

T = TypeVar("T")


@pytest.fixture
def env(tmp_path: Path) -> str:
    return str(tmp_path / "env")


def test_there_must_be_something_to_read(tmp_path: Path) -> None:
    with pytest.raises(mzsql.Error, match="is not an mzsql environment"):
        mzsql.connect(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE u (a int)",
        "CREATE VIEW w AS SELECT 1",
        "CREATE OR REPLACE VIEW v AS SELECT 1 AS a",
        "CREATE MATERIALIZED VIEW m AS SELECT a FROM t",
        "CREATE INDEX i ON t (a)",
        "DROP VIEW v",
        "DROP TABLE IF EXISTS missing",
        "ALTER TABLE t SET (RETAIN HISTORY FOR '1 day')",
        "ALTER SYSTEM SET enable_letrec_fixpoint_analysis = off",
        "INSERT INTO t VALUES (2)",
        "INSERT INTO t SELECT a FROM t",
        "UPDATE t SET a = 2",
        "DELETE FROM t",
        "BEGIN; INSERT INTO t VALUES (2); COMMIT",
    ],
)
def test_nothing_is_changed(env: str, statement: str) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        con.execute("CREATE VIEW v AS SELECT a FROM t")
        before = con.coordinator.env.catalog.entries()
        with mzsql.connect(env, read_only=True) as reading:
            with pytest.raises(mzsql.Error, match="cannot write: the environment was opened read"):
                reading.execute(statement)
            if reading.in_transaction:
                reading.rollback()
        con.coordinator.env.sync()
        assert con.coordinator.env.catalog.entries() == before
        assert con.execute("SELECT a FROM v").fetchall() == [(1,)]


def test_the_oracle_cannot_be_moved(env: str) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        with mzsql.connect(env, read_only=True) as reading:
            oracle = reading.coordinator.env.oracle
            before = con.coordinator.env.oracle.read_ts()
            assert reading.execute("SELECT a FROM t").fetchall() == [(1,)]
            assert oracle.read_ts() == before
            for move in (oracle.write_ts, lambda: oracle.apply_write(before + 1)):
                with pytest.raises(OracleReadOnly):
                    move()
        assert con.coordinator.env.oracle.read_ts() == before


def test_what_is_read_is_fresh_and_never_goes_back(env: str) -> None:
    with mzsql.connect(env) as con, mzsql.connect(env, read_only=True) as reading:
        con.execute("CREATE TABLE t (a int)")
        last = 0
        for n in range(20):
            con.execute(f"INSERT INTO t VALUES ({n})")
            cursor = reading.execute("SELECT count(*) FROM t")
            assert cursor.fetchall() == [(n + 1,)]
            assert cursor.timestamp is not None
            assert cursor.timestamp >= last
            last = cursor.timestamp
        con.execute("CREATE TABLE u (a int)")
        assert reading.execute("SELECT * FROM u").fetchall() == []


def test_no_object_is_written(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the Blob store may be one that cannot be written."""
    with mzsql.connect(env, maintenance="elsewhere") as con:
        con.execute("CREATE TABLE t (a int, b text)")
        for n in range(40):
            con.execute(f"INSERT INTO t VALUES ({n}, repeat('x', 1000))")
        counts: Counter[str] = Counter()

        def around(operation: str, act: Callable[[], T]) -> T:
            counts[operation] += 1
            return act()

        real = opening.default_registry()

        class Registry:
            open_consensus = staticmethod(real.open_consensus)

            def open_blob(self, url: str) -> Any:
                return blob_around(open_blob(url), around)

        monkeypatch.setattr(opening, "default_registry", Registry)
        with mzsql.connect(env, read_only=True) as reading:
            for n in range(40, 80):
                con.execute(f"INSERT INTO t VALUES ({n}, repeat('x', 1000))")
                assert reading.execute("SELECT count(*) FROM t").fetchall() == [(n + 1,)]
        assert counts["get"] > 0
        assert counts["set"] == counts["delete"] == 0, counts


def test_plans_that_the_cache_has_not_are_made_few_at_a_time(
    env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a program of another build: what is known without a plan is told at once, and the rest with each statement more of."""
    of_plans = ("mz_compute_lir_mapping_unified", "mz_arrangements", "mz_notices")
    made_of = "SELECT object_id, dependency_id FROM mz_internal.mz_compute_dependencies"
    with mzsql.connect(env) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")
        con.execute("CREATE VIEW plain AS SELECT a, b + 1 AS b FROM t WHERE a > 0")
        con.execute("CREATE MATERIALIZED VIEW one AS SELECT a, sum(b) AS b FROM plain GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW two AS SELECT count(*) FROM plain JOIN one USING (a)")
        con.execute("CREATE MATERIALIZED VIEW three AS SELECT a FROM t WHERE a > 0 OR b = NULL")
        con.execute("CREATE INDEX i ON three (a)")
        assert con.execute("SELECT * FROM two").fetchall() == [(0,)]
        running = {one: _rows(con, f"SELECT * FROM mz_internal.{one}") for one in of_plans}
        dependencies = _rows(con, made_of)
    assert all(running.values())
    monkeypatch.setattr(cache_shard, "_checksum", lambda _: "of another build")
    for module in (planner, reports):
        monkeypatch.setattr(module, "MOST_MADE", 1)
    with mzsql.connect(env, read_only=True) as con:
        assert _rows(con, made_of) == dependencies
        (told,) = con.notices
        assert told.message.startswith("3 of the running dataflows are shown without their plans")
        some = _rows(con, "SELECT * FROM mz_internal.mz_compute_lir_mapping_unified")
        assert 0 < len(some) < len(running["mz_compute_lir_mapping_unified"])
        while con.notices:
            assert _rows(con, made_of) == dependencies
        lacking = []
        for _ in "1234":
            _rows(con, "SELECT * FROM mz_internal.mz_arrangements")
            lacking += [one.message.split(" ")[0] for one in con.notices]
        assert lacking == ["3", "2", "1"]
        for one in of_plans:
            assert _rows(con, f"SELECT * FROM mz_internal.{one}") == running[one]
        assert con.notices == []


def _rows(con: mzsql.Connection, query: str) -> Counter[Any]:
    return Counter(con.execute(query).fetchall())
