"""How a thread waits for the next time that its work is due, or for its end."""

from __future__ import annotations

import threading
from collections.abc import Callable


def wait_until_due(
    changed: threading.Condition, due: Callable[[], float | None], ends: Callable[[], bool]
) -> bool:
    """Wait until work is due; whether it is, and not its end.

    Args:
        changed: is held by the caller, and notified when what the other two say may have changed.
        due: seconds until work is due, 0 now, None for no work yet.
        ends: whether there is to be no more work.
    """
    while not ends() and (seconds := due()) != 0.0:
        changed.wait(seconds)
    return not ends()
