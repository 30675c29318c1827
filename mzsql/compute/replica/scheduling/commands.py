"""The queue of a replica's commands, and the thread that takes them.

Promise: commands are taken one by one, in the order in which they were sent, on a thread of the replica, so a sender
waits neither for backends nor for the replica's locks. At most `MOST_COMMANDS` wait; then senders block, and get an
error at the timeout. The thread sleeps while nothing is sent.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from mzsql.compute.protocol import MOST_COMMANDS, Command
from mzsql.repr.errors import ObjectInUse
from mzsql.threads import Supervised


class Commands:
    """The command queue of one replica. Thread-safe.

    Args:
        replica_id: for messages.
        take: carries out a command; if it raises, the thread is restarted.
        start: starts a supervised thread.
        timeout: seconds for which `send` waits for room in the queue.
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
        """Queue a command.

        Raises:
            ObjectInUse: the queue stayed full for the whole timeout.
            ThreadFailed: the thread that takes commands has failed.
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
        """Queue work of the replica's own between commands. It never waits for room: the replica's threads must not
        block on its queue.
        """
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
        """Take no more commands, and discard those that wait. Idempotent."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.stop()

    def join(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the command that is being carried out."""
        self._thread.join(timeout)
