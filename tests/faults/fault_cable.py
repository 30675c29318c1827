"""A cable between a client and a server, that breaks as cables do: TCP forwarded through a port of its own.

Promise: without a fault every byte passes, at once and in order. A `CableFault` sees what comes from the client (of PostgreSQL's
protocol one message at a time, with the SQL it executes) and from the server, and passes it on, holds it back, or cuts the line. Whoever
hangs up is heard on the other side. One thread serves all lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Self, TypeVar

T = TypeVar("T")

_CHUNK = 64 * 1024
_PROTOCOL_3 = 196608
_SECONDS = 30.0
_WRITES = re.compile(rb"\b(INSERT INTO|UPDATE|DELETE FROM)\b")


class Messages:
    """Cuts a client's bytes into messages of PostgreSQL's protocol, and knows the SQL that each executes."""

    def __init__(self) -> None:
        self._buffer = b""
        self._started = False
        self._prepared: dict[bytes, bytes] = {}
        self._portals: dict[bytes, bytes] = {}

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """Whole messages, each with the statement it executes, if it does."""
        self._buffer += data
        while message := self._next():
            yield message, self._executes(message)

    def _next(self) -> bytes:
        head = 1 if self._started else 0
        if len(self._buffer) < head + 4:
            return b""
        length = head + int.from_bytes(self._buffer[head : head + 4], "big")
        if len(self._buffer) < length:
            return b""
        message, self._buffer = self._buffer[:length], self._buffer[length:]
        if not self._started:
            self._started = int.from_bytes(message[4:8], "big") == _PROTOCOL_3
            return message
        return message

    def _executes(self, message: bytes) -> bytes | None:
        tag, fields = message[:1], message[5:].split(b"\0")
        if not self._started:
            return None
        match tag:
            case b"P":
                self._prepared[fields[0]] = fields[1]
            case b"B":
                self._portals[fields[0]] = self._prepared.get(fields[1], b"")
            case b"E":
                return self._portals.get(fields[0], b"")
            case b"Q":
                return fields[0]
        return None


class Line:
    """One connection through the cable."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.from_client, self._to_client = client
        self.from_server, self._to_server = server
        self.silent = False
        """Nothing passes any more, and nobody is told."""
        self.doomed = False
        """The line breaks with the server's next answer."""

    async def up(self, data: bytes) -> None:
        """Pass on to the server."""
        if not self.silent:
            self._to_server.write(data)
            await self._to_server.drain()

    async def down(self, data: bytes) -> None:
        """Pass on to the client."""
        if not self.silent:
            self._to_client.write(data)
            await self._to_client.drain()

    def cut(self) -> None:
        """Break it: both ends get a reset."""
        for writer in (self._to_client, self._to_server):
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            writer.transport.abort()

    def hang_up(self) -> None:
        """End it in good order."""
        for writer in (self._to_client, self._to_server):
            writer.close()


class CableFault:
    """What befalls the lines; this one does nothing. ``bites`` counts how often it did something."""

    def __init__(self) -> None:
        self.bites = 0

    async def up(self, line: Line, data: bytes, sql: bytes | None) -> None:
        """From the client: ``data``, which executes ``sql``."""
        del sql
        await line.up(data)

    async def down(self, line: Line, data: bytes) -> None:
        """From the server."""
        await line.down(data)


class _EachSecond(CableFault):
    """Spares every other one, so that whoever tries again gets through."""

    def __init__(self) -> None:
        super().__init__()
        self._met = 0

    def _turn(self) -> bool:
        self._met += 1
        if self._met % 2:
            self.bites += 1
        return bool(self._met % 2)


class CutBeforeCommit(_EachSecond):
    """The line breaks in the middle of the message that would have the server write."""

    async def up(self, line: Line, data: bytes, sql: bytes | None) -> None:
        if sql is not None and _WRITES.search(sql) and self._turn():
            await line.up(data[: len(data) // 2])
            line.cut()
        else:
            await line.up(data)


class CutInCommit(_EachSecond):
    """The line breaks when the server has got the whole request to write, and may or may not have begun."""

    async def up(self, line: Line, data: bytes, sql: bytes | None) -> None:
        await line.up(data)
        if line.doomed and data[:1] == b"S":
            line.cut()
        elif sql is not None and _WRITES.search(sql) and self._turn():
            line.doomed = True


class CutAfterCommit(_EachSecond):
    """The line breaks when the server has written and answers."""

    async def up(self, line: Line, data: bytes, sql: bytes | None) -> None:
        if sql is not None and _WRITES.search(sql) and self._turn():
            line.doomed = True
        await line.up(data)

    async def down(self, line: Line, data: bytes) -> None:
        if line.doomed:
            line.cut()
        else:
            await line.down(data)


class SwallowCommit(CutAfterCommit):
    """The server has written, and its answer never arrives, nor anything after it."""

    async def down(self, line: Line, data: bytes) -> None:
        line.silent |= line.doomed
        await line.down(data)


class CutUpload(_EachSecond):
    """The line breaks in the middle of an HTTP request with a body."""

    async def up(self, line: Line, data: bytes, sql: bytes | None) -> None:
        del sql
        if data.startswith((b"PUT ", b"POST ")) and self._turn():
            await line.up(data[: len(data) // 2])
            line.cut()
        else:
            await line.up(data)


class BlackHole(CableFault):
    """All is accepted and nothing answered, on old connections and on new ones; those never live again."""

    async def up(self, line: Line, data: bytes, sql: bytes | None) -> None:
        del data, sql
        self.bites += 1
        line.silent = True

    async def down(self, line: Line, data: bytes) -> None:
        del data
        line.silent = True


class HalfOpen(CableFault):
    """The connections there are when it begins lead nowhere, for ever; new ones work."""

    def __init__(self, cable: Cable) -> None:
        super().__init__()
        for line in list(cable.lines):
            line.silent = True
            self.bites += 1


class Latency(CableFault):
    """Everything takes so many seconds longer, each way."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def up(self, line: Line, data: bytes, sql: bytes | None) -> None:
        del sql
        self.bites += 1
        await asyncio.sleep(self._seconds)
        await line.up(data)

    async def down(self, line: Line, data: bytes) -> None:
        await asyncio.sleep(self._seconds)
        await line.down(data)


class Dribble(CableFault):
    """The server's answers come a few bytes at a time."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    async def down(self, line: Line, data: bytes) -> None:
        self.bites += 1
        for start in range(0, len(data), self._size):
            await line.down(data[start : start + self._size])
            await asyncio.sleep(0.0005)


class Cable:
    """Listens on ``port`` and forwards to a port of this machine; set ``fault`` at any time."""

    def __init__(self, upstream: int, *, postgres: bool) -> None:
        self._upstream = upstream
        self._postgres = postgres
        self.fault = CableFault()
        self.lines: set[Line] = set()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-cable")

    def _await(self, act: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(_SECONDS)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.transport.abort()
            return
        line = Line((reader, writer), server)
        self.lines.add(line)
        pumps = [asyncio.ensure_future(pump) for pump in (self._up(line), self._down(line))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            # What the other direction has in hand may still be on its way.
            await asyncio.sleep(0)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.lines.discard(line)
            line.hang_up()

    async def _up(self, line: Line) -> None:
        messages = Messages()
        with contextlib.suppress(OSError):
            while data := await line.from_client.read(_CHUNK):
                if not self._postgres:
                    await self.fault.up(line, data, None)
                    continue
                for message, sql in messages.feed(data):
                    await self.fault.up(line, message, sql)

    async def _down(self, line: Line) -> None:
        with contextlib.suppress(OSError):
            while data := await line.from_server.read(_CHUNK):
                await self.fault.down(line, data)

    def unplug(self) -> None:
        """Refuse new connections, and cut those there are."""

        async def act() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None
            self._cut()

        self._await(act())

    def plug(self) -> None:
        """Take connections again, on the same port."""
        if self._server is None:
            self._await(self._listen())

    def _cut(self) -> int:
        lines = list(self.lines)
        for line in lines:
            line.cut()
        return len(lines)

    def cut_all(self) -> int:
        """Cut every line; how many."""

        async def act() -> int:
            return self._cut()

        return self._await(act())

    def __enter__(self) -> Self:
        self._thread.start()
        self.plug()
        return self

    def __exit__(self, *_: object) -> None:
        self.unplug()

        async def drain() -> None:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            if rest:
                await asyncio.wait(rest, timeout=5)

        self._await(drain())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
