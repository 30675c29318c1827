"""Recorded histories of sessions on two processes' views of one environment, checked for strict serializability."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commit_kit import Place, in_threads, opened

from mzsql.adapter.session.session import Session
from mzsql.repr.errors import TransactionError
from mzsql.testing.serializability import Append, Read, Transaction, check

#: Each a table whose rows are the values.
SETS = ("k0", "k1")
#: Each a row of one table, whose text has the values in the order in which they were added.
LISTS = ("l0", "l1")


class Recorder:
    """Runs random transactions and remembers what each did and saw."""

    def __init__(self) -> None:
        self.history: list[Transaction] = []
        self._numbers = itertools.count(1)

    def run(self, place: Place, process: int, count: int) -> None:
        """Random transactions of one session."""
        rng = random.Random(process)
        session = Session()
        for _ in range(count):
            keys = rng.sample(SETS + LISTS, rng.randint(1, 4))
            kind = rng.choice(["read", "append", "append alone"])
            operations: list[Append | Read] = []
            call = time.monotonic_ns()
            failed = False
            try:
                self._transaction(place, session, kind, keys, operations)
            except TransactionError:
                failed = True
                place.run("ROLLBACK", session)
            end = time.monotonic_ns()
            self.history.append(Transaction(process, tuple(operations), call, end, failed))

    def _transaction(
        self,
        place: Place,
        session: Session,
        kind: str,
        keys: list[str],
        operations: list[Append | Read],
    ) -> None:
        if kind == "append alone":
            self._append(place, session, keys[0], operations)
            return
        place.run("BEGIN", session)
        for key in keys:
            if kind == "read":
                self._read(place, session, key, operations)
            else:
                self._append(place, session, key, operations)
        place.run("COMMIT", session)

    def _append(
        self, place: Place, session: Session, key: str, operations: list[Append | Read]
    ) -> None:
        number = next(self._numbers)
        operations.append(Append(key, number))
        if key in SETS:
            place.run(f"INSERT INTO {key} VALUES ({number})", session)
        else:
            place.run(f"UPDATE lists SET v = v || ' {number}' WHERE key = '{key}'", session)

    def _read(
        self, place: Place, session: Session, key: str, operations: list[Append | Read]
    ) -> None:
        if key in SETS:
            values = tuple(v for (v,) in place.rows(f"SELECT v FROM {key}", session))
            operations.append(Read(key, values))
        else:
            ((text,),) = place.rows(f"SELECT v FROM lists WHERE key = '{key}'", session)
            operations.append(Read(key, tuple(map(int, text.split())), ordered=True))

    def read_all(self, place: Place) -> None:
        """What is there in the end."""
        for key in SETS + LISTS:
            operations: list[Append | Read] = []
            call = time.monotonic_ns()
            self._read(place, Session(), key, operations)
            self.history.append(Transaction(99, tuple(operations), call, time.monotonic_ns()))


@pytest.mark.parametrize("processes", [1, 2])
def test_histories_are_strictly_serializable(tmp_path: Path, processes: int) -> None:
    with opened(*[tmp_path / "env"] * processes) as places:
        for key in SETS:
            places[0].run(f"CREATE TABLE {key} (v int)")
        places[0].run("CREATE TABLE lists (key text, v text)")
        places[0].run("INSERT INTO lists VALUES ('l0', ''), ('l1', '')")
        recorder = Recorder()

        def session(number: int) -> Callable[[], None]:
            return lambda: recorder.run(places[number % processes], number, 12)

        assert in_threads(*(session(number) for number in range(6))) == [None] * 6
        recorder.read_all(places[-1])
        assert check(recorder.history) == []
        done = [t for t in recorder.history if not t.failed]
        assert len(done) > len(recorder.history) // 2
