"""Case d: hydration by a replica whose Spark has two executors, against one.

The replica is a Spark application on `local-cluster`, each executor a process with one core and 1,024 MB. Views are created, awaited and
dropped again and again, with `step_engine` at `spark`; the first time warms up, and the time from the first CREATE until all can be read is
measured. Beside two executors work the driver, the replica and the process that leads: on a machine of fewer cores than all of these have
work for, two executors cannot be told from one, and no target is stated.
"""

from __future__ import annotations

import os
from time import perf_counter

from asked import Asked
from figures import Case, median, scratch
from processes import cluster, replica
from tpch import Loaded, loaded

#: One executor's time over that of two.
AS_FAST = 1.6
EXECUTORS = (1, 2)
#: The executors', and one for the driver and the processes beside it.
CORES = 3


def executors(asked: Asked) -> Case:
    """At each scale, each number of executors with an environment of its own."""
    names = ", ".join(view.upper() for view in asked.queries)
    case = Case("d", f"hydration of {names} on Spark, by executors of one core each")
    cores = os.cpu_count() or 1
    for scale in asked.scales:
        took = {}
        for number in EXECUTORS:
            with scratch(asked.directory) as folder, loaded(folder, scale) as at:
                cluster(at, "r1")
                at.connection.execute("ALTER SYSTEM SET step_engine = 'spark'")
                with replica(at, "r1", master=f"local-cluster[{number},1,1024]"):
                    seconds = [_hydration(at, asked.queries) for _ in range(1 + asked.hydrations)]
            took[number] = median(seconds[1:])
            case.row(
                scale=f"{scale:g}",
                executors=number,
                hydrations=asked.hydrations,
                seconds=took[number],
                first_s=seconds[0],
                times_as_fast_as_one=took[EXECUTORS[0]] / took[number],
                cores=cores,
            )
        if cores >= CORES:
            what = f"times as fast with two executors at SF {scale:g}, {cores} cores"
            case.target(what, took[1] / took[2], least=AS_FAST)
    if cores < CORES:
        case.notes.append(
            f"This machine has {cores} cores, and two executors beside their driver want {CORES}: whether two are >= {AS_FAST:g} times "
            "as fast as one is not judged here."
        )
    return case


def _hydration(at: Loaded, views: tuple[str, ...]) -> float:
    begun = perf_counter()
    at.create(views)
    at.await_(views)
    took = perf_counter() - begun
    at.check(views)
    for view in reversed(views):
        at.connection.execute(f"DROP MATERIALIZED VIEW {view}")
    return took
