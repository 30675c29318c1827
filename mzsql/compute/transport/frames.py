"""Frames on a socket between a controller and a replica, and their mutual authentication.

Promise: a frame is its length, its kind and its bytes, and is received whole or not at all. Before a message of the
protocol is accepted, each side has proved that it knows the secret that the replica put beside its address in the
catalog (an HMAC, RFC 2104, over both sides' random nonces; the secret itself never travels), and both have named
their build and environment. Until then frames are small and must all arrive within `GREETING_SECONDS`, so that an
unknown caller can occupy little.

Trade-off: plain TCP; addresses are found in the catalog. It serves processes on one machine (over the loopback
address, the default) and on several machines of the same kind. Messages are authenticated at the beginning only and
not encrypted; between machines it needs a network that is trusted as much as the stores' is.
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

#: Version of this protocol, checked first.
PROTOCOL = 1
#: Most bytes of a frame; a larger answer is reported as an error.
MOST_BYTES = 512 * 1024 * 1024
#: Most bytes of a frame before the other side is authenticated.
MOST_BYTES_BEFORE = 4096
#: Seconds for connecting, and for the whole authentication.
GREETING_SECONDS = 3.0
#: Interval of a replica's signs of life, in seconds.
ALIVE_SECONDS = 1.0
#: A replica without a sign of life for this many seconds is reported offline.
SILENT_SECONDS = 3.0
#: A connection without a sign of life for this many seconds is closed.
LOST_SECONDS = 30.0

MESSAGE, ALIVE, GREETING = 1, 2, 3

_HEADER = struct.Struct(">IB")

T = TypeVar("T")


class Refused(Exception):
    """The other side understood, but refuses; the text is for a person."""


class UnknownPeer(Refused):
    """Whoever answers is not the process that was looked for."""


class ConnectionEnded(OSError):
    """The other side has closed the connection."""


class Address(msgspec.Struct, frozen=True):
    """Where a replica listens, and the secret by which it proves that it is the replica."""

    host: str
    port: int
    secret: str


class Greeting(msgspec.Struct, frozen=True, tag=True):
    """The replica's first frame."""

    protocol: int
    nonce: bytes


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A controller's answer to the greeting.

    Attributes:
        environment: the environment's id.
        build: the program's version.
        replica_id: the replica that it looks for.
        epoch: grows with each leader; None: it only asks whether the replica is there.
        nonce: its random nonce.
        proof: HMAC over both nonces.
        asks: whether it wants to know what the replica's process uses of its machine.
    """

    environment: str
    build: str
    replica_id: str
    epoch: int | None
    nonce: bytes
    proof: bytes
    asks: bool = False


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The replica accepts, and takes commands from now on."""

    build: str
    proof: bytes
    usage: Usage | None = None


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """The replica refuses, with the reason."""

    reason: str


def proof_of(secret: str, side: str, *nonces: bytes) -> bytes:
    """The HMAC that only a side that knows the secret can compute."""
    return hmac.digest(secret.encode(), side.encode() + b"".join(nonces), hashlib.sha256)


def new_secret() -> str:
    """A new secret for a replica's process."""
    return secrets.token_hex(32)


def new_nonce() -> bytes:
    """A new random nonce."""
    return secrets.token_bytes(32)


def prepare(sock: socket.socket) -> None:
    """Have small frames sent at once (TCP_NODELAY)."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def send_frame(sock: socket.socket, kind: int, data: bytes = b"") -> None:
    """Send a whole frame.

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
    """Receive the next frame; return its kind and its bytes.

    Args:
        sock: the connection.
        most: most bytes that it may have.
        until: monotonic time by which it must be there; None: each piece of it within the socket's timeout.

    Raises:
        ConnectionEnded: the other side has closed the connection.
        OSError: the connection is gone, or the frame did not come in time.
        UnknownPeer: it is larger than `most`, so it is no frame of ours.
    """
    length, kind = _HEADER.unpack(_exactly(sock, _HEADER.size, until))
    if length > most:
        raise UnknownPeer("what came is not mzsql's protocol")
    return kind, bytes(_exactly(sock, length, until))


def first_frame(got: bytes | bytearray, most: int) -> tuple[int, bytes] | None:
    """The one frame that bytes are, its kind and its bytes; None while it is not all there.

    Raises:
        UnknownPeer: it is larger than `most`, or more follows it, so it is no frame of ours.
    """
    if len(got) < _HEADER.size:
        return None
    length, kind = _HEADER.unpack_from(got)
    if length > most or len(got) > _HEADER.size + length:
        raise UnknownPeer("what came is not mzsql's protocol")
    return (kind, bytes(got[_HEADER.size :])) if len(got) == _HEADER.size + length else None


def _until(sock: socket.socket, until: float) -> None:
    """Set the socket's timeout so that the next operation ends by a monotonic time."""
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
    """The monotonic time by which an authentication that begins now must be done."""
    return time.monotonic() + GREETING_SECONDS


def _tell(sock: socket.socket, message: msgspec.Struct, until: float) -> None:
    _until(sock, until)
    send_frame(sock, GREETING, msgspec.msgpack.encode(message))


def greeting_of(frame: tuple[int, bytes], typ: type[T]) -> T:
    """What a frame of the authentication says.

    Raises:
        UnknownPeer: it is no such frame.
    """
    kind, data = frame
    try:
        if kind != GREETING:
            raise msgspec.DecodeError("another kind of frame")
        return msgspec.msgpack.decode(data, type=typ)
    except msgspec.DecodeError as error:
        raise UnknownPeer("what came is not mzsql's protocol") from error


def _hear(sock: socket.socket, typ: type[T], until: float) -> T:
    return greeting_of(receive_frame(sock, MOST_BYTES_BEFORE, until=until), typ)


def greet(sock: socket.socket, secret: str, hello: Hello, until: float) -> Welcome:
    """The controller's side of the authentication, to be done by `until`; `hello` without nonce and proof.

    Raises:
        Refused: the replica takes no commands from us.
        UnknownPeer: whoever answers is not the replica.
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
        raise UnknownPeer("another process than the replica answers at its address")
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
    """Send the replica's last frame of a successful authentication."""
    _tell(sock, Welcome(build, proof_of(secret, "replica", hello.nonce, nonce), usage), until)


def refuse(sock: socket.socket, reason: str, until: float) -> None:
    """Send the reason of a refusal."""
    _tell(sock, Refusal(reason), until)
