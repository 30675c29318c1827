"""Views that two replicas in processes of their own maintain hold what DuckDB computes, whichever of the two is killed or stopped."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from replica_kit import Process, online, pids_of, stop, until
from trust_kit import Batches, Judge, change, prepare, some

import mzsql
from mzsql.cli.demo import generate

pytestmark = pytest.mark.timeout(3600)

SCALE = 0.002
#: Seconds between two signals.
PAUSE = 3.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trust") / "tpch"
    generate(folder, SCALE)
    return folder


class Killer:
    """Kills one of the replicas every few seconds, or stops it for some and wakes it."""

    def __init__(self, env: str, seed: int, longest_stop: float) -> None:
        self._env, self._rng, self._longest = env, random.Random(seed), longest_stop
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="killer")
        self.killed = self.stopped = 0

    def _run(self) -> None:
        try:
            with mzsql.connect(self._env, read_only=True) as con:
                while not self._over.wait(PAUSE):
                    pids = pids_of(con)
                    if pids:
                        with suppress(ProcessLookupError):
                            self._signal(con, self._rng.choice(pids))
        except BaseException as failure:
            self._failures.append(failure)

    def _signal(self, con: mzsql.Connection, pid: int) -> None:
        if self._rng.random() < 0.7:
            os.kill(pid, signal.SIGKILL)
            self.killed += 1
            return
        stop(pid, con)
        self.stopped += 1
        try:
            self._over.wait(self._rng.uniform(0.0, self._longest))
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()
        if self._failures:
            raise self._failures[0]


@pytest.mark.parametrize(
    ("seed", "views", "batches", "seconds", "longest_stop"),
    [
        pytest.param(1, 8, 6, 20.0, 5.0, marks=pytest.mark.long),
        pytest.param(2, 16, 20, 300.0, 60.0, marks=pytest.mark.soak),
        pytest.param(3, 16, 20, 300.0, 60.0, marks=pytest.mark.soak),
    ],
)
def test_views_hold_their_answers_while_one_of_two_replicas_is_killed_now_and_then(
    env: str,
    files: Path,
    seed: int,
    views: int,
    batches: int,
    seconds: float,
    longest_stop: float,
) -> None:
    """At least so many transactions, so many seconds, and two processes killed."""
    judge, changes, killer = Judge(files), Batches(seed, files), Killer(env, seed, longest_stop)
    chosen = some(random.Random(seed), views)
    with mzsql.connect(env) as con:
        con.execute("SET statement_timeout = '20 min'; ALTER SYSTEM SET step_engine = 'duckdb'")
        con.execute("CREATE CLUSTER c REPLICAS (r1 (SIZE '1'), r2 (SIZE '2')); SET cluster = c")
        serving = Process("serve-replicas", "--env", env, "--cluster", "c")
        try:
            prepare(con, files, chosen)
            until(con, online("r1", "r2"))
            judge.check(con, f"seed {seed}, hydrated", chosen)
            number, end = 0, time.monotonic() + seconds
            with killer.at_work():
                # A busy machine starts processes slowly, and there must be one to kill.
                while number < batches or time.monotonic() < end or killer.killed < 2:
                    number += 1
                    change(con, changes[number])
                    judge.change(changes[number])
                    judge.check(con, f"seed {seed}, after {number}", chosen)
            until(con, online("r1", "r2"))
            change(con, changes[number + 1])
            judge.change(changes[number + 1])
            judge.check(con, f"seed {seed}, at the end", chosen)
        finally:
            serving.signal(signal.SIGTERM)
            serving.end()
