"""A proxy between a client and `s3_server`, real HTTP on both sides, that does to answers and connections what networks do.

``with S3Proxy(s3.endpoint) as proxy: proxy.fault = on(answer(503, "SlowDown"), "PutObject")``. A fault is given each
request before it is passed on, and may pass it on itself (`after`), so an error may come with and without the act.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "expect"}


@dataclass(frozen=True)
class Seen:
    """A request that came."""

    operation: str
    path: str
    headers: dict[str, str]
    number: int
    """How many of this operation came before."""


@dataclass(frozen=True)
class Answer:
    """What the server said, or what the proxy says in its place."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Exchange:
    """One request, as a fault may treat it."""

    def __init__(self, seen: Seen, upstream: Callable[[str], Answer], handler: _Handler) -> None:
        self.seen = seen
        self._upstream = upstream
        self._handler = handler

    def pass_on(self, without: str = "") -> Answer:
        """Have the server do it, ``without`` a header."""
        return self._upstream(without)

    def send(
        self,
        answer: Answer,
        *,
        cut: int | None = None,
        pause: float = 0.0,
        unsaid: bool = False,
    ) -> None:
        """Answer; only the first ``cut`` bytes of the body, a byte at a time with ``pause`` seconds between, its length ``unsaid``."""
        handler = self._handler
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _HOP:
                handler.send_header(name, value)
        if unsaid:
            handler.send_header("Connection", "close")
        else:
            handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        body = answer.body if cut is None else answer.body[:cut]
        if handler.command != "HEAD":
            if pause:
                for byte in body:
                    handler.wfile.write(bytes([byte]))
                    handler.wfile.flush()
                    if handler.stopping.wait(pause):
                        break
            else:
                handler.wfile.write(body)
        handler.wfile.flush()
        if cut is not None:
            handler.close_connection = True

    def drip(self, pause: float, head: bytes) -> None:
        """Answer with ``head`` and then a header without end, a byte at a time with ``pause`` seconds between."""
        handler = self._handler
        handler.wfile.write(head + b"X-Long: ")
        while not handler.stopping.wait(pause):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    def reset(self) -> None:
        """Cut the connection off, as a machine that dies does."""
        linger = struct.pack("ii", 1, 0)
        self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._handler.connection.close()
        self._handler.close_connection = True

    def wait(self, seconds: float) -> None:
        """Be slow."""
        self._handler.stopping.wait(seconds)


Fault = Callable[[Exchange], bool]
"""Deals with a request and says so; `False`: it is passed on as if nothing were."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = 60

    @property
    def stopping(self) -> threading.Event:
        return self.server.stopping

    def _deal(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        headers = dict(self.headers.items())
        seen = self.server.note(operation_of(self.command, self.path), self.path, headers)

        def upstream(without: str) -> Answer:
            there = http.client.HTTPConnection(self.server.upstream, timeout=60)
            try:
                kept = {k: v for k, v in headers.items() if k.lower() not in {*_HOP, without}}
                there.request(self.command, self.path, body, kept)
                found = there.getresponse()
                return Answer(found.status, dict(found.getheaders()), found.read())
            finally:
                there.close()

        exchange = Exchange(seen, upstream, self)
        if not self.server.fault(exchange):
            exchange.send(exchange.pass_on())

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _deal  # noqa: N815

    def handle_expect_100(self) -> bool:
        if not self.server.half_continue:
            return super().handle_expect_100()
        self.wfile.write(b"HTTP/1.1 100 Continue\r\n")
        self.close_connection = True
        return False

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True  # the client went away, or a fault cut it off

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, upstream: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tls = tls
        self.upstream = upstream
        self.fault: Fault = no_fault
        self.half_continue = False
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.seen: list[Seen] = []

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Talk TLS first, in the connection's own thread, where there is a certificate."""
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def note(self, operation: str, path: str, headers: dict[str, str]) -> Seen:
        with self.lock:
            seen = Seen(operation, path, headers, self.counts[operation])
            self.counts[operation] += 1
            self.seen.append(seen)
            return seen

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class S3Proxy:
    """The proxy; set ``fault`` at any time. ``seen`` has every request, ``counts`` how many of each operation. HTTPS with ``tls``."""

    def __init__(self, upstream: str, tls: ssl.SSLContext | None = None) -> None:
        self._server = _Server(urlsplit(upstream).netloc, tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        scheme = "http" if self._server.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def seen(self) -> list[Seen]:
        """Every request so far."""
        with self._server.lock:
            return list(self._server.seen)

    @property
    def counts(self) -> Counter[str]:
        """Requests so far by operation."""
        with self._server.lock:
            return Counter(self._server.counts)

    @property
    def fault(self) -> Fault:
        """What is done to requests."""
        return self._server.fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        self._server.fault = fault

    def end_within_continue(self) -> None:
        """From now on close the connection in the middle of every "100 Continue"."""
        self._server.half_continue = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def operation_of(method: str, path: str) -> str:
    """S3's name of what a request by path-style address asks for."""
    split = urlsplit(path)
    query = parse_qs(split.query, keep_blank_values=True)
    has_key = "/" in split.path.strip("/") or (split.path.count("/") > 1 and split.path[-1] != "/")
    match method, has_key:
        case "GET", True:
            return "ListParts" if "uploadId" in query else "GetObject"
        case "GET", False:
            return "ListMultipartUploads" if "uploads" in query else "ListObjectsV2"
        case "PUT", True:
            return "UploadPart" if "uploadId" in query else "PutObject"
        case "POST", True:
            return "CreateMultipartUpload" if "uploads" in query else "CompleteMultipartUpload"
        case "POST", False:
            return "DeleteObjects"
        case "DELETE", True:
            return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    return method


def no_fault(exchange: Exchange) -> bool:
    """All is well."""
    del exchange
    return False


def on(
    fault: Callable[[Exchange], None], operation: str | None = None, *, times: int | None = 1
) -> Fault:
    """``fault`` for the next ``times`` requests (`None`: for all) of an operation."""
    lock = threading.Lock()
    left = [times]

    def deal(exchange: Exchange) -> bool:
        if operation is not None and exchange.seen.operation != operation:
            return False
        with lock:
            if left[0] is not None:
                if left[0] == 0:
                    return False
                left[0] -= 1
        fault(exchange)
        return True

    return deal


def answer(status: int, code: str = "", message: str = "") -> Callable[[Exchange], None]:
    """The server refuses: it does nothing."""
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    body = text.encode() if code else b""
    return lambda exchange: exchange.send(Answer(status, {"Content-Type": "application/xml"}, body))


def after(fault: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    """The server does it, and then ``fault`` befalls the answer."""

    def deal(exchange: Exchange) -> None:
        exchange.pass_on()
        fault(exchange)

    return deal


def reset(exchange: Exchange) -> None:
    """The connection is cut off."""
    exchange.reset()


def cut(length: int) -> Callable[[Exchange], None]:
    """The answer's body ends after ``length`` bytes."""
    return lambda exchange: exchange.send(exchange.pass_on(), cut=length)


def hang(seconds: float) -> Callable[[Exchange], None]:
    """No answer for so long, and then none at all."""

    def deal(exchange: Exchange) -> None:
        exchange.wait(seconds)
        exchange.reset()

    return deal


def slow(seconds: float) -> Callable[[Exchange], None]:
    """All is well, but late."""

    def deal(exchange: Exchange) -> None:
        exchange.wait(seconds)
        exchange.send(exchange.pass_on())

    return deal


def trickle(pause: float) -> Callable[[Exchange], None]:
    """The answer's body comes a byte at a time."""
    return lambda exchange: exchange.send(exchange.pass_on(), pause=pause)


def drip(pause: float) -> Callable[[Exchange], None]:
    """The server does it; the head of its answer comes a byte at a time, without end."""

    def deal(exchange: Exchange) -> None:
        exchange.pass_on()
        exchange.drip(pause, b"HTTP/1.1 200 OK\r\n")

    return deal
