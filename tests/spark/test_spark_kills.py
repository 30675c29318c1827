"""Streams that are killed deliver each change once, and appends whose tasks fail write each row once; in applications of their own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mzsql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "stream_program.py"


@contextlib.contextmanager
def application(what: str, env: Path, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An application, which does not outlive the test, nor does its JVM."""
    with (place / f"{what}.log").open("ab") as log:
        program = subprocess.Popen(
            [sys.executable, str(PROGRAM), what, str(env), str(place)],
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=place,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def delivered(place: Path) -> int:
    """How many batches the stream has committed."""
    commits = place / "checkpoint" / "commits"
    return sum(one.name.isdigit() for one in commits.iterdir()) if commits.is_dir() else 0


def test_a_stream_that_is_killed_delivers_each_change_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    env, place = tmp_path / "env", tmp_path / "stream"
    place.mkdir()
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    told = f"seed {seed}"
    with mzsql.connect(str(env)) as con:
        con.execute("CREATE TABLE t (a bigint, b int)")
        written: Counter[tuple[int, int]] = Counter()

        def change() -> None:
            a, b = chance.randrange(50), chance.randrange(3)
            if chance.random() < 0.3:
                con.execute(f"DELETE FROM t WHERE a = {a}")
                for row in [row for row in written if row[0] == a]:
                    del written[row]
            else:
                con.execute(f"INSERT INTO t VALUES ({a}, {b}), ({a}, {b})")
                written[a, b] += 2

        for _ in range(5):
            change()
        for _ in range(6):
            before = delivered(place)
            wanted = before + chance.randrange(4)
            with application("follow", env, place) as program:
                # Killed at any moment after so many batches, in the middle of one as often as not.
                while delivered(place) < wanted or chance.random() < 0.7:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        program.wait(0.2)
                        pytest.fail((place / "follow.log").read_text()[-3000:])
                    change()
        with application("deliver", env, place) as program:
            assert program.wait(300) == 0, (place / "deliver.log").read_text()[-3000:]
        total: Counter[tuple[int, int]] = Counter()
        for row in spark.read.parquet(str(place / "out")).collect():
            total[row["a"], row["b"]] += {"insert": 1, "delete": -1}[row["_change_type"]]
        assert min(total.values(), default=0) >= 0, told
        assert +total == +written, told
        assert Counter(con.execute("SELECT a, b FROM t").fetchall()) == +written, told


def test_rows_of_tasks_that_fail_are_appended_once(tmp_path: Path) -> None:
    env, place = tmp_path / "env", tmp_path / "append"
    place.mkdir()
    with mzsql.connect(str(env)) as con:
        con.execute("CREATE TABLE t (a bigint, b int)")
        with application("append", env, place) as program:
            assert program.wait(300) == 0, (place / "append.log").read_text()[-3000:]
        said = (place / "append.log").read_text()
        assert "planted before" in said
        assert "planted behind" in said
        rows = con.execute("SELECT count(*), count(DISTINCT a), min(a), max(a) FROM t").fetchall()
        assert rows == [(1000, 1000, 0, 999)]
        # At one time: nobody saw a part of them.
        assert len(con.execute("SELECT DISTINCT b FROM t").fetchall()) == 7
