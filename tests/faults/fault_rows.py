"""The rows of the matrix: each a fault of a real server or a real connection, begun and ended.

A row is a context manager over a `Place`: it begins the fault, yields how many times it has bitten so far, and ends it. One that `outlasts`
is held until some call has failed by it, so that the error is seen; the others for some seconds, which callers may sit out.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from fault_cable import (
    BlackHole,
    Cable,
    CableFault,
    CutAfterCommit,
    CutBeforeCommit,
    CutInCommit,
    CutUpload,
    Dribble,
    HalfOpen,
    Latency,
    SwallowCommit,
)
from fault_place import Place, freeze, thaw
from s3_proxy import Exchange, after, answer, cut, hang, no_fault, reset, slow, trickle

_SEGMENT = 16 * 1024 * 1024
"""Bytes of a segment of the log."""

Bites = Callable[[], int]
Begin = Callable[[Place], AbstractContextManager[Bites]]


class Row:
    """A fault: its name in the report, how it begins and ends, whether it outlasts timeouts, and which backend it befalls."""

    def __init__(self, name: str, begin: Begin, *, outlasts: bool, seconds: float) -> None:
        self.name = name
        self.begin = begin
        self.outlasts = outlasts
        self.seconds = seconds

    @property
    def backend(self) -> str:
        """``postgres`` or ``s3``."""
        return self.name.partition(" ")[0]


ROWS: dict[str, Row] = {}


def row(
    name: str, *, outlasts: bool = False, seconds: float = 1.0
) -> Callable[[Callable[[Place], Iterator[Bites]]], None]:
    """Add a row, by a generator function."""

    def add(begin: Callable[[Place], Iterator[Bites]]) -> None:
        ROWS[name] = Row(name, contextmanager(begin), outlasts=outlasts, seconds=seconds)

    return add


@contextmanager
def repeatedly(act: Callable[[], int], pause: float) -> Iterator[Bites]:
    """``act()``, which says how many it hit, on a thread until the end of the block."""
    over = threading.Event()
    hits = [0]
    failures: list[Exception] = []

    def loop() -> None:
        try:
            while not over.is_set():
                hits[0] += act()
                over.wait(pause)
        except Exception as failure:
            failures.append(failure)

    def so_far() -> int:
        if failures:
            raise failures[0]
        return hits[0]

    thread = threading.Thread(target=loop, name="fault")
    thread.start()
    try:
        yield so_far
    finally:
        over.set()
        thread.join()
    so_far()


# The server of PostgreSQL.


@row("postgres restarted fast")
def _(place: Place) -> Iterator[Bites]:
    place.postgres.restart()
    yield lambda: 1


@row("postgres restarted as after a crash")
def _(place: Place) -> Iterator[Bites]:
    place.postgres.restart(immediate=True)
    yield lambda: 1


@row("postgres restarted three times")
def _(place: Place) -> Iterator[Bites]:
    for immediate in (True, False, True):
        place.postgres.restart(immediate=immediate)
        time.sleep(0.3)
    yield lambda: 3


@row("postgres down beyond all timeouts", outlasts=True)
def _(place: Place) -> Iterator[Bites]:
    place.postgres.stop()
    try:
        yield lambda: 1
    finally:
        place.postgres.start()


@row("postgres frozen beyond all timeouts", outlasts=True)
def _(place: Place) -> Iterator[Bites]:
    pids = place.processes()
    freeze(pids)
    try:
        yield lambda: len(pids)
    finally:
        thaw(pids)


def _signal(place: Place, function: str) -> int:
    with place.admin() as admin:
        found = admin.execute(
            f"SELECT {function}(pid) FROM pg_stat_activity WHERE application_name = 'under-fault'"
        ).fetchall()
    return len(found)


@row("postgres backends terminated again and again", seconds=2.0)
def _(place: Place) -> Iterator[Bites]:
    with repeatedly(lambda: _signal(place, "pg_terminate_backend"), 0.1) as hits:
        yield hits


@row("postgres statements cancelled again and again", seconds=2.0)
def _(place: Place) -> Iterator[Bites]:
    with repeatedly(lambda: _signal(place, "pg_cancel_backend"), 0.01) as hits:
        yield hits


@row("postgres has too many connections", outlasts=True)
def _(place: Place) -> Iterator[Bites]:
    """Others take every slot that comes free, and those of the clients are made free."""
    taken: list[psycopg.Connection[Any]] = []
    with place.admin() as admin:

        def take() -> int:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'under-fault'"
            )
            before = len(taken)
            with contextlib.suppress(psycopg.OperationalError):
                while True:
                    taken.append(place.postgres.connect())
            return len(taken) - before

        try:
            with repeatedly(take, 0.02) as hits:
                yield hits
        finally:
            for connection in taken:
                connection.close()


@row("postgres read-only", outlasts=True)
def _(place: Place) -> Iterator[Bites]:
    with place.admin() as admin:
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
        try:
            yield lambda: 1
        finally:
            admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
            admin.execute("SELECT pg_reload_conf()")


@row("postgres tables locked by another", outlasts=True)
def _(place: Place) -> Iterator[Bites]:
    with place.admin() as admin:
        tables = [
            f"{place.schema}.{name}"
            for (name,) in admin.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s", [place.schema]
            )
        ]
        with admin.transaction():
            admin.execute("SET LOCAL deadlock_timeout = '60s'")
            admin.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
            yield lambda: len(tables)


@row("postgres disk full", outlasts=True)
def _(place: Place) -> Iterator[Bites]:
    """What is left of the file system of its tables is taken by another file."""
    assert place.disk is not None
    ballast = place.disk / "ballast"
    with repeatedly(lambda: _fill(ballast), 0.02) as hits:
        yield hits
    ballast.unlink()


def _fill(ballast: Path) -> int:
    """Take what room there is; how many bytes that was."""
    taken = 0
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    taken += file.write(bytes(size))
    return taken


@row("postgres cannot extend its files", outlasts=True)
def _(place: Place) -> Iterator[Bites]:
    """The limit on the size of a file, which needs no rights: as large as a segment of the log, and smaller than the table is made."""
    with place.admin() as admin:
        admin.execute(
            f"INSERT INTO {place.schema}.consensus SELECT 'ballast', n,"
            " (SELECT string_agg(sha256((n * 100 + i)::text::bytea), '') FROM generate_series(1, 55) i)"
            f" FROM generate_series(1, {_SEGMENT // 1760}) n"
        )
        # No new row fits a page that is not empty, and nobody makes pages empty meanwhile.
        settings = "fillfactor = 10, autovacuum_enabled = false"
        admin.execute(f"ALTER TABLE {place.schema}.consensus SET ({settings})")
        try:
            # What is started later has it from the postmaster, which comes first; twice, for what was started meanwhile.
            limited = [_limit_files(place, str(_SEGMENT)) for _ in range(2)]
            assert any(limited), "no process of the server can be limited"
            yield lambda: sum(limited)
        finally:
            _limit_files(place, "unlimited")
        admin.execute(
            f"ALTER TABLE {place.schema}.consensus RESET (fillfactor, autovacuum_enabled)"
        )


def _limit_files(place: Place, limit: str) -> int:
    """Of the server's processes, as its own user, who may without further rights; of how many."""
    owner = (place.postgres.directory / "data").stat()
    whose: dict[str, Any] = {}
    if os.geteuid() == 0:
        whose = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    done = [
        subprocess.run(
            ["prlimit", f"--pid={pid}", f"--fsize={limit}:"],
            check=False,  # it may have ended
            capture_output=True,
            **whose,
        ).returncode
        for pid in place.processes()
    ]
    return done.count(0)


# The connections to PostgreSQL.


@contextmanager
def cable_fault(cable: Cable, fault: CableFault) -> Iterator[Bites]:
    """A fault of a cable's, for the duration of the block."""
    cable.fault = fault
    try:
        yield lambda: fault.bites
    finally:
        cable.fault = CableFault()


def _on_cable(
    name: str,
    fault: Callable[[Cable], CableFault],
    *,
    wire: str,
    outlasts: bool = False,
    seconds: float = 1.5,
) -> None:
    def begin(place: Place) -> AbstractContextManager[Bites]:
        cable: Cable = getattr(place, wire)
        return cable_fault(cable, fault(cable))

    ROWS[name] = Row(name, begin, outlasts=outlasts, seconds=seconds)


@contextmanager
def _unplugged(cable: Cable) -> Iterator[Bites]:
    cable.unplug()
    try:
        yield lambda: 1
    finally:
        cable.plug()


for _name, _fault in {
    "postgres cut in the middle of a commit's request": CutBeforeCommit,
    "postgres cut when it has a commit's request": CutInCommit,
    "postgres cut when it has committed": CutAfterCommit,
    "postgres answer to a commit never arrives": SwallowCommit,
}.items():
    _on_cable(_name, lambda _, made=_fault: made(), wire="wire_pg", seconds=2.0)  # type: ignore[misc]
_on_cable("postgres in a black hole", lambda _: BlackHole(), wire="wire_pg", outlasts=True)
_on_cable("postgres connections half open", HalfOpen, wire="wire_pg")
_on_cable("postgres far away", lambda _: Latency(0.02), wire="wire_pg", seconds=2.0)
_on_cable("postgres answers a few bytes at a time", lambda _: Dribble(7), wire="wire_pg")


@row("postgres connections cut again and again", seconds=2.0)
def _(place: Place) -> Iterator[Bites]:
    with repeatedly(place.wire_pg.cut_all, 0.1) as hits:
        yield hits


ROWS["postgres refuses connections"] = Row(
    "postgres refuses connections",
    lambda place: _unplugged(place.wire_pg),
    outlasts=True,
    seconds=1.0,
)

# S3: its answers.


class Each:
    """``fault`` for each ``nth`` request of some operations, all by default."""

    def __init__(
        self, fault: Callable[[Exchange], None], nth: int = 1, operations: tuple[str, ...] = ()
    ) -> None:
        self._fault = fault
        self._nth = nth
        self._operations = operations
        self._lock = threading.Lock()
        self._met = 0
        self.bites = 0

    def __call__(self, exchange: Exchange) -> bool:
        if self._operations and exchange.seen.operation not in self._operations:
            return False
        with self._lock:
            self._met += 1
            bitten = self._met % self._nth == 0
            self.bites += bitten
        if bitten:
            self._fault(exchange)
        return bitten


@contextmanager
def _answering(place: Place, fault: Each) -> Iterator[Bites]:
    place.proxy.fault = fault
    try:
        yield lambda: fault.bites
    finally:
        place.proxy.fault = no_fault


def _on_s3(
    name: str, fault: Callable[[], Each], *, outlasts: bool = False, seconds: float = 1.5
) -> None:
    ROWS[name] = Row(
        name, lambda place: _answering(place, fault()), outlasts=outlasts, seconds=seconds
    )


_UPLOADS = ("PutObject", "UploadPart", "CompleteMultipartUpload")
_on_s3("s3 500 now and then", lambda: Each(answer(500, "InternalError"), 2))
_on_s3("s3 503 SlowDown now and then", lambda: Each(answer(503, "SlowDown"), 2))
_on_s3("s3 500 always", lambda: Each(answer(500, "InternalError")), outlasts=True)
_on_s3("s3 503 SlowDown always", lambda: Each(answer(503, "SlowDown")), outlasts=True)
_on_s3("s3 500 after it wrote", lambda: Each(after(answer(500, "InternalError")), 2, _UPLOADS))
_on_s3("s3 500 always after it wrote", lambda: Each(after(answer(500)), 1, _UPLOADS), outlasts=True)
_on_s3("s3 resets before it writes", lambda: Each(reset, 2))
_on_s3("s3 resets after it wrote", lambda: Each(after(reset), 2))
_on_s3("s3 slow", lambda: Each(slow(0.2)), seconds=2.0)
_on_s3("s3 does not answer", lambda: Each(hang(30)), outlasts=True)
_on_s3("s3 bodies end early now and then", lambda: Each(cut(100), 2, ("GetObject",)), seconds=2.5)
_on_s3("s3 bodies end early always", lambda: Each(cut(10), 1, ("GetObject",)), outlasts=True)
_on_s3(
    "s3 bodies trickle", lambda: Each(trickle(0.0005), 2, ("GetObject", "ListObjectsV2")), seconds=2
)
for _name, _status, _code in (
    ("s3 bucket gone", 404, "NoSuchBucket"),
    ("s3 credentials revoked", 403, "InvalidAccessKeyId"),
    ("s3 access denied", 403, "AccessDenied"),
    ("s3 token expired", 400, "ExpiredToken"),
    ("s3 finds the clock wrong", 403, "RequestTimeTooSkewed"),
    ("s3 quota used up", 507, "XMinioStorageFull"),
):
    _on_s3(
        _name,
        lambda status=_status, code=_code: Each(answer(status, code, "said the server")),  # type: ignore[misc]
        outlasts=True,
    )

# The connections to S3.

_on_cable("s3 cut in the middle of an upload", lambda _: CutUpload(), wire="wire_s3")
_on_cable("s3 in a black hole", lambda _: BlackHole(), wire="wire_s3", outlasts=True)
_on_cable("s3 connections half open", HalfOpen, wire="wire_s3")
_on_cable("s3 far away", lambda _: Latency(0.05), wire="wire_s3", seconds=2.0)


@row("s3 connections cut again and again", seconds=2.0)
def _(place: Place) -> Iterator[Bites]:
    with repeatedly(place.wire_s3.cut_all, 0.1) as hits:
        yield hits


ROWS["s3 refuses connections"] = Row(
    "s3 refuses connections",
    lambda place: _unplugged(place.wire_s3),
    outlasts=True,
    seconds=1.0,
)
