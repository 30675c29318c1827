"""Measures the time that a replica spends on each node of a dataflow.

Promise: the time of a statement is counted from its start to when its result is stored, including a statement that
still runs. A hydration has a statement for each stage, whose time counts for the node that it fills. A step is one
statement for the whole plan, whose time counts for the root. One thread at a time writes, any thread may read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Spent:
    """What was spent on one node.

    Attributes:
        nanoseconds: wall time.
        statements: number of statements begun.
        rows: number of rows produced, as far as is known here.
    """

    nanoseconds: int = 0
    statements: int = 0
    rows: int = 0


@dataclass
class Elapsed:
    """The times of one dataflow's nodes."""

    now: Callable[[], float] = time.monotonic
    _spent: dict[int, Spent] = field(default_factory=dict)
    _at: tuple[int, float] | None = None

    @contextlib.contextmanager
    def at(self, lir_id: int) -> Iterator[None]:
        """Count the time of the block as that of a statement of the node."""
        began = self.now()
        known = self._spent.get(lir_id, Spent())
        self._spent[lir_id] = Spent(known.nanoseconds, known.statements + 1, known.rows)
        self._at = lir_id, began
        try:
            yield
        finally:
            self._at = None
            self.add(lir_id, self.now() - began)

    def add(self, lir_id: int, seconds: float, *, statements: int = 0, rows: int = 0) -> None:
        """Add the time, in seconds, and the rows of a node's statement."""
        known = self._spent.get(lir_id, Spent())
        self._spent[lir_id] = Spent(
            known.nanoseconds + round(seconds * 1e9),
            known.statements + statements,
            known.rows + rows,
        )

    def by_node(self) -> dict[int, Spent]:
        """What was spent until now, by node."""
        at, found = self._at, dict(self._spent)
        if at is not None:
            lir_id, began = at
            known = found.get(lir_id, Spent())
            under_way = round((self.now() - began) * 1e9)
            found[lir_id] = Spent(known.nanoseconds + under_way, known.statements, known.rows)
        return found
