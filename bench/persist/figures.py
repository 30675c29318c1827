"""What a case measured, how it is printed, and what timings are made of."""

from __future__ import annotations

import gc
import math
import os
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any


@dataclass
class Case:
    """One case's table, and what became of its targets (met is None where there is none)."""

    letter: str
    title: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    targets: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def row(self, **figures: Any) -> None:
        """Add a line to the table; its columns are the first line's."""
        self.rows.append({name.replace("_", " "): value for name, value in figures.items()})

    def target(
        self, what: str, value: float, *, least: float | None = None, most: float | None = None
    ) -> None:
        """State a target and whether the value meets it; what could not be measured (NaN) does not."""
        met = (least is None or value >= least) and (most is None or value <= most)
        wanted = f">= {least:g}" if least is not None else f"<= {most:g}"
        self.targets.append({"what": what, "value": value, "wanted": wanted, "met": bool(met)})

    def show(self) -> None:
        """Print the table, the notes and a line on the targets."""
        print(f"\n## {self.letter}. {self.title}\n", flush=True)
        if self.rows:
            names = list(self.rows[0])
            print("| " + " | ".join(names) + " |")
            print("|" + " --- |" * len(names))
            for row in self.rows:
                print("| " + " | ".join(shown(row.get(name)) for name in names) + " |")
        for note in self.notes:
            print(f"\n{note}")
        states = [
            f"{t['what']} {shown(t['value'])} (wanted {t['wanted']}): {'met' if t['met'] else 'NOT MET'}"
            for t in self.targets
        ]
        print(f"\n{self.letter}: " + ("; ".join(states) if states else "no target"), flush=True)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def shown(value: Any) -> str:
    """A figure with three digits that count."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if not math.isfinite(value) or value == 0:
        return str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that so many percent of all do not exceed; NaN of none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def timed(act: Callable[[], Any]) -> float:
    begun = perf_counter()
    act()
    return perf_counter() - begun


def rounds(
    number: int, contenders: Mapping[str, Callable[[], float]], *, warm: int = 0
) -> dict[str, list[float]]:
    """What each contender returned in each round; they take turns at going first, and the ``warm`` first rounds do not count."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for number_of_round in range(warm + number):
        for name in order:
            value = contenders[name]()
            if number_of_round >= warm:
                found[name].append(value)
        order.append(order.pop(0))
    return found


@contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """A directory of its own below ``directory``, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="mzsql-bench-", dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def machine(directory: Path) -> dict[str, Any]:
    """What the figures depend on: cores, load, and what an fsync of 512 appended bytes takes here."""
    path = directory / "fsync-probe"
    times = []
    with path.open("ab", buffering=0) as file:
        for _ in range(300):
            file.write(b"x" * 512)
            times.append(timed(lambda: os.fsync(file.fileno())))
    path.unlink()
    return {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "fsync_p50_ms": median(times) * 1000,
        "fsync_p99_ms": percentile(times, 99) * 1000,
    }


def pauses(number: int, least: float, most: float) -> list[float]:
    """The same irregular pauses each time, in seconds."""
    rng = random.Random(7)
    return [rng.uniform(least, most) for _ in range(number)]


def run_cases(
    letters: Sequence[str], cases: Mapping[str, Callable[[], Case]]
) -> list[dict[str, Any]]:
    """Measure cases one after the other, show each when it is done, and tell of their targets; everything for JSON."""
    done = []
    for letter in letters:
        # What is there by now is no garbage: collections that fall into a measurement need not look at it.
        gc.collect()
        gc.freeze()
        begun = perf_counter()
        case = cases[letter]()
        gc.unfreeze()
        case.show()
        done.append({**case.data(), "took_seconds": perf_counter() - begun})
    tell_targets(done)
    return done


def tell_targets(done: Sequence[Mapping[str, Any]]) -> None:
    """Print of all cases which targets were met, and on the error stream how long each case took."""
    print("\n## Targets\n")
    for one in done:
        for target in one["targets"]:
            print(f"{one['letter']}: {target['what']}: {'met' if target['met'] else 'NOT MET'}")
    took = {one["letter"]: round(one["took_seconds"]) for one in done}
    print(f"\nseconds: {took}", file=sys.stderr)
