"""Frames on a socket between a controller and a replica, and how the two make sure of each other.

Promise: a frame is its length, its kind and its bytes, and comes whole or not at all. Before a frame of the protocol is taken, each side
has proved that it knows the secret which the replica has put beside its address in the catalog (an HMAC over both sides' random numbers;
the secret itself never travels), and both have said which build of which environment they are. Until then frames are small, and all of
them come within `GREETING_SECONDS`, so that who knows nothing can occupy nothing.

Trade-off: TCP, with the stores as the place where addresses are found: it serves processes of one machine (over the loopback address, the
default) and of several alike. What travels is authenticated at the beginning and not encrypted; between machines it is for networks that
are trusted as the stores' are.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
import time
from typing import TypeVar

import msgspec

from mzsql.compute.transport.usage import Usage

#: What two sides must agree on before anything else.
PROTOCOL = 1
#: So many bytes a frame may have; an answer that is larger is told as an error.
MOST_BYTES = 512 * 1024 * 1024
#: And one that comes before the other side has proved who it is.
MOST_BYTES_BEFORE = 4096
#: Seconds that connecting may take, and the whole greeting.
GREETING_SECONDS = 3.0
#: A replica gives a sign of life so often, in seconds.
ALIVE_SECONDS = 1.0
#: One that has given none for so long is told of as offline.
SILENT_SECONDS = 3.0
#: A connection without a sign of life for so long is given up.
LOST_SECONDS = 30.0

MESSAGE, ALIVE, GREETING = 1, 2, 3

_HEADER = struct.Struct(">IB")

T = TypeVar("T")


class Refused(Exception):
    """The other side speaks, but not with us; its text is for a person."""


class Stranger(Refused):
    """Whoever answers is not whom we look for."""


class ConnectionEnded(OSError):
    """The other side has closed the connection."""


class Address(msgspec.Struct, frozen=True):
    """Where a replica listens, and what proves that whoever answers there is it."""

    host: str
    port: int
    secret: str


class Greeting(msgspec.Struct, frozen=True, tag=True):
    """The replica's first frame."""

    protocol: int
    nonce: bytes


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A controller's answer to it.

    Attributes:
        environment: the environment's id.
        build: the program's version.
        replica_id: whom it means.
        epoch: grows with each leader; None: only whether the replica is there is asked.
        nonce: its own random number.
        proof: over both.
        asks: whether it wants to know what the replica's process takes of its machine.
    """

    environment: str
    build: str
    replica_id: str
    epoch: int | None
    nonce: bytes
    proof: bytes
    asks: bool = False


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The replica takes commands from now on."""

    build: str
    proof: bytes
    usage: Usage | None = None


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """Or it does not, and why."""

    reason: str


def proof_of(secret: str, side: str, *nonces: bytes) -> bytes:
    """What only a side that knows the secret can say."""
    return hmac.digest(secret.encode(), side.encode() + b"".join(nonces), hashlib.sha256)


def new_secret() -> str:
    """A secret for one life of a replica."""
    return secrets.token_hex(32)


def new_nonce() -> bytes:
    """A random number that was never said before."""
    return secrets.token_bytes(32)


def prepare(sock: socket.socket) -> None:
    """Have small frames leave at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def send_frame(sock: socket.socket, kind: int, data: bytes = b"") -> None:
    """Send a frame, all of it.

    Raises:
        ValueError: it is larger than `MOST_BYTES`.
        OSError: the connection is gone.
    """
    if len(data) > MOST_BYTES:
        raise ValueError(f"a message of {len(data)} bytes is larger than {MOST_BYTES}")
    header = _HEADER.pack(len(data), kind)
    if len(data) < MOST_BYTES_BEFORE:
        sock.sendall(header + data)
    else:
        sock.sendall(header)
        sock.sendall(data)


def receive_frame(
    sock: socket.socket, most: int = MOST_BYTES, *, until: float | None = None
) -> tuple[int, bytes]:
    """The next frame: its kind and its bytes.

    Args:
        sock: the connection.
        most: so many bytes it may have.
        until: it is to be there by this time of the monotonic clock; None: each piece of it within the socket's timeout.

    Raises:
        ConnectionEnded: there is none any more.
        OSError: the connection is gone, or it did not come in time.
        Stranger: it is larger than `most`: no frame of ours.
    """
    length, kind = _HEADER.unpack(_exactly(sock, _HEADER.size, until))
    if length > most:
        raise Stranger("what came is not mzsql's protocol")
    return kind, bytes(_exactly(sock, length, until))


def _until(sock: socket.socket, until: float) -> None:
    """Have the next operation end by a time of the monotonic clock."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    sock.settimeout(left)


def _exactly(sock: socket.socket, size: int, until: float | None) -> bytearray:
    got = bytearray(size)
    view, at = memoryview(got), 0
    while at < size:
        if until is not None:
            _until(sock, until)
        count = sock.recv_into(view[at:])
        if count == 0:
            raise ConnectionEnded("the other side has closed the connection")
        at += count
    return got


# --- making sure of each other ----------------------------------------------------------------


def by_when() -> float:
    """When a greeting that begins now is to be done, by the monotonic clock."""
    return time.monotonic() + GREETING_SECONDS


def _tell(sock: socket.socket, message: msgspec.Struct, until: float) -> None:
    _until(sock, until)
    send_frame(sock, GREETING, msgspec.msgpack.encode(message))


def _hear(sock: socket.socket, typ: type[T], until: float) -> T:
    kind, data = receive_frame(sock, MOST_BYTES_BEFORE, until=until)
    try:
        if kind != GREETING:
            raise msgspec.DecodeError("another kind of frame")
        return msgspec.msgpack.decode(data, type=typ)
    except msgspec.DecodeError as error:
        raise Stranger("what came is not mzsql's protocol") from error


def greet(sock: socket.socket, secret: str, hello: Hello, until: float) -> Welcome:
    """The controller's side, on a new connection, to be done by `until`; `hello` without nonce and proof.

    Raises:
        Refused: the replica takes no commands from us.
        Stranger: whoever answers is not the replica.
        OSError: the connection is gone, or nothing comes in time.
    """
    greeting = _hear(sock, Greeting, until)
    if greeting.protocol != PROTOCOL:
        raise Refused(
            f"it speaks version {greeting.protocol} of the protocol, and this process {PROTOCOL}"
        )
    nonce = new_nonce()
    proof = proof_of(secret, "controller", greeting.nonce, nonce)
    _tell(sock, msgspec.structs.replace(hello, nonce=nonce, proof=proof), until)
    answer = _hear(sock, Welcome | Refusal, until)  # type: ignore[arg-type]  # a union is a type to msgspec
    if isinstance(answer, Refusal):
        raise Refused(answer.reason)
    assert isinstance(answer, Welcome)
    if not hmac.compare_digest(answer.proof, proof_of(secret, "replica", nonce, greeting.nonce)):
        raise Stranger("another process than the replica answers at its address")
    return answer


def welcome(
    sock: socket.socket,
    secret: str,
    hello: Hello,
    nonce: bytes,
    build: str,
    until: float,
    usage: Usage | None = None,
) -> None:
    """The replica's last frame of the greeting."""
    _tell(sock, Welcome(build, proof_of(secret, "replica", hello.nonce, nonce), usage), until)


def refuse(sock: socket.socket, reason: str, until: float) -> None:
    """Or its last frame at all."""
    _tell(sock, Refusal(reason), until)


def expect(sock: socket.socket, secret: str, until: float) -> tuple[Hello, bytes]:
    """The replica's side up to the controller's proof: what it says, and the random number of ours.

    Raises:
        Refused: it has proved nothing.
        OSError: the connection is gone, or nothing comes in time.
    """
    nonce = new_nonce()
    _tell(sock, Greeting(PROTOCOL, nonce), until)
    hello = _hear(sock, Hello, until)
    if not hmac.compare_digest(hello.proof, proof_of(secret, "controller", nonce, hello.nonce)):
        raise Refused("it does not know the secret of this replica")
    return hello, nonce
