"""Threads that give way to others of the process, and what they start that does not."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_log = logging.getLogger(__name__)

_THIS_THREAD = 0
"""Linux's niceness is a thread's own, and that of "nobody in particular" is the calling thread's."""

T = TypeVar("T")


class _Starter:
    """A thread with the process's priority, which starts what threads with a lower one are not to hand theirs to."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget the thread; a forked child does not have it."""
        self._lock = threading.Lock()
        self.pool: ThreadPoolExecutor | None = None

    def have(self) -> None:
        """Begin the thread unless it runs. The calling thread has not given way."""
        with self._lock:
            if self.pool is None:
                made = ThreadPoolExecutor(1, "mzsql-starter")
                # A pool starts its thread when it first gets work, with the priority of whoever gives it that.
                made.submit(_gives_way).result()
                self.pool = made


_STARTER = _Starter()


def give_way(by: int) -> None:
    """Lower the priority of the calling thread: `by` steps of niceness below that of the process's first thread.

    What it starts from then on, such as a library's threads, has the same priority, unless it is started `plainly`. Calling it again
    changes nothing. Elsewhere than on Linux, where niceness is not a thread's own, nothing happens.
    """
    if sys.platform != "linux":
        return
    plain = os.getpriority(os.PRIO_PROCESS, os.getpid())
    mine = os.getpriority(os.PRIO_PROCESS, _THIS_THREAD)
    if mine >= plain + by:
        return
    try:
        if mine == plain:
            _STARTER.have()
        os.setpriority(os.PRIO_PROCESS, _THIS_THREAD, plain + by)
    except (OSError, RuntimeError) as error:  # no right, or no further thread
        _log.info("%s keeps its priority: %s", threading.current_thread().name, error)


def plainly(work: Callable[[], T]) -> T:
    """Do what starts threads or processes that others use, too, or that outlast the calling thread's work: they get the process's
    priority even if the calling thread has given way.

    Args:
        work: does nothing else, and needs nothing that is the calling thread's own, such as a lock that it holds.

    Raises:
        BaseException: what `work` raises.
    """
    starter = _STARTER.pool
    if starter is None or not _gives_way():
        return work()
    try:
        done = starter.submit(work)
    except RuntimeError:  # the interpreter ends
        return work()
    return done.result()


def _gives_way() -> bool:
    """Whether the calling thread, or the one that it was started by, has given way."""
    plain = os.getpriority(os.PRIO_PROCESS, os.getpid())
    return os.getpriority(os.PRIO_PROCESS, _THIS_THREAD) > plain


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_STARTER.begin_anew)
