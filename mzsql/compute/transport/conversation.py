"""What a controller has to send to one replica, and what answers it is owed, over connections that may end at any time.

Promise: pure bookkeeping, without threads or clock. While there is no connection nothing is queued: the next one
begins with everything that is wanted (`CommandHistory`), and the replica keeps what it has of that and drops the
rest. When a connection ends, what it reported stays valid until it is reported anew (`Parted`), and what was asked
over it is answered here: a ping as done, a peek with an error, a drop as done.
"""

from __future__ import annotations

from collections import deque

from mzsql.compute.protocol import (
    MOST_COMMANDS,
    CancelPeek,
    Command,
    CreateInstance,
    DropDataflow,
    Parted,
    Peek,
    PeekResponse,
    Ping,
    Pong,
    Response,
    Status,
)
from mzsql.compute.transport.history import CommandHistory
from mzsql.repr.ids import GlobalId


class Conversation:
    """The conversation with one replica. Not thread-safe.

    Args:
        first: the replica's id and settings.

    Attributes:
        there: whether there is a connection.
    """

    def __init__(self, first: CreateInstance) -> None:
        self._replica = first.replica_id
        self._history = CommandHistory(first)
        self.there = False
        self._out: deque[Command] = deque()
        # Whether anything was reported since the last connection was lost; then the requests that are not answered
        # yet.
        self._told = False
        self._pings: set[int] = set()
        self._peeks: set[str] = set()
        self._dropping: set[GlobalId] = set()

    @property
    def waiting(self) -> int:
        """How many commands wait to be sent."""
        return len(self._out)

    @property
    def has_room(self) -> bool:
        """Whether another command can be queued."""
        return not self.there or len(self._out) < MOST_COMMANDS

    def send(self, command: Command) -> list[Response]:
        """Queue a command; return what is answered at once because there is no connection."""
        self._history.add(command)
        match command:
            case Ping(nonce=nonce):
                self._pings.add(nonce)
            case Peek(uuid=uuid):
                self._peeks.add(uuid)
            case CancelPeek(uuid=uuid):
                self._peeks.discard(uuid)
            case DropDataflow(id=gid):
                self._dropping.add(gid)
        if not self.there:
            return self._unanswered("it is away")
        self._out.append(command)
        return []

    def next(self) -> Command | None:
        """The next command to be sent; None if there is none."""
        return self._out.popleft() if self.there and self._out else None

    def begin(self) -> None:
        """A connection begins, to a replica that may know nothing."""
        self.there = True
        self._out.clear()
        self._out.extend(self._history.commands())

    def heard(self, response: Response) -> None:
        """Record a response."""
        match response:
            case Pong(nonce=nonce):
                self._pings = {one for one in self._pings if one > nonce}
            case PeekResponse(uuid=uuid):
                self._peeks.discard(uuid)
            case Status(object_id=gid, state="dropped"):
                self._dropping.discard(gid)
        self._told = True

    def leave(self) -> None:
        """The connection has ended; `end` follows once it is known why."""
        self.there = False
        self._out.clear()

    def end(self, why: str) -> list[Response]:
        """There is no connection: return the answers that nobody else will give any more.

        Args:
            why: for a person.
        """
        self.leave()
        return self._unanswered(why)

    def _unanswered(self, why: str) -> list[Response]:
        answers: list[Response] = [Parted()] if self._told else []
        answers += [Pong(nonce) for nonce in sorted(self._pings)]
        answers += [
            PeekResponse(uuid, error=f"replica {self._replica}: {why}")
            for uuid in sorted(self._peeks)
        ]
        answers += [
            Status(gid, self._replica, "dropped", 0, 0, False) for gid in sorted(self._dropping)
        ]
        self._told = False
        self._pings.clear()
        self._peeks.clear()
        self._dropping.clear()
        return answers
