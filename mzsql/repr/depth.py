"""Deep statements: room for the recursion they need, a clear error where it is not enough.

Promise: within `deep()`, recursion reaches a fixed, generous depth whatever the caller's limit is, and going beyond it is a `SqlError` that
says "nested too deeply". Python's frames do not use the C stack since 3.11, so the depth is a matter of memory alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mzsql.repr.errors import SqlSyntaxError

#: Python frames that parsing, planning and lowering a statement may use.
FRAMES = 20_000

_lock = threading.Lock()


@contextmanager
def deep() -> Iterator[None]:
    """Run the body with room for `FRAMES` frames.

    Raises:
        SqlSyntaxError: the body needed more (54001); it stands for the RecursionError.
    """
    with _lock:
        # The limit is the process's: it is raised once and never lowered, as another thread may stand deeper by now.
        if sys.getrecursionlimit() < FRAMES:
            sys.setrecursionlimit(FRAMES)
    try:
        yield
    except RecursionError:
        raise SqlSyntaxError(
            "statement is nested too deeply",
            hint="Break it up: name parts of it in a WITH clause or as views.",
            sqlstate="54001",
        ) from None
