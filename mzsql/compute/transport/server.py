"""The server in a replica's process, to which its controller connects.

Promise: one controller commands at a time: the last to connect for the newest leader. One of an older leader, of
another build or of another environment is refused with the reason, and changes nothing. A sign of life is sent every
`ALIVE_SECONDS`. The responses that a controller has not taken are bounded (`MOST_RESPONSES`); beyond that the
connection is ended, and the next one begins with the full state. If the replica fails for good, the process is told,
so that it can end.

Unknown callers occupy no thread and keep nobody waiting (`mzsql.compute.transport.callers`).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from mzsql.compute.protocol import (
    Connect,
    PeekResponse,
    Response,
    decode_command,
    encode,
)
from mzsql.compute.transport.callers import Caller, Callers
from mzsql.compute.transport.frames import (
    ALIVE,
    ALIVE_SECONDS,
    LOST_SECONDS,
    MESSAGE,
    MOST_BYTES,
    Hello,
    Refused,
    receive_frame,
    refuse,
    send_frame,
    welcome,
)
from mzsql.compute.transport.reconciled import ReconciledReplica
from mzsql.compute.transport.usage import Meter, usage
from mzsql.repr.errors import NoThread, ObjectInUse, ThreadFailed
from mzsql.threads import Supervised

_log = logging.getLogger(__name__)

#: Most responses that wait for a controller to take them.
MOST_RESPONSES = 65_536
_LOOK_SECONDS = 0.5
_JOIN_SECONDS = 5.0


class _Controller:
    """The connection of one controller.

    Args:
        sock: the authenticated connection.
        replica: what it commands.
        replica_id: for names of threads.
        failed: called if the replica fails for good.
        start: starts a supervised thread.
    """

    def __init__(
        self,
        sock: socket.socket,
        replica: ReconciledReplica,
        replica_id: str,
        failed: Callable[[ThreadFailed], None],
        start: Callable[..., Supervised],
    ) -> None:
        self._sock = sock
        self._replica = replica
        self._failed = failed
        self._changed = threading.Condition()
        self._out: deque[Response] = deque()
        self.ended = False
        replica.meet(self.respond)
        self._threads = [
            start(name, work, thread_name=f"mzsql-{replica_id}-{name}", object_id=replica_id)
            for name, work in (
                ("controller-commands", self._read),
                ("controller-responses", self._write),
            )
        ]

    def respond(self, response: Response) -> None:
        """Queue a response; returns at once."""
        with self._changed:
            if self.ended:
                return
            # A controller that does not read its responses must not use up the replica's memory; it can connect again.
            if len(self._out) >= MOST_RESPONSES:
                _log.warning("the controller does not take what it is told, and is left")
                self._end()
                return
            self._out.append(response)
            self._changed.notify_all()

    def _read(self, thread: Supervised) -> None:
        try:
            while not self.ended:
                if select.select([self._sock], [], [], _LOOK_SECONDS)[0]:
                    kind, data = receive_frame(self._sock)
                    if kind == MESSAGE:
                        self._replica.take(decode_command(data), self.respond)
                    thread.well()
        except (OSError, msgspec.MsgspecError, Refused, ObjectInUse, NoThread) as error:
            _log.info("the controller is left: %s", error)
        except ThreadFailed as failed:
            self._failed(failed)
        finally:
            self.end()
            self._replica.part(self.respond)

    def _write(self, thread: Supervised) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self.ended or self._out, ALIVE_SECONDS)
                    if self.ended:
                        return
                    response = self._out.popleft() if self._out else None
                if response is None:
                    send_frame(self._sock, ALIVE)
                else:
                    send_frame(self._sock, MESSAGE, _encoded(response))
                thread.well()
        except OSError as error:
            _log.info("the controller is left: %s", error)
        finally:
            self.end()

    def end(self) -> None:
        """End the connection. Idempotent."""
        with self._changed:
            self._end()

    def _end(self) -> None:
        self.ended = True
        self._out.clear()
        self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        """Wait for its threads, and close the socket."""
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        self._sock.close()


def _encoded(response: Response) -> bytes:
    data = encode(response)
    if len(data) > MOST_BYTES and isinstance(response, PeekResponse):
        return encode(
            PeekResponse(response.uuid, error=f"its rows are larger than {MOST_BYTES} bytes")
        )
    return data


class ReplicaServer:
    """Listens for controllers and lets one of them command the replica.

    Args:
        listening: a bound, listening socket, which the server owns from now on.
        secret: what a controller must prove to know.
        identity: environment, build and replica; its other fields do not matter.
        connect: makes the replica.
        start: starts a supervised thread.
        failed: called once if the replica fails for good.
        kept: the directory in which it saves traces, if it does.
    """

    def __init__(
        self,
        listening: socket.socket,
        secret: str,
        identity: Hello,
        connect: Connect,
        start: Callable[..., Supervised],
        failed: Callable[[ThreadFailed], None],
        kept: Path | None = None,
    ) -> None:
        self._kept = kept
        self._meter = Meter()
        self._listening = listening
        self._secret = secret
        self._identity = identity
        self._start = start
        self._failed = failed
        self._epoch = -1
        self._closed = threading.Event()
        self._deferred: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._replica = ReconciledReplica(connect, self._deferred.put)
        self._controller: _Controller | None = None
        name = identity.replica_id
        self._threads = [
            start(
                "replica-listener", self._listen, thread_name=f"mzsql-{name}-listen", object_id=name
            ),
            start(
                "replica-deferred",
                self._do_deferred,
                thread_name=f"mzsql-{name}-later",
                object_id=name,
            ),
        ]

    @property
    def commanded(self) -> bool:
        """Whether a controller is connected."""
        controller = self._controller
        return controller is not None and not controller.ended

    def _do_deferred(self, thread: Supervised) -> None:
        while (work := self._deferred.get()) is not None:
            work()
            thread.well()

    def _listen(self, thread: Supervised) -> None:
        callers = Callers(self._listening, self._secret)
        try:
            while not self._closed.is_set():
                for caller, hello in callers.proved(_LOOK_SECONDS):
                    self._meet(caller, hello)
                thread.well()
        finally:
            callers.close()

    def _meet(self, caller: Caller, hello: Hello) -> None:
        try:
            taken = self._greeted(caller, hello)
        except OSError as error:
            _log.info("who connected is no controller: %s", error)
            taken = False
        if not taken:
            caller.sock.close()

    def _greeted(self, caller: Caller, hello: Hello) -> bool:
        """Answer one who knows the secret; return whether it commands from now on."""
        sock, until = caller.sock, caller.until
        reason = self._refusal(hello)
        if reason is not None:
            refuse(sock, reason, until)
            return False
        takes = usage(self._kept, self._meter) if hello.asks else None
        welcome(sock, self._secret, hello, caller.nonce, self._identity.build, until, takes)
        if hello.epoch is None:
            return False
        self._epoch = hello.epoch
        sock.settimeout(LOST_SECONDS)
        before = self._controller
        if before is not None:
            # The old controller's threads must be gone before the new one's begin, because `ReconciledReplica.take` is
            # for one thread at a time.
            before.end()
            before.join()
        self._controller = _Controller(
            sock, self._replica, self._identity.replica_id, self._failed, self._start
        )
        return True

    def _refusal(self, hello: Hello) -> str | None:
        own = self._identity
        if hello.environment != own.environment:
            return f"it is a replica of another environment ({own.environment})"
        if hello.replica_id != own.replica_id:
            return f"it is replica {own.replica_id}, not {hello.replica_id}"
        if hello.build != own.build:
            return f"it runs mzsql {own.build}, and the process that leads {hello.build}"
        # A leader that was replaced must not command again.
        if hello.epoch is not None and hello.epoch < self._epoch:
            return "a newer leader commands it"
        return None

    def close(self) -> None:
        """Stop listening, and close the replica. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._deferred.put(None)
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        self._listening.close()
        if self._controller is not None:
            self._controller.end()
            self._controller.join()
        self._replica.close()
