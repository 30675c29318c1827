"""The Spark data source ``mzsql``, where Spark looks for it.

Spark imports every top-level package whose name begins with ``pyspark_`` and registers its ``DefaultSource`` by itself, in every
session and on every executor. So with this distribution installed, ``spark.read.format("mzsql")`` works with nothing else said.
"""

from __future__ import annotations

from mzsql.spark.source import MzsqlDataSource as DefaultSource

__all__ = ["DefaultSource"]
