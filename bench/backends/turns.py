"""Two ways to do the same, timed in turns: blocks of operations, one way after the other, who goes first changing from round to round."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter

from figures import median, percentile

Step = Callable[[], object]
_BREATH = 0.02
"""Seconds between blocks, in which what a block left to be done in the background ends."""


@dataclass
class Times:
    """What one contender's operations took, in seconds, by rounds; and how long the rounds were."""

    rounds: list[list[float]] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)

    @property
    def all(self) -> list[float]:
        return [one for found in self.rounds for one in found]

    @property
    def p50(self) -> float:
        return median(self.all)

    @property
    def p99(self) -> float:
        return percentile(self.all, 99)

    @property
    def rate(self) -> float:
        """Operations a second."""
        return len(self.all) / sum(self.walls)

    def p50_over(self, other: Times) -> float:
        """The median over rounds of the ratio of the medians of the round, which drift hits alike."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return median([median(mine) / median(its) for mine, its in pairs])

    def p99_over(self, other: Times) -> float:
        return self.p99 / other.p99


def _block(step: Step, size: int, start: threading.Barrier | None) -> list[float]:
    if start is not None:
        start.wait()
    found = []
    for _ in range(size):
        begun = perf_counter()
        step()
        found.append(perf_counter() - begun)
    return found


def in_turns(
    contenders: Mapping[str, Sequence[Step]], *, size: int, rounds: int, warm: int = 2
) -> dict[str, Times]:
    """``rounds`` blocks of ``size`` operations of each contender after ``warm`` that do not count; a contender has a step a thread."""
    found = {name: Times() for name in contenders}
    order = list(contenders)
    threads = max(len(steps) for steps in contenders.values())
    with ThreadPoolExecutor(threads) as pool:
        for number in range(warm + rounds):
            for name in order:
                steps = contenders[name]
                begun = perf_counter()
                if len(steps) == 1:
                    times = _block(steps[0], size, None)
                else:
                    start = threading.Barrier(len(steps))
                    under_way = [pool.submit(_block, step, size, start) for step in steps]
                    times = [one for future in under_way for one in future.result()]
                wall = perf_counter() - begun
                if number >= warm:
                    found[name].rounds.append(times)
                    found[name].walls.append(wall)
                time.sleep(_BREATH)
            order.append(order.pop(0))
    return found
