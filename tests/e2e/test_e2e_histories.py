"""Histories that real processes record on one environment, while they are killed, stopped and started, are strictly serializable."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
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


@pytest.mark.timeout(180)
def test_a_history_of_processes_that_come_and_go_is_strictly_serializable(
    env: str, tmp_path: Path
) -> None:
    assert check_a_run(env, tmp_path, 3.0, 1) >= 10


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 7))
def test_long_histories_of_processes_that_come_and_go_are_strictly_serializable(
    env: str, tmp_path: Path, seed: int
) -> None:
    assert check_a_run(env, tmp_path, 40.0, seed) >= 30
