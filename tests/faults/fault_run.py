"""One run: a workload gets going, faults befall it, it recovers by itself, and is judged."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple, Protocol

from fault_ledger import Ledger, logged
from fault_place import SECRETS, Place, sockets
from fault_rows import Row

PATIENCE = 45.0
"""Seconds for what has no bound of its own: to get going, to fail, to recover. Nothing waits so long that works."""
CLOSE_SECONDS = 40.0


class Step(NamedTuple):
    """Faults that befall a workload at the same time, for so many seconds at least, or until a call has failed."""

    rows: Sequence[Row]
    seconds: float
    until_failed: bool = False

    @property
    def names(self) -> str:
        """For messages."""
        return " and ".join(row.name for row in self.rows)


class Load(Protocol):
    """A workload: threads that call, and a judge of what they were told."""

    def __init__(self, place: Place, ledger: Ledger) -> None: ...

    def start(self) -> None:
        """Begin."""

    def loops(self) -> list[str]:
        """The calls that each loop has to get done to be well."""

    def judge(self) -> None:
        """Compare what is there with what was said; all threads have stopped."""

    def close(self) -> None:
        """Close everything."""


def run(load_type: type[Load], steps: Sequence[Step], place: Place) -> dict[str, int]:
    """Run a workload through faults one after another; figures of what happened.

    Args:
        load_type: the workload.
        steps: what befalls it, one after another.
        place: the servers.

    Raises:
        AssertionError: a promise of the module's text, of the ledger's or of the workload's was broken.
    """
    threads = set(threading.enumerate())
    bites = 0
    with logged() as log:
        ledger = Ledger(place.shown, SECRETS, log)
        load = load_type(place, ledger)
        try:
            load.start()
            _until_well(ledger, load, "it did not get going")
            for step in steps:
                bites += _befall(ledger, step, place)
                _until_well(ledger, load, f"it did not recover from: {step.names}")
            ledger.stop(PATIENCE)
            ledger.raise_bug()
            load.judge()
        finally:
            ledger.stopping.set()
            place.heal()
            began = time.monotonic()
            load.close()
            took = time.monotonic() - began
        assert took < CLOSE_SECONDS, f"closing took {took:.1f} s"
        ledger.check()
    _no_leak(place, threads)
    return {"bites": bites, "failed": len(ledger.failed), "done": ledger.done.total()}


def _until_well(ledger: Ledger, load: Load, otherwise: str) -> None:
    """Every loop gets a call done that was begun after now: two, as one may have been under way."""
    before = ledger.done.copy()
    end = time.monotonic() + PATIENCE
    while waiting := [name for name in load.loops() if ledger.done[name] < before[name] + 2]:
        ledger.raise_bug()
        last = ledger.failed[-1:]
        assert time.monotonic() < end, f"{otherwise}: {waiting} get nothing done; last: {last}"
        time.sleep(0.02)


def _befall(ledger: Ledger, step: Step, place: Place) -> int:
    """Begin the faults, hold them, end them; how often they have bitten."""
    failures = len(ledger.failed)
    with ExitStack() as begun:
        bites = [begun.enter_context(row.begin(place)) for row in step.rows]
        end = time.monotonic() + step.seconds
        while time.monotonic() < end:
            ledger.raise_bug()
            time.sleep(0.02)
        end = time.monotonic() + PATIENCE
        while not any(bite() for bite in bites) or (
            step.until_failed and len(ledger.failed) == failures
        ):
            ledger.raise_bug()
            assert time.monotonic() < end, f"{step.names}: nobody has noticed"
            time.sleep(0.02)
        return sum(bite() for bite in bites)


def _no_leak(place: Place, threads: set[threading.Thread]) -> None:
    """What a workload has opened is closed, on both sides."""
    end = time.monotonic() + PATIENCE
    # psycopg's attempts to connect that timed out are cycles of references, which keep their sockets until they are collected.
    gc.collect()
    while True:
        left = [one.name for one in set(threading.enumerate()) - threads if one.is_alive()]
        lines = len(place.wire_pg.lines) + len(place.wire_s3.lines)
        connections = place.connections()
        open_sockets = sockets({place.wire_pg.port, place.wire_s3.port})
        if not left and not lines and connections == 0 and open_sockets == 0:
            return
        assert time.monotonic() < end, (
            f"left open: threads {left}, {lines} lines, {open_sockets} sockets, {connections} server connections"
        )
        time.sleep(0.05)
