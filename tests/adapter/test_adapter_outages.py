"""Stores that fail at once, for as long as the test wants: what becomes of statements, and of a process that closes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment import Environment
from mzsql.adapter.locations import locate
from mzsql.adapter.session import Session
from mzsql.location import Determinate, LocationError
from mzsql.repr.errors import QueryCanceled

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
def outage(env: Environment) -> Iterator[None]:
    """Consensus takes no call."""

    def fails(*_: object) -> None:
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
    coordinator.execute(session, "SET statement_timeout = '300ms'")
    began = time.monotonic()
    with outage(env):
        for statement in ("SELECT a FROM t", "CREATE TABLE u (a int)"):
            with pytest.raises(
                QueryCanceled, match="canceling statement due to statement timeout"
            ) as raised:
                coordinator.execute(session, statement)
            assert isinstance(raised.value.__cause__, LocationError)
    assert time.monotonic() - began < PATIENCE
    coordinator.execute(session, "RESET statement_timeout")
    (result,) = coordinator.execute(session, "SELECT a FROM t")
    assert result.rows is not None
    assert result.rows.num_rows == 1


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
