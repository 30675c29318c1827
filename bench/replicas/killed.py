"""Case e: how soon a transaction is in three views while one of two replicas is killed every few seconds.

A cluster has two replicas in processes of their own, and Q1, Q3 and Q18 as views. Orders of seven lines are committed one after the other,
`_PAUSE_S` apart, each timed from the commit's return until the three views have been read. Meanwhile one of the replicas' processes, which
is drawn with a fixed seed, is sent SIGKILL `_EVERY_S` seconds after both were there last, and started anew at once.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from asked import Asked
from figures import Case, median, percentile, scratch
from freshness import ticking
from processes import Process, cluster, hydrated, replica
from ticks import tick
from tpch import FEW, Loaded, loaded

#: The 99th percentile of what is timed, ms.
P99_MS = 1000
NAMES = ("r1", "r2")
_EVERY_S = 5.0
_PAUSE_S = 0.1
_SEED = 17


class _Killer:
    """The replicas' processes, of which one is killed and started anew again and again on a thread of its own."""

    def __init__(self, at: Loaded) -> None:
        self._at = at
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self.killed = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Both are there, and are killed until the block is left."""
        with ExitStack() as stack:
            stacks = {name: stack.enter_context(ExitStack()) for name in NAMES}
            there = {
                name: one.enter_context(replica(self._at, name)) for name, one in stacks.items()
            }
            self._at.hydrate(FEW)
            hydrated(self._at, NAMES, FEW)
            thread = threading.Thread(target=self._run, args=(stacks, there), name="killer")
            thread.start()
            try:
                yield
            finally:
                self._over.set()
                thread.join()
        if self._failures:
            raise self._failures[0]

    def _run(self, stacks: dict[str, ExitStack], there: dict[str, Process]) -> None:
        rng = random.Random(_SEED)
        try:
            while not self._over.wait(_EVERY_S):
                name = rng.choice(NAMES)
                there[name].kill()
                self.killed += 1
                stacks[name].close()
                there[name] = stacks[name].enter_context(replica(self._at, name))
        except BaseException as failure:
            self._failures.append(failure)


def killed(asked: Asked) -> Case:
    """At the first scale, for `asked.killing` seconds."""
    case = Case(
        "e", "one order of seven lines while one of two replicas is killed every few seconds"
    )
    scale, fresh = asked.scales[0], list[float]()
    with scratch(asked.directory) as folder, loaded(folder, scale) as at:
        cluster(at, *NAMES)
        killer = _Killer(at)
        with killer.at_work():
            one = ticking(at, FEW)
            end = time.monotonic() + asked.killing
            while time.monotonic() < end:
                fresh.append(one())
                time.sleep(_PAUSE_S)
        at.judge.run(s for number in range(len(fresh)) for s in tick(number))
        at.check(FEW)
    case.row(
        scale=f"{scale:g}",
        transactions=len(fresh),
        killed=killer.killed,
        fresh_p50_ms=median(fresh) * 1000,
        fresh_p99_ms=percentile(fresh, 99) * 1000,
        fresh_most_ms=max(fresh) * 1000,
        cores=os.cpu_count(),
    )
    case.target("p99 ms", percentile(fresh, 99) * 1000, most=P99_MS)
    return case
