"""mzsql inside Spark SQL: the Python data source, the registration of relations in a session's catalog, and `MzSpark`.

`source` is what Spark's workers run, `registration` what makes plain ``spark.sql`` see the relations, and `mz_spark` what a user has as
``con.spark``; `shard_dataframe` reads a shard of `mzsql.persist` with no environment around it.
"""

from __future__ import annotations

from mzsql.spark.mz_spark import MzSpark
from mzsql.spark.register import Registered, register
from mzsql.spark.registration import Registration
from mzsql.spark.shards import shard_dataframe
from mzsql.spark.stream import release_stream

__all__ = ["MzSpark", "Registered", "Registration", "register", "release_stream", "shard_dataframe"]
