"""Processes of replicas as tests start, kill, stop and wake them, and what the environment tells of them."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing

import mzsql

#: How long a busy machine may take for what takes a moment.
WAIT = 400.0

STATUSES = """
SELECT c.name || '.' || r.name, s.status, s.reason
FROM mz_cluster_replicas AS r JOIN mz_clusters AS c ON c.id = r.cluster_id
JOIN mz_internal.mz_cluster_replica_statuses AS s ON s.replica_id = r.id
WHERE c.name = 'c'
"""


class Process:
    """``mzsql replica``, or another command, with what it says."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mzsql.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: its exit code, the rest of what it said, and its errors."""
        said, errors = self.process.communicate(timeout=WAIT)
        return self.process.returncode, said, errors

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


def statuses(con: mzsql.Connection) -> dict[str, tuple[str, str | None]]:
    return {name: (status, reason) for name, status, reason in con.execute(STATUSES).fetchall()}


def until(
    con: mzsql.Connection, found: Callable[[dict[str, tuple[str, str | None]]], bool]
) -> None:
    end = time.monotonic() + WAIT
    while not found(statuses(con)):
        assert time.monotonic() < end, statuses(con)
        time.sleep(0.05)


def online(*names: str) -> Callable[[dict[str, tuple[str, str | None]]], bool]:
    return lambda found: all(found[f"c.{name}"] == ("online", None) for name in names)


def offline(name: str, reason: str) -> Callable[[dict[str, tuple[str, str | None]]], bool]:
    def is_so(found: dict[str, tuple[str, str | None]]) -> bool:
        status, why = found[f"c.{name}"]
        return status == "offline" and reason in (why or "")

    return is_so


def rows(con: mzsql.Connection, query: str) -> list[tuple[object, ...]]:
    return sorted(con.execute(query).fetchall())


def pids_of(con: mzsql.Connection) -> list[int]:
    """The processes of replicas, in the order of these' names: the catalog's is that of its changes."""
    state = con.coordinator.env.sync()
    found = sorted(state.replicas.values(), key=lambda one: one.name)
    return [int(one.process.who.split()[1]) for one in found if one.process is not None]


def stop(pid: int, con: mzsql.Connection) -> None:
    """Stop a process, at a moment at which it has not locked a SQLite database that is everybody's."""
    directory = con.coordinator.env.locations.directory
    while True:
        os.kill(pid, signal.SIGSTOP)
        if directory is None:
            return
        try:
            for name in ("consensus.db", "oracle.db"):
                with closing(sqlite3.connect(f"{directory}/{name}", timeout=5)) as database:
                    database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as locked:
            if locked.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
        else:
            return
