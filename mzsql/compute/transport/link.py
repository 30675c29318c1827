"""The controller's link to a replica in another process, over a connection that may break at any time.

Promise: `RemoteLink` is a `compute.protocol.ReplicaLink`. Commands arrive in order; `send` waits at most for room in
the queue, for up to `ROOM_SECONDS`. What a reconnected replica is sent, and what becomes of requests on a lost
connection, is defined by `compute.transport.conversation`. `offline` says that the replica is away, at the latest
`SILENT_SECONDS` after its last sign of life, or that it takes no commands. `gone` is true if nobody has been at its
address for `GONE_SECONDS`, or somebody who has been silent for `MOST_SILENT_SECONDS`. Connecting is retried for
ever, after pauses of 0.1 to 2 seconds; a process at another address, as one that was started anew is, is not kept waiting by
them.
"""

from __future__ import annotations

import enum
import logging
import random
import select
import socket
import threading
from collections.abc import Callable

import msgspec

from mzsql.compute.protocol import (
    Command,
    CreateInstance,
    Respond,
    Response,
    decode_response,
    encode,
)
from mzsql.compute.transport.conversation import Conversation
from mzsql.compute.transport.frames import (
    GREETING_SECONDS,
    LOST_SECONDS,
    MESSAGE,
    SILENT_SECONDS,
    Address,
    Hello,
    Refused,
    UnknownPeer,
    Welcome,
    by_when,
    greet,
    prepare,
    receive_frame,
    send_frame,
)
from mzsql.compute.transport.usage import Usage
from mzsql.repr.errors import ObjectInUse
from mzsql.threads import Backoff, Supervised

_log = logging.getLogger(__name__)

#: What a replica has reported counts as outdated once nothing has answered at its address for this long, in seconds.
GONE_SECONDS = 10.0
#: The same once a connected replica has been silent for this long; longer, because a process that was only suspended
#: continues where it was.
MOST_SILENT_SECONDS = 600.0

_PAUSES = Backoff(0.1, 2.0)
#: A replica whose full queue has not moved for this long is reported to take no commands, in seconds.
ROOM_SECONDS = 3.0
_LOOK_SECONDS = 1.0
#: How often a pause looks for another address, which calls no backend, in seconds.
_ADDRESS_SECONDS = 0.05
_JOIN_SECONDS = 5.0


def connected(address: Address, hello: Hello) -> tuple[socket.socket, Welcome]:
    """Connect to the replica at an address.

    Returns:
        The connection, and the replica's welcome.

    Raises:
        Refused: it refuses us, or is not the replica.
        OSError: nobody answers.
    """
    sock = socket.create_connection((address.host, address.port), GREETING_SECONDS)
    try:
        prepare(sock)
        return sock, greet(sock, address.secret, hello, by_when())
    except BaseException:
        sock.close()
        raise


def _asked(address: Address, hello: Hello) -> Welcome:
    """Connect, and return the replica's welcome only; raises as `connected`."""
    sock, said = connected(address, hello)
    sock.close()
    return said


def answers(address: Address, hello: Hello) -> str | None:
    """Why nobody at an address would take commands, as a message for a person; None if the replica is there."""
    try:
        _asked(address, hello)
    except Refused as refused:
        return str(refused)
    except OSError as error:
        return _told(address, error)
    return None


def usage_at(address: Address, hello: Hello) -> Usage | None:
    """What the process of the replica at an address uses of its machine; None if it does not say."""
    try:
        return _asked(address, msgspec.structs.replace(hello, asks=True)).usage
    except (Refused, OSError):
        return None


class Found(enum.Enum):
    """Who is at an address: the replica, certainly not the replica, or somebody who does not answer."""

    REPLICA = enum.auto()
    NOBODY = enum.auto()
    SILENCE = enum.auto()


def found_at(address: Address, hello: Hello) -> Found:
    """Find out who is at an address; takes seconds if nobody answers."""
    try:
        _asked(address, hello)
    except (UnknownPeer, ConnectionRefusedError):
        return Found.NOBODY
    except Refused:
        return Found.REPLICA
    except OSError:
        return Found.SILENCE
    return Found.REPLICA


def _told(address: Address, error: OSError) -> str:
    at = f"{address.host}:{address.port}"
    if isinstance(error, TimeoutError):
        return f"it does not answer at {at} within {GREETING_SECONDS:g} s"
    return f"nobody answers at {at}: {error.strerror or error}"


class RemoteLink:
    """Commands one replica in another process. Thread-safe.

    Args:
        first: the replica's id and settings.
        respond: takes its responses.
        address: returns its present address; None if it has none.
        hello: identifies this controller.
        start: starts a supervised thread.
        monotonic: seconds.
        timeout: seconds for which `send` waits for room, at most `ROOM_SECONDS`; once it has waited in vain it does
            not wait again before there is room.
    """

    #: The replica's holds end with its process, so its controller keeps holds too.
    apart = True

    def __init__(
        self,
        first: CreateInstance,
        respond: Respond,
        *,
        address: Callable[[], Address | None],
        hello: Hello,
        start: Callable[..., Supervised],
        monotonic: Callable[[], float],
        timeout: float,
    ) -> None:
        self._replica = first.replica_id
        self._respond = respond
        self._address = address
        self._hello = hello
        self._monotonic = monotonic
        self._timeout = min(timeout, ROOM_SECONDS)
        self._changed = threading.Condition()
        self._conversation = Conversation(first)
        self._sock: socket.socket | None = None
        self._heard = 0.0
        # Whether a sender has waited for room in vain.
        self._stuck = False
        self._offline: str | None = "it was not met yet"
        self._closed = threading.Event()
        # When it was first found that nobody is at its address; None while somebody is.
        self._nobody_since: float | None = monotonic()
        name, of = f"mzsql-{self._replica}", self._replica
        self._threads = [
            start("replica-link", self._read, thread_name=f"{name}-link", object_id=of),
            start("replica-commands", self._write, thread_name=f"{name}-send", object_id=of),
        ]

    @property
    def offline(self) -> str | None:
        """Why the replica cannot be used now, as a message for a person; None while it can."""
        with self._changed:
            if self._sock is None:
                return self._offline
            silent, stuck = self._monotonic() - self._heard, self._stuck
        if silent > SILENT_SECONDS:
            return f"it has given no sign of life for {silent:.0f} s"
        return "it takes no commands" if stuck else None

    @property
    def gone(self) -> bool:
        """Whether its reports are outdated; see the module."""
        with self._changed:
            now = self._monotonic()
            if self._nobody_since is not None and now - self._nobody_since > GONE_SECONDS:
                return True
            return self._heard > 0 and now - self._heard > MOST_SILENT_SECONDS

    # --- commands -----------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """As `ReplicaLink.send`. A replica that is away is sent the command when it is connected again.

        Raises:
            ObjectInUse: it is connected and has taken no command for the whole timeout.
        """
        with self._changed:
            patience = 0.0 if self._stuck else self._timeout
            if not self._changed.wait_for(self._has_room, patience):
                self._stuck = True
                raise ObjectInUse(
                    f"replica {self._replica} does not take commands: {self._conversation.waiting} wait"
                )
            answers = self._conversation.send(command)
            self._changed.notify_all()
        self._tell(answers)

    def _has_room(self) -> bool:
        return self._conversation.has_room or self._closed.is_set()

    def _write(self, thread: Supervised) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed.is_set() or self._conversation.waiting > 0
                )
                if self._closed.is_set():
                    return
                command, sock, self._stuck = self._conversation.next(), self._sock, False
                self._changed.notify_all()
            assert command is not None
            assert sock is not None
            try:
                send_frame(sock, MESSAGE, encode(command))
            except BaseException as error:
                # The reading thread notices, and connects again; then this command is sent with all others of the
                # history.
                _shut(sock)
                if not isinstance(error, OSError):
                    raise
            thread.well()

    # --- the connection -----------------------------------------------------------------------

    def _read(self, thread: Supervised) -> None:
        # If this thread was restarted after a bug, requests of the connection before are still unanswered.
        self._lost("it was not met yet")
        failures = 0
        rng = random.Random()  # noqa: S311  for pauses alone
        while not self._closed.is_set():
            address = self._address()
            why, somebody = "no process runs it", False
            if address is not None:
                try:
                    sock, _ = connected(address, self._hello)
                except Refused as refused:
                    why, somebody = str(refused), True
                except OSError as error:
                    why, somebody = _told(address, error), isinstance(error, TimeoutError)
                else:
                    failures, somebody = 0, True
                    why = self._hear_out(sock, address, thread)
            self._lost(why)
            self._is_there(somebody)
            failures += 1
            failures = self._pause(address, _PAUSES.pause(failures, rng), failures)

    def _pause(self, address: Address | None, seconds: float, failures: int) -> int:
        """Wait before connecting again: for so many seconds, or until there is another address, whose process was never tried.

        Returns:
            How often whoever is at the address has been tried in vain.
        """
        end = self._monotonic() + seconds
        while (left := end - self._monotonic()) > 0:
            if self._closed.wait(min(left, _ADDRESS_SECONDS)):
                break
            if self._address() != address:
                return 0
        return failures

    def _is_there(self, somebody: bool) -> None:
        with self._changed:
            if somebody:
                self._nobody_since = None
            elif self._nobody_since is None:
                self._nobody_since = self._monotonic()

    def _hear_out(self, sock: socket.socket, address: Address, thread: Supervised) -> str:
        """Take responses over a connection until it ends; return why it has ended, for a person."""
        _log.info("replica %s is met", self._replica)
        sock.settimeout(LOST_SECONDS)
        with self._changed:
            self._conversation.begin()
            self._sock, self._heard, self._offline = sock, self._monotonic(), None
            self._nobody_since = None
            self._changed.notify_all()
        try:
            while not self._closed.is_set():
                if not select.select([sock], [], [], _LOOK_SECONDS)[0]:
                    if self._address() != address:
                        return "another process has taken its place"
                    if self._monotonic() - self._heard > LOST_SECONDS:
                        return f"it has given no sign of life for {LOST_SECONDS:g} s"
                    continue
                kind, data = receive_frame(sock)
                self._heard = self._monotonic()
                if kind == MESSAGE:
                    self._take(decode_response(data))
                thread.well()
        except Refused as refused:
            return str(refused)
        except OSError as error:
            return f"the connection to it has ended: {error.strerror or error}"
        finally:
            with self._changed:
                self._sock, self._stuck = None, False
                self._conversation.leave()
                self._changed.notify_all()
            _shut(sock)
            sock.close()
        return "its controller has ended"

    def _take(self, response: Response) -> None:
        with self._changed:
            self._conversation.heard(response)
        self._respond(response)

    def _lost(self, why: str) -> None:
        """Record why there is no connection, and answer the requests that were made over the last one."""
        with self._changed:
            if self._offline != why:
                _log.info("replica %s is away: %s", self._replica, why)
            self._offline = why
            answers = self._conversation.end(why)
        self._tell(answers)

    def _tell(self, answers: list[Response]) -> None:
        for one in answers:
            self._respond(one)

    def close(self) -> None:
        """End the connection. The replica runs on, for the next controller. Idempotent."""
        with self._changed:
            self._closed.set()
            sock = self._sock
            self._changed.notify_all()
        if sock is not None:
            _shut(sock)
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def release(self) -> None:
        """Do nothing: the replica's holds belong to its own process."""


def _shut(sock: socket.socket) -> None:
    """Shut a socket down, so that threads waiting for it notice."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has already
