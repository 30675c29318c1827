"""Record histories of processes that come and go, and look for anomalies, as often as asked.

python tests/e2e/history_run.py --runs 100                    # on files and SQLite
python tests/e2e/history_run.py --runs 20 --backend s3-postgres
python tests/e2e/history_run.py --runs 1 --start 4711

A seed decides who is stopped and killed and when, how wrong each process' clock is, and what each one tries; not how the machine
shares its time, so a seed may need several runs to fail again. What failed is kept: its directory is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from history_worker import SETUP

import mzsql
from mzsql.oracle import MAX_AHEAD_MS
from mzsql.testing.serializability import Append, Read, Transaction, check

WORKER = Path(__file__).with_name("history_worker.py")

#: Right wall clocks differ by up to so much, in milliseconds.
SKEW = 2_000
HOUR, YEAR = 3_600_000, 31_536_000_000
#: How wrong clocks may be: by one number, or by one after another.
WRONG = (
    (HOUR,),
    (-HOUR,),
    (YEAR,),
    (-YEAR,),
    (0, HOUR, -HOUR, YEAR, 0, -YEAR),
    (0, 0, HOUR),
)
#: What each process does at least, of a run that nobody disturbs.
STEPS = 12
#: A timeline that is so many milliseconds ahead of the time is spoilt.
AHEAD = MAX_AHEAD_MS + SKEW


class Process:
    """A worker, and a thread that keeps it going.

    Args:
        env: the environment.
        number: tells it apart, and is its seed.
        folder: where it writes down what it does.
        wrong: by how many milliseconds its clock is wrong, one after another.
        fault: what is broken in its guard against that.
    """

    def __init__(
        self, env: str, number: int, folder: Path, wrong: Sequence[int], fault: str = ""
    ) -> None:
        self.number = number
        self.wrong = tuple(wrong)
        self.log = folder / f"{number}.jsonl"
        self.errors = folder / f"{number}.err"
        clock = ",".join(map(str, wrong))
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), env, str(number), clock, str(self.log), fault],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.stop, self.progress = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._keep_going)
        self.thread.start()

    def _keep_going(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            for _ in self.process.stdout:
                self.progress.set()
                if self.stop.is_set():
                    self.process.stdin.close()
                    break
                self.process.stdin.write("on\n")
                self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it was killed

    def await_start(self) -> None:
        """Until it has done something."""
        for _ in range(1200):
            if self.log.exists() and self.log.stat().st_size:
                return
            assert self.process.poll() is None, self.errors.read_text()
            time.sleep(0.05)
        raise AssertionError(f"worker {self.number} does nothing: {self.errors.read_text()}")

    def await_steps(self, number: int) -> None:
        """Until it has done so many things."""
        while self.outcomes().total() < number:
            assert self.process.poll() is None, self.errors.read_text()
            self.progress.wait(1)
            self.progress.clear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.thread.join()

    def finish(self) -> None:
        self.stop.set()
        assert self.process.wait(timeout=500) == 0, self.errors.read_text()
        self.thread.join()

    def history(self) -> list[Transaction]:
        """What it has written down; a line that was cut off is none."""
        return history_of(self.log, self.number)

    def outcomes(self) -> Counter[tuple[str, bool]]:
        """How its transactions ended, apart for those that write."""
        return outcomes_of(self.log)


def history_of(log: Path, number: int) -> list[Transaction]:
    """What a worker has written down; a line that was cut off is none."""
    begun: dict[int, tuple[int, list[Append | Read]]] = {}
    found = []
    for line in log.read_text().splitlines() if log.exists() else []:
        try:
            kind, which, at, *rest = json.loads(line)
        except json.JSONDecodeError:
            continue
        if kind == "begin":
            begun[which] = at, [Append(key, value) for key, value in rest[0]]
            continue
        call, did = begun.pop(which)
        outcome, reads = rest
        did += [Read(key, tuple(values), ordered) for key, values, ordered in reads]
        end = at if outcome == "ok" else None
        surely_not = outcome in ("failed", "skewed")
        found.append(Transaction(number, tuple(did), call, end, surely_not))
    return [*found, *(Transaction(number, tuple(did), call) for call, did in begun.values())]


def outcomes_of(log: Path) -> Counter[tuple[str, bool]]:
    """How the transactions of a worker ended, apart for those that write."""
    found: Counter[tuple[str, bool]] = Counter()
    begun: dict[int, bool] = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            kind, number, _, *rest = json.loads(line)
            if kind == "begin":
                begun[number] = bool(rest[0])
            else:
                found[rest[0], begun[number]] += 1
    return found


def transactions_of(logs: Sequence[Path]) -> list[Transaction]:
    """What workers have written down, whose files are named by their numbers."""
    return [one for log in logs for one in history_of(log, int(log.stem))]


def check_clocks(processes: Sequence[Process]) -> None:
    """Only those whose clocks are fast were stopped, and they were: none of their writes happened."""
    for one in processes:
        skewed, written = one.outcomes()["skewed", True], one.outcomes()["ok", True]
        if max(one.wrong) <= SKEW:
            assert not skewed, f"worker {one.number} was stopped, whose clock is no faster"
        elif min(one.wrong) > SKEW:
            assert not written, f"worker {one.number} wrote {written} times by a fast clock"


def check_timeline(env: str) -> None:
    """Neither the oracle nor the log is ahead of the time."""
    with mzsql.connect(env) as con:
        opened = con.coordinator.env
        latest = max(opened.oracle.peek_write_ts(), opened.wal.follow().upper)
        ahead = latest - opened.clock.now_ms()
        assert ahead <= AHEAD, f"the timeline is {ahead / 1000:.1f} s ahead of the time"


def disturb(env: str, folder: Path, seconds: float, seed: int, number: int = 3) -> list[Process]:
    """Processes at work for so long, of which now and then one is stopped for a while, or killed and another one started.

    The clocks of half of them are right, those of the others wrong by hours.
    """
    rng = random.Random(seed)
    numbers = itertools.count(1)

    def start() -> Process:
        n = next(numbers)
        right = [rng.randrange(-SKEW, SKEW)]
        return Process(env, n, folder, right if n % 2 else rng.choice(WRONG))

    running = [start() for _ in range(number)]
    every = list(running)
    try:
        for one in running:
            one.await_start()
        end = time.monotonic() + seconds
        for turn in itertools.count():
            time.sleep(rng.uniform(0.2, 0.8))
            if time.monotonic() > end and turn > 1:
                break
            one = rng.choice(running)
            if turn % 2 == 0:
                one.process.send_signal(signal.SIGSTOP)
                time.sleep(rng.uniform(0.1, 1.5))
                one.process.send_signal(signal.SIGCONT)
            else:
                running.remove(one)
                one.kill()
                running.append(start())
                every.append(running[-1])
        for one in running:
            one.finish()
    finally:
        for one in running:
            one.process.kill()
    return every


def check_a_run(env: str, folder: Path, seconds: float, seed: int) -> int:
    """One run; how many transactions have succeeded."""
    with mzsql.connect(env) as con:
        con.execute(SETUP)
    processes = disturb(env, folder, seconds, seed)
    check_clocks(processes)
    check_timeline(env)
    return check_history(processes)


def wrong_clocks(
    env: str, folder: Path, clocks: Sequence[Sequence[int]], fault: str = ""
) -> list[Process]:
    """A run of processes with these clocks, one of them right, each of which does a few things; nobody is killed."""
    with mzsql.connect(env) as con:
        con.execute(SETUP)
    processes = [Process(env, n, folder, wrong, fault) for n, wrong in enumerate(clocks, 1)]
    try:
        for one in processes:
            one.await_steps(STEPS)
        for one in processes:
            one.finish()
    finally:
        for one in processes:
            one.process.kill()
            one.process.wait()
    return processes


def check_history(did: Sequence[Process | Transaction]) -> int:
    """That what processes did is strictly serializable; how many transactions have succeeded."""
    history = [
        transaction
        for one in did
        for transaction in (one.history() if isinstance(one, Process) else [one])
    ]
    anomalies = check(history)
    assert not anomalies, "\n".join(map(str, anomalies))
    return sum(t.end is not None for t in history)


@contextlib.contextmanager
def places(backend: str) -> Iterator[Callable[[int, Path], str]]:
    """Makes a place for an environment from a run's number and directory, while the servers it needs are there."""
    if backend == "files":
        yield lambda _, folder: str(folder / "env")
        return
    root = Path(__file__).parents[2] / "plugins"
    sys.path += [str(root / "mzsql-s3/tests"), str(root / "mzsql-postgres/tests")]
    from postgres_server import PostgresServer
    from s3_server import S3Server

    with S3Server() as s3, PostgresServer() as postgres:

        def place(number: int, _: Path) -> str:
            name = f"history{number}"
            server = postgres.url(schema=name)
            for kind, url in (("BLOB", s3.url(name)), ("CONSENSUS", server), ("ORACLE", server)):
                os.environ[f"MZSQL_PROFILE_{name.upper()}_{kind}"] = url
            return f"profile:{name}"

        yield place


def main() -> int:
    """Run as asked; the status is 1 when a run failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--start", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each run disturbs")
    parser.add_argument("--backend", choices=("files", "s3-postgres"), default="files")
    asked = parser.parse_args()
    failed, transactions = 0, 0
    with places(asked.backend) as place:
        for seed in range(asked.start, asked.start + asked.runs):
            folder = Path(tempfile.mkdtemp(prefix=f"history-{seed}-"))
            try:
                done = check_a_run(place(seed, folder), folder, asked.seconds, seed)
            except (AssertionError, mzsql.Error) as failure:
                failed += 1
                print(f"seed {seed} FAILED, see {folder}: {failure}", flush=True)
            else:
                transactions += done
                shutil.rmtree(folder)
                print(f"seed {seed}: {done} transactions", flush=True)
    print(f"{asked.runs} runs, {failed} failed, {transactions} transactions in those that did not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
