"""What is to happen as soon as a statement waits for a table's lock: seen, not guessed by a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mzsql.adapter.commit.table_locks import TableLocks

_PATIENCE = 60.0


def once_somebody_waits(locks: TableLocks, act: Callable[[], object]) -> threading.Thread:
    """Do it on a thread, which is returned, once somebody waits for a lock."""

    def run() -> None:
        end = time.monotonic() + _PATIENCE
        while not locks._waiting and time.monotonic() < end:
            time.sleep(0.005)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread
