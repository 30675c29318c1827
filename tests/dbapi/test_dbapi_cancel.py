"""Cancelling what another thread runs on a connection."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from locks_kit import once_somebody_waits

import mzsql
from mzsql.adapter.commit.table_locks import EXCLUSIVE
from mzsql.repr.interrupt import Interrupt


def test_cancel_ends_the_statement_and_leaves_the_connection_usable(tmp_path: Path) -> None:
    with mzsql.connect(str(tmp_path / "env")) as con:
        con.execute("CREATE TABLE t (a int)")
        con.cancel()
        coordinator = con.coordinator
        item = coordinator.env.catalog.state.by_name("public", "t")
        assert item is not None
        with coordinator.commits.locks.held({item.id: EXCLUSIVE}, Interrupt()):
            canceller = once_somebody_waits(coordinator.commits.locks, con.cancel)
            with pytest.raises(mzsql.OperationalError) as raised:
                con.execute("INSERT INTO t VALUES (1)")
            canceller.join()
        assert str(raised.value) == "canceling statement due to user request"
        assert raised.value.sqlstate == "57014"
        con.execute("INSERT INTO t VALUES (2)")
        assert con.execute("SELECT a FROM t").fetchall() == [(2,)]


def test_a_timeout_is_an_operational_error(tmp_path: Path) -> None:
    with mzsql.connect(str(tmp_path / "env")) as con:
        con.execute("CREATE TABLE t (a int)")
        con.execute("SET statement_timeout = '50 ms'")
        item = con.coordinator.env.catalog.state.by_name("public", "t")
        assert item is not None
        with (
            con.coordinator.commits.locks.held({item.id: EXCLUSIVE}, Interrupt()),
            pytest.raises(mzsql.OperationalError, match="due to statement timeout"),
        ):
            con.execute("INSERT INTO t VALUES (1)")


def test_a_closed_connection_cannot_cancel(tmp_path: Path) -> None:
    con = mzsql.connect(str(tmp_path / "env"))
    con.close()
    with pytest.raises(mzsql.InterfaceError):
        con.cancel()


def test_executemany_of_threads_that_share_a_connection_are_one_transaction_each(
    tmp_path: Path,
) -> None:
    with mzsql.connect(str(tmp_path / "env")) as con:
        con.execute("CREATE TABLE t (a int)")
        failures: list[Exception] = []

        def many(first: int) -> None:
            try:
                sets = [(first + i,) for i in range(5)]
                con.cursor().executemany("INSERT INTO t VALUES (%s)", sets)
            except mzsql.Error as failure:
                failures.append(failure)

        threads = [threading.Thread(target=many, args=(i * 10,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(15,)]


def test_close_ends_what_another_thread_runs(tmp_path: Path) -> None:
    with mzsql.connect(str(tmp_path / "env")) as keeper:
        keeper.execute("CREATE TABLE t (a int)")
        con = mzsql.connect(str(tmp_path / "env"))
        item = keeper.coordinator.env.catalog.state.by_name("public", "t")
        assert item is not None
        with keeper.coordinator.commits.locks.held({item.id: EXCLUSIVE}, Interrupt()):
            closer = once_somebody_waits(con.coordinator.commits.locks, con.close)
            with pytest.raises(mzsql.OperationalError, match="due to user request"):
                con.execute("INSERT INTO t VALUES (1)")
            closer.join(60)
            assert not closer.is_alive()
        assert con.closed
