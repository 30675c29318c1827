"""Case b: how long the relations about hydration take to answer where very much hydrates.

Views of so many nodes each are made on a cluster of several replicas: the first in the process that leads, the others in
processes of their own. Each relation is asked, for all of it, by the process that leads and by one that reads what that
has written: while the views hydrate, which is only looked at, and once all are hydrated. What counts is the median of the
slowest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, perf_counter, sleep
from types import SimpleNamespace

import processes
from figures import Case, median, scratch
from questions import ASKED, milliseconds

import mzsql
from mzsql.dbapi import Connection

MOST_MS = 300.0
#: Seconds that all views may take to hydrate.
_PATIENCE = 3600.0


def answers(dataflows: int, nodes: int, replicas: int, rounds: int, directory: Path) -> Case:
    """Questions while views hydrate, and afterwards."""
    case = Case(
        "b",
        f"relations about hydration, of {dataflows} views of {nodes} nodes on {replicas} replicas, ms",
    )
    others = [f"r{n}" for n in range(2, replicas + 1)]
    with scratch(directory) as folder, mzsql.connect(folder / "env") as con, ExitStack() as running:
        at = SimpleNamespace(connection=con, folder=folder)
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        con.execute("CREATE TABLE t (a int, b int)")
        con.execute("INSERT INTO t SELECT g, g % 10 FROM generate_series(1, 100) AS g")
        processes.cluster(at, "r1", *others)
        for name in others:
            running.enter_context(processes.replica(at, name))
        begun = perf_counter()
        for number in range(dataflows):
            con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {_query(number, nodes)}")
        during = {name: milliseconds(con, text, rounds) for name, text in ASKED.items()}
        _await(con, dataflows * replicas)
        took = perf_counter() - begun
        ((rows,),) = con.execute(
            "SELECT count(*) FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker"
        ).fetchall()
        here = {name: milliseconds(con, text, rounds) for name, text in ASKED.items()}
        beside = _beside(folder / "env", rounds)
        for name in ASKED:
            case.row(
                asked=name,
                hydrating_median=_median(during[name]),
                hydrated_first=here[name][0][0],
                hydrated_median=_median(here[name]),
                another_process_first=beside[name][0][0],
                another_process_median=_median(beside[name]),
                processors_first=beside[name][0][1],
                processors_median=median([cpu for _, cpu in beside[name]]),
            )
    case.notes.append(
        f"{rows:,} rows, one for each worker of each node; all were hydrated after {took:.0f} s."
    )
    for who, found in (("the leader", here), ("another process", beside)):
        slowest = max(_median(one) for one in found.values())
        case.target(f"the slowest relation's median in {who}", slowest, most=MOST_MS)
    return case


def _median(took: Sequence[Sequence[float]]) -> float:
    return median([wall for wall, *_ in took])


def _query(number: int, nodes: int) -> str:
    """A query whose plan has so many nodes: one that groups, a union, and inputs that are filtered each in its own way."""
    inputs = " UNION ALL ".join(
        f"SELECT a + {n} AS k, b FROM t WHERE b <> {number * nodes + n}"
        for n in range(max(nodes - 2, 2))
    )
    return f"SELECT k, count(*) AS n FROM ({inputs}) AS every GROUP BY k"


def _await(con: Connection, wanted: int) -> None:
    """Wait until so many views on replicas are hydrated."""
    until = monotonic() + _PATIENCE
    query = "SELECT count(*) FROM mz_internal.mz_hydration_statuses WHERE hydrated"
    while con.execute(query).fetchall() != [(wanted,)]:
        if monotonic() > until:
            raise SystemExit("not everything is hydrated within an hour")
        sleep(0.5)


def _beside(env: Path, rounds: int) -> dict[str, list[list[float]]]:
    """What a process of its own finds."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("questions.py")), str(env), str(rounds)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_PATIENCE,
    )
    found: dict[str, list[list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return found
