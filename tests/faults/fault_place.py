"""A real S3 server and a real PostgreSQL server, reached over cables that can break.

Promise: a URL stays what it is whatever befalls what is behind it, so clients need not be opened anew. The way to S3 is client, cable
(which breaks connections), proxy (which answers in the server's place), server; to PostgreSQL client, cable, server. ``direct`` URLs go
round the cables, for the judge. All timeouts in the URLs are a few seconds.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import psycopg
from fault_cable import Cable, CableFault
from postgres_server import PASSWORD, USER, PostgresServer
from s3_proxy import S3Proxy, no_fault
from s3_server import SECRET, S3Server

from mzsql.location import shown_url

MAX_CONNECTIONS = 40
POSTGRES_OPTIONS = {
    "timeout": 3,
    "statement_timeout": 2,
    "lock_timeout": 1,
    "connect_timeout": 2,
    "pool_max_size": 4,
    "application_name": "under-fault",
}
S3_OPTIONS = {"timeout": 3, "read_timeout": 1, "connect_timeout": 1, "attempts": 4}
BACKEND_SECONDS = 3.0 + 2.0
"""A call of a backend takes no longer by these options, its last attempt included."""
SECRETS = [PASSWORD, quote(PASSWORD, safe=""), SECRET, quote(SECRET, safe="")]


class Place:
    """The servers, the cables to them, and their URLs for one run: a schema and a prefix of its own."""

    _numbers = itertools.count()

    def __init__(self, s3: S3Server, proxy: S3Proxy, postgres: PostgresServer) -> None:
        self.s3 = s3
        self.proxy = proxy
        self.postgres = postgres
        self.database = "postgres"
        self.disk: Path | None = None
        self.wire_s3 = Cable(urlsplit(proxy.endpoint).port or 0, postgres=False)
        self.wire_pg = Cable(postgres.port, postgres=True)
        self._wires = ExitStack()
        self._number = next(Place._numbers)

    @property
    def schema(self) -> str:
        """Where the tables are."""
        return f"fault_{self._number}"

    @property
    def blob(self) -> str:
        """The URL of the Blob store, by the cable."""
        endpoint = f"http://127.0.0.1:{self.wire_s3.port}"
        return self.s3.url(self.schema, **{**S3_OPTIONS, "endpoint": endpoint})

    @property
    def consensus(self) -> str:
        """The URL of Consensus and oracle, by the cable, with the password."""
        return self._postgres_url(self.wire_pg.port, **POSTGRES_OPTIONS)

    @property
    def patient_blob(self) -> str:
        """The same with the limits of a URL that states none: only the caller's timeout ends a call early."""
        endpoint = f"http://127.0.0.1:{self.wire_s3.port}"
        return self.s3.url(self.schema, endpoint=endpoint)

    @property
    def patient_consensus(self) -> str:
        """The same with the limits of a URL that states none."""
        return self._postgres_url(self.wire_pg.port, application_name="under-fault")

    @property
    def direct_blob(self) -> str:
        """The same Blob store without cable."""
        return self.s3.url(self.schema)

    @property
    def direct_consensus(self) -> str:
        """The same Consensus without cable."""
        return self._postgres_url(0, application_name="judge")

    def _postgres_url(self, port: int, **options: str | int) -> str:
        url = self.postgres.tcp_url(self.schema, port=port, **options)
        return url.replace("/postgres?", f"/{self.database}?")

    def move_to_disk(self, disk: Path) -> None:
        """Have the tables in a database of their own, below ``disk``."""
        self.database, self.disk = f"small_{self._number}", disk
        with self.postgres.connect() as admin:
            admin.execute(f"CREATE TABLESPACE {self.database} LOCATION '{disk}/tables'")  # type: ignore[arg-type]
            admin.execute(f"CREATE DATABASE {self.database} TABLESPACE {self.database}")  # type: ignore[arg-type]

    def drop_from_disk(self) -> None:
        """The reverse of `move_to_disk`."""
        name, self.database, self.disk = self.database, "postgres", None
        with self.postgres.connect() as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]
            admin.execute(f"DROP TABLESPACE {name}")  # type: ignore[arg-type]

    @property
    def shown(self) -> list[str]:
        """What an error may call a backend."""
        urls = (self.blob, self.consensus, self.patient_blob, self.patient_consensus)
        return [shown_url(url) for url in urls]

    def processes(self) -> list[int]:
        """PostgreSQL's postmaster, and its children."""
        pid_file = self.postgres.directory / "data" / "postmaster.pid"
        postmaster = int(pid_file.read_text().split()[0])
        children = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[1]) == postmaster:
                children.append(int(stat.parent.name))
        return [postmaster, *children]

    @contextmanager
    def admin(self) -> Iterator[psycopg.Connection[Any]]:
        """A superuser's connection to the database by the socket, which may always write."""
        with psycopg.connect(
            host=str(self.postgres.directory),
            port=self.postgres.port,
            user=USER,
            dbname=self.database,
            autocommit=True,
            application_name="admin",
            options="-c default_transaction_read_only=off",
        ) as connection:
            yield connection

    def connections(self) -> int:
        """How many the server has of those by the cable."""
        with self.admin() as admin:
            row = admin.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'under-fault'"
            ).fetchone()
        assert row is not None
        return int(row[0])

    def heal(self) -> None:
        """No more faults of cables and proxy. What has gone silent stays so."""
        self.wire_s3.fault = CableFault()
        self.wire_pg.fault = CableFault()
        self.proxy.fault = no_fault
        self.wire_s3.plug()
        self.wire_pg.plug()

    def __enter__(self) -> Self:
        self._wires.enter_context(self.wire_s3)
        self._wires.enter_context(self.wire_pg)
        return self

    def __exit__(self, *_: object) -> None:
        self._wires.close()


def sockets(ports: set[int]) -> int:
    """How many connections this process has to these ports of this machine."""
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            own.add(str(entry.readlink()))
        except OSError:
            continue  # the listing's own
    found = 0
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        remote = int(fields[2].partition(":")[2], 16)
        found += remote in ports and f"socket:[{fields[9]}]" in own
    return found


def freeze(pids: list[int]) -> None:
    """Stop processes in their tracks."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def thaw(pids: list[int]) -> None:
    """Let them go on."""
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def small_disk(directory: Path, megabytes: int, owner: int) -> Iterator[str | None]:
    """A file system of so many megabytes in memory on ``directory``, with a folder ``tables`` of that user's; else why there is none."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", str(directory)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        yield f"no file system can be mounted here: {done.stderr.strip()}"
        return
    try:
        (directory / "tables").mkdir()
        os.chown(directory / "tables", owner, owner)
        yield None
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
