"""An environment of a test's own with a coordinator without Spark; and its backends with something done around them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.adapter.statements.result import Result
from mzsql.location import consensus_around

HANG = 60.0


class Place:
    """One process's view of an environment."""

    def __init__(self, where: Path) -> None:
        self.env = Environment.open(locate(str(where), create=True))
        self.coordinator = Coordinator(self.env, spark=None, lead=False)
        self.session = Session()

    def run(self, text: str, session: Session | None = None, *params: object) -> list[Result]:
        """Run a text in a session, the place's own by default."""
        return self.coordinator.execute(session or self.session, text, list(params) or None)

    def rows(self, text: str, session: Session | None = None) -> list[tuple[Any, ...]]:
        """The rows of a text's last statement, sorted."""
        table = self.run(text, session)[-1].rows
        assert table is not None
        return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def close(self) -> None:
        """Close both."""
        self.coordinator.close()
        self.env.close()


@contextmanager
def opened(*wheres: Path) -> Iterator[list[Place]]:
    """Places, closed at the end; the same path twice is two processes' views of one environment."""
    places = [Place(where) for where in wheres]
    try:
        yield places
    finally:
        for place in places:
            place.close()


def around_consensus(env: Environment, around: Callable[[str, Callable[[], Any]], Any]) -> None:
    """Do something around every operation that the environment asks of Consensus from now on."""
    context = env.catalog._map._writer.context
    wrapped = consensus_around(context.consensus, around)
    msgspec.structs.force_setattr(context, "consensus", wrapped)


def around_oracle(env: Environment, around: Callable[[str, Callable[[], Any]], Any]) -> None:
    """Do something around every operation that the environment asks of its oracle from now on."""
    for name in ("write_ts", "peek_write_ts", "read_ts", "apply_write", "adopt"):
        inner = getattr(env.oracle, name)
        setattr(env.oracle, name, _around(name, inner, around))


def _around(
    name: str, inner: Callable[..., Any], around: Callable[[str, Callable[[], Any]], Any]
) -> Callable[..., Any]:
    return lambda *args: around(name, lambda: inner(*args))


class Gate:
    """Stops what goes through it while it is shut."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.reached = threading.Event()

    def shut(self) -> None:
        """Stop whoever comes from now on."""
        self.reached.clear()
        self._open.clear()

    def open(self) -> None:
        """Let everybody through."""
        self._open.set()

    def before(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """The act, done once the gate is open."""

        def gated(*args: Any, **more: Any) -> Any:
            if not self._open.is_set():
                self.reached.set()
                assert self._open.wait(HANG)
            return act(*args, **more)

        return gated


def gate_before_appends(env: Environment) -> Gate:
    """A gate right before the append of each commit, shut."""
    gate = Gate()
    env.wal.commit = gate.before(env.wal.commit)  # type: ignore[method-assign]
    gate.shut()
    return gate


def in_threads(*acts: Callable[[], object]) -> list[object]:
    """Run acts at once, each on a thread; what each returned, or the exception that it raised."""
    found: list[object] = [None] * len(acts)

    def run(i: int) -> None:
        try:
            found[i] = acts[i]()
        except BaseException as failure:
            found[i] = failure

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive()
    return found
