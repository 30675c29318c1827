"""Several threads and processes at once, some of them killed: what they did must be linearizable.

Each run records every operation with its times and outcome, reads in the end what is there, and gives the history to `check_history`.
Threads work on handles of their own in this process; processes open the backend by its URL. A run in which less than half of the
operations were acknowledged fails too: a backend that refuses everything is linearizable.
"""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import msgspec

from mzsql.testing.contract import Site, run_together, skip
from mzsql.testing.expect import expect, expect_equal
from mzsql.testing.histories import History, Recorder, calls_begun, load_history
from mzsql.testing.linearizability import Model, check_history
from mzsql.testing.models import LogModel, OracleModel, RegisterModel, head_faults
from mzsql.testing.sites import BlobSite, ConsensusSite, OracleSite
from mzsql.testing.worker import WorkerSpec
from mzsql.testing.workloads import (
    KEYS,
    Kind,
    OracleClock,
    drive,
    finish_blob,
    finish_consensus,
    finish_oracle,
)

WORKER_SECONDS = 120.0
"""After so long a worker that has not finished counts as hung, and is killed."""

_MODELS: dict[Kind, Callable[[str], Model]] = {
    "blob": lambda _: RegisterModel(),
    "consensus": lambda _: LogModel(),
    "oracle": lambda _: OracleModel(),
}
_Files = list[tuple[int, Path]]


def blob_threads(site: BlobSite) -> None:
    """What threads do to a few keys through several handles, all recorded, is linearizable."""
    run_threads(site, "blob", lambda _: site.open())


def consensus_threads(site: ConsensusSite) -> None:
    """What threads do to a few logs through several handles, all recorded, is linearizable."""
    run_threads(site, "consensus", lambda _: site.open())


def oracle_threads(site: OracleSite) -> None:
    """What threads do to a timeline through several handles, all recorded, is linearizable."""
    run_threads(site, "oracle", site.open)


def blob_processes(site: BlobSite) -> None:
    """What processes do to a few keys, all recorded, is linearizable."""
    _processes(site, "blob", kills=0)


def consensus_processes(site: ConsensusSite) -> None:
    """What processes do to a few logs, all recorded, is linearizable."""
    _processes(site, "consensus", kills=0)


def oracle_processes(site: OracleSite) -> None:
    """What processes do to a timeline, all recorded, is linearizable."""
    _processes(site, "oracle", kills=0)


def blob_killed(site: BlobSite) -> None:
    """The same when some processes are killed at random moments: what they were doing took effect whole or not at all."""
    _processes(site, "blob", kills=site.sized(2, 6))


def consensus_killed(site: ConsensusSite) -> None:
    """The same when some processes are killed at random moments: what they were doing took effect or did not, and nobody hangs."""
    _processes(site, "consensus", kills=site.sized(2, 6))


def oracle_killed(site: OracleSite) -> None:
    """The same when some processes are killed at random moments: what they were doing took effect or did not, and nobody hangs."""
    _processes(site, "oracle", kills=site.sized(2, 6))


def blob_forked(site: BlobSite) -> None:
    """A handle that a forked process inherits works on both sides, also once the child has closed it; what they do is linearizable."""
    _forked(site, "blob")


def consensus_forked(site: ConsensusSite) -> None:
    """A handle that a forked process inherits works on both sides, also once the child has closed it; what they do is linearizable."""
    _forked(site, "consensus")


def oracle_forked(site: OracleSite) -> None:
    """A handle that a forked process inherits works on both sides, also once the child has closed it; what they do is linearizable."""
    _forked(site, "oracle")


def run_threads(site: Site, kind: Kind, opener: Callable[[OracleClock], Any]) -> None:
    """Let threads work, each on a handle that ``opener`` gives, and judge what they did."""
    with tempfile.TemporaryDirectory(dir=site.directory) as directory:
        files = [(number, Path(directory) / f"{number}.history") for number in range(1, 6)]

        def work(process: int, path: Path) -> None:
            rng = random.Random(f"{site.seed}/{process}")  # noqa: S311 - a workload to replay
            with Recorder(path, process) as recorder:
                drive(kind, opener, recorder, rng, site.sized(50, 300))

        run_together([functools.partial(work, *each) for each in files])
        _finish_and_check(site, kind, files, Path(directory))


def _processes(site: Site, kind: Kind, kills: int) -> None:
    url = site.needs_processes()
    with tempfile.TemporaryDirectory(dir=site.directory) as directory:
        workers = site.sized(3, 5)
        specs = [
            WorkerSpec(
                kind=kind,
                url=url,
                prefix=site.prefix,
                worker=number,
                threads=2,
                operations=site.sized(40, 200),
                seed=site.seed,
                directory=directory,
                late=number > workers,
            )
            for number in range(1, workers + kills + 1)
        ]
        rng = random.Random(site.seed)  # noqa: S311 - a schedule to replay, not a secret
        _run(specs[:workers], specs[workers:], rng)
        files = [each for spec in specs for each in spec.files()]
        _finish_and_check(site, kind, files, Path(directory))


def _forked(site: Site, kind: Kind) -> None:
    url = site.needs_processes()
    if not hasattr(os, "fork"):
        skip("nothing forks here")
    with tempfile.TemporaryDirectory(dir=site.directory) as directory:
        spec = WorkerSpec(
            kind=kind,
            url=url,
            prefix=site.prefix,
            worker=1,
            threads=2,
            operations=site.sized(60, 400),
            seed=site.seed,
            directory=directory,
            fork_seconds=WORKER_SECONDS,
        )
        _run([spec], [], random.Random(site.seed))  # noqa: S311 - kills nobody
        for each in spec.files():
            _expect_acknowledged(load_history([each], KEYS[kind]))
        _finish_and_check(site, kind, spec.files(), Path(directory))


def _finish_and_check(site: Site, kind: Kind, files: _Files, directory: Path) -> None:
    last = directory / "last.history"
    with Recorder(last, 0) as recorder:
        if isinstance(site, BlobSite):
            finish_blob(site.open(), recorder)
        elif isinstance(site, ConsensusSite):
            finish_consensus(site.open(), recorder)
        elif isinstance(site, OracleSite):
            finish_oracle(site.open(lambda: 0), recorder)
    history = load_history([*files, (0, last)], KEYS[kind])
    expect_equal(history.broken, [], "operations that raised what a backend may not raise")
    _expect_acknowledged(history)
    if kind == "consensus":
        expect_equal(head_faults(history.operations), [], "heads")
    linear = [one for one in history.operations if one.name != "head"]
    verdict = check_history(linear, _MODELS[kind])
    expect(
        verdict.outcome == "linearizable",
        f"the history of {verdict.key!r} is not linearizable ({verdict.outcome}): {verdict.text}",
    )


def _expect_acknowledged(history: History) -> None:
    """Whoever refuses everything does nothing wrong, and nothing."""
    expect(
        2 * history.acknowledged >= history.begun,
        f"of {history.begun} operations only {history.acknowledged} were acknowledged:{history.commonest()}",
    )


class _Worker:
    """A worker's process."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.killed = False
        self._told: IO[bytes] = tempfile.TemporaryFile(dir=spec.directory)  # noqa: SIM115 - closed by close()
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)  # noqa: PTH109 - as Python itself means ''
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mzsql.testing.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._say(msgspec.json.encode(spec))

    def _say(self, line: bytes) -> None:
        if self._process.stdin is None:
            raise AssertionError("a worker has no standard input")
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.ready()  # it ended early, and says why

    def begin(self) -> None:
        self._say(b"go")

    def ready(self) -> None:
        """Wait until it has opened the backend."""
        line = self._process.stdout.readline() if self._process.stdout else b""
        if line != b"ready\n":
            if line:
                self._process.kill()  # it goes on, as if it had said what it should
            self._process.wait()
            hung = (
                f"it had not opened the backend after {WORKER_SECONDS:g} s" if self.killed else ""
            )
            raise AssertionError(
                f"worker {self.spec.worker} did not start: {hung or self._stderr() or line!r}"
            )

    def kill_after(self, calls: int) -> None:
        """Kill it once its first thread has begun so many operations."""
        _, path = self.spec.files()[0]
        while self._process.poll() is None and calls_begun(path) < calls:
            time.sleep(0.001)
        self.kill()

    def kill(self) -> None:
        self.killed = True
        self._process.kill()

    def finish(self) -> None:
        """Wait for its end."""
        code = self._process.wait()
        if code and not self.killed:
            raise AssertionError(f"worker {self.spec.worker} failed ({code}): {self._stderr()}")

    def _stderr(self) -> str:
        self._told.seek(0)
        return self._told.read().decode(errors="replace").strip()[-2_000:]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._told):
            if stream is not None:
                stream.close()


def _run(first: list[WorkerSpec], later: list[WorkerSpec], rng: random.Random) -> None:
    """Run ``first`` at once; for each of ``later`` kill one of those running in the middle of its work, and let it take its place."""
    with ExitStack() as stack:
        workers: list[_Worker] = []
        for spec in [*first, *later]:
            workers.append(_Worker(spec))
            stack.callback(workers[-1].close)
        hung = threading.Event()

        def give_up() -> None:
            hung.set()
            for each in workers:
                each.kill()

        alarm = threading.Timer(WORKER_SECONDS, give_up)
        alarm.daemon = True
        alarm.start()
        stack.callback(alarm.cancel)
        for each in workers:
            each.ready()
        running, waiting = workers[: len(first)], workers[len(first) :]
        for each in running:
            each.begin()
        for successor in waiting:
            victim = running.pop(0)
            victim.kill_after(rng.randrange(2, victim.spec.operations))
            successor.begin()
            running.append(successor)
        for each in workers:
            each.finish()
        expect(not hung.is_set(), f"the workers did not finish within {WORKER_SECONDS:g} s")
