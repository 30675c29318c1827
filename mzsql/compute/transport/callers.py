"""Connections to a replica that have not proved yet that they know its secret.

Promise: none of them keeps another waiting, whatever it sends or does not send: each has until its own deadline for the
one frame that is wanted of it, of which pieces are taken as they come. There are at most `MOST_CALLERS`; beyond that the
one that has waited longest goes. Whoever does not prove it is left without a word.
"""

from __future__ import annotations

import hmac
import logging
import select
import socket
import time
from collections.abc import Iterator

import msgspec

from mzsql.compute.transport.frames import (
    GREETING,
    MOST_BYTES_BEFORE,
    PROTOCOL,
    Greeting,
    Hello,
    Refused,
    by_when,
    first_frame,
    greeting_of,
    new_nonce,
    prepare,
    proof_of,
    send_frame,
)

_log = logging.getLogger(__name__)

#: Most connections that wait to prove who they are.
MOST_CALLERS = 64


class Caller:
    """A connection that was sent the greeting.

    Attributes:
        sock: the connection.
        nonce: what the greeting had.
        until: the monotonic time by which the whole authentication must be done.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.nonce = new_nonce()
        self.until = by_when()
        self._got = bytearray()
        prepare(sock)
        # A new connection takes so little at once.
        send_frame(sock, GREETING, msgspec.msgpack.encode(Greeting(PROTOCOL, self.nonce)))
        sock.setblocking(False)

    def hears(self, secret: str) -> Hello | None:
        """Take what has come; what the controller says of itself, once that is whole and proved.

        Raises:
            Refused: it does not know the secret, or does not speak the protocol.
            OSError: the connection is gone.
        """
        piece = self.sock.recv(MOST_BYTES_BEFORE)
        if not piece:
            raise ConnectionError("it hung up")
        self._got += piece
        frame = first_frame(self._got, MOST_BYTES_BEFORE)
        if frame is None:
            return None
        hello = greeting_of(frame, Hello)
        if not hmac.compare_digest(
            hello.proof, proof_of(secret, "controller", self.nonce, hello.nonce)
        ):
            raise Refused("it does not know the secret of this replica")
        return hello


class Callers:
    """Those that wait at one listening socket. For one thread.

    Args:
        listening: a bound, listening socket.
        secret: what a controller must prove to know.
    """

    def __init__(self, listening: socket.socket, secret: str) -> None:
        self._listening = listening
        self._secret = secret
        # In the order in which they came.
        self._waiting: dict[socket.socket, Caller] = {}

    def proved(self, timeout: float) -> Iterator[tuple[Caller, Hello]]:
        """Wait at most ``timeout`` seconds for something to come; the callers that have proved to know the secret. Their
        sockets are the caller's from then on.
        """
        ready = select.select([self._listening, *self._waiting], [], [], timeout)[0]
        for sock in ready:
            if sock is self._listening:
                self._accept()
                continue
            caller = self._waiting[sock]
            hello = self._heard(caller)
            if hello is not None:
                del self._waiting[sock]
                yield caller, hello
        now = time.monotonic()
        for late in [one for one in self._waiting.values() if one.until <= now]:
            self._leave(late, "it said nothing in time")

    def _accept(self) -> None:
        sock, _ = self._listening.accept()
        try:
            self._waiting[sock] = Caller(sock)
        except OSError as error:
            _log.info("who connected is no controller: %s", error)
            sock.close()
            return
        if len(self._waiting) > MOST_CALLERS:
            self._leave(next(iter(self._waiting.values())), "too many wait")

    def _heard(self, caller: Caller) -> Hello | None:
        try:
            return caller.hears(self._secret)
        except (OSError, Refused) as error:
            self._leave(caller, str(error))
            return None

    def _leave(self, caller: Caller, why: str) -> None:
        _log.info("who connected is no controller: %s", why)
        del self._waiting[caller.sock]
        caller.sock.close()

    def close(self) -> None:
        """Close all that wait."""
        for sock in self._waiting:
            sock.close()
        self._waiting.clear()
