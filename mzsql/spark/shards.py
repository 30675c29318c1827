"""A shard as a Spark DataFrame without an environment, for users of `mzsql.persist` alone.

Promise: `shard_dataframe` has exactly the shard's contents at ``as_of``, read by Spark's own Parquet reader from the
parts where they are, with page checksums verified, no listing and no schema inference. Consolidated parts are read
without a shuffle, at the speed of plain Parquet; others are consolidated by Spark. The trade-off: nothing tells when
the last DataFrame derived from one is gone, so the parts are kept alive by the returned Python object, and by nothing
else.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mzsql.compute.engines.relations import PUSHED_RANGES, parts_frame, range_condition, spark_type
from mzsql.location import UsageError
from mzsql.persist import (
    DIFF_COLUMN,
    TIME_COLUMN,
    KeyRange,
    ReadHandle,
    SchemaMismatch,
)
from mzsql.persist.leased_parts import sums_up
from mzsql.persist.pushdown import Filters, checked_columns
from mzsql.repr.errors import InternalError, Unsupported
from mzsql.repr.frontier import Timestamp

_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def shard_dataframe(
    spark: SparkSession,
    reader: ReadHandle,
    as_of: Timestamp,
    columns: Sequence[str] | None = None,
    filters: Filters | None = None,
    *,
    consolidate: bool = True,
    timeout: float | None = None,
) -> DataFrame:
    """The contents of a shard at ``as_of``: ``columns`` (all by default), ``mz_time`` (``as_of``) and ``mz_diff`` (the
    row's multiplicity).

    Keep the returned object until everything derived from it was evaluated: it protects the shard's objects from
    garbage collection, and DataFrames derived from it do not. The reader may be expired only after that, too.

    Args:
        spark: the session.
        reader: a reader of the shard, able to read at ``as_of``.
        as_of: the time; waits until the shard is complete there.
        columns: the columns, in this order.
        filters: only rows in these ranges, as in `ReadHandle.snapshot_arrow`: parts whose statistics exclude them are
            left out, and Spark's scan skips row groups and pages. Use `DataFrame.where`, which Spark pushes down too,
            for any other condition.
        consolidate: whether to sum up equal rows where the shard is not consolidated: each row then comes once, with a
            nonzero diff. Otherwise updates come as stored, and only sums over ``mz_diff`` are meaningful; for
            aggregates that multiply by it this saves the shuffle. With fewer columns than the shard has, equal rows may
            come more than once either way.
        timeout: seconds to wait for ``as_of``.

    Raises:
        SinceViolation, ReadTimeout, ExpiredHandle: as `ReadHandle.parts`.
        SchemaMismatch: a column that the shard lacks, a filter that does not fit, or columns whose names the session
            treats as equal.
        Unsupported: a column of a type that Spark lacks.
        UsageError: neither the session nor its executors can open the Blob store, and there are more parts than may go
            through the driver; or a filter has more ranges than Spark handles well.
    """
    wanted = _wanted(reader, columns)
    filters = {} if filters is None else filters
    parts = reader.parts(as_of, filters=filters, timeout=timeout)
    # Filters may use columns that were not asked for.
    others = [name for name in filters if name not in wanted.names]
    schema = pa.schema([*wanted, *(_sparkable(reader.schema.field(name)) for name in others)])
    _check_names(spark, schema)
    frame = parts_frame(spark, parts, schema, as_of=as_of, filters=filters)
    for name, ranges in filters.items():
        frame = frame.where(_condition(schema.field(name), ranges))
    additive = set(reader.key.additive) if reader.key is not None else set()
    # With additive columns a row's diff may be zero although its sums are not; such a row only matters with those
    # columns.
    if consolidate and not (sums_up(parts, as_of) and additive <= set(wanted.names)):
        frame = _sum_up(frame, wanted, additive, as_of)
    frame = frame.select(*(_named(name) for name in [*wanted.names, TIME_COLUMN, DIFF_COLUMN]))
    frame.mz_parts = parts
    return frame


def _condition(field: pa.Field, ranges: Sequence[KeyRange]) -> Column:
    """Whether the column is in one of the ranges; the literals have the column's very type, or Spark would not push the
    filter down.
    """
    if len(ranges) > PUSHED_RANGES:
        raise UsageError(
            f'{len(ranges)} ranges of column "{field.name}" are more than the {PUSHED_RANGES} that Spark takes well',
            hint="Read with fewer, wider ranges, and join the DataFrame with the values wanted.",
        )

    def literal(value: Any) -> Column | float | None:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, field.type)
        plain = scalar.cast(field.type).as_py()
        if plain is None or (isinstance(plain, float) and math.isnan(plain)):
            return plain
        if isinstance(
            plain, dt.date
        ):  # as text, which no time zone and no calendar of Java changes
            plain = str(plain)
        return F.lit(plain).cast(spark_type(field.type))

    return range_condition(
        _named(field.name),
        [(literal(lo), literal(hi)) for lo, hi in ranges],
        floating=pa.types.is_floating(field.type),
    )


def _named(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _wanted(reader: ReadHandle, columns: Sequence[str] | None) -> pa.Schema:
    names = checked_columns(reader.schema, columns, f"shard {reader.shard_id}")
    names = reader.schema.names if names is None else names
    return pa.schema([_sparkable(reader.schema.field(name)) for name in names])


def _sparkable(field: pa.Field) -> pa.Field:
    """The column with the type that Spark reads it as: an unsigned integer as the next wider signed one."""
    field = field.with_type(_SIGNED.get(field.type, field.type))
    refused: InternalError | None = None
    try:
        spark_type(field.type)
    except InternalError as failure:
        refused = failure
    if refused is not None or _in_nanoseconds(field.type):
        raise Unsupported(
            f'Spark has no type for column "{field.name}" of type {field.type}',
            hint="Name the other columns, or read the shard with snapshot_arrow.",
        ) from refused
    return field


def _in_nanoseconds(type_: pa.DataType) -> bool:
    within = [type_.field(place).type for place in range(type_.num_fields)]
    return (pa.types.is_timestamp(type_) and type_.unit == "ns") or any(
        map(_in_nanoseconds, within)
    )


def _check_names(spark: SparkSession, schema: pa.Schema) -> None:
    if str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return
    names = Counter(name.lower() for name in [*schema.names, TIME_COLUMN, DIFF_COLUMN])
    twice = [name for name in schema.names if names[name.lower()] > 1]
    if twice:
        raise SchemaMismatch(
            f"the columns {', '.join(twice)} are one name to this Spark session",
            hint="Set spark.sql.caseSensitive to true.",
        )


def _sum_up(frame: DataFrame, schema: pa.Schema, additive: set[str], as_of: Timestamp) -> DataFrame:
    """Equal rows summed up; sums that do not fit their type fail the query, in a session without ANSI mode too."""
    groups = [_named(name) for name in schema.names if name not in additive]
    sums = [name for name in schema.names if name in additive] + [DIFF_COLUMN]
    types = {name: spark_type(schema.field(name).type) for name in sums[:-1]}
    totals = []
    for name in sums:
        fits = F.try_sum(_named(name)).try_cast(types.get(name, "bigint"))
        message = F.lit(f'sums of column "{name}" do not fit its type')
        total = F.coalesce(fits, F.raise_error(message).cast(types.get(name, "bigint")))
        if name != DIFF_COLUMN or not groups:  # sums of nothing are NULL
            total = F.when(F.count(_named(name)) == 0, F.lit(0)).otherwise(total)
        totals.append(total.cast(types.get(name, "bigint")).alias(name))
    result = frame.groupBy(*groups).agg(*totals)
    nonzero = _named(DIFF_COLUMN) != 0
    for name in sums[:-1]:
        nonzero = nonzero | (_named(name) != 0)
    return result.where(nonzero).withColumn(TIME_COLUMN, F.lit(as_of).cast("bigint"))
