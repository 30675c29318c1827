"""Plants faults one at a time in a copy of the project and asks the tests of every day whether they notice.

Promise: the project itself is never touched; a fault counts as noticed only where a test failed (or hung) that passes without it; what
nobody noticed is told with its change, unless ``survivors.toml`` has it with the reason why no test has to notice. To pay for that only
where it counts, the tests outside the room are narrowed to the files that reach the fault's place (`mutation_reach`): all others cannot
notice.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mutation_faults import Fault, drawn
from mutation_reach import PROBE, place_of, probe_module, probed

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).with_name("survivors.toml")
_COPIED = ("mzsql", "tests", "plugins", "examples", "catalog", "sql", "docs", "bench", ".ci")
_DAILY = "not long and not soak"
_SECONDS_A_TEST = 120
_NO_TEST = "no test ended"
_MARKS = ("not spark", "spark")


@dataclass(frozen=True)
class Room:
    """A part of the engine and the tests of every day that answer for it."""

    sources: tuple[str, ...]
    """Patterns below the root."""

    tests: tuple[str, ...]
    """Files and folders below the root; the first are the room's own, which are asked first."""


ROOMS: dict[str, Room] = {
    "persist": Room(
        ("mzsql/persist/**/*.py",),
        ("tests/persist", "tests/simulation", "tests/storage", "tests/threads", "tests/adapter"),
    ),
    "storage": Room(
        ("mzsql/storage/**/*.py",),
        ("tests/storage", "tests/threads", "tests/adapter", "tests/dbapi", "tests/e2e"),
    ),
    "oracle": Room(
        ("mzsql/oracle/**/*.py", "mzsql/adapter/environment/oracles.py"),
        ("tests/oracle", "tests/testing", "tests/adapter", "plugins/mzsql-postgres/tests"),
    ),
    "render": Room(
        ("mzsql/render/**/*.py",),
        ("tests/render", "tests/compute", "tests/fuzz", "tests/adapter", "tests/dbapi"),
    ),
    "compute": Room(
        ("mzsql/compute/**/*.py",),
        (
            "tests/compute",
            "tests/threads",
            "tests/adapter",
            "tests/fuzz",
            "tests/dbapi",
            "tests/e2e",
        ),
    ),
    "adapter": Room(
        ("mzsql/adapter/**/*.py",),
        (
            *("tests/adapter", "tests/dbapi", "tests/storage", "tests/threads", "tests/cli"),
            *("tests/fuzz", "tests/e2e"),
        ),
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


def ordered_tests(root: Path, places: Sequence[str], path: str) -> list[str]:
    """The test files in ``places``, those first whose names share most words with the faulty file's."""
    words = set(Path(path).stem.split("_"))
    files = [
        str(file.relative_to(root))
        for place in places
        for file in (
            [root / place] if place.endswith(".py") else sorted((root / place).glob("test_*.py"))
        )
    ]
    return sorted(files, key=lambda file: -len(words & set(Path(file).stem.split("_")[1:])))


def judged(
    root: Path,
    faults: Sequence[Fault],
    room: Room,
    *,
    seconds: float,
    told: Callable[[str], None],
    known: Mapping[tuple[str, str, str], str] | None = None,
) -> Iterator[Verdict]:
    """Plants each fault in ``root``, a copy, runs the tests, and takes it out again.

    The room's own tests are asked first, all in one process. A fault that they do not notice is asked of every other test file that
    reaches its place, which one run without faults finds out for all such faults together.

    Args:
        root: a copy of the project of this run's own.
        faults: what to plant.
        room: whose tests are asked.
        seconds: how long the tests of one fault may take; a fault that makes them take longer is noticed.
        told: gets a line for each fault that fits no longer, and for each test that fails without one.
        known: the faults that no test has to notice; they are not planted.
    """
    asked = _Asked(root, seconds, told)
    left = []
    for fault in faults:
        source = (root / fault.path).read_text()
        changed = fault.planted(source)
        if changed is None:
            told(f"no program: {fault.path}:{fault.line} {fault.operator}")
            continue
        planted = _Planted(fault, source, changed)
        if known is not None and reason_of(fault, known) is not None:
            yield planted.verdict(None)
            continue
        noticed = asked.noticed(planted, ordered_tests(root, room.tests[:1], fault.path))
        if noticed is not None:
            yield planted.verdict(noticed)
        else:
            left.append(planted)
    reaching = asked.reaching(left, ordered_tests(root, room.tests[1:], "")) if left else []
    for planted, tests in zip(left, reaching, strict=True):
        yield planted.verdict(asked.noticed(planted, tests) if tests else None)


@dataclass(frozen=True)
class _Planted:
    """A fault and its file without and with it."""

    fault: Fault
    source: str
    changed: str

    def verdict(self, noticed_by: str | None) -> Verdict:
        path = self.fault.path
        before, after = self.source.splitlines(), self.changed.splitlines()
        diff = difflib.unified_diff(before, after, path, path, lineterm="", n=2)
        return Verdict(self.fault, noticed_by, "\n".join(diff))


class _Asked:
    """The tests of a copy, and what is known of them without a fault."""

    def __init__(self, root: Path, seconds: float, told: Callable[[str], None]) -> None:
        self._root = root
        self._seconds = seconds
        self._told = told
        self._sound: set[str] = set()
        self._unsound: list[str] = []

    def noticed(self, planted: _Planted, tests: Sequence[str]) -> str | None:
        """The first test that fails with the fault and passes without: those without Spark are asked first."""
        for spark in _MARKS:
            while True:
                with _written({self._root / planted.fault.path: planted.changed}):
                    found = self._failed(tests, spark)
                if found is None:
                    break
                if found.startswith(_NO_TEST) or self._is_sound(_function(found), spark):
                    return found
        return None

    def reaching(self, planted: Sequence[_Planted], tests: Sequence[str]) -> list[list[str]]:
        """For each fault the files of ``tests`` that reach its place."""
        found: list[list[str]] = [[] for _ in planted]
        places: dict[str, list[tuple[int, int]]] = {}
        for number, one in enumerate(planted):
            line = place_of(one.fault, one.source)
            if line is None:
                found[number] = [*tests]
            else:
                places.setdefault(one.fault.path, []).append((line, number))
        with tempfile.TemporaryDirectory() as directory:
            reached = Path(directory)
            sources = {one.fault.path: one.source for one in planted}
            texts = {self._root / path: probed(sources[path], at) for path, at in places.items()}
            texts[self._root / f"{PROBE}.py"] = probe_module(reached)
            with _written(texts):
                for test in tests if places else ():
                    self._probe(test)
                    for file in reached.iterdir():
                        found[int(file.name)].append(test)
                        file.unlink()
        return found

    def _probe(self, test: str) -> None:
        _ended(self._root, self._seconds, _DAILY, [test])

    def _is_sound(self, test: str, spark: str) -> bool:
        if test in self._sound:
            return True
        if test in self._unsound:
            raise RuntimeError(f"{test} fails without a fault and cannot be left out")
        if _failed(self._root, [test], f"{spark} and {_DAILY}", self._seconds) is None:
            self._sound.add(test)
            return True
        self._told(f"fails without a fault: {test}")
        self._unsound.append(test)
        return False

    def _failed(self, tests: Sequence[str], spark: str) -> str | None:
        left_out = (f"--deselect={test}" for test in self._unsound)
        return _failed(self._root, tests, f"{spark} and {_DAILY}", self._seconds, *left_out)


@contextmanager
def _written(texts: Mapping[Path, str]) -> Iterator[None]:
    """Files with other texts for a while."""
    before = {file: file.read_text() if file.exists() else None for file in texts}
    try:
        for file, text in texts.items():
            file.write_text(text)
        yield
    finally:
        for file, kept in before.items():
            if kept is None:
                file.unlink(missing_ok=True)
            else:
                file.write_text(kept)


def _function(test: str) -> str:
    """A test with all its parameters, whose texts may be anything."""
    return test.partition("[")[0]


def _failed(
    root: Path, tests: Sequence[str], marked: str, seconds: float, *options: str
) -> str | None:
    """The first of ``tests`` that fails; nothing where all pass."""
    ended = _ended(root, seconds, marked, tests, "-x", *options)
    if ended is None:
        return f"{_NO_TEST} in time"
    code, output = ended
    if code in (0, 5):
        return None
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return named[1] if named else f"{_NO_TEST}: pytest ended with {code}: {output[-300:].strip()}"


def _ended(
    root: Path, seconds: float, marked: str, tests: Sequence[str], *options: str
) -> tuple[int, str] | None:
    """How pytest ended and what it said; nothing where it did not in time."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb", "no"),
        *("--timeout", str(_SECONDS_A_TEST), "-m", marked, *options, *tests),
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
            return None
        finally:
            _stop(running)
    return running.returncode, output


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


def reason_of(fault: Fault, known: Mapping[tuple[str, str, str], str]) -> str | None:
    """Why no test has to notice ``fault``; nothing where one has to."""
    return known.get((fault.path, fault.operator, fault.text))
