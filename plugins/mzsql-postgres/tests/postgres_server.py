"""A real PostgreSQL server for tests, from the binaries in the `pgserver` wheel.

Promise: each `PostgresServer` has a temporary directory of its own and listens on a socket in it (and on a free port of 127.0.0.1 with
``tcp=True``); leaving the ``with`` block stops it and removes the directory, and so does the death of this process. Where the tests run
as root, which PostgreSQL refuses to, the server runs as the user ``pgserver``. Over the socket everyone is trusted, over TCP
the password `PASSWORD` is asked for. Durability against a crash of the machine is off unless ``durable=True``.
"""

from __future__ import annotations

import contextlib
import grp
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlencode

import psycopg

USER = "postgres"
PASSWORD = "p@ss/word: 100%"
_SYSTEM_USER = "pgserver"
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_SOCKET_PORT = 5432
_PORTS = range(15_000, 32_000)
_UNSAFE = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer:
    """A server; ``settings`` go to its command line (``max_connections=20``).

    Args:
        tcp: whether to listen on a free port of 127.0.0.1 too.
        durable: whether a commit is fsynced.
    """

    def __init__(self, *, tcp: bool = False, durable: bool = False, **settings: str | int) -> None:
        self._settings: dict[str, str | int] = {} if durable else dict(_UNSAFE)
        self._settings |= {"max_connections": 100, "log_line_prefix": "%m [%p] %a "} | settings
        self.port = _free_port() if tcp else _SOCKET_PORT
        self._tcp = tcp
        self._owner = _owner()
        self._process: subprocess.Popen[bytes] | None = None
        # Short, as the path of a socket has at most 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="mzpg", dir="/tmp"))
        self._data = self.directory / "data"
        self.log = self.directory / "log"
        self._watchdog: subprocess.Popen[bytes] | None = None
        try:
            self._prepare()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def _prepare(self) -> None:
        self._binaries = self._reachable_binaries()
        self._data.mkdir(mode=0o700)
        password = self.directory / "password"
        password.write_text(PASSWORD)
        if self._owner is not None:
            for path in (self.directory, self._data, password):
                os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        self.directory.chmod(0o755)
        arguments = ["--no-sync", "--encoding=UTF8", "--locale=C", f"--username={USER}"]
        arguments += ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}"]
        self._run("initdb", *arguments, "-D", str(self._data))

    def _reachable_binaries(self) -> Path:
        """The wheel's binaries, or a copy where the server's user may not enter the wheel's directory."""
        found = importlib.util.find_spec("pgserver")
        assert found is not None
        assert found.origin is not None
        install = Path(found.origin).parent / "pginstall"
        try:
            subprocess.run([install / "bin" / "postgres", "-V"], check=True, **self._as_owner())
        except (OSError, subprocess.CalledProcessError):
            shutil.copytree(install, self.directory / "pginstall")
            install = self.directory / "pginstall"
        return install / "bin"

    def _as_owner(self) -> dict[str, Any]:
        rest: dict[str, Any] = {"cwd": "/", "stdin": subprocess.DEVNULL}
        rest |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        if self._owner is not None:
            rest |= {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}
        return rest

    def _run(self, binary: str, *arguments: str) -> None:
        options = self._as_owner() | {"stdout": subprocess.PIPE}
        done = subprocess.run([self._binaries / binary, *arguments], check=False, **options)
        if done.returncode:
            raise RuntimeError(f"{binary} failed: {done.stdout.decode(errors='replace')}")

    def start(self) -> None:
        """Start it, if it does not run, and wait until it takes connections."""
        if self._process is not None and self._process.poll() is None:
            return
        settings = self._settings | {"port": self.port, "unix_socket_directories": self.directory}
        settings["listen_addresses"] = "127.0.0.1" if self._tcp else ""
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        with self.log.open("ab") as log:
            options = self._as_owner() | {"stdout": log}
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, *arguments], **options
            )
        self._guard(self._process.pid)
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError as failure:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{failure}: {self.log.read_text()}") from failure
                time.sleep(0.05)

    def _guard(self, server: int) -> None:
        """Stop the server and remove its directory when this process is gone, however it went."""
        self._unguard()
        script = 'read -r line && exit; kill -QUIT "$1"; sleep 1; rm -rf "$2"'
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", str(server), str(self.directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def _unguard(self) -> None:
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.communicate(b"done\n")

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it; ``immediate`` as a crash, after which the next start recovers."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(_STOP_SECONDS)
        self._unguard()

    def restart(self, *, immediate: bool = False) -> None:
        """`stop`, then `start`; the URLs stay what they are."""
        self.stop(immediate=immediate)
        self.start()

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """A connection as superuser, in autocommit."""
        return psycopg.connect(
            host=str(self.directory),
            port=self.port,
            user=USER,
            dbname=database,
            connect_timeout=10,
            application_name="test",
            autocommit=True,
        )

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """One statement as superuser; its rows."""
        with self.connect() as connection:
            cursor = connection.execute(statement, parameters or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def kill_backends(self, application_name: str | None = None) -> int:
        """Terminate every client's connection, or those of one application; how many."""
        rows = self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            " AND pid <> pg_backend_pid() AND (%s::text IS NULL OR application_name = %s)",
            application_name,
            application_name,
        )
        return len(rows)

    def url(self, schema: str | None = None, **options: str | int) -> str:
        """The URL over the socket; ``options`` are added to it."""
        known: Mapping[str, str | int] = {"host": str(self.directory)}
        if self.port != _SOCKET_PORT:
            known = {**known, "port": self.port}
        return f"postgres://{USER}@/postgres?" + _query(schema, {**known, **options})

    def tcp_url(self, schema: str | None = None, *, port: int = 0, **options: str | int) -> str:
        """The URL over TCP, with the password; ``port`` when a proxy stands before the server."""
        if not self._tcp:
            raise RuntimeError("the server was not started with tcp=True")
        password = quote(PASSWORD, safe="")
        query = _query(schema, options)
        return f"postgres://{USER}:{password}@127.0.0.1:{port or self.port}/postgres" + (
            f"?{query}" if query else ""
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop(immediate=True)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


def _query(schema: str | None, options: Mapping[str, str | int]) -> str:
    given = dict(options) if schema is None else {**options, "schema": schema}
    return urlencode(given, quote_via=quote, safe="/")


def _free_port() -> int:
    """Not one of those that the system hands out: until the server starts, and while it is stopped, another would be given it."""
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with contextlib.closing(socket.socket()) as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


def _owner() -> pwd.struct_passwd | None:
    """Whom the server runs as where that cannot be this process's user."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(_SYSTEM_USER)
    group: list[str] = []
    with contextlib.suppress(KeyError):
        # A useradd that was ended half way leaves one behind.
        group = ["--gid", str(grp.getgrnam(_SYSTEM_USER).gr_gid)]
    subprocess.run(
        ["useradd", "--system", *group, "--no-create-home", "--shell", "/bin/false", _SYSTEM_USER],
        check=False,  # another process of the tests may be about it at the same time
    )
    return pwd.getpwnam(_SYSTEM_USER)
