"""mzsql inside Spark SQL: the Python data source, the registration of relations in a session's catalog, and `MzSpark`.

`source` runs in Spark's workers, `registration` makes plain ``spark.sql`` see the relations, and `mz_spark` is what
users have as ``con.spark``; `shard_dataframe` reads a shard of `mzsql.persist` without an environment.
"""

from __future__ import annotations

from mzsql.spark.mz_spark import MzSpark
from mzsql.spark.register import Registered, register
from mzsql.spark.registration import Registration
from mzsql.spark.shards import shard_dataframe
from mzsql.spark.stream import release_stream

__all__ = ["MzSpark", "Registered", "Registration", "register", "release_stream", "shard_dataframe"]
