"""Registers the Spark data source ``mzsql``.

Spark imports every top-level package whose name begins with ``pyspark_`` and registers its ``DefaultSource``, in every
session and on every executor. So with this distribution installed ``spark.read.format("mzsql")`` works without further
setup.
"""

from __future__ import annotations

from mzsql.spark.source import MzsqlDataSource as DefaultSource

__all__ = ["DefaultSource"]
