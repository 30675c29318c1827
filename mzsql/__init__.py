"""mzsql: incrementally maintained, strictly serializable SQL views on Apache Spark."""

__version__ = "0.1.0"
