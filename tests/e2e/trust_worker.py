"""A process that changes the tables of `trust_kit`, brings the views forward, and kills itself around one of its writes.

python trust_worker.py ENVIRONMENT FILES SEED ENGINE BATCHES COUNTDOWN

With a countdown of 0 it lives. It ends by itself after the last transaction.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from trust_kit import Batches, change, ours

import mzsql
from mzsql.adapter.environment import opening
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.replica.arrangements import hot
from mzsql.location import blob_around, consensus_around, open_blob, open_consensus

T = TypeVar("T")
_WRITES = ("compare_and_set", "set", "truncate", "delete")


class Mortal:
    """Opens backends as the registry does; at the write of a number the process is killed, before it or after."""

    def __init__(self, seed: int, countdown: int) -> None:
        self.countdown = countdown
        self.armed = False
        self._after = random.Random(f"{seed} {countdown}").random() < 0.5

    def act(self, operation: str, act: Callable[[], T]) -> T:
        hit = False
        if self.armed and operation in _WRITES:
            self.countdown -= 1
            hit = self.countdown == 0
        if hit and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = act()
        if hit:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def open_blob(self, url: str) -> Any:
        return blob_around(open_blob(url), self.act)

    def open_consensus(self, url: str) -> Any:
        return consensus_around(open_consensus(url), self.act)


def main() -> None:
    env, files, seed, engine, last, countdown = sys.argv[1:]
    mortal = Mortal(int(seed), int(countdown))
    opening.default_registry = lambda: mortal  # type: ignore[assignment,return-value]
    # What follows the views' writes does so soon, so that it is met too.
    controller.ComputeSettings = lambda **given: ComputeSettings(  # type: ignore[assignment,misc]
        apply_seconds=0.2, flush_seconds=0.3, keep_seconds=0.5, **given
    )
    # What is close of the small arrangements here is kept, too, for the next process to go on with.
    hot.KEPT_ROWS = 1
    batches = Batches(int(seed), Path(files))
    with mzsql.connect(env) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute(f"ALTER SYSTEM SET step_engine = '{engine}'")
        ((done,),) = con.execute("SELECT batch FROM progress").fetchall()
        mortal.armed = mortal.countdown > 0
        for number in range(done + 1, int(last) + 1):
            change(con, batches[number])
            for name in ours():
                con.execute(f"SELECT count(*) FROM {name}").fetchall()


if __name__ == "__main__":
    main()
