"""Statements that are kept for long and used seldom.

Promise: `Kept.statement` returns the statement as a tree whenever it is asked for; it must not be modified. While
nobody asks, `cool` stores it as bytes: a tree of some thousand nodes is megabytes of small objects, which Python's
cycle collector visits in each full collection while all threads wait; as bytes it is some tens of kilobytes and one
object. With TPC-H's 22 views the trees were four fifths of a million objects, and without them a full collection
took 110 ms instead of 1,000.

Trade-off: the first use afterwards costs about as much as copying the tree.
"""

from __future__ import annotations

import pickle
import threading
import time
import zlib
from collections.abc import Callable

from sqlglot import expressions as exp


class Kept:
    """A statement, as a tree or as bytes. Thread-safe.

    Args:
        statement: must not be modified any more; or what makes it, which is called when it is first asked for.
        now: monotonic seconds.
    """

    def __init__(
        self,
        statement: exp.Expression | Callable[[], exp.Expression],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._tree: exp.Expression | None = None
        self._make: Callable[[], exp.Expression] | None = None
        if isinstance(statement, exp.Expression):
            self._tree = statement
        else:
            self._make = statement
        self._packed: bytes | None = None
        self._now = now
        self._asked = now()

    @property
    def statement(self) -> exp.Expression:
        """The tree; made or unpacked if need be."""
        with self._lock:
            self._asked = self._now()
            if self._make is not None:
                self._tree = self._make()
                self._make = None
            if self._tree is None:
                assert self._packed is not None
                tree = pickle.loads(zlib.decompress(self._packed))  # noqa: S301  # of this process's own making
                assert isinstance(tree, exp.Expression)
                self._tree = tree
            return self._tree

    def warm(self, seconds: float) -> bool:
        """Whether the tree exists and nobody has asked for it for `seconds`."""
        return self._tree is not None and self._now() - self._asked >= seconds

    def cool(self, seconds: float) -> None:
        """Store it as bytes if nobody has asked for it for `seconds`."""
        with self._lock:
            if self._tree is None or self._now() - self._asked < seconds:
                return
            if self._packed is None:
                self._packed = zlib.compress(pickle.dumps(self._tree, pickle.HIGHEST_PROTOCOL), 1)
            self._tree = None
