"""TPC-H's 22 queries and more than twenty other views hold what DuckDB computes, after hydration and after each transaction: on either
engine, with what a replica keeps close deleted between them, and with processes killed between any two of their writes.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_kit import hydrated_by_spark
from trust_kit import BATCHES, Batches, Judge, change, prepare

import mzsql
from mzsql.adapter.environment import leader
from mzsql.cli.demo import generate
from mzsql.compute.replica.arrangements import trace
from mzsql.expr.engines import scratch_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE = 0.002


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trust") / "tpch"
    generate(folder, SCALE)
    return folder


def forget(con: mzsql.Connection) -> int:
    """Delete what a replica keeps of its arrangements beside their shards, in memory and on disk; of how many."""
    shutil.rmtree(scratch_directory(), ignore_errors=True)
    (client,) = con.coordinator.dataflows.controller.replicas
    flows = client._link._installed.all()  # type: ignore[attr-defined]
    kept = [
        arrangement.hot
        for flow in flows
        if flow.dataflow is not None
        for arrangement in flow.dataflow.arrangements.values()
        if arrangement.hot.bytes
    ]
    for hot in kept:
        hot.cool()
    return len(kept)


def run(env: Path, files: Path, engine: str, seed: int, batches: int, spark: Any = None) -> None:
    judge, changes = Judge(files), Batches(seed, files)
    how: AbstractContextManager[Any] = hydrated_by_spark() if engine == "spark" else nullcontext()
    with how, mzsql.connect(env, spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute(f"ALTER SYSTEM SET step_engine = '{engine}'")
        prepare(con, files)
        judge.check(con, f"seed {seed} on {engine}, hydrated")
        forgotten, opened = 0, list[int]()
        for number in range(1, batches + 1):
            if number % 2 == 0:
                forgotten += forget(con)
            change(con, changes[number])
            judge.change(changes[number])
            rows = judge.check(con, f"seed {seed} on {engine}, after {number}")
            assert rows > 1000, "views without rows prove nothing"
            opened.append(len(list(Path("/dev/fd").iterdir())))
        assert forgotten
        assert opened[-1] <= opened[1] + 20, "files are left open"
        told = con.execute(
            "SELECT DISTINCT engine FROM mz_internal.mz_refreshes WHERE kind = 'step'"
        )
        assert {name for (name,) in told.fetchall()} <= {engine, "empty"}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("seed", "batches"),
    [pytest.param(1, 4, marks=pytest.mark.long), pytest.param(6, BATCHES, marks=pytest.mark.soak)],
)
def test_every_view_holds_its_answer_after_every_transaction(
    tmp_env: Path, files: Path, monkeypatch: pytest.MonkeyPatch, seed: int, batches: int
) -> None:
    monkeypatch.setattr(trace, "MAPPED_BYTES", 1024)
    run(tmp_env, files, "duckdb", seed, batches)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(7200)
def test_every_view_holds_its_answer_after_every_transaction_on_spark(
    tmp_env: Path, files: Path, spark: SparkSession
) -> None:
    run(tmp_env, files, "spark", 2, BATCHES, spark)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("engine", "seed", "batches"),
    [
        ("duckdb", 3, 4),
        ("duckdb", 4, BATCHES),
        pytest.param("spark", 5, BATCHES, marks=pytest.mark.spark),
    ],
)
def test_views_hold_their_answers_however_often_a_process_is_killed(
    tmp_env: Path,
    files: Path,
    engine: str,
    seed: int,
    batches: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each process is killed around one of its writes; the next one goes on, and so does this one, which looks."""
    # Who was killed is known to be gone, as it is on its own machine.
    monkeypatch.setattr(leader, "is_gone", lambda _who: True)
    judge, changes, rng = Judge(files), Batches(seed, files), random.Random(seed)
    with mzsql.connect(tmp_env) as con:
        con.execute("SET statement_timeout = '20 min'; ALTER SYSTEM SET step_engine = 'duckdb'")
        prepare(con, files)
        judge.check(con, f"seed {seed}, hydrated")
    killed = 0
    while judge.batch() < batches:
        arguments = [str(tmp_env), str(files), str(seed), engine, str(batches)]
        arguments.append(str(rng.randint(1, 60)))
        worker = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("trust_worker.py")), *arguments],
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert worker.returncode in (0, -signal.SIGKILL), (arguments, worker.stderr)
        killed += worker.returncode != 0
        with mzsql.connect(tmp_env) as con:
            con.execute("SET statement_timeout = '20 min'; ALTER SYSTEM SET step_engine = 'duckdb'")
            ((batch,),) = con.execute("SELECT batch FROM progress").fetchall()
            for number in range(judge.batch() + 1, batch + 1):
                judge.change(changes[number])
            judge.check(con, f"seed {seed}: {' '.join(arguments)}, after {batch}")
    assert killed >= min(3, batches // 2)
