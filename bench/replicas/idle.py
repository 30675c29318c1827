"""Case c: what idle replicas ask of the stores.

A cluster has two replicas in processes of their own, and Q1, Q3 and Q18 as views; after some transactions nobody asks anything any more.
What each process asks of Blob and Consensus from then on is what it has for Prometheus, waits for an entry among them; of stores in
directories a wait ends after so long as one of PostgreSQL's does. What the process that leads asks in the same time stands beside it.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack

from asked import Asked
from figures import Case, scratch
from freshness import ticking
from processes import calls, cluster, hydrated, replica
from prometheus_client import generate_latest
from ticks import tick
from tpch import FEW, loaded

#: Of each replica's process, a second.
REQUESTS = 0.2
NAMES = ("r1", "r2")
_LEADS = "the process that leads"
_TICKS = 5


def idle(asked: Asked) -> Case:
    """At the first scale: what is there is not looked at."""
    case = Case("c", "requests to the stores while nothing changes")
    scale = asked.scales[0]
    with scratch(asked.directory) as folder, loaded(folder, scale) as at, ExitStack() as stack:
        cluster(at, *NAMES)
        processes = [stack.enter_context(replica(at, name, watched=True)) for name in NAMES]
        at.hydrate(FEW)
        hydrated(at, NAMES, FEW)
        one = ticking(at, FEW)
        for _ in range(_TICKS):
            one()

        def look() -> dict[str, Counter[str]]:
            found = {f"replica {each.name}": Counter(each.requests()) for each in processes}
            return {**found, _LEADS: Counter(calls(generate_latest().decode()))}

        time.sleep(asked.idle / 2)
        before = look()
        time.sleep(asked.idle)
        after = look()
        at.judge.run(s for number in range(_TICKS) for s in tick(number))
        at.check(FEW)
    for who, counted in after.items():
        made = counted - before[who]
        a_second = made.total() / asked.idle
        case.row(
            process=who,
            seconds=asked.idle,
            requests=int(made.total()),
            a_second=a_second,
            of_them=", ".join(f"{name} {number:g}" for name, number in sorted(made.items())),
        )
        if who != _LEADS:
            case.target(f"{who}: requests a second", a_second, most=REQUESTS)
    return case
