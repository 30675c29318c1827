"""Waiting until another process writes to a file, without polling.

Promise: on Linux (inotify) a `Watch` sleeps until something in its directory is written or it is woken; elsewhere, or
where the kernel grants no more watches, there is none and the caller must poll. A write that was noticed need not be
committed yet: look, and look again shortly.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import sys
from pathlib import Path
from typing import Self

_IN_MODIFY = 0x2
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_EVENTS_BYTES = 64 * 1024


class Watch:
    """Watches the files directly in a directory. Made by `watch_directory`; the caller closes it."""

    def __init__(self, descriptor: int) -> None:
        self._notified = descriptor
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._notified, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Sleep until something was written, `wake` was called, or ``seconds`` have passed; whether anything happened."""
        happened = self._poll.poll(seconds * 1000)
        for descriptor, _ in happened:
            with contextlib.suppress(BlockingIOError):
                os.read(descriptor, 8 if descriptor == self._woken else _EVENTS_BYTES)
        return bool(happened)

    def wake(self) -> None:
        """End another thread's wait."""
        os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """Release the descriptors."""
        os.close(self._notified)
        os.close(self._woken)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def watch_directory(directory: Path) -> Watch | None:
    """A watch on the directory; `None` where there can be none."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE
    if library.inotify_add_watch(descriptor, os.fsencode(directory), mask) < 0:
        os.close(descriptor)
        return None
    try:
        return Watch(descriptor)
    except OSError:  # no descriptors are left
        os.close(descriptor)
        return None
