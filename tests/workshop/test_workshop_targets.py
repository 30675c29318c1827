"""Every target of the Makefile that a day's run does not need is started all the same, as short as it goes: what is not run rots.

Each goes to its end: a benchmark prints its table, a run of seeds its count. What they find is for them to say, not for these tests.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
#: Started by `.ci/run`, by the README's test, or by nothing but a person (`venv`, `clean`); `bench` is all the others.
ELSEWHERE = {"help", "venv", "java", "demo", "test", "test-long", "check", "clean", "bench"}


def made(target: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What ``make target`` does with the Python of this run, which has everything installed."""
    given = [f"{name}={value}" for name, value in variables.items()]
    return subprocess.run(
        [
            "make",
            "--silent",
            target,
            "-o",
            ".venv/.ready",
            f"BIN={Path(sys.executable).parent}",
            *given,
        ],
        cwd=ROOT,
        env={**os.environ, "MAKEFLAGS": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def ended(target: str, **variables: str) -> str:
    """What the target printed; it must have ended well."""
    done = made(target, **variables)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def started() -> set[str]:
    """The targets that the tests of this file name: first arguments of `ended`, or of the cases it is given."""
    tree = ast.parse(Path(__file__).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    named = [call.args[0] for call in calls if ast.unparse(call.func) in ("ended", "pytest.param")]
    cases = [node.elts[0] for node in ast.walk(tree) if isinstance(node, ast.Tuple) and node.elts]
    return {node.value for node in named + cases if isinstance(node, ast.Constant)}


def test_each_target_is_started_by_a_test() -> None:
    targets = set(re.findall(r"^\.PHONY: (\S+)", MAKEFILE, re.MULTILINE))
    assert targets - ELSEWHERE == started() & targets


def test_each_benchmark_has_a_target() -> None:
    benchmarks = {f"bench-{path.parent.name}" for path in (ROOT / "bench").glob("*/__main__.py")}
    assert benchmarks == set(re.findall(r"^\.PHONY: (bench-\S+)", MAKEFILE, re.MULTILINE))
    (every,) = re.findall(r"^bench: ([^#]+)##", MAKEFILE, re.MULTILINE)
    assert benchmarks == set(every.split())


def test_seeds_of_shards_are_simulated() -> None:
    assert "schedules" in ended("simulate", SECONDS="1")


def test_faults_are_drawn() -> None:
    assert "mzsql/oracle/" in ended("mutate", ROOM="oracle", COUNT="1", MUTATE="--show")


@pytest.mark.timeout(300)
def test_the_soak_finds_its_tests() -> None:
    assert "test_e2e_histories" in ended(
        "test-soak", SOAK="--collect-only tests/e2e", SOAK_JOBS="0"
    )


@pytest.mark.timeout(300)
def test_new_examples_are_drawn() -> None:
    told = ended("test-fresh", FRESH="tests/repr/test_repr_values.py", JOBS="0")
    assert re.search(r"\d+ passed", told)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_queries_are_fuzzed() -> None:
    assert re.search(r"\d+ +queries", ended("fuzz", SECONDS="1"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_histories_are_recorded() -> None:
    ended("histories", RUNS="1")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("target", "shortest"),
    [
        ("bench-persist", "--scale 0.01 --only a"),
        ("bench-backends", "--quick --only a"),
        pytest.param("bench-persist", "--scale 0.01 --only b,g,i", marks=pytest.mark.soak),
        pytest.param("bench-backends", "--quick --only b,c,d,e", marks=pytest.mark.soak),
        ("bench-oracle", "--quick --only a --callers 1"),
        pytest.param("bench-oracle", "--quick --only b,c --callers 1", marks=pytest.mark.soak),
        ("bench-coordinator", "--quick --only a"),
        pytest.param("bench-coordinator", "--quick --only b,c", marks=pytest.mark.soak),
        ("bench-planning", "--quick --only b,d,e"),
        pytest.param("bench-planning", "--quick --only a,c", marks=pytest.mark.soak),
        ("bench-planning", "--quick --only f --against ."),
        ("bench-refresh", "--only a,b,e --scales 0.001 --rounds 2 --views 2 --queries 5,13"),
        # Spark is started for the first, anew for each engine that is compared.
        pytest.param(
            "bench-refresh",
            "--only c,f --scales 0.001 --batches 1 --queries 1,3",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "bench-refresh",
            "--only d --scales 0.001 --batches 1 --queries 1,3 --no-spark",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "bench-refresh",
            "--only i,l,n --scales 0.001 --rounds 2 --queries 1,3 --groups 1000 --no-spark",
            marks=pytest.mark.soak,
        ),
        (
            "bench-refresh",
            "--only g,h,j --scales 0.001 --rounds 2 --ticks 5 --seconds 2 --queries 1,3 --no-spark",
        ),
        ("bench-replicas", "--only b --scales 0.001 --rounds 2 --pairs 1 --idle 1"),
        pytest.param(
            "bench-replicas",
            "--only a,c --scales 0.001 --rounds 3 --idle 1",
            marks=pytest.mark.soak,
        ),
        # Two clusters of Spark's are started, one after the other.
        pytest.param(
            "bench-replicas",
            "--only d --scales 0.001 --hydrations 1 --queries 6",
            marks=pytest.mark.soak,
        ),
        ("bench-hydration", "--only a --scales 0.001 --pairs 1 --queries 6"),
        # With replicas in processes of their own.
        pytest.param(
            "bench-hydration",
            "--only b --dataflows 12 --nodes 20 --replicas 2 --rounds 3",
            marks=pytest.mark.soak,
        ),
        ("bench-startup", "--views 2 --rounds 1 --only a,d"),
        pytest.param("bench-startup", "--views 12 --rounds 2", marks=pytest.mark.soak),
        # Spark's pipelines are started for it.
        pytest.param(
            "bench-refresh",
            "--only k --scales 0.001 --batches 1 --queries 1,3",
            marks=pytest.mark.soak,
        ),
        ("bench-spark", "--objects 1 --rounds 1 --only b"),
        # A session of Spark's is started several times.
        pytest.param("bench-spark", "--objects 3 --rounds 2", marks=pytest.mark.soak),
    ],
)
def test_benchmarks_print_their_tables(target: str, shortest: str) -> None:
    assert re.search(r"^\|( *:?-+:? *\|)+$", ended(target, BENCH=shortest), re.MULTILINE)
