"""Spark's sessions for the work of one dataflow.

Promise: each is made when it is first needed, from the session that its replica has then, which is waited for as long as the dataflow is
wanted.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from mzsql.compute.engines.spark_session import (
    hydration_session,
    large_step_session,
    step_session,
)
from mzsql.compute.engines.spark_start import SparkStart
from mzsql.compute.replica.endings import Unwanted


class DataflowSessions:
    """The sessions of one dataflow; for one thread at a time.

    Args:
        spark: starts Spark.
        workers: how many tasks work on many rows.
        unwanted: whether nobody waits for Spark any more.
    """

    def __init__(self, spark: SparkStart, workers: int, unwanted: Unwanted) -> None:
        self._spark = spark
        self._workers = workers
        self._unwanted = unwanted
        self._small: SparkSession | None = None
        self._large: SparkSession | None = None

    def small(self) -> SparkSession:
        """The session for steps over few rows."""
        if self._small is None:
            self._small = step_session(self._spark.session(self._unwanted))
        return self._small

    def large(self) -> SparkSession:
        """The session for steps over many rows."""
        if self._large is None:
            spark = self._spark.session(self._unwanted)
            self._large = large_step_session(spark, workers=self._workers)
        return self._large

    def hydration(self) -> SparkSession:
        """A new session, for a hydration."""
        return hydration_session(self._spark.session(self._unwanted), workers=self._workers)

    def forget(self) -> None:
        """Make new sessions for steps when they are next needed: Spark may have been stopped."""
        self._small = self._large = None
