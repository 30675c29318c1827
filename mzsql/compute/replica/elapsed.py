"""For how long a replica was at each node of a dataflow.

Promise: time is counted where statements run, from their begin to when what they made is stored, with the part of one that is under way. A
hydration has a statement for each stage, whose time is that of the node it fills; a step is one statement for the whole plan, whose time
is the root's. One thread at a time writes, any may read.
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
        nanoseconds: for how long.
        statements: how many were begun.
        rows: how many rows came out, as far as is known here.
    """

    nanoseconds: int = 0
    statements: int = 0
    rows: int = 0


@dataclass
class Elapsed:
    """That of one dataflow."""

    now: Callable[[], float] = time.monotonic
    _spent: dict[int, Spent] = field(default_factory=dict)
    _at: tuple[int, float] | None = None

    @contextlib.contextmanager
    def at(self, lir_id: int) -> Iterator[None]:
        """Within the block a statement of the node runs."""
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
        """A node's statement took so many seconds, and gave so many rows."""
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
