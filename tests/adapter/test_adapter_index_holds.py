"""An index that moves on while an object that reads it is being created."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.session.session import Session
from mzsql.catalog.change import Change
from mzsql.catalog.objects import Index, Lease, MaterializedView
from mzsql.catalog.state import CatalogState
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle
from mzsql.repr.ids import GlobalId

WAIT = 60.0


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path / "env")) as made:
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        made.execute("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 1), (2, 2)")
        made.execute("CREATE INDEX i ON t (a)")
        eventually(lambda: index_of(made).hydrated)
        yield made


def eventually(found: Callable[[], object]) -> None:
    until = time.monotonic() + WAIT
    while not found():
        assert time.monotonic() < until
        time.sleep(0.02)


def index_of(con: mzsql.Connection) -> Any:
    """The index's status on its replica."""
    (status,) = con.coordinator.dataflows.controller.status()
    return status


def running(con: mzsql.Connection, gid: GlobalId) -> DataflowLifecycle:
    (client,) = con.coordinator.dataflows.controller.replicas
    found: DataflowLifecycle = client._link._installed.get(gid)  # type: ignore[attr-defined]
    return found


def compact(con: mzsql.Connection, past: int) -> None:
    """What time does: the index's replica gives up the history that it was allowed to."""
    gid = con.coordinator.env.catalog.state.of(Index)[0].id
    flow = running(con, gid)
    eventually(lambda: flow.frontier is not None and flow.frontier > past + 1)
    con.coordinator.dataflows.controller.maintain(lambda: True)
    eventually(lambda: flow.allowed > past)
    assert flow.dataflow is not None
    flow.dataflow.flush(0.0)
    flow.dataflow.hold(flow.allowed)
    output: Any = flow.dataflow.output
    assert output.reader.since > past


def test_a_view_begins_when_it_says_though_its_index_moves_on_while_it_is_created(
    con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    define = Environment.define

    def told(self: Environment, command: Callable[[CatalogState], Any]) -> Any:
        made = define(self, command)
        (view,) = self.sync().of(MaterializedView)
        began.append(view.as_of)
        return made

    def meanwhile(self: Environment, command: Callable[[CatalogState], Any]) -> Any:
        # The view is planned, and its time is chosen; nobody knows of it yet.
        monkeypatch.setattr(Environment, "define", told)
        now = self.fresh_timestamp()
        with mzsql.connect(str(self.locations.directory)) as other:
            other.execute("INSERT INTO t VALUES (3, 3)")
            other.execute("INSERT INTO t VALUES (3, 4)")
        compact(con, now)
        return told(self, command)

    began: list[int] = []
    monkeypatch.setattr(Environment, "define", meanwhile)
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT a, count(*) AS n FROM t GROUP BY a")
    (as_of,) = began
    state = con.coordinator.env.catalog.state
    (view,), (index,) = state.of(MaterializedView), state.of(Index)
    assert running(con, view.id).spec.desc.indexes == (index.id,)
    assert sorted(con.execute("SELECT * FROM w").fetchall()) == [(1, 1), (2, 1), (3, 2)]
    assert sorted(con.execute(f"SELECT * FROM w AS OF {as_of}").fetchall()) == [(1, 1), (2, 1)]
    assert running(con, view.id).needs() == as_of


def test_what_was_held_for_a_view_is_let_go_once_it_is_created(con: mzsql.Connection) -> None:
    env = con.coordinator.env
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT a, count(*) AS n FROM t GROUP BY a")
    con.execute("SELECT * FROM w").fetchall()
    (index,) = env.catalog.state.of(Index)
    flow = running(con, index.id)
    assert flow.dataflow is not None
    output: Any = flow.dataflow.output
    purposes = [one.purpose for one in env.persist.inspect(output.shard_id).readers.values()]
    assert purposes
    assert not [one for one in purposes if "created" in one]


@pytest.fixture
def other(con: mzsql.Connection) -> Iterator[Coordinator]:
    """Another process, as far as the leader can tell."""
    env = Environment.open(con.coordinator.env.locations)
    made = Coordinator(env, spark=None)
    yield made
    made.close()
    env.close()


def deposed(other: Coordinator) -> None:
    """It has taken the lease, as it may from one that was stopped for long."""
    lease = Lease("another", other.env.clock.now_ms() + 3_600_000, 0, "elsewhere 1")
    other.env.catalog.transact(lambda _: (Change(lease=lease), None))


def defined(other: Coordinator) -> None:
    text = "CREATE MATERIALIZED VIEW w AS SELECT a, count(*) AS n FROM t GROUP BY a"
    other.execute(Session(), text)


@pytest.mark.parametrize("happens", [deposed, defined])
def test_an_index_keeps_its_history_where_its_leader_does_not_know_all_that_reads_it(
    con: mzsql.Connection, other: Coordinator, happens: Callable[[Coordinator], None]
) -> None:
    dataflows = con.coordinator.dataflows
    flow = running(con, index_of(con).object_id)
    with dataflows._lock:  # it hears of nothing
        happens(other)
        now = other.env.fresh_timestamp()
        for number in (3, 4):
            other.execute(Session(), f"INSERT INTO t VALUES (3, {number})")
        eventually(lambda: flow.frontier is not None and flow.frontier > now + 1)
        dataflows.tick(fetch=False)
        dataflows.controller.settle(WAIT)
        assert flow.allowed <= now
    if happens is defined:
        eventually(lambda: flow.allowed > now)
