"""Calls at deadlines, for acts that cannot be given a timeout themselves.

Promise: `ALARMS` are the process's; what `add` was given is called once its time has come, on one supervised thread, which runs while
there is anything to wait for and sleeps until the next deadline. A child of a fork begins anew, without the calls of its parent.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable

from mzsql.repr.interrupt import NO_LIMIT, call_each
from mzsql.threads.supervisor import PROCESS, Supervised


class Deadlines:
    """Calls back at deadlines; one thread, started at first use, and again where it is gone. Thread-safe."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, a thread that is not there any more included."""
        self._changed = threading.Condition()
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wakes_at = 0.0
        self._thread: Supervised | None = None
        self._closed = False

    def add(self, at: float, call: Callable[[], None]) -> object:
        """Have ``call`` called at ``at`` (of `time.monotonic`), unless it is taken back before; a key for `remove`."""
        key = object()
        with self._changed:
            self._due[key] = (at, call)
            if self._closed:
                return key
            if self._thread is None or not self._thread.is_alive():
                if self._thread is not None:
                    self._thread.join()
                self._wakes_at = at
                self._thread = PROCESS.start(
                    "statement-timeouts", self._run, thread_name="mzsql-statement-timeouts"
                )
            elif at < self._wakes_at:
                self._changed.notify()
        return key

    def remove(self, key: object) -> None:
        """Take a call back; it may have been made, or be under way."""
        with self._changed:
            self._due.pop(key, None)

    def _run(self, thread: Supervised) -> None:
        while True:
            thread.well()
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                late = [key for key, (at, _) in self._due.items() if at <= now]
                calls = [self._due.pop(key)[1] for key in late]
                if not calls:
                    self._wakes_at = min(
                        (at for at, _ in self._due.values()), default=now + NO_LIMIT
                    )
                    self._changed.wait(self._wakes_at - now)
                    continue
            call_each(calls)

    def close(self) -> None:
        """End the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.stop()
            self._thread.join()


ALARMS = Deadlines()
"""The process's: it is closed when the interpreter ends, and begins anew in a child of a fork, where its thread is not."""
atexit.register(ALARMS.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ALARMS.begin_anew)
