"""The engines: what each session must be set to, and how an AST becomes its text.

Promise: with these settings a spelling means the same everywhere. Times are UTC, decimals keep their digits, overflows of what is not
spelled with care fail instead of wrapping.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

import duckdb
from sqlglot import expressions as exp
from sqlglot.generator import Generator
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.generators.spark import SparkGenerator

from mzsql.expr.functions.table import Engine
from mzsql.location import check_caller

#: What a Spark session needs for right answers, beside what makes steps cheap.
SPARK_STEP_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    }
)


class _SparkText(SparkGenerator):
    """Writes for Spark as long as the caller waits for it."""

    def identifier_sql(self, expression: exp.Identifier) -> str:
        check_caller()
        return super().identifier_sql(expression)


class _DuckDbText(DuckDBGenerator):
    """Writes for DuckDB as long as the caller waits for it."""

    def identifier_sql(self, expression: exp.Identifier) -> str:
        check_caller()
        return super().identifier_sql(expression)


_WRITERS: Mapping[Engine, tuple[type[Generator], str]] = MappingProxyType(
    {Engine.SPARK: (_SparkText, "spark"), Engine.DUCKDB: (_DuckDbText, "duckdb")}
)

# sqlglot logs a line for every hint that DuckDB does not have.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


def to_sql(ast: exp.Expression, engine: Engine) -> str:
    """The statement's or expression's text, every identifier quoted."""
    writer, dialect = _WRITERS[engine]
    return writer(dialect=dialect, identify=True, comments=False).generate(ast)


def duckdb_connection(path: str = ":memory:") -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the settings that spellings rely on; it loads nothing from elsewhere."""
    connection = duckdb.connect(
        path,
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET preserve_insertion_order = false")
    return connection
