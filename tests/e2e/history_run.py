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
from collections.abc import Callable, Iterator
from pathlib import Path

from history_worker import SETUP

import mzsql
from mzsql.testing.serializability import Append, Read, Transaction, check

WORKER = Path(__file__).with_name("history_worker.py")

#: Wall clocks differ by up to so much, in milliseconds.
SKEW = 2_000


class Process:
    """A worker, and a thread that keeps it going."""

    def __init__(self, env: str, number: int, folder: Path, rng: random.Random) -> None:
        self.number = number
        self.log = folder / f"{number}.jsonl"
        self.errors = folder / f"{number}.err"
        wrong = rng.randrange(-SKEW, SKEW)
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), env, str(number), str(wrong), str(self.log)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._keep_going)
        self.thread.start()

    def _keep_going(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            for _ in self.process.stdout:
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

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.thread.join()

    def finish(self) -> None:
        self.stop.set()
        assert self.process.wait(timeout=120) == 0, self.errors.read_text()
        self.thread.join()

    def history(self) -> list[Transaction]:
        """What it has written down; a line that was cut off is none."""
        begun: dict[int, tuple[int, list[Append | Read]]] = {}
        found = []
        for line in self.log.read_text().splitlines() if self.log.exists() else []:
            try:
                kind, number, at, *rest = json.loads(line)
            except json.JSONDecodeError:
                continue
            if kind == "begin":
                begun[number] = at, [Append(key, value) for key, value in rest[0]]
                continue
            call, did = begun.pop(number)
            outcome, reads = rest
            did += [Read(key, tuple(values), ordered) for key, values, ordered in reads]
            end = at if outcome == "ok" else None
            found.append(Transaction(self.number, tuple(did), call, end, outcome == "failed"))
        found += [Transaction(self.number, tuple(did), call) for call, did in begun.values()]
        return found


def disturb(env: str, folder: Path, seconds: float, seed: int, number: int = 3) -> list[Process]:
    """Processes at work for so long, of which now and then one is stopped for a while, or killed and another one started."""
    rng = random.Random(seed)
    running = [Process(env, n + 1, folder, rng) for n in range(number)]
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
                running.append(Process(env, len(every) + 1, folder, rng))
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
    history = [transaction for process in processes for transaction in process.history()]
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
