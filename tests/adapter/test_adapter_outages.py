"""Stores that fail at once, for as long as the test wants: what becomes of statements, and of a process that closes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mzsql
from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.adapter.subscribe.subscription import Subscription
from mzsql.location import Determinate, LocationError
from mzsql.repr.errors import QueryCanceled, SqlError
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import TEXT, ColumnType
from mzsql.storage import ManagedKind

#: Well below the time that persist goes on by itself.
PATIENCE = 30.0


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Environment]:
    opened = Environment.open(locate(str(tmp_path / "env")))
    yield opened
    with contextlib.suppress(LocationError):
        opened.close()


@pytest.fixture
def coordinator(env: Environment) -> Iterator[Coordinator]:
    opened = Coordinator(env, spark=None)
    yield opened
    opened.close()


@contextlib.contextmanager
def outage(env: Environment, failed: threading.Event | None = None) -> Iterator[None]:
    """Consensus takes no call; ``failed`` is set with the first one."""

    def fails(*_: object) -> None:
        if failed is not None:
            failed.set()
        raise Determinate("the store cannot be reached")

    with pytest.MonkeyPatch.context() as patch:
        for call in ("head", "scan", "compare_and_set"):
            patch.setattr(env.persist.consensus, call, fails)
        yield


def test_a_statement_timeout_ends_a_statement_that_meets_an_outage(
    env: Environment, coordinator: Coordinator
) -> None:
    session = Session()
    coordinator.execute(session, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    coordinator.execute(session, "SET statement_timeout = '1s'")
    began = time.monotonic()
    with outage(env):
        for statement in ("SELECT a FROM t", "CREATE TABLE u (a int)", "INSERT INTO t VALUES (2)"):
            with pytest.raises(
                QueryCanceled, match="canceling statement due to statement timeout"
            ) as raised:
                coordinator.execute(session, statement)
            # Why it took so long is what a person can do something about.
            assert "the store cannot be reached" in (raised.value.detail or "")
            if "INSERT" not in statement:
                assert isinstance(raised.value.__cause__, LocationError)
    assert time.monotonic() - began < PATIENCE
    coordinator.execute(session, "RESET statement_timeout")
    (result,) = coordinator.execute(session, "SELECT a FROM t")
    assert result.rows is not None
    assert result.rows.num_rows == 1


def test_a_commit_that_a_full_store_does_not_take_says_so(
    env: Environment, coordinator: Coordinator
) -> None:
    """Reads go on, and what is written once there is room again is there once."""
    session = Session()
    coordinator.execute(session, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    coordinator.execute(session, "SET statement_timeout = '1s'")

    def full(*_: object) -> bool:
        raise Determinate("database or disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(env.persist.consensus, "compare_and_set", full)
        with pytest.raises(SqlError, match="canceling statement due to statement timeout") as late:
            coordinator.execute(session, "INSERT INTO t VALUES (2)")
        assert "database or disk is full" in (late.value.detail or "")
        (result,) = coordinator.execute(session, "SELECT a FROM t")
        assert result.rows is not None
    coordinator.execute(session, "RESET statement_timeout")
    coordinator.execute(session, "INSERT INTO t VALUES (3)")
    (result,) = coordinator.execute(session, "SELECT count(*) FROM t WHERE a = 3")
    assert result.rows is not None
    assert result.rows.column(0).to_pylist() == [1]


@pytest.mark.parametrize(
    "statement", ["SELECT a FROM t", "INSERT INTO t VALUES (2)", "CREATE TABLE u (a int)"]
)
def test_a_cancel_ends_a_statement_without_a_timeout_that_meets_an_outage(
    env: Environment, coordinator: Coordinator, statement: str
) -> None:
    session = Session()
    coordinator.execute(session, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    coordinator.execute(session, "SET statement_timeout = 0")
    ended: list[BaseException] = []

    def run() -> None:
        try:
            coordinator.execute(session, statement)
        except BaseException as failure:
            ended.append(failure)

    failed = threading.Event()
    with outage(env, failed):
        running = threading.Thread(target=run)
        running.start()
        assert failed.wait(PATIENCE)
        session.cancel()
        running.join(PATIENCE)
        assert not running.is_alive()
    (failure,) = ended
    assert isinstance(failure, QueryCanceled)
    assert failure.message == "canceling statement due to user request"
    (result,) = coordinator.execute(session, "SELECT a FROM t")
    assert result.rows is not None
    assert result.rows.num_rows == 1


def test_a_watcher_that_fails_keeps_nobody_from_being_told(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    told = threading.Semaphore(0)
    collections = env.collections

    def fails() -> None:
        raise ZeroDivisionError

    ends = [collections.watch(fails), collections.watch(lambda: told.release())]
    other = Environment.open(env.locations)
    try:
        for n in range(2):
            # by the thread that follows what others do
            other.reach(other.clock.now_ms())
            assert told.acquire(timeout=PATIENCE), n
            while told.acquire(blocking=False):
                pass
    finally:
        other.close()
        for end in ends:
            end()
    assert "a watcher of the collections failed" in caplog.text


def test_a_coordinator_closes_everything_whatever_fails(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Coordinator(env, spark=None)
    coordinator_parts = (opened.commits, opened.dataflows, opened.planner)
    closed: list[str] = []
    for part in coordinator_parts:
        close = part.close

        def noted(part: object = part, close: Callable[[], None] = close) -> None:
            close()
            closed.append(type(part).__name__)
            raise Determinate("it did not close well")

        monkeypatch.setattr(part, "close", noted)
    with pytest.raises(Determinate, match="it did not close well"):
        opened.close()
    assert closed == ["GroupCommit", "Dataflows", "Planner"]


def test_a_connection_lets_go_of_everything_whatever_fails(tmp_path: Path) -> None:
    class Failing(Subscription):
        busy = False

        def __init__(self) -> None:
            """It has nothing but its end."""

        def close(self) -> None:
            raise Determinate("it did not close well")

    con = mzsql.connect(tmp_path / "other")
    shared, failing, also = con.coordinator, Failing(), Failing()
    for stream in (failing, also):
        con.follow(stream)
    with pytest.raises(mzsql.Error, match="it did not close well"):
        con.close()
    assert con.closed
    with mzsql.connect(tmp_path / "other") as again:
        assert again.coordinator is not shared


@pytest.mark.long
def test_what_a_managed_collection_has_to_write_keeps_a_close_no_longer_than_the_rest(
    env: Environment,
) -> None:
    gid, shard = GlobalId("s9999"), env.persist.new_shard_id()
    env.manager.register(gid, shard, (ColumnType(TEXT),), kind=ManagedKind(True), name="statuses")
    env.manager.flush(gid)
    failed = threading.Event()
    with outage(env, failed):
        env.manager.append(gid, [(("a",), 1)])
        assert failed.wait(PATIENCE)
        closing = threading.Thread(target=lambda: _closed(env))
        closing.start()
        closing.join(PATIENCE)
        assert not closing.is_alive()


def _closed(env: Environment) -> None:
    with contextlib.suppress(LocationError):
        env.close()


def test_an_environment_is_closed_wholly_and_soon_in_an_outage(
    env: Environment, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.execute(Session(), "CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    coordinator.execute(Session(), "SELECT a FROM t")
    closed: list[str] = []
    for name, store in (("consensus", env.persist.consensus), ("blob", env.persist.blob)):
        close = store.close

        def noted(name: str = name, close: Callable[[], None] = close) -> None:
            close()
            closed.append(name)

        monkeypatch.setattr(store, "close", noted)
    began = time.monotonic()
    with outage(env), pytest.raises(LocationError, match="the store cannot be reached"):
        env.close()
    assert time.monotonic() - began < PATIENCE
    assert closed == ["consensus", "blob"]
    env.close()
