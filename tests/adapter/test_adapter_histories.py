"""Sessions of several coordinators on one environment, as threads: what they read and write is strictly serializable.

The histories are judged by `mzsql.testing.serializability`, which knows nothing of timestamps. Reads take all paths: rows evaluated without
an engine, counts in DuckDB, transactions of several reads. The faults planted are those that fast reads invite: a timestamp kept from
before the query came, contents kept although somebody wrote.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.compute.peek.snapshots import SnapshotCache
from mzsql.repr.errors import InternalError, TransactionError
from mzsql.repr.frontier import Timestamp
from mzsql.testing.serializability import Append, Read, Transaction, check

PROCESSES = 3
Done = tuple[Append | Read, ...]


@pytest.fixture
def coordinators(tmp_env: Path) -> Iterator[list[Coordinator]]:
    made = []
    for _ in range(PROCESSES):
        env = Environment.open(locate(tmp_env))
        made.append(Coordinator(env, spark=None, lead=False))
    setup = Session()
    for text in (
        "CREATE TABLE x (v int)",
        "CREATE TABLE y (v int)",
        "CREATE TABLE listed (k int, vs text)",
        "INSERT INTO listed VALUES (1, ''), (2, '')",
    ):
        made[0].execute(setup, text)
    yield made
    for one in made:
        one.close()
        one.env.close()


class Client:
    """One session, which writes down what it did."""

    def __init__(self, coordinator: Coordinator, number: int, isolation: str) -> None:
        self.coordinator = coordinator
        self.number = number
        self.session = Session()
        self.session.set("transaction_isolation", [isolation])
        self.rng = random.Random(number)
        self.value = number * 100_000
        self.history: list[Transaction] = []
        self.broken: list[BaseException] = []

    def rows(self, text: str) -> list[tuple[object, ...]]:
        result = self.coordinator.execute(self.session, text)[-1]
        if result.rows is None:
            return []
        return list(zip(*(c.to_pylist() for c in result.rows.columns), strict=True))

    def did(self, appends: Done, act: Callable[[], Done]) -> None:
        call = time.monotonic_ns()
        try:
            reads = act()
        except TransactionError:
            self.history.append(Transaction(self.number, appends, call, None, failed=True))
            return
        done = (*appends, *reads)
        self.history.append(Transaction(self.number, done, call, time.monotonic_ns()))

    def insert(self) -> None:
        self.value += 1
        key, value = self.rng.choice("xy"), self.value

        def act() -> Done:
            self.rows(f"INSERT INTO {key} VALUES ({value})")
            return ()

        self.did((Append(key, value),), act)

    def extend(self) -> None:
        self.value += 1
        key, value = self.rng.choice([1, 2]), self.value

        def act() -> Done:
            self.rows(f"UPDATE listed SET vs = vs || ',{value}' WHERE k = {key}")
            return ()

        self.did((Append(f"listed {key}", value),), act)

    def table(self, key: str) -> Read:
        return Read(key, tuple(sorted(int(str(v)) for (v,) in self.rows(f"SELECT v FROM {key}"))))

    def listing(self, key: int) -> Read:
        ((text,),) = self.rows(f"SELECT vs FROM listed WHERE k = {key}")
        values = tuple(int(v) for v in str(text).split(",") if v)
        return Read(f"listed {key}", values, ordered=True)

    def read(self) -> None:
        key = self.rng.choice("xy")
        self.did((), lambda: (self.table(key),))

    def read_list(self) -> None:
        key = self.rng.choice([1, 2])
        self.did((), lambda: (self.listing(key),))

    def read_all(self) -> None:
        def act() -> Done:
            self.rows("BEGIN")
            found = (self.table("x"), self.listing(1), self.table("y"), self.listing(2))
            self.rows("COMMIT")
            return found

        self.did((), act)

    def run(self, steps: int) -> None:
        acts = [
            self.insert,
            self.insert,
            self.extend,
            self.read,
            self.read,
            self.read_list,
            self.read_all,
        ]
        try:
            for _ in range(steps):
                self.rng.choice(acts)()
        except BaseException as failure:
            self.broken.append(failure)


def recorded(
    coordinators: list[Coordinator], *, steps: int, isolation: str = "strict serializable"
) -> list[Transaction]:
    clients = [
        Client(coordinators[number % PROCESSES], number, isolation)
        for number in range(2 * PROCESSES)
    ]
    threads = [threading.Thread(target=client.run, args=(steps,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    for client in clients:
        for failure in client.broken:
            raise failure
    clients[0].read_all()
    return [one for client in clients for one in client.history]


def test_strictly_serializable(coordinators: list[Coordinator]) -> None:
    history = recorded(coordinators, steps=25)
    assert check(history, order="real time") == []
    assert sum(one.inputs.kept.hits for one in coordinators) > 0


def test_strong_session_serializable(coordinators: list[Coordinator]) -> None:
    history = recorded(coordinators, steps=15, isolation="strong session serializable")
    assert check(history, order="process") == []


def is_caught(coordinators: list[Coordinator]) -> bool:
    for _ in range(5):
        try:
            if check(recorded(coordinators, steps=20), order="real time"):
                return True
        except InternalError:
            # Rows that are there a negative number of times, as somebody has deleted them twice.
            return True
    return False


def test_a_timestamp_from_before_the_query_is_caught(
    coordinators: list[Coordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    cached: dict[int, tuple[float, Timestamp]] = {}
    fresh = Environment.fresh_timestamp

    def stale(self: Environment) -> Timestamp:
        at, ts = cached.get(id(self), (0.0, 0))
        if time.monotonic() - at > 0.1:
            ts = fresh(self)
            cached[id(self)] = (time.monotonic(), ts)
        return ts

    monkeypatch.setattr(Environment, "fresh_timestamp", stale)
    assert is_caught(coordinators)


def test_contents_kept_too_long_are_caught(
    coordinators: list[Coordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = SnapshotCache._fit
    rng = random.Random(0)

    def careless(self: SnapshotCache, contents: object, key: object, at: Timestamp) -> object:
        kept = self._kept.get(key)
        if kept is not None and rng.random() < 0.3:
            return kept.rows
        return fit(self, contents, key, at)

    monkeypatch.setattr(SnapshotCache, "_fit", careless)
    assert is_caught(coordinators)
