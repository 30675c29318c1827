"""One process of a concurrency run: ``python -m mzsql.testing.worker``, told what to do by one line of JSON, a `WorkerSpec`.

It opens the backend by its URL through the installed plugins, says ``ready``, waits for a line, and works. It may be killed at any moment.
What plugins print is no part of that: it goes to the standard error.
"""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from mzsql.location import open_blob, open_consensus, open_oracle
from mzsql.testing.histories import Recorder
from mzsql.testing.prefixed import prefixed_blob, prefixed_consensus
from mzsql.testing.workloads import KEYS, Kind, OracleClock, drive

THREADS_OF_A_PROCESS = 100
"""Thread ``t`` of worker ``w`` is process ``100 w + t`` in its history."""


class WorkerSpec(msgspec.Struct, frozen=True):
    """What a worker does.

    Args:
        kind: of backend.
        url: of the backend.
        prefix: of its keys or timeline.
        worker: its number, from 1.
        threads: how many work at once; those of a Blob or Consensus share a handle.
        operations: of each thread.
        seed: of what it chooses.
        directory: where its histories go.
        late: whether it opens the backend only when told to work.
        fork_seconds: where not 0, the second of its two threads is a forked process, which ends within so long, on the same handle.
    """

    kind: Kind
    url: str
    prefix: str
    worker: int
    threads: int
    operations: int
    seed: int
    directory: str
    late: bool = False
    fork_seconds: float = 0.0

    def files(self) -> list[tuple[int, Path]]:
        """The process and the file of each thread's history."""
        numbers = (self.worker * THREADS_OF_A_PROCESS + thread for thread in range(self.threads))
        return [(number, Path(self.directory) / f"{number}.history") for number in numbers]


class _Opened:
    """The worker's handles: one for all threads, of an oracle one for each, as its clock is the thread's."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._shared: Any = None
        if spec.kind == "blob":
            self._shared = prefixed_blob(open_blob(spec.url), spec.prefix)
        elif spec.kind == "consensus":
            self._shared = prefixed_consensus(open_consensus(spec.url), spec.prefix)
        else:
            self.handle(OracleClock()).close()  # creates the timeline, and loads the plugin

    def handle(self, clock: Callable[[], int]) -> Any:
        if self._shared is not None:
            return self._shared
        return open_oracle(self._spec.url, self._spec.prefix + "t", clock)


class _Inherited:
    """One handle on both sides of a fork, in use before it; an oracle's clock is that of whoever works with it."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._clock: Callable[[], int] = OracleClock()
        self._one = _Opened(spec).handle(lambda: self._clock())
        self.look()

    def handle(self, clock: Callable[[], int]) -> Any:
        self._clock = clock
        return self._one

    def look(self) -> None:
        """Have it ask its backend something."""
        if self._spec.kind == "oracle":
            self._one.read_ts()
        else:
            read = self._one.get if self._spec.kind == "blob" else self._one.head
            read(KEYS[self._spec.kind][0])

    def close(self) -> None:
        """Close it, on this side."""
        self._one.close()


def _work(spec: WorkerSpec, opened: _Opened | _Inherited, process: int, path: Path) -> None:
    rng = random.Random(f"{spec.seed}/{process}")  # noqa: S311 - a workload to replay, not a secret
    with Recorder(path, process) as recorder:
        drive(spec.kind, opened.handle, recorder, rng, spec.operations)


def _fork(spec: WorkerSpec) -> None:
    opened = _Inherited(spec)
    mine, others = spec.files()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(math.ceil(spec.fork_seconds))  # nobody else ends it, should it hang
            _work(spec, opened, *others)
            opened.close()
            code = 0
        except (
            BaseException
        ):  # told by whoever waits for the worker; nothing of the parent's may run here
            traceback.print_exc()
        finally:
            os._exit(code)
    _work(spec, opened, *mine)
    _, status = os.waitpid(child, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        raise SystemExit(f"the forked process ended with {code}, as a handle it inherited failed")
    opened.look()


def main() -> None:
    """Do what the line on the standard input says."""
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever a plugin or a library of its prints is not taken for an answer
    spec = msgspec.json.decode(sys.stdin.readline(), type=WorkerSpec)
    opened = None if spec.late or spec.fork_seconds else _Opened(spec)
    os.write(answers, b"ready\n")
    if not sys.stdin.readline():
        return  # whoever started this has ended
    if spec.fork_seconds:
        _fork(spec)
        return
    opened = opened or _Opened(spec)
    with ThreadPoolExecutor(spec.threads) as pool:
        for one in [pool.submit(_work, spec, opened, *each) for each in spec.files()]:
            one.result()


if __name__ == "__main__":
    main()
