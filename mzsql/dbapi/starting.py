"""Starts Spark for connections that were given no session.

Promise: what this module's globals reach holds nothing of an environment's. The thread that starts Spark may be in the middle of
that when the process ends; what its frames reach then is never freed, and DuckDB complains of each of its objects on standard error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark() -> SparkSession:
    """Spark's session of this process, started if there is none."""
    from mzsql.compute.engines.spark_session import local_session  # noqa: PLC0415  PySpark is loaded where it is needed

    session = local_session()
    from mzsql.dbapi.exits import close_first  # noqa: PLC0415  not before: it reaches every connection, and this frame would reach it

    close_first()
    return session
