"""The Python that Spark asks for the data source: the application's own, where nobody names one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mzsql.worker_python import name_driver_python

PROGRAM = Path(__file__).parent / "bare_program.py"
NAMED = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def _path_with(directory: Path, python: str) -> str:
    """A path on which ``python3`` is this, which has no packages."""
    directory.mkdir()
    (directory / "python3").write_text(f'#!/bin/sh\nexec "{python}" -I -S "$@"\n')
    (directory / "python3").chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def test_a_program_whose_environment_is_not_activated_reads_streams_and_appends(
    tmp_path: Path,
) -> None:
    environ = {key: value for key, value in os.environ.items() if key not in NAMED}
    environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": _path_with(tmp_path / "bin", sys.executable)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "env"), str(tmp_path / "stream")],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"read": [1, 2], "streamed": [1, 2]}


def test_this_python_is_named_where_nobody_names_one(tmp_path: Path) -> None:
    environ = {"PATH": _path_with(tmp_path / "bin", sys.executable)}
    name_driver_python(environ)
    assert environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert "PYSPARK_PYTHON" not in environ


@pytest.mark.parametrize("variable", [*NAMED, "PYSPARK_GATEWAY_PORT"])
def test_what_is_named_stays(tmp_path: Path, variable: str) -> None:
    before = {"PATH": _path_with(tmp_path / "bin", sys.executable), variable: "1"}
    after = dict(before)
    name_driver_python(after)
    assert after == before


def test_nothing_is_named_where_the_environment_is_activated() -> None:
    environ = {"PATH": str(Path(sys.executable).parent)}
    name_driver_python(environ)
    assert "PYSPARK_DRIVER_PYTHON" not in environ


def test_nothing_is_named_over_the_settings_of_sparks_installation(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-env.sh").touch()
    path = _path_with(tmp_path / "bin", sys.executable)
    for where in ({"SPARK_HOME": str(tmp_path)}, {"SPARK_CONF_DIR": str(tmp_path / "conf")}):
        environ = {"PATH": path, **where}
        name_driver_python(environ)
        assert "PYSPARK_DRIVER_PYTHON" not in environ
