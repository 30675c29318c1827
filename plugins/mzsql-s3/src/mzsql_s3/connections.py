"""Connections that keep an operation's deadline, whatever the server sends and however slowly.

Promise: no read or write on a connection lasts longer than its operation has time, even where a server sends a
response's head, or a listing, byte by byte: botocore reads those itself, with a timeout per byte. Trade-off: the
classes replace botocore's in its internals (`keep_deadlines`), as there is no option for it; a version of botocore that
keeps them elsewhere fails at once.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from mypy_boto3_s3 import S3Client

TimeLeft = Callable[[], float | None]
"""The seconds that the calling thread's operation has left; `None` outside an operation."""

_ENDS = 16
"""How often the end of a connection may be read; botocore searches beyond it for the end of a "100 Continue" forever."""


class _Bounds:
    """Limits reads and writes of a socket to its timeout and to the time left."""

    def __init__(self, sock: socket.socket, left: TimeLeft) -> None:
        self._sock = sock
        self._left = left
        self.timeout = sock.gettimeout()

    def bound(self) -> None:
        """Limit the next read or write to the time left.

        Raises:
            TimeoutError: no time is left.
        """
        left = self._left()
        if left is None:
            return
        if left <= 0:
            raise TimeoutError("the operation has no time left")
        self._sock.settimeout(left if self.timeout is None else min(self.timeout, left))


class _Bounded:
    """A connected socket whose reads and writes each end within its timeout and the time left."""

    def __init__(self, sock: socket.socket, left: TimeLeft) -> None:
        self._sock = sock
        self._bounds = _Bounds(sock, left)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def settimeout(self, timeout: float | None) -> None:
        """See `socket.socket.settimeout`."""
        self._bounds.timeout = timeout
        self._sock.settimeout(timeout)

    def sendall(self, data: Any) -> None:
        """See `socket.socket.sendall`."""
        self._bounds.bound()
        self._sock.sendall(data)

    def makefile(self, mode: str, buffering: int | None = None) -> io.IOBase:
        """See `socket.socket.makefile`; for reading bytes only."""
        if mode != "rb":
            raise ValueError(f"only made to read bytes, not {mode!r}")
        raw = _Reader(self._sock.makefile("rb", 0), self._bounds.bound)
        if buffering == 0:
            return raw
        size = io.DEFAULT_BUFFER_SIZE if buffering is None or buffering < 0 else buffering
        return io.BufferedReader(raw, size)


class _Reader(io.RawIOBase):
    """The bytes received on a socket, each read bounded."""

    def __init__(self, raw: io.RawIOBase, bound: Callable[[], None]) -> None:
        self._raw = raw
        self._bound = bound
        self._ends = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._bound()
        got = cast("int | None", self._raw.readinto(buffer))
        if got == 0:
            self._ends += 1
            if self._ends > _ENDS:
                raise ConnectionResetError("the server closed the connection")
        return got

    def close(self) -> None:
        self._raw.close()
        super().close()


def keep_deadlines(client: S3Client, left: TimeLeft) -> None:
    """Make the client's connections, none of which is open yet, keep to the time ``left``."""
    session = client._endpoint.http_session  # type: ignore[attr-defined]
    classes = _pools(left)
    session._pool_classes_by_scheme = classes
    session._manager.pool_classes_by_scheme = classes


def _pools(left: TimeLeft) -> dict[str, type]:
    class Plain(AWSHTTPConnection):
        def connect(self) -> None:
            _connect(self, super().connect, left)

    class Secure(AWSHTTPSConnection):
        def connect(self) -> None:
            _connect(self, super().connect, left)

    class PlainPool(AWSHTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(AWSHTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _connect(connection: Any, connect: Callable[[], None], left: TimeLeft) -> None:
    seconds = left()
    if seconds is not None and isinstance(connection.timeout, (int, float)):
        # Not 0, which means non-blocking.
        connection.timeout = max(0.001, min(connection.timeout, seconds))
    connect()
    connection.sock = _Bounded(connection.sock, left)
