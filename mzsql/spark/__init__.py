"""mzsql inside Spark SQL: the Python data source, the registration of relations in a session's catalog, and `MzSpark`.

`source` is what Spark's workers run, `registration` what makes plain ``spark.sql`` see the relations, and `mz_spark` what a user has as
``con.spark``.
"""

from __future__ import annotations

from mzsql.spark.mz_spark import MzSpark
from mzsql.spark.registration import Registration

__all__ = ["MzSpark", "Registration"]
