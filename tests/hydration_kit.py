"""What tests ask about hydrations, and who looks every ten milliseconds whether what was true stays so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mzsql

#: How long a busy machine may take for what takes a moment.
HANG = 120.0
#: Of each object: of each worker of each node whether it is hydrated, and whether the object is, all at one time.
SHOWN = """
SELECT o.name, h.replica_id, h.plan_node_id, h.worker_id, h.hydrated
FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker AS h
JOIN mz_objects AS o ON o.id = h.object_id
UNION ALL
SELECT o.name, s.replica_id, NULL, NULL, s.hydrated
FROM mz_internal.mz_hydration_statuses AS s
JOIN mz_objects AS o ON o.id = s.object_id
WHERE o.id LIKE 'u%'
"""


def until(con: mzsql.Connection, query: str, done: Callable[[list[Any]], object]) -> list[Any]:
    deadline = time.monotonic() + HANG
    while not done(found := con.execute(query).fetchall()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


class Watcher:
    """Looks every ten milliseconds, from the side; what was true stays true unless it is dropped."""

    def __init__(self, con: mzsql.Connection) -> None:
        self._con = con
        self._known: set[tuple[Any, ...]] = set()
        self._gone: set[str] = set()
        self.looks = 0
        self.faults: list[str] = []

    def look(self) -> dict[tuple[Any, ...], bool]:
        """Whether what there is now is hydrated, by object, replica, node and worker: no node and no worker for the object itself."""
        found = {row[:4]: row[4] for row in self._con.execute(SHOWN).fetchall()}
        self.looks += 1
        gone = frozenset(self._gone)
        for row in self._known:
            if row[0] not in gone and found.get(row) is not True:
                self.faults.append(f"look {self.looks}: {row} was true and is {found.get(row)}")
        self._known |= {row for row, done in found.items() if done}
        for name in {row[0] for row in found}:
            nodes = [done for row, done in found.items() if row[0] == name and row[2] is not None]
            own = [done for row, done in found.items() if row[0] == name and row[2] is None]
            if nodes and all(nodes) and not all(own):
                self.faults.append(
                    f"look {self.looks}: all nodes of {name} are done, {name} is not"
                )
        return found

    def check(self, *names: str) -> None:
        """See that nothing was wrong, and that there was something of each of these to be seen."""
        self.look()
        assert not self.faults, "\n".join(self.faults)
        assert self.looks > 10
        assert {row[0] for row in self._known} >= set(names)

    def dropping(self, name: str) -> None:
        self._gone.add(name)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        ended = threading.Event()

        def run() -> None:
            try:
                while not ended.wait(0.01):
                    self.look()
            except BaseException as error:  # shown by `check`
                self.faults.append(repr(error))
                raise

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
