"""Threads that give way to others of the process."""

from __future__ import annotations

import logging
import os
import sys
import threading

_log = logging.getLogger(__name__)


def give_way(by: int) -> None:
    """Lower the priority of the calling thread: `by` steps of niceness below that of the process's first thread.

    What it starts from then on, such as a library's threads, has the same priority. Calling it again changes nothing. Elsewhere than on
    Linux, where niceness is not a thread's own, nothing happens.
    """
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    wanted = os.getpriority(os.PRIO_PROCESS, os.getpid()) + by
    if os.getpriority(os.PRIO_PROCESS, thread) >= wanted:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, thread, wanted)
    except OSError as error:
        _log.info("%s keeps its priority: %s", threading.current_thread().name, error)
