"""The run that plants faults finds places, tells noticed faults from others, and leaves everything as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mutation_faults import DropCall, DropRaise, Fault, drawn, faults_of
from mutation_reach import place_of, probed
from mutation_run import (
    LEDGER,
    ROOMS,
    ROOT,
    Room,
    copy_of,
    judged,
    known_survivors,
    ordered_tests,
    reason_of,
)

SOURCE = '''\
"""A limit > 3 in words."""


class Full(Exception):
    pass


def put(items: list[int], item: int, told: list[str], most: int = 3) -> int:
    if len(items) >= most:
        raise Full("no more")
    items.append(item)
    told.append("put")
    return len(items)
'''
TESTS = """\
import limits
import pytest


def test_puts():
    items = []
    assert limits.put(items, 1, []) == 1
    assert items == [1]


def test_is_bounded():
    with pytest.raises(limits.Full):
        limits.put([1, 2, 3], 4, [])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one module, and tests that do not look at what is told."""
    (tmp_path / "limits.py").write_text(SOURCE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_limits.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    spark\n    long\n    soak\n")
    return tmp_path


def _fault(operator: str, text: str) -> Fault:
    (found,) = (
        f for f in faults_of("limits.py", SOURCE) if (f.operator, f.text) == (operator, text)
    )
    return found


def test_a_noticed_fault_is_told_from_one_that_nobody_notices(project: Path) -> None:
    faults = [
        _fault("DropRaise", 'raise Full("no more")'),
        _fault("DropCall", 'told.append("put")'),
    ]
    room = Room(("limits.py",), ("tests",))
    bounded, told = judged(project, faults, room, seconds=300, told=print)
    assert bounded.noticed_by == "tests/test_limits.py::test_is_bounded"
    assert told.noticed_by is None
    assert '-    told.append("put")\n+    pass' in told.change
    assert (project / "limits.py").read_text() == SOURCE


def test_other_tests_are_asked_where_they_reach_the_place(project: Path) -> None:
    further = project / "tests" / "further"
    further.mkdir()
    (further / "test_elsewhere.py").write_text(
        "def test_asks_for_nothing():\n    import sys\n    assert 'limits' not in sys.modules\n"
    )
    (further / "test_telling.py").write_text(
        'import subprocess, sys\n\n\ndef test_tells():\n    told = "import limits; t = []; limits.put([], 1, t); assert t"\n'
        "    subprocess.run([sys.executable, '-c', told], check=True)\n"
    )
    fault = _fault("DropCall", 'told.append("put")')
    room = Room(("limits.py",), ("tests", "tests/further"))
    (verdict,) = judged(project, [fault], room, seconds=300, told=print)
    assert verdict.noticed_by == "tests/further/test_telling.py::test_tells"
    assert not [*project.glob("mutation_probe*")]
    assert (project / "limits.py").read_text() == SOURCE


def test_a_test_that_fails_without_the_fault_notices_nothing(project: Path) -> None:
    (project / "tests" / "test_broken.py").write_text("def test_broken():\n    assert False\n")
    fault = _fault("DropCall", 'told.append("put")')
    told: list[str] = []
    room = Room(("limits.py",), ("tests",))
    (verdict,) = judged(project, [fault], room, seconds=300, told=told.append)
    assert verdict.noticed_by is None
    assert told == ["fails without a fault: tests/test_broken.py::test_broken"]


def test_a_fault_with_a_reason_is_not_planted(project: Path) -> None:
    fault = _fault("DropCall", 'told.append("put")')
    known = {("limits.py", "DropCall", 'told.append("put")'): "nobody has to be told of it"}
    room = Room(("limits.py",), ("tests/none",))
    (verdict,) = judged(project, [fault], room, seconds=300, told=print, known=known)
    assert verdict.noticed_by is None


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (1, None),
        (5, None),
        (6, 6),
        (7, 7),
        (10, 10),
        (11, 11),
        (12, 12),
        (14, 10),
        (16, 10),
        (18, 17),
        (21, 20),
        (22, 22),
        (24, 23),
        (25, 25),
    ],
)
def test_a_probe_stands_in_front_of_the_statement_of_a_fault(line: int, place: int | None) -> None:
    source = """\
A = 1


class C:
    def f(self, a=1):
        a += 1
        if a: return a


        try:
            while a:
                a -= 1

        except ValueError:
            pass
        finally:
            with open(
                str(a)
            ): a = 2
        @decorated
        def g():
            return (lambda: 7)
        match a:
            case 1:
                a = 2
            case _:
                pass
"""
    fault = Fault("a.py", "NumberReplacer", 0, line, "")
    assert place_of(fault, source) == place
    if place is not None:
        told = probed(source, [(place, 3)])
        compile(told, "a.py", "exec")
        assert told.splitlines()[place - 1].strip() == '__import__("mutation_probe").reached(3)'


def test_a_fault_that_hangs_is_noticed(project: Path) -> None:
    (project / "tests" / "test_limits.py").write_text(
        TESTS + "\n\ndef test_hangs():\n    while True:\n        pass\n"
    )
    fault = _fault("DropCall", 'told.append("put")')
    (verdict,) = judged(project, [fault], Room(("limits.py",), ("tests",)), seconds=10, told=print)
    assert verdict.noticed_by == "no test ended in time"


def test_places_without_behaviour_are_left_alone() -> None:
    source = (
        'import a\n\nx: dict[int, int] | None = f(1)\n\n\ndef g(a: Literal[1] = 2) -> Literal[3]:\n    """4."""\n    log.info("5 %s", 6)\n'
        "    return a > 7\n"
    )
    numbers = [f.text for f in faults_of("a.py", source) if f.operator == "NumberReplacer"]
    assert numbers == [
        *["x: dict[int, int] | None = f(1)"] * 2,
        *["def g(a: Literal[1] = 2) -> Literal[3]:"] * 2,
        *["return a > 7"] * 2,
    ]


@pytest.mark.parametrize("operator", [DropCall, DropRaise])
def test_the_operators_do_what_their_examples_say(operator: type) -> None:
    for example in operator.examples():
        fault = Fault("a.py", operator.__name__, 0, 1, "")
        assert fault.planted(example.pre_mutation_code) == example.post_mutation_code


def test_every_fault_that_is_drawn_is_another_program() -> None:
    for room in ROOMS.values():
        files = [f for pattern in room.sources for f in ROOT.glob(pattern)]
        assert files
        file = max(files, key=lambda f: f.stat().st_size)
        source = file.read_text()
        for fault in drawn(ROOT, [file], seed=1, count=5):
            changed = fault.planted(source)
            assert changed is None or changed != source
            assert source.splitlines()[fault.line - 1].strip() == fault.text


def test_a_seed_draws_the_same_faults_again_and_none_twice_in_a_line() -> None:
    files = [*ROOT.glob("mzsql/oracle/*.py")]
    chosen = drawn(ROOT, files, seed=4, count=30)
    assert chosen == drawn(ROOT, files, seed=4, count=30)
    assert len({(f.path, f.line) for f in chosen}) == len(chosen) == 30
    assert len({f.operator for f in chosen}) > 8


def test_the_tests_with_the_name_of_the_file_come_first() -> None:
    assert (
        ordered_tests(ROOT, ROOMS["oracle"].tests, "mzsql/oracle/skew.py")[0]
        == "tests/oracle/test_oracle_skew.py"
    )


def test_every_survivor_in_the_ledger_is_a_place_that_is_there_and_has_a_reason() -> None:
    for (path, operator, text), reason in known_survivors(LEDGER).items():
        found = [
            f
            for f in faults_of(path, (ROOT / path).read_text())
            if (f.operator, f.text) == (operator, text)
        ]
        assert found, (path, operator, text)
        assert len(reason.split()) >= 5, reason
        assert reason_of(found[0], known_survivors(LEDGER)) == reason


def test_the_command_shows_what_it_would_plant() -> None:
    shown = subprocess.run(
        [sys.executable, "tests/mutation", "--room", "oracle", "--count", "3", "--show"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(shown) == 3
    assert all("mzsql/" in line for line in shown)


def test_a_copy_has_what_the_tests_need(tmp_path: Path) -> None:
    copy = copy_of(ROOT, tmp_path / "copy")
    assert (copy / "mzsql" / "persist" / "machine.py").read_bytes() == (
        ROOT / "mzsql" / "persist" / "machine.py"
    ).read_bytes()
    assert (copy / "pyproject.toml").exists()
    assert not (copy / ".venv").exists()
