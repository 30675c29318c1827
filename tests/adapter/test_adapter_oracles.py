"""Switching the timestamp oracle by ALTER SYSTEM, as sessions of one and of several processes see it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.location.keys import ORACLE_KEYS
from mzsql.persist import SystemClock

IN_MEMORY = "ALTER SYSTEM SET timestamp_oracle = 'in-memory'"
DISTRIBUTED = "ALTER SYSTEM SET timestamp_oracle = 'distributed'"
RESET = "ALTER SYSTEM RESET timestamp_oracle"

_CHILD = """
import sys
import mzsql

generation = int(sys.argv[2]) if len(sys.argv) > 2 else None
con = mzsql.connect(sys.argv[1], deploy_generation=generation)
for line in sys.stdin:
    try:
        cur = con.execute(line)
        print("ok", cur.fetchall() if cur.description else "", flush=True)
    except mzsql.Error as failure:
        print("error", str(failure).replace(chr(10), " "), flush=True)
con.close()
"""


class Other:
    """Another process with the environment open."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def execute(self, statement: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def other(env: Path, *arguments: str) -> Iterator[Other]:
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(env), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Other(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)


def durable(env: Path) -> tuple[int, int]:
    """The distributed oracle's row of the tables."""
    with sqlite3.connect(env / "oracle.db") as connection:
        found: tuple[int, int] = connection.execute(
            "SELECT read_ts, write_ts FROM timestamp_oracle WHERE timeline = 'epoch_ms'"
        ).fetchone()
    return found


def test_there_and_back(tmp_env: Path) -> None:
    with mzsql.connect(tmp_env) as con:
        con.execute("CREATE TABLE t (a int)")
        con.execute("INSERT INTO t VALUES (1)")
        con.execute(IN_MEMORY)
        moved = durable(tmp_env)
        for n in range(2, 6):
            con.execute(f"INSERT INTO t VALUES ({n})")
            assert con.execute("SELECT max(a) FROM t").fetchall() == [(n,)]
        assert durable(tmp_env) == moved  # served from memory
        assert con.coordinator.env.oracle.alone
        con.execute(RESET)
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(5,)]
        assert not con.coordinator.env.oracle.alone
        assert durable(tmp_env)[0] >= moved[1]
        con.execute("DELETE FROM t WHERE a = 1")
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(4,)]


def test_it_outlives_the_process(tmp_env: Path) -> None:
    with mzsql.connect(tmp_env) as con:
        con.execute("CREATE TABLE t (a int)")
        con.execute(IN_MEMORY)
        con.execute("INSERT INTO t VALUES (1)")
    with mzsql.connect(tmp_env) as con:
        assert con.coordinator.env.oracle.alone
        assert con.execute("SELECT a FROM t").fetchall() == [(1,)]
        con.execute("INSERT INTO t VALUES (2)")
        con.execute("ALTER SYSTEM RESET ALL")
    with mzsql.connect(tmp_env) as con:
        assert not con.coordinator.env.oracle.alone
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_connections_of_one_process_share_its_memory(tmp_env: Path) -> None:
    with mzsql.connect(tmp_env) as one, mzsql.connect(tmp_env) as two:
        one.execute("CREATE TABLE t (a int)")
        one.execute(IN_MEMORY)
        for n in range(4):
            (one, two)[n % 2].execute(f"INSERT INTO t VALUES ({n})")
            for con in (one, two):
                assert con.execute("SELECT count(*) FROM t").fetchall() == [(n + 1,)]
        with mzsql.connect(tmp_env, read_only=True) as reading:
            assert reading.execute("SELECT count(*) FROM t").fetchall() == [(4,)]
            one.execute("INSERT INTO t VALUES (4)")
            assert reading.execute("SELECT count(*) FROM t").fetchall() == [(5,)]


def test_another_process_follows_takes_over_and_gives_back(tmp_env: Path) -> None:
    with mzsql.connect(tmp_env) as con, other(tmp_env) as child:
        con.execute("CREATE TABLE t (a int)")
        assert child.execute("INSERT INTO t VALUES (1)").startswith("ok")
        con.execute(IN_MEMORY)
        con.execute("INSERT INTO t VALUES (2)")
        # The other one sees the setting at its next statement, and takes over.
        assert child.execute("SELECT count(*) FROM t") == "ok [(2,)]"
        assert child.execute("INSERT INTO t VALUES (3)").startswith("ok")
        with pytest.raises(mzsql.Error, match="serves the environment's timestamps now") as fenced:
            con.execute("SELECT count(*) FROM t")
        assert "ALTER SYSTEM SET timestamp_oracle = 'distributed'" in str(fenced.value)
        assert child.execute("SELECT count(*) FROM t") == "ok [(3,)]"
        con.execute(DISTRIBUTED)  # what the error says to do
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(3,)]
        con.execute("INSERT INTO t VALUES (4)")
        assert child.execute("SELECT count(*) FROM t") == "ok [(4,)]"
        assert child.execute("INSERT INTO t VALUES (5)").startswith("ok")
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(5,)]


def test_a_promotion_takes_no_timestamps_from_the_new_generation(
    tmp_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who promotes only writes the catalog and the log: a process of the new generation may serve from its memory already."""
    with mzsql.connect(tmp_env) as con:
        con.execute("CREATE TABLE t (a int)")
        con.execute(IN_MEMORY)
        con.execute("INSERT INTO t VALUES (1)")
        with other(tmp_env, "1") as new:
            assert new.execute("SELECT count(*) FROM t") == "ok [(1,)]"
            promoter = Environment.open(locate(tmp_env), deploy_generation=1)
            real = promoter.catalog.transact
            told: list[str] = []

            def transact(*args: Any, **rest: Any) -> Any:
                done = real(*args, **rest)
                # between the promotion and the move of the log
                told.append(new.execute("INSERT INTO t VALUES (2)"))
                return done

            monkeypatch.setattr(promoter.catalog, "transact", transact)
            promoter.promote()
            promoter.close()
            assert [one[:2] for one in told] == ["ok"], told
            assert new.execute("SELECT count(*) FROM t") == "ok [(2,)]"
            assert new.execute("INSERT INTO t VALUES (3)").startswith("ok")
            # once more, by one that finds its generation in charge
            again = Environment.open(locate(tmp_env), deploy_generation=1)
            again.promote()
            again.close()
            assert new.execute("INSERT INTO t VALUES (4)").startswith("ok")
            assert new.execute("SELECT sum(a) FROM t") == "ok [(10,)]"
            with pytest.raises(mzsql.OperationalError, match="fenced by deploy generation 1"):
                con.execute("INSERT INTO t VALUES (5)")


def test_values_it_cannot_have(tmp_env: Path) -> None:
    with mzsql.connect(tmp_env) as con:
        with pytest.raises(
            mzsql.Error, match='invalid value for parameter "timestamp_oracle"'
        ) as bad:
            con.execute("ALTER SYSTEM SET timestamp_oracle = 'psychic'")
        assert "distributed, in-memory" in str(bad.value)
        with pytest.raises(mzsql.Error, match="timestamp_oracle_way_back"):
            con.execute("ALTER SYSTEM SET timestamp_oracle_way_back = 'maybe'")
        assert not con.coordinator.env.catalog.state.settings
        con.execute("ALTER SYSTEM SET timestamp_oracle_way_back = on")
        assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_its_log_is_no_shard(tmp_env: Path) -> None:
    with mzsql.connect(tmp_env) as con:
        con.execute(IN_MEMORY)
        con.execute("CREATE TABLE t (a int)")
        con.execute("INSERT INTO t VALUES (1)")
        persist = con.coordinator.env.persist
        assert any(key.startswith(ORACLE_KEYS) for key in persist.consensus.list_keys())
        reports = dict(persist.reports())
        assert not any(key.startswith(ORACLE_KEYS) for key in reports)
        assert not [found for found in reports.values() if isinstance(found, Exception)]


def test_times_of_ddl_increase_whatever_the_clocks_say(tmp_env: Path) -> None:
    class Slow(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() - 5_000

    with mzsql.connect(tmp_env) as con:
        con.execute("CREATE TABLE t (a int)")
        con.execute("CREATE VIEW v AS SELECT a FROM t")
        slow = Environment.open(locate(tmp_env), clock=Slow())
        other_process = Coordinator(slow, spark=None, lead=False)
        try:
            other_process.execute(Session(), "CREATE VIEW w AS SELECT a FROM v")
        finally:
            other_process.close()
            slow.close()
        state = con.coordinator.env.sync()
        made = [item.created_at for item in state.relations]
        assert [item.name for item in state.relations] == ["t", "v", "w"]
        assert made == sorted(set(made))


def test_whoever_makes_nothing_asks_the_catalogs_oracle_nothing(tmp_env: Path) -> None:
    with mzsql.connect(tmp_env) as con:
        con.execute("CREATE TABLE t (a int)")
    with mzsql.connect(tmp_env) as con:
        con.execute("INSERT INTO t VALUES (1)")
        assert con.execute("SELECT a FROM t").fetchall() == [(1,)]
        assert con.coordinator.env.catalog_oracle._opened is None
