"""The make targets say plainly what is missing, and the layers hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def _program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_help_lists_every_target() -> None:
    told = _run("make", "help")
    assert told.returncode == 0
    for target in (
        "venv",
        "demo",
        "test",
        "test-long",
        "test-soak",
        "mutate",
        "check",
        "bench",
        "clean",
    ):
        assert re.search(rf"^{target}\s+\S", told.stdout, re.MULTILINE), target


def test_a_missing_java_is_one_line(tmp_path: Path) -> None:
    told = _run("make", "-s", "java", JAVA_HOME=str(tmp_path))
    assert told.returncode != 0
    line = told.stderr.splitlines()[0]
    assert "Java 17 or newer" in line
    assert "install" in line


def test_an_old_java_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    _program(tmp_path / "bin", "java", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    told = _run(".ci/java", JAVA_HOME=str(tmp_path))
    assert told.returncode != 0
    assert len(told.stderr.splitlines()) == 1
    assert "version 11" in told.stderr


def test_a_new_enough_java_passes_silently(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    _program(tmp_path / "bin", "java", """echo 'openjdk version "21" 2023-09-19' >&2""")
    told = _run(".ci/java", JAVA_HOME=str(tmp_path))
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_a_missing_python_is_one_line() -> None:
    told = _run(".ci/python", PYTHON="/nowhere/python")
    assert told.returncode != 0
    assert len(told.stderr.splitlines()) == 1
    assert "Python 3.11 or newer" in told.stderr


def test_an_old_python_is_passed_over(tmp_path: Path) -> None:
    _program(tmp_path, "python3.12", "exit 1")
    _program(tmp_path, "python3.11", f'exec {sys.executable} "$@"')
    told = _run(".ci/python", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert told.stdout.strip() == str(tmp_path / "python3.11")


def test_ci_runs_the_three_targets() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in text
    assert "make check test test-long" in text
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.timeout(120)
def test_the_layers_hold() -> None:
    told = _run(str(Path(sys.executable).with_name("lint-imports")))
    assert told.returncode == 0, told.stdout
