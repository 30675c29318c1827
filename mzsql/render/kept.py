"""Statements that are kept for a long time and looked at seldom.

Promise: `Kept.statement` is the statement that it was made of, as a tree, whenever it is asked for; who has it must not change it. While
nobody asks, `cool` has it kept as bytes: a tree of some thousand nodes is megabytes of small objects, which Python's cycle collector goes
through in each full collection, with all threads waiting; as bytes it is some tens of kilobytes, and one object. With TPC-H's 22 views the
trees were four fifths of a million objects, and a full collection went from 1,000 to 110 ms without them.

Trade-off: to be asked after that costs about as much as copying the tree.
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
        statement: not to be changed any more.
        now: seconds that only grow.
    """

    def __init__(
        self, statement: exp.Expression, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = threading.Lock()
        self._tree: exp.Expression | None = statement
        self._packed: bytes | None = None
        self._now = now
        self._asked = now()

    @property
    def statement(self) -> exp.Expression:
        """The tree."""
        with self._lock:
            self._asked = self._now()
            if self._tree is None:
                assert self._packed is not None
                tree = pickle.loads(zlib.decompress(self._packed))  # noqa: S301  # of this process's own making
                assert isinstance(tree, exp.Expression)
                self._tree = tree
            return self._tree

    def warm(self, seconds: float) -> bool:
        """Whether the tree is there, and nobody has asked for it for so long."""
        return self._tree is not None and self._now() - self._asked >= seconds

    def cool(self, seconds: float) -> None:
        """Keep it as bytes, where nobody has asked for it for so long."""
        with self._lock:
            if self._tree is None or self._now() - self._asked < seconds:
                return
            if self._packed is None:
                self._packed = zlib.compress(pickle.dumps(self._tree, pickle.HIGHEST_PROTOCOL), 1)
            self._tree = None
