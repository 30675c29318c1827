"""Plants faults one at a time in a copy of the project and asks the tests of every day whether they notice.

Promise: the project itself is never touched; a fault counts as noticed only where a test failed (or hung) that passes without it; what
nobody noticed is told with its change, unless ``survivors.toml`` has it with the reason why no test has to notice.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation_faults import Fault, drawn

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).with_name("survivors.toml")
_COPIED = ("mzsql", "tests", "plugins", "examples", "catalog", "sql", "docs", "bench", ".ci")
_DAILY = "not long and not soak"
_SECONDS_A_TEST = 120


@dataclass(frozen=True)
class Room:
    """A part of the engine and the tests of every day that answer for it."""

    sources: tuple[str, ...]
    """Patterns below the root."""

    tests: tuple[str, ...]
    """Files and folders below the root; those that a fault is likeliest noticed by first."""


ROOMS: dict[str, Room] = {
    "persist": Room(
        ("mzsql/persist/**/*.py",),
        ("tests/persist", "tests/simulation", "tests/storage", "tests/adapter"),
    ),
    "storage": Room(
        ("mzsql/storage/**/*.py",),
        ("tests/storage", "tests/adapter", "tests/dbapi", "tests/e2e"),
    ),
    "oracle": Room(
        ("mzsql/oracle/**/*.py", "mzsql/adapter/oracles.py"),
        ("tests/oracle", "tests/testing", "tests/adapter", "plugins/mzsql-postgres/tests"),
    ),
    "render": Room(
        ("mzsql/render/**/*.py",),
        ("tests/render", "tests/compute", "tests/fuzz", "tests/adapter", "tests/dbapi"),
    ),
    "compute": Room(
        ("mzsql/compute/**/*.py",),
        ("tests/compute", "tests/adapter", "tests/fuzz", "tests/dbapi", "tests/e2e"),
    ),
    "adapter": Room(
        ("mzsql/adapter/**/*.py",),
        ("tests/adapter", "tests/dbapi", "tests/storage", "tests/cli", "tests/fuzz", "tests/e2e"),
    ),
}


@dataclass(frozen=True)
class Verdict:
    """What became of a fault."""

    fault: Fault
    noticed_by: str | None
    """The test that failed, or that none ended in time; nothing where all passed."""

    change: str
    """As a unified diff."""


def copy_of(root: Path, target: Path) -> Path:
    """The project's files, copied to ``target``, which must not exist."""
    target.mkdir()
    for name in _COPIED:
        if (root / name).is_dir():
            shutil.copytree(
                root / name, target / name, ignore=shutil.ignore_patterns("__pycache__")
            )
    for file in root.iterdir():
        if file.is_file():
            shutil.copy2(file, target / file.name)
    return target


def faults_in(root: Path, room: Room, seed: int, count: int, only: str = "") -> list[Fault]:
    """The faults of a run: those of ``seed`` in the room's files whose paths contain ``only``."""
    files = [f for pattern in room.sources for f in root.glob(pattern) if only in str(f)]
    return drawn(root, files, seed, count)


def ordered_tests(root: Path, room: Room, path: str) -> list[str]:
    """The room's test files, those first whose names share most words with the faulty file's."""
    words = set(Path(path).stem.split("_"))
    files = [
        str(file.relative_to(root))
        for place in room.tests
        for file in (
            [root / place] if place.endswith(".py") else sorted((root / place).glob("test_*.py"))
        )
    ]
    return sorted(files, key=lambda file: -len(words & set(Path(file).stem.split("_")[1:])))


def judged(
    root: Path, faults: Sequence[Fault], room: Room, *, seconds: float, told: Callable[[str], None]
) -> Iterator[Verdict]:
    """Plants each fault in ``root``, a copy, runs the tests, and takes it out again.

    Args:
        root: a copy of the project of this run's own.
        faults: what to plant.
        room: whose tests are asked.
        seconds: how long the tests of one fault may take; a fault that makes them take longer is noticed.
        told: gets a line for each fault that fits no longer.
    """
    for fault in faults:
        file = root / fault.path
        source = file.read_text()
        changed = fault.planted(source)
        if changed is None:
            told(f"no program: {fault.path}:{fault.line} {fault.operator}")
            continue
        file.write_text(changed)
        try:
            noticed = _noticed(root, ordered_tests(root, room, fault.path), seconds)
        finally:
            file.write_text(source)
        diff = difflib.unified_diff(
            source.splitlines(), changed.splitlines(), fault.path, fault.path, lineterm="", n=2
        )
        yield Verdict(fault, noticed, "\n".join(diff))


def _noticed(root: Path, tests: Sequence[str], seconds: float) -> str | None:
    """The first test that fails: those without Spark are asked first."""
    for spark in ("not spark", "spark"):
        found = _failed(root, [*tests], f"{spark} and {_DAILY}", seconds)
        if found is not None:
            return found
    return None


def _failed(root: Path, tests: list[str], marked: str, seconds: float) -> str | None:
    command = [
        *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb", "no"),
        *("--timeout", str(_SECONDS_A_TEST), "-m", marked, *tests),
    ]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            output, _ = running.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return "no test ended in time"
        finally:
            _stop(running)
    if running.returncode in (0, 5):
        return None
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return named[1] if named else f"pytest ended with {running.returncode}: {output[-300:].strip()}"


def _stop(running: subprocess.Popen[str]) -> None:
    """Ends the tests and whatever they started."""
    try:
        os.killpg(running.pid, 9)
    except ProcessLookupError:
        return


def known_survivors(ledger: Path = LEDGER) -> dict[tuple[str, str, str], str]:
    """The reason for each fault that no test has to notice, by file, operator and line."""
    told = tomllib.loads(ledger.read_text()).get("survivor", [])
    return {(one["path"], one["operator"], one["text"]): one["reason"] for one in told}


def reason_of(fault: Fault, known: dict[tuple[str, str, str], str]) -> str | None:
    """Why no test has to notice ``fault``; nothing where one has to."""
    return known.get((fault.path, fault.operator, fault.text))
