"""An environment opened to read only: it sees fresh data, and changes nothing but leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import mzsql
from mzsql.adapter.environment import opening
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
