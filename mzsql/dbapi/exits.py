"""What is closed when the interpreter exits, and that it is closed before Spark stops.

Promise: the function that is given last to `close_at_exit` runs before everything that was registered with `atexit` until
the last call here. Spark's own exit handler deletes files that are still in use.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable

_close: list[Callable[[], None]] = []


def close_at_exit(close: Callable[[], None]) -> None:
    """Call ``close`` when the interpreter exits, instead of what was given before."""
    for before in _close:
        atexit.unregister(before)
    _close[:] = [close]
    atexit.register(close)


def close_first() -> None:
    """Have what is called at exit run before everything registered until now."""
    for close in _close:
        atexit.unregister(close)
        atexit.register(close)
