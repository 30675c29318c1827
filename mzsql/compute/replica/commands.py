"""The commands that wait for a replica, and the thread that takes them.

Promise: commands are taken one by one, in the order in which they were sent, on a thread of the replica: who sends one waits neither for
stores nor for a lock of the replica's. No more than `MOST_COMMANDS` wait: who sends more waits with them, and is told at the timeout.
Nothing is looked at while nothing is sent.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from mzsql.compute.protocol import MOST_COMMANDS, Command
from mzsql.repr.errors import ObjectInUse
from mzsql.threads import Supervised


class Commands:
    """The queue of one replica. Thread-safe.

    Args:
        replica_id: for messages.
        take: carries a command out; what it raises begins the thread anew.
        start: starts a supervised thread for some work.
        timeout: seconds for which `send` waits for room.
    """

    def __init__(
        self,
        replica_id: str,
        take: Callable[[Command], None],
        start: Callable[..., Supervised],
        timeout: float,
    ) -> None:
        self._replica = replica_id
        self._take = take
        self._timeout = timeout
        self._changed = threading.Condition()
        self._waiting: deque[Command | Callable[[], None]] = deque()
        self._closed = False
        self._thread = start("commands", self._work, thread_name=f"mzsql-{replica_id}-commands")

    def send(self, command: Command) -> None:
        """Have a command taken after those that were sent before.

        Raises:
            ObjectInUse: too many waited for as long as the timeout.
            ThreadFailed: none is taken any more.
        """
        self._thread.check(f"what takes the commands of replica {self._replica}")
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._closed or len(self._waiting) < MOST_COMMANDS, self._timeout
            ):
                raise ObjectInUse(
                    f"replica {self._replica} does not take commands: {len(self._waiting)} wait"
                )
            self._waiting.append(command)
            self._changed.notify_all()

    def after(self, work: Callable[[], None]) -> None:
        """Have work of the replica's own done between commands, after those that were sent before; it never waits for room."""
        with self._changed:
            self._waiting.append(work)
            self._changed.notify_all()

    def _work(self, thread: Supervised) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if self._closed:
                    return
                one = self._waiting.popleft()
                self._changed.notify_all()
            if callable(one):
                one()
            else:
                self._take(one)
            thread.well()

    def close(self) -> None:
        """Take no command any more; those that wait are forgotten. Idempotent."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.stop()

    def join(self, timeout: float) -> None:
        """Wait until the command that is being taken is."""
        self._thread.join(timeout)
