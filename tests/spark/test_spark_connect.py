"""An environment in a session of Spark Connect, and such a session under an environment; on a real server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]

PROGRAM = Path(__file__).parent / "connect_program.py"


def run(env: Path, **variables: str) -> tuple[int, str, str]:
    """What the program ended with and said; its server, on a port that nobody has, ends with it."""
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(env)],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_TESTING": "1", **variables},
        cwd=env.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complained = program.communicate(timeout=1100)  # the test's own timeout is longer
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    return program.returncode, said, complained


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    # The server's Python is the one that has the data source.
    env = tmp_path_factory.mktemp("connect") / "env"
    code, said, complained = run(env, PYSPARK_PYTHON=sys.executable)
    assert code == 0, complained[-4000:]
    answers: dict[str, Any] = json.loads(said.splitlines()[-1])
    return answers


def test_relations_are_in_its_catalog(found: dict[str, Any]) -> None:
    assert found["tables"] == ["products"]
    assert found["by the catalog"] == [["anvil", "99.50", "1"], ["rope", "3.20", "2"]]
    assert found["view by the catalog"] == [["anvil", "1"], ["saw", "18446744073709551615"]]
    assert found["left"] == []


def test_its_sql_takes_queries_and_statements(found: dict[str, Any]) -> None:
    assert found["select"] == [["anvil", "99.50"], ["rope", "3.20"]]
    assert found["braces"] == [["{x}anvil"], ["{x}rope"]]
    assert found["arguments"] == [["anvil"]]
    assert found["view"] == [["anvil", "1"], ["saw", "18446744073709551615"]]
    assert "node_id" in found["plan"]
    assert found["builtin"] == [["1"]]
    assert found["error"] == 'UndefinedColumn: column "nope" does not exist'


def test_a_frame_stands_for_one_time_though_spark_looks_at_it_anew(found: dict[str, Any]) -> None:
    assert found["at its time"] == [[["2"]], [["2"]]]


def test_it_appends(found: dict[str, Any]) -> None:
    assert ["file", "1.50", "4"] in found["appended"]
    assert len(found["appended"]) == 4


def test_a_connection_maintains_views_on_it(found: dict[str, Any]) -> None:
    assert found["con.spark"] == [["anvil"]]
    assert found["hydrated"] == [["1", 1], ["18446744073709551615", 1], ["2", 1], ["4", 1]]
    assert found["stepped"] == [[2]]
    assert ["spark"] in found["engines"]
    assert found["large"] == [[5]]


@pytest.mark.soak
def test_a_server_without_the_data_source_is_told_of(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    code, _, complained = run(
        tmp_path / "env", PYSPARK_PYTHON=str(bare), PYSPARK_DRIVER_PYTHON=str(bare)
    )
    assert code != 0
    assert "the server of Spark Connect does not know the format mzsql" in complained
