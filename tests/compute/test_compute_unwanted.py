"""What is being filled when nobody wants it any more: Spark's jobs for it end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mzsql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

#: What a machine is at for seconds and more, long after it is unwanted. Not for minutes: Spark's tasks look whether their job was
#: cancelled between batches of rows, and within a join of such small tables there is no other batch.
ENDLESS = (
    "CREATE TABLE numbers (v int)",
    "INSERT INTO numbers SELECT * FROM generate_series(1, 1200)",
    "CREATE MATERIALIZED VIEW endless AS SELECT a.v % 7 AS v, max(a.v * b.v - c.v) FROM numbers a, numbers b, numbers c"
    " WHERE a.v + b.v <> c.v GROUP BY 1",
)


def wait_for(what: Callable[[], bool]) -> None:
    while not what():
        time.sleep(0.05)


def active_tasks(spark: SparkSession) -> int:
    """Tasks that run, those of cancelled jobs included."""
    store = spark.sparkContext._jsc.sc().statusStore()
    executors = store.executorList(True)
    return sum(executors.apply(i).activeTasks() for i in range(executors.size()))


@pytest.mark.parametrize("end", ["dropped", "closed"])
def test_jobs_of_what_is_dropped_or_closed_end(
    tmp_env: Path, spark: SparkSession, end: str
) -> None:
    running = spark.sparkContext.statusTracker().getActiveJobsIds
    wait_for(lambda: not running())
    with mzsql.connect(str(tmp_env), spark=spark) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'spark'")
        for statement in ENDLESS:
            con.execute(statement)
        wait_for(lambda: bool(running()))
        if end == "dropped":
            con.execute("DROP MATERIALIZED VIEW endless")
            wait_for(lambda: not running())
            con.execute("CREATE MATERIALIZED VIEW soon AS SELECT count(*) FROM numbers")
            assert con.execute("SELECT * FROM soon").fetchall() == [(1200,)]
    assert not running()
    # Those that come after have Spark to themselves.
    wait_for(lambda: not active_tasks(spark))
    with mzsql.connect(str(tmp_env), read_only=True) as con:
        (names,) = zip(
            *con.execute("SELECT name FROM mz_materialized_views").fetchall(), strict=True
        )
        assert names == (("soon",) if end == "dropped" else ("endless",))
