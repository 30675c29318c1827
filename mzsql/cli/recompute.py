"""Recomputation of a view's query by Spark and DuckDB from the same tables, to compare results, times and bytes.

Promise: the tables are plain Parquet files with the narrowest types possible, so that the other engines are as fast as
can be; only the query is timed. Contents are compared as bags, with EXCEPT ALL in both directions; decimals at the
smaller of both scales, since Spark rounds averages to six digits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DecimalType
from sqlglot import expressions as exp

from mzsql.compute.engines.relations import arrow_frame
from mzsql.persist import duck

#: TPC-H's precision of decimals; with up to 18 digits Spark computes in a machine word.
_DECIMAL_DIGITS = 15


@dataclass(frozen=True)
class Recomputed:
    """The result: rows, the seconds that Spark and DuckDB took, the bytes of the files read."""

    rows: DataFrame
    seconds: float
    duckdb_seconds: float
    bytes: int


def query_of(create_view: str) -> exp.Expression:
    """The query of a CREATE MATERIALIZED VIEW statement."""
    tree = sqlglot.parse_one(create_view, read="postgres")
    query = tree.expression
    assert isinstance(query, exp.Expression)
    return query


def narrow(table: pa.Table) -> pa.Table:
    """The table with decimals of TPC-H's precision."""
    fields = [
        f.with_type(pa.decimal128(_DECIMAL_DIGITS, f.type.scale))
        if pa.types.is_decimal(f.type)
        else f
        for f in table.schema
    ]
    return table.cast(pa.schema(fields))


class Recomputation:
    """Runs queries over copies of tables in a Spark session of its own.

    Args:
        session: any session, from which a new one with Spark's own defaults for queries is made.
        folder: where to put the copies.
    """

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session.newSession()
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._duck = duck.opened()

    def close(self) -> None:
        """Close DuckDB's connection. Idempotent."""
        self._duck.close()

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        """Copy tables under their names, replacing earlier copies."""
        for name, table in tables.items():
            path = self._folder / f"{name}.parquet"
            pq.write_table(narrow(table), path, compression="zstd")
            self._sizes[name] = path.stat().st_size
            self._session.catalog.dropTempView(name)
            self._session.read.parquet(str(path)).createTempView(name)
            files = self._duck.read_parquet(str(path))
            files.create_view(name, replace=True)

    def run(self, query: exp.Expression) -> Recomputed:
        """Run a query: twice by Spark, which compiles at the first run, and the faster one counts; once by DuckDB, which
        compiles nothing, so that it comes as unawaited as the refresh beside it.
        """
        text = query.sql(dialect="spark")
        best, result = _best(lambda: self._session.sql(text).toArrow(), 2)
        written = query.sql(dialect="duckdb")
        other, _ = _best(lambda: self._duck.sql(written).to_arrow_table(), 1)
        read = {table.name for table in query.find_all(exp.Table)}
        size = sum(self._sizes.get(name, 0) for name in read)
        return Recomputed(arrow_frame(self._session, result), best, other, size)

    def differences(self, recomputed: Recomputed, contents: pa.Table) -> int:
        """The size of the symmetric difference of both bags of rows."""
        ours = arrow_frame(self._session, contents)
        left, right = _alike(ours, recomputed.rows)
        return int(left.exceptAll(right).count() + right.exceptAll(left).count())


def _best(run: Callable[[], pa.Table], times: int) -> tuple[float, pa.Table]:
    """The seconds of the fastest run, and the last run's rows."""
    best = float("inf")
    for _ in range(times):
        begun = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - begun)
    return best, result


def _alike(a: DataFrame, b: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Both frames with columns c0, c1, …, and decimals at the smaller of both scales."""
    scales: Sequence[int | None] = [
        min(x.dataType.scale, y.dataType.scale)
        if isinstance(x.dataType, DecimalType) and isinstance(y.dataType, DecimalType)
        else None
        for x, y in zip(a.schema.fields, b.schema.fields, strict=True)
    ]
    return _rounded(a, scales), _rounded(b, scales)


def _rounded(frame: DataFrame, scales: Sequence[int | None]) -> DataFrame:
    named = frame.toDF(*[f"c{i}" for i in range(len(scales))])
    return named.select(
        *(
            F.col(f"c{i}")
            if scale is None
            else F.round(f"c{i}", scale).cast(DecimalType(38, scale)).alias(f"c{i}")
            for i, scale in enumerate(scales)
        )
    )
