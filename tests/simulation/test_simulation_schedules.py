"""Hundreds of schedules every day, and what they must have met."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from simulation_run import run_all

CHUNK = 50
DAILY = 500

MET = (
    # faults and events
    "fault refused", "fault lost", "fault unanswered", "fault late", "fault slow", "fault flipped",
    "fault cut", "burst", "cut", "freeze", "kill", "crash", "process killed", "stale head",
    "lock contended", "corruption noticed", "connection lost",
    # writers
    "append done", "append failed", "append maybe", "append inline", "append in objects",
    "append of several parts", "misuse refused", "definite done", "batches done", "batch deleted",
    "adopted", "writer given up", "writer expired", "last done",
    # readers
    "a snapshot", "splits", "splits elsewhere", "parts", "updates", "keys", "columns", "listened",
    "downgraded", "heartbeat", "read below since refused", "read timed out", "reader given up",
    "reader expired", "reader reopened", "inspected",
    # holds, upkeep, ends
    "hold taken", "hold moved", "hold released", "fenced", "since moved", "merge", "maintained",
    "rollup added", "rollup forgotten", "garbage collected", "object deleted", "log truncated",
    "refused by version", "finalized", "finalized by call", "met a tombstone", "leaked objects",
)  # fmt: skip


met: Counter[str] = Counter()


@pytest.mark.parametrize("start", range(0, DAILY, CHUNK))
def test_schedules(start: int) -> None:
    met.update(run_all(range(start, start + CHUNK)))
    met["schedules"] += CHUNK


def test_the_schedules_met_everything() -> None:
    if met["schedules"] < DAILY:
        pytest.skip("only some of the schedules were run")
    assert not [what for what in MET if not met[what]]
    # Erring all the time would pass every other check.
    for what in ("append", "batches", "definite"):
        assert met[f"{what} done"] > 2 * met[f"{what} maybe"], what
    # Listeners wait for what is yet to come, often for less time than it takes.
    read = sum(met[what] for what in ("a snapshot", "splits", "parts", "updates", "listened"))
    assert read > met["read timed out"]


_DIGESTS = """
import logging, sys
sys.path.insert(0, sys.argv[1])
logging.disable(logging.CRITICAL)
from simulation_run import draw, play
for seed in range(12):
    print(play(draw(seed)).digest())
"""


def test_a_seed_says_all() -> None:
    """The same seeds give the same events, whatever the process hashes strings with."""
    here = str(Path(__file__).parent)
    found = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", _DIGESTS, here]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    assert len(found[0]) == 12
    assert found[0] == found[1]
