"""Ends ``mzsql plugins test`` when a backend hangs, since its call cannot be interrupted from within.

Promise: ``seconds`` after the start of a case that does not end, its name is reported, the results so far are shown and
kept, and the process exits with code 1.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Self

_FAILED = 1


class Watch:
    """A watchdog for consecutive tasks, each announced by `begun`.

    Args:
        seconds: the time limit of a task.
        where: the backend, without secrets.
        hung: called with the name of the hanging task, on the watchdog's thread, before the process ends.
        leave: ends the process.
    """

    def __init__(
        self,
        seconds: float,
        where: str,
        hung: Callable[[str], None] = lambda _: None,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self._seconds = seconds
        self._where = where
        self._hung = hung
        self._leave = leave
        self._name = "opening it"
        self._event = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def begun(self, name: str) -> None:
        """The previous task has ended, and ``name`` begins."""
        self._name = name
        self._event.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._event.set()
        self._thread.join()

    def _watch(self) -> None:
        while self._event.wait(self._seconds):
            self._event.clear()
            if self._closed:
                return
        name = self._name
        sys.stderr.write(
            f"ERROR:  {self._where}: {name} did not end within {self._seconds:g} seconds\n"
        )
        try:
            self._hung(name)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            self._leave(_FAILED)
