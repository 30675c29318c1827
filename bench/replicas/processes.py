"""Replicas in processes of their own, of an environment that the benchmark's process leads.

Promise: a process is `mzsql replica` as anybody starts it, or `watched.py`, which is that with a port for Prometheus and a master for
Spark. It is there, and the process that leads is in touch with it, before anything is measured; it has ended when the block is left. One
that does not come ends the benchmark with what it has said.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from tpch import Loaded

CLUSTER = "bench"
#: Of all replicas, in whatever process.
SIZE = "2"
_PATIENCE = 300.0
_LOOK = 0.1
_WATCHED = Path(__file__).parent / "watched.py"
_TICKS = os.sysconf("SC_CLK_TCK")
_CALLS = "mzsql_persist_backend_seconds_count"


class NoReplica(Exception):
    """A replica's process is not there."""


class Process:
    """One replica's process, in touch."""

    def __init__(self, name: str, process: subprocess.Popen[str], metrics: str | None) -> None:
        self.name = name
        self._process = process
        self._metrics = metrics

    def cpu(self) -> float:
        """Seconds of processors that it has taken, without its children."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / _TICKS

    def kill(self) -> None:
        """End it at once, as if its machine had."""
        self._process.kill()

    def requests(self) -> dict[str, float]:
        """Calls to Blob and Consensus that it has made, by store and operation, waits among them."""
        assert self._metrics is not None
        with urlopen(self._metrics, timeout=30) as answer:
            return calls(answer.read().decode())


def calls(text: str) -> dict[str, float]:
    """Calls to Blob and Consensus in what a process has for Prometheus, by store and operation."""
    return {
        f"{sample.labels['store']} {sample.labels['operation']}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == _CALLS
    }


def cluster(at: Loaded, *names: str) -> None:
    """Make the cluster in which views are made from now on."""
    replicas = ", ".join(f"{name} (SIZE '{SIZE}')" for name in names)
    at.connection.execute(f"CREATE CLUSTER {CLUSTER} REPLICAS ({replicas})")
    at.connection.execute(f"SET cluster = {CLUSTER}")


@contextmanager
def replica(
    at: Loaded, name: str, *, watched: bool = False, master: str | None = None
) -> Iterator[Process]:
    """A replica of the cluster, until the block is left: `watched` for its requests, with the master of its Spark where one is given."""
    said = at.folder / f"{name}.log"
    env = str(at.connection.coordinator.env.locations.where)
    if watched or master is not None:
        command = [sys.executable, str(_WATCHED), env, CLUSTER, name, *([master] if master else [])]
    else:
        command = [sys.executable, "-m", "mzsql.cli", "replica", "--env", env]
        command += ["--cluster", CLUSTER, "--name", name, "--with-stdin"]
    with said.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        metrics = process.stdout.readline().strip() if watched or master is not None else None
        line = process.stdout.readline()
        if not line.startswith(f"replica {CLUSTER}.{name} listens"):
            raise NoReplica(f"replica {name} does not come: {line}{said.read_text()[-2000:]}")
        _until(lambda: _online(at, name), f"replica {name} is not online", said)
        yield Process(name, process, metrics)
    finally:
        process.terminate()
        # What it ends with is not looked at, but may not be in its way.
        process.stdout.read()
        process.wait(_PATIENCE)
        process.stdin.close()
        process.stdout.close()


def hydrated(at: Loaded, names: Sequence[str], views: Sequence[str]) -> None:
    """Wait until replicas have caught up with views."""

    def are() -> bool:
        found = at.connection.execute(
            "SELECT count(*) FROM mz_internal.mz_hydration_statuses AS h "
            "JOIN mz_catalog.mz_cluster_replicas AS r ON r.id = h.replica_id "
            "JOIN mz_catalog.mz_clusters AS c ON c.id = r.cluster_id "
            "JOIN mz_catalog.mz_materialized_views AS v ON v.id = h.object_id "
            f"WHERE h.hydrated AND c.name = '{CLUSTER}' "
            f"AND r.name IN ({_quoted(names)}) AND v.name IN ({_quoted(views)})"
        ).fetchall()
        return int(found[0][0]) == len(names) * len(views)

    _until(are, f"{', '.join(views)} are not hydrated by {', '.join(names)}", None)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _online(at: Loaded, name: str) -> bool:
    found = at.connection.execute(
        "SELECT s.status FROM mz_internal.mz_cluster_replica_statuses AS s "
        "JOIN mz_catalog.mz_cluster_replicas AS r ON r.id = s.replica_id "
        "JOIN mz_catalog.mz_clusters AS c ON c.id = r.cluster_id "
        f"WHERE c.name = '{CLUSTER}' AND r.name = '{name}'"
    ).fetchall()
    return found == [("online",)]


def _until(so: Callable[[], bool], otherwise: str, said: Path | None) -> None:
    end = time.monotonic() + _PATIENCE
    while not so():
        if time.monotonic() > end:
            told = "" if said is None else said.read_text()[-2000:]
            raise NoReplica(f"{otherwise} after {_PATIENCE:g} s: {told}")
        time.sleep(_LOOK)
