"""Deep statements: room for the recursion they need, a clear error where it is not enough.

Promise: within `deep()`, recursion reaches a fixed, generous depth whatever the caller's limit is, and going beyond it is a `SqlError` that
says "nested too deeply". Python's frames do not use the C stack since 3.11, so the depth is a matter of memory alone.
"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager

from mzsql.repr.errors import SqlSyntaxError

#: Python frames that parsing, planning and lowering a statement may use.
FRAMES = 20_000

_lock = threading.Lock()


class _Deep:
    """See `deep`. A class, as every statement enters it several times, and a generator costs three times as much."""

    def __enter__(self) -> None:
        if sys.getrecursionlimit() >= FRAMES:
            return
        with _lock:
            # The limit is the process's: it is raised once and never lowered, as another thread may stand deeper by now.
            if sys.getrecursionlimit() < FRAMES:
                sys.setrecursionlimit(FRAMES)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, RecursionError):
            raise SqlSyntaxError(
                "statement is nested too deeply",
                hint="Break it up: name parts of it in a WITH clause or as views.",
                sqlstate="54001",
            ) from None


_DEEP = _Deep()


def deep() -> AbstractContextManager[None]:
    """Run the body with room for `FRAMES` frames.

    Raises:
        SqlSyntaxError: the body needed more (54001); it stands for the RecursionError.
    """
    return _DEEP
