"""What a replica is asked and answers: whether it has taken all commands, and what an index holds.

Promise: whoever asks waits for a stated time at most, and no longer than until `close`. Which answer is whose is told by what the question
carries; one that nobody waits for any more is dropped. A replica that has let a wait pass is not waited for again until it answers.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence

from mzsql.compute.protocol import CancelPeek, Peek, PeekResponse, Ping, Pong, ReplicaLink
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

#: Whoever waits for a replica looks so often whether it is away.
_LOOK_SECONDS = 0.5


class Answers:
    """Asks one replica. Thread-safe.

    Args:
        changed: guards what is known, and is notified of answers.

    Attributes:
        closed: whether nobody waits any more.
    """

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._peeks: dict[str, PeekResponse | None] = {}
        self._pinged = self._ponged = self._given_up = 0
        self.closed = False

    def close(self) -> None:
        """Nobody waits any more. Idempotent."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def answered(self, response: PeekResponse | Pong) -> None:
        """The replica has answered."""
        with self._changed:
            if isinstance(response, Pong):
                self._ponged = max(self._ponged, response.nonce)
            elif response.uuid in self._peeks:
                self._peeks[response.uuid] = response
            self._changed.notify_all()

    def ping(self, link: ReplicaLink) -> int:
        """Ask the replica to say when it has taken all commands that were sent; what to give to `settled`.

        Nothing is asked of one that has not answered in time before.
        """
        with self._changed:
            if self._ponged < self._given_up:
                return self._given_up
            self._pinged += 1
            nonce = self._pinged
        link.send(Ping(nonce))
        return nonce

    def settled(self, link: ReplicaLink, nonce: int, timeout: float) -> bool:
        """Wait until a ping is answered, for at most so many seconds; whether it is.

        One that is away is not waited for: it is told when it is met again. Nor is one that an earlier call has waited for in vain.
        """
        until = time.monotonic() + timeout
        while True:
            left = until - time.monotonic()
            with self._changed:
                if self._ponged >= nonce or self.closed:
                    return True
                if self._ponged < self._given_up or left <= 0:
                    self._given_up = max(self._given_up, nonce)
                    return False
                self._changed.wait(min(_LOOK_SECONDS, left))
            if link.apart and link.offline is not None:
                return False

    def peek(
        self,
        link: ReplicaLink,
        gid: GlobalId,
        as_of: Timestamp,
        timeout: float,
        columns: Sequence[str] | None,
    ) -> PeekResponse | None:
        """What an index holds; None where that was not answered in so many seconds, and is not asked for any more."""
        name = str(uuid.uuid4())
        self._peeks[name] = None
        try:
            link.send(Peek(name, gid, as_of, None if columns is None else tuple(columns)))
            with self._changed:
                self._changed.wait_for(
                    lambda: self.closed or self._peeks[name] is not None, timeout
                )
                found = self._peeks[name]
            if found is None:
                link.send(CancelPeek(name))
            return found
        finally:
            del self._peeks[name]
