"""Spark's start: shared by those who want it, not waited for by those who do not, and nothing left of it at exit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mzsql.compute.engines.spark_start import SparkStart, refusal
from mzsql.repr.errors import EnvironmentRefused, QueryCanceled


class Starting:
    """Takes as long to make a session as its test wants."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.made = 0
        self.failure: Exception | None = None

    def __call__(self):
        self.begun.set()
        assert self.go_on.wait(60)
        self.made += 1
        if self.failure is not None:
            raise self.failure
        return self


def test_who_gives_up_does_not_wait_and_who_comes_later_has_the_same_start():
    make, given_up = Starting(), threading.Event()
    start = SparkStart(make)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(start.session, given_up.is_set)
        assert make.begun.wait(60)
        given_up.set()
        with pytest.raises(QueryCanceled):
            first.result(60)  # while the start goes on
        second = pool.submit(start.session, lambda: False)
        make.go_on.set()
        assert second.result(60) is make
    assert start.session(lambda: False) is make
    assert make.made == 1


def test_nobody_starts_what_is_not_wanted():
    make = Starting()
    with pytest.raises(QueryCanceled):
        SparkStart(make).session(lambda: True)
    assert not make.begun.is_set()


def test_a_start_that_fails_is_tried_again():
    make = Starting()
    make.go_on.set()
    make.failure = EnvironmentRefused("no Java")
    start = SparkStart(make)
    with pytest.raises(EnvironmentRefused, match="no Java"):
        start.session(lambda: False)
    make.failure = None
    assert start.session(lambda: False) is make


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("closes", [True, False])
def test_a_process_that_ends_while_spark_starts_leaves_nothing(
    tmp_path: Path, closes: bool
) -> None:
    """It says what it has to say, too: its standard error is its own."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    program = (
        "import sys, time, mzsql\n"
        "from pathlib import Path\n"
        f"con = mzsql.connect({str(tmp_path / 'env')!r})\n"
        "con.execute(\"ALTER SYSTEM SET step_engine = 'spark'\")\n"
        "con.execute('CREATE TABLE t (a int); CREATE INDEX i ON t (a)')\n"
        f"while not list(Path({str(temporary)!r}).glob('mzsql-spark-*/spark.log')): time.sleep(0.01)\n"
        "print('heard', file=sys.stderr, flush=True)\n"
        + ("con.close()\n" if closes else "")
        + "from pyspark import SparkContext\n"
        "assert SparkContext._active_spark_context is None\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,  # ends when the JVM, which has inherited them, has ended too
        text=True,
        timeout=500,
        env={**os.environ, "TMPDIR": str(temporary)},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "heard\n")
    assert list(temporary.glob("mzsql-*")) == []


STOPPED = """
import sys, mzsql
from pyspark import SparkContext
from mzsql.compute.engines.spark_session import local_session
given = local_session(app_name="given", conf={"spark.mzsql.test": "kept"}) if sys.argv[2] == "given" else None
with mzsql.connect(sys.argv[1], spark=given) as con:
    con.execute("SET statement_timeout = '10 min'")
    con.execute("ALTER SYSTEM SET step_engine = 'spark'")
    con.execute("CREATE TABLE t (k bigint)")
    con.execute("INSERT INTO t VALUES (1), (2)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(k)::bigint AS s FROM t")
    print(con.execute("SELECT s FROM v").fetchall())
    con.execute("INSERT INTO t VALUES (10)")
    print(con.execute("SELECT s FROM v").fetchall())
    SparkContext.getOrCreate().stop()
    con.execute("INSERT INTO t VALUES (100)")
    print(con.execute("SELECT s FROM v").fetchall())
    SparkContext.getOrCreate().stop()
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT max(k) AS m FROM t")
    print(con.execute("SELECT m FROM w").fetchall())
    settings = SparkContext.getOrCreate().getConf()
    print(settings.get("spark.app.name"), settings.get("spark.mzsql.test", ""))
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("whose", "application"),
    [
        pytest.param("given", "given kept", marks=pytest.mark.long),
        pytest.param("own", "mzsql ", marks=pytest.mark.soak),
    ],
)
def test_a_session_that_is_stopped_under_a_view_is_started_anew(
    tmp_path: Path, whose: str, application: str
) -> None:
    """Before a step, and before a hydration; a process of its own, as that ends the session of all."""
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, str(tmp_path / "env"), whose],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sums = ["[(3,)]", "[(13,)]", "[(113,)]", "[(100,)]"]
    assert done.stdout.splitlines() == [*sums, application]


@pytest.mark.parametrize(
    ("said", "why", "detail"),
    [
        (
            "WARN Utils: a name\n"
            'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or local\n'
            "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)\n",
            "Master must either be yarn or local",
            "WARN Utils: a name\n"
            'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or local',
        ),
        (
            "org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
            "\tat org.apache.spark.util.ThreadUtils$.awaitResult(ThreadUtils.scala:359)\n"
            "Caused by: java.io.IOException: Failed to connect to localhost:1\n"
            "\t... 4 more\n",
            "Failed to connect to localhost:1",
            "org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
            "Caused by: java.io.IOException: Failed to connect to localhost:1",
        ),
        ("", "the JVM has ended", None),
    ],
)
def test_what_keeps_spark_from_starting_is_told_as_java_tells_it(
    said: str, why: str, detail: str | None
) -> None:
    told = refusal(RuntimeError("the JVM has ended\nbecause of something"), said)
    assert (told.message, told.detail) == (f"Spark did not start: {why}", detail)
