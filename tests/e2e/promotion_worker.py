"""A newer program that is promoted, and killed at a write: ``promotion_worker.py ENV WRITE``, see test_e2e_promotion_crashes.

It plans joins otherwise than the program in charge. Counted are the writes to Consensus from the promotion on; the process ends before the
one of this number. Where there are not so many, it says how many there were once all is done that follows from a promotion.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time

import msgspec

import mzsql
from mzsql.adapter.environment import opening
from mzsql.adapter.planning.features import SystemFeatures
from mzsql.location.protocols import Versioned
from mzsql.location.sqlite import SqliteConsensus
from mzsql.transform import OptimizerFeatures

KILLED = 9
VERSION = "0.2.0"
PATIENCE = 120.0

_own_features = SystemFeatures.in_force


def _features(system: SystemFeatures) -> OptimizerFeatures:
    return msgspec.structs.replace(_own_features(system), enable_eager_delta_joins=False)


def become_newer() -> None:
    """From now on this process is the newer program."""
    opening.VERSION = VERSION
    # A newer optimizer, as far as a process of the older code can be one.
    SystemFeatures.in_force = _features  # type: ignore[method-assign]


def kill_at(write: int) -> itertools.count[int]:
    """End the process before a write of this number from now on; the writes counted."""
    counted, lock = itertools.count(), threading.Lock()
    compare_and_set = SqliteConsensus.compare_and_set

    def counting(self: SqliteConsensus, key: str, expected: int | None, new: Versioned) -> bool:
        with lock:
            if next(counted) == write:
                os._exit(KILLED)
            return compare_and_set(self, key, expected, new)

    SqliteConsensus.compare_and_set = counting  # type: ignore[method-assign]
    return counted


def until(done: object) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise TimeoutError("the promotion does not come to its end")
        time.sleep(0.01)


def main(env: str, write: str) -> None:
    become_newer()
    con = mzsql.connect(env, deploy_generation=1)
    found = con.coordinator.env
    until(lambda: not found.preparations.lacking(found.sync(), 1))
    counted = kill_at(int(write))
    con.promote()
    until(lambda: not found.preparations.all() and not con.coordinator.dataflows._missing)
    con.execute("INSERT INTO t VALUES (1, 100)")
    con.execute("SELECT count(*) FROM joined").fetchall()
    sys.stdout.write(f"{next(counted)}\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
