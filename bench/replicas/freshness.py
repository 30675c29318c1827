"""Case a: how soon a transaction is in three views that a replica in a process of its own maintains, beside the in-process one.

Two environments of the same rows are led by the benchmark's process. The cluster of the one has its replica in that process, that of the
other in one of its own; both have Q1, Q3 and Q18. A round commits one order of seven lines to each, one after the other, taking turns at
being first, and times from the commit's return until the three views have been read. The first third of the rounds warms up.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from time import perf_counter, process_time

from asked import Asked
from figures import Case, median, percentile, rounds, scratch
from processes import cluster, hydrated, replica
from ticks import tick
from tpch import FEW, Loaded, loaded

#: The median of the one in a process of its own less that of the other, ms.
WITHIN_MS = 30
HERE, APART = "in_process", "process"


def freshness(asked: Asked) -> Case:
    """Both at each scale, in turns."""
    case = Case(
        "a", "one order of seven lines, from the commit's return until Q1, Q3 and Q18 are read"
    )
    for scale in asked.scales:
        _scale(case, scale, asked)
    return case


def _scale(case: Case, scale: float, asked: Asked) -> None:
    with (
        scratch(asked.directory) as folder,
        loaded(folder, scale, HERE) as here,
        loaded(folder, scale, APART) as apart,
    ):
        both = {HERE: here, APART: apart}
        for at in both.values():
            cluster(at, "r1")
        with replica(apart, "r1") as process:
            for at in both.values():
                at.hydrate(FEW)
                hydrated(at, ["r1"], FEW)
            cpu, theirs = process_time(), process.cpu()
            warm = asked.rounds // 3
            turns = {name: ticking(at, FEW) for name, at in both.items()}
            fresh = rounds(asked.rounds - warm, turns, warm=warm)
            cpu, theirs = process_time() - cpu, process.cpu() - theirs
            for at in both.values():
                at.judge.run(s for number in range(asked.rounds) for s in tick(number))
                at.check(FEW)
    for name, seconds in fresh.items():
        case.row(
            scale=f"{scale:g}",
            replica={HERE: "in the process that leads", APART: "in one of its own"}[name],
            rounds=len(seconds),
            fresh_p50_ms=median(seconds) * 1000,
            fresh_p99_ms=percentile(seconds, 99) * 1000,
            cores=os.cpu_count(),
        )
    case.notes.append(
        f"Processor time a round at SF {scale:g}: {theirs / asked.rounds * 1000:.0f} ms of the replica's process, "
        f"{cpu / asked.rounds * 1000:.0f} ms of the one that leads both environments."
    )
    more = (median(fresh[APART]) - median(fresh[HERE])) * 1000
    case.target(f"p50 ms more in a process of its own at SF {scale:g}", more, most=WITHIN_MS)


def ticking(at: Loaded, views: tuple[str, ...]) -> Callable[[], float]:
    """Commits the next order at each call, and says how long until the views have been read."""
    numbers = itertools.count()

    def one() -> float:
        at.change(tick(next(numbers)))
        begun = perf_counter()
        at.read(views)
        return perf_counter() - begun

    return one
