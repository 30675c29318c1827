"""Replicas on other masters of Spark than this process: a cluster of executors, and what ``spark-submit`` gives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyspark
import pytest

import mzsql

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

#: How long a busy machine may take for what takes a moment.
WAIT = 500.0
CLUSTER = "local-cluster[2,1,1024]"
REPLICA = ("replica", "--cluster", "c", "--name", "r1")
SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture
def env(tmp_path: Path) -> str:
    """In a directory, which executors on this machine have, too."""
    return str(tmp_path / "env")


@pytest.fixture
def con(env: str) -> Iterator[mzsql.Connection]:
    """A process that leads, with a table, and a cluster of one replica; Spark runs all steps."""
    with mzsql.connect(env) as made:
        made.execute("ALTER SYSTEM SET step_engine = 'spark'")
        made.execute("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 1), (2, 2)")
        made.execute("CREATE CLUSTER c REPLICAS (r1 (SIZE '2'))")
        made.execute("SET cluster = c; SET statement_timeout = '20 min'")
        yield made


@pytest.fixture
def start() -> Iterator[Callable[[Sequence[str]], subprocess.Popen[str]]]:
    """Starts a command, which ends with the test."""
    begun: list[subprocess.Popen[str]] = []

    def begin(command: Sequence[str]) -> subprocess.Popen[str]:
        begun.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return begun[-1]

    yield begin
    for one in begun:
        # What spark-submit has started ends a moment later than it.
        for pid in (*below(one.pid), one.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        one.communicate(timeout=WAIT)


def mzsql_command(env: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "mzsql.cli", *REPLICA, "--env", env, *arguments]


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def below(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    found, waiting = list[int](), [pid]
    while waiting:
        tasks = Path(f"/proc/{waiting.pop()}/task").glob("*/children")
        children = [int(child) for task in tasks for child in told(task).split()]
        waiting += children
        found += children
    return found


def told(file: Path) -> str:
    """What a file of /proc says; nothing where its thread or process has ended meanwhile."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return file.read_text()
    return ""


def executors(of: int) -> list[int]:
    """The executors' processes below a process."""
    command = "CoarseGrainedExecutorBackend"
    return [one for one in below(of) if command in told(Path(f"/proc/{one}/cmdline"))]


def sums(con: mzsql.Connection) -> list[tuple[object, ...]]:
    return con.execute("SELECT a, s FROM m ORDER BY a").fetchall()


def engines(con: mzsql.Connection) -> list[tuple[object, ...]]:
    return con.execute(
        "SELECT DISTINCT engine FROM mz_internal.mz_refreshes WHERE replica_id = 'u2'"
    ).fetchall()


@pytest.mark.soak
def test_a_replica_maintains_on_executors_and_goes_on_when_one_is_killed(
    env: str, con: mzsql.Connection, start: Callable[[Sequence[str]], subprocess.Popen[str]]
) -> None:
    before = set((SPARK_HOME / "work").glob("*"))
    replica = start(mzsql_command(env, "--master", CLUSTER, "--conf", "spark.executor.cores=1"))
    assert said(replica).startswith("replica c.r1 listens at 127.0.0.1:")
    con.execute("CREATE MATERIALIZED VIEW m AS SELECT a, sum(b) AS s FROM t GROUP BY a")
    assert sums(con) == [(1, 1), (2, 2)]
    killed = executors(replica.pid)
    assert killed
    os.kill(killed[0], signal.SIGKILL)
    con.execute("INSERT INTO t VALUES (1, 10), (3, 3)")
    assert sums(con) == [(1, 11), (2, 2), (3, 3)]
    assert engines(con) == [("spark",)]
    replica.terminate()
    rest, errors = replica.communicate(timeout=WAIT)
    assert (replica.returncode, rest) == (0, "replica c.r1 has ended: it was asked to\n"), errors
    assert set((SPARK_HOME / "work").glob("*")) == before


@pytest.mark.soak
def test_a_replica_whose_jvm_is_killed_starts_another_and_goes_on(
    env: str, con: mzsql.Connection, start: Callable[[Sequence[str]], subprocess.Popen[str]]
) -> None:
    replica = start(mzsql_command(env))
    assert said(replica).startswith("replica c.r1 listens at 127.0.0.1:")
    con.execute("CREATE MATERIALIZED VIEW m AS SELECT a, sum(b) AS s FROM t GROUP BY a")
    assert sums(con) == [(1, 1), (2, 2)]
    jvms = [pid for pid in below(replica.pid) if "java" in told(Path(f"/proc/{pid}/cmdline"))]
    assert jvms
    for pid in jvms:
        os.kill(pid, signal.SIGKILL)
    con.execute("INSERT INTO t VALUES (1, 10), (3, 3)")
    assert sums(con) == [(1, 11), (2, 2), (3, 3)]
    assert engines(con) == [("spark",)]
    replica.terminate()
    rest, errors = replica.communicate(timeout=WAIT)
    assert (replica.returncode, rest) == (0, "replica c.r1 has ended: it was asked to\n"), errors


@pytest.mark.soak
def test_a_replica_takes_the_master_that_spark_submit_gives(
    env: str,
    con: mzsql.Connection,
    start: Callable[[Sequence[str]], subprocess.Popen[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    script = tmp_path / "mzsql_replica.py"
    script.write_text("from mzsql.cli import main\n\nmain()\n")
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[3]"]
    submit += ["--conf", "spark.sql.warehouse.dir=" + str(tmp_path / "warehouse")]
    for setting in ("dir=" + str(tmp_path), "enabled=true", "compress=false"):
        submit += ["--conf", f"spark.eventLog.{setting}"]
    replica = start([*submit, str(script), *REPLICA, "--env", env])
    assert said(replica).startswith("replica c.r1 listens at 127.0.0.1:")
    con.execute("CREATE MATERIALIZED VIEW m AS SELECT a, sum(b) AS s FROM t GROUP BY a")
    con.execute("INSERT INTO t VALUES (1, 10)")
    assert sums(con) == [(1, 11), (2, 2)]
    assert engines(con) == [("spark",)]
    files = [one for one in tmp_path.rglob("*local-*") if one.is_file()]
    log = b"".join(one.read_bytes() for one in files)
    assert b'"spark.master":"local[3]"' in log
    # Whoever ends spark-submit ends the replica, which gives its entry back.
    begun = below(replica.pid)
    assert begun
    replica.terminate()
    replica.wait(WAIT)
    until = time.monotonic() + WAIT
    while any(Path(f"/proc/{pid}").exists() for pid in begun):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert con.coordinator.env.sync().replicas["u2"].process is None


@pytest.mark.long
def test_a_master_or_setting_that_is_none_is_told_and_nothing_is_taken(
    env: str, con: mzsql.Connection
) -> None:
    for arguments, message in (
        (("--master", "nonsense"), "ERROR:  Spark did not start: Master must "),
        (("--conf", "executor.cores=1"), 'ERROR:  invalid setting for --conf: "executor.cores=1"'),
        (("--conf", "spark.master=local"), "ERROR:  give Spark's master as --master"),
    ):
        command = mzsql_command(env, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(message)
        assert "Traceback" not in done.stderr
        assert con.coordinator.env.sync().replicas["u2"].process is None
