"""Case b: what a second replica in a process of its own does to the refreshes of the first.

A cluster has two replicas, and Q1, Q3 and Q18 as views. Stretches of ticks as those of case a follow each other: with a
process of the first replica alone, with one of each, with the first alone again, and so on, `--pairs` times. Each stretch
with both is compared with those before and after it, as a machine is not as fast at all times. What the first replica's
steps took is what the environment tells, by replica; the time of a refresh is the sum over the views of the medians of
their steps. Where the second was there first, the first passes over what that has written, and has no step. The first
third of each stretch warms up.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from asked import Asked
from figures import Case, median, scratch
from freshness import ticking
from processes import cluster, hydrated, replica
from ticks import tick
from tpch import FEW, Loaded, loaded

#: The time of a refresh with two over that with one.
OVER_ALONE = 1.1
FIRST, OTHER = "r1", "r2"
#: The environment keeps the latest thousand refreshes: so many ticks, at most, are made before they are looked at.
_AT_ONCE = 50
_SETTLE_S = 0.5


@dataclass
class Stretch:
    """What its ticks took, and the seconds of steps, by replica and view."""

    fresh: list[float] = field(default_factory=list)
    steps: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def refresh(self, name: str) -> float:
        """Seconds that a refresh of all views took a replica."""
        return sum(median(self.steps[name, view]) for view in FEW)

    def number(self, name: str) -> int:
        """How many steps a replica had."""
        return sum(len(self.steps[name, view]) for view in FEW)


def second(asked: Asked) -> Case:
    """At each scale."""
    case = Case("b", "refreshes by the first replica, with and without a second one beside it")
    for scale in asked.scales:
        stretches = _scale(scale, asked)
        for replicas, found in ((1, stretches[::2]), (2, stretches[1::2])):
            case.row(
                scale=f"{scale:g}",
                replicas=replicas,
                refresh_by_the_first_ms=median([one.refresh(FIRST) for one in found]) * 1000,
                its_steps=sum(one.number(FIRST) for one in found),
                refresh_by_the_second_ms=(
                    median([one.refresh(OTHER) for one in found]) * 1000 if replicas > 1 else None
                ),
                its_steps_too=sum(one.number(OTHER) for one in found) if replicas > 1 else None,
                fresh_p50_ms=median([one for each in found for one in each.fresh]) * 1000,
                cores=os.cpu_count(),
            )
        over = [
            2 * both.refresh(FIRST) / (before.refresh(FIRST) + after.refresh(FIRST))
            for before, both, after in zip(
                stretches[::2], stretches[1::2], stretches[2::2], strict=False
            )
        ]
        what = f"with two over with one at SF {scale:g}, {os.cpu_count()} cores"
        case.target(what, median(over), most=OVER_ALONE)
        case.notes.append(
            f"Of each pair at SF {scale:g}: {', '.join(f'{one:.2f}' for one in over)}."
        )
    return case


def _scale(scale: float, asked: Asked) -> list[Stretch]:
    """One replica, two, one, two, …, one."""
    stretches = [Stretch()]
    with scratch(asked.directory) as folder, loaded(folder, scale) as at, ExitStack() as stack:
        cluster(at, FIRST, OTHER)
        stack.enter_context(replica(at, FIRST))
        at.hydrate(FEW)
        hydrated(at, [FIRST], FEW)
        one = ticking(at, FEW)
        _stretch(at, one, stretches[0], asked.rounds)
        for _ in range(asked.pairs):
            stretches += [Stretch(), Stretch()]
            with replica(at, OTHER):
                hydrated(at, [FIRST, OTHER], FEW)
                _stretch(at, one, stretches[-2], asked.rounds)
            _stretch(at, one, stretches[-1], asked.rounds)
        at.judge.run(s for number in range(len(stretches) * asked.rounds) for s in tick(number))
        at.check(FEW)
    return stretches


def _stretch(at: Loaded, one: Callable[[], float], found: Stretch, ticks: int) -> None:
    warm = ticks // 3
    for _ in range(warm):
        one()
    for begin in range(warm, ticks, _AT_ONCE):
        beyond = _told(at)
        found.fresh += [one() for _ in range(begin, min(begin + _AT_ONCE, ticks))]
        _told(at)
        for name, view, seconds in at.connection.execute(
            "SELECT r.name, o.name, f.seconds FROM mz_internal.mz_refreshes AS f "
            "JOIN mz_catalog.mz_objects AS o ON o.id = f.object_id "
            "JOIN mz_catalog.mz_cluster_replicas AS r ON r.id = f.replica_id "
            "WHERE f.kind = 'step' AND f.upper > %s::text::mz_timestamp",
            [str(beyond)],
        ).fetchall():
            found.steps[str(name), str(view)].append(float(seconds))


def _told(at: Loaded) -> int:
    """How far steps have come that are told of, once all are: replicas tell a moment after they have written."""
    last, upper = -1, at.upper()
    while last != upper:
        time.sleep(_SETTLE_S)
        last, upper = upper, at.upper()
    return upper
