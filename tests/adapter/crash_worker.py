"""A process that is killed at a write: ``crash_worker.py ENV VERSION GENERATION WRITE STATEMENT``, see test_adapter_versions.

It opens the environment, then runs the statement; counted are the writes to Consensus from then on, in all threads. It ends before the one
of this number, without a goodbye; where the statement makes fewer, after it.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading

import msgspec

import mzsql
from mzsql.adapter.environment import opening
from mzsql.adapter.planning.features import SystemFeatures
from mzsql.location.protocols import Versioned
from mzsql.location.sqlite import SqliteConsensus
from mzsql.transform import OptimizerFeatures

KILLED = 9

own = SystemFeatures.in_force


def plans_otherwise(build: str) -> bool:
    """Whether a version plans joins otherwise than the one before it."""
    return int(build.split("+", maxsplit=1)[0].rpartition(".")[2]) % 2 == 1


def features(system: SystemFeatures) -> OptimizerFeatures:
    """The switches of the version that a process is of."""
    found = own(system)
    if not plans_otherwise(system.env.build):
        return found
    return msgspec.structs.replace(found, enable_eager_delta_joins=False)


def main(env: str, version: str, generation: str, write: str, statement: str) -> None:
    opening.VERSION = version
    # This process is of another version than the code that it runs.
    SystemFeatures.in_force = features
    con = mzsql.connect(env, deploy_generation=int(generation))
    con.execute("SELECT 1").fetchall()
    counted, lock = itertools.count(), threading.Lock()
    compare_and_set = SqliteConsensus.compare_and_set

    def counting(self: SqliteConsensus, key: str, expected: int | None, new: Versioned) -> bool:
        with lock:
            if next(counted) == int(write):
                os._exit(KILLED)
            return compare_and_set(self, key, expected, new)

    # Every write of the process goes through this, whoever has opened the store.
    SqliteConsensus.compare_and_set = counting
    con.execute(statement)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
