"""Relations for Spark: Arrow tables and Parquet parts as DataFrames, with no type inferred and no row lost.

Promise: a relation has exactly the rows and Arrow types that it was given, in whatever chunks they came. (Spark's
`createDataFrame` silently stops at an empty chunk that follows a non-empty one; `combine_chunks` avoids that.) A
schema is always given, because inference would be a job. Parts are read with the times that persist defines,
``greatest(mz_time, time_floor)``, and only between the bounds asked for. Whatever the session's settings are, a
missing or damaged part fails the query: page checksums are verified, which costs a few percent of a scan. Parts
whose paths the session cannot open are read on the driver while they are few (`DRIVER_ROWS`, `DRIVER_BYTES`), else
by the executors through mzsql's Blob client.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as st

from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.engines.executors import executor_frame
from mzsql.compute.engines.paths import can_open
from mzsql.persist import DIFF_COLUMN, TIME_COLUMN, PartRef, all_at, until
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import Timestamp

#: Inclusive bounds of a key. None leaves a side open; (None, None) is NULL.
KeyRange: TypeAlias = tuple[Any, Any]

#: More pushed ranges than this cost Spark more than they save.
PUSHED_RANGES = 64

#: Parts that the session cannot open by path are read on the driver up to this many encoded bytes, and up to
#: `DRIVER_ROWS`.
DRIVER_BYTES = 64 * 1024 * 1024
#: The most updates of such parts.
DRIVER_ROWS = 1_000_000

#: Options for reading parts, which override the session's settings.
READ_OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "mergeSchema": "false",
}
#: Assumed bytes of a value in Arrow memory if its type has no fixed width.
VALUE_BYTES = 32
_PATTERN = re.compile(r"[\\{}\[\]*?]")
_DISCOVERY = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_discovery_lock = threading.Lock()

_SIMPLE: dict[pa.DataType, st.DataType] = {
    pa.bool_(): st.BooleanType(),
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.string(): st.StringType(),
    pa.large_string(): st.StringType(),
    pa.binary(): st.BinaryType(),
    pa.large_binary(): st.BinaryType(),
    pa.date32(): st.DateType(),
}


def collectable_rows(schema: pa.Schema, settings: ComputeSettings) -> int:
    """How many rows of a schema may be brought to the driver."""
    return collectable(row_width(schema), settings)


def row_width(schema: pa.Schema) -> int:
    """About how many bytes a row of a schema has."""
    width = 0
    for one in schema:
        try:
            width += max(1, one.type.bit_width // 8)
        except ValueError:
            width += VALUE_BYTES
    return max(width, 1)


def collectable(width: int, settings: ComputeSettings) -> int:
    """How many rows of so many bytes may be brought to the driver."""
    return max(1, min(settings.rows_here, settings.bytes_here // width))


def spark_type(typ: pa.DataType) -> st.DataType:
    """The Spark type of an Arrow type; a timestamp without zone is `timestamp_ntz`.

    Raises:
        InternalError: there is none.
    """
    if typ in _SIMPLE:
        return _SIMPLE[typ]
    if pa.types.is_decimal(typ):
        return st.DecimalType(typ.precision, typ.scale)
    if pa.types.is_timestamp(typ):
        return st.TimestampNTZType() if typ.tz is None else st.TimestampType()
    if pa.types.is_list(typ) or pa.types.is_large_list(typ):
        return st.ArrayType(spark_type(typ.value_type), True)
    if pa.types.is_map(typ):
        return st.MapType(spark_type(typ.key_type), spark_type(typ.item_type), True)
    if pa.types.is_struct(typ):
        fields = [typ.field(i) for i in range(typ.num_fields)]
        return st.StructType([st.StructField(f.name, spark_type(f.type), True) for f in fields])
    raise InternalError(f"no Spark type for the Arrow type {typ}")


def spark_schema(schema: pa.Schema) -> st.StructType:
    """The Spark schema of an Arrow schema, every column nullable."""
    return st.StructType([st.StructField(f.name, spark_type(f.type), True) for f in schema])


def arrow_frame(
    spark: SparkSession, table: pa.Table, *, scratch: Path | None = None, inline_rows: int = 50_000
) -> DataFrame:
    """The rows of an Arrow table as a DataFrame.

    Args:
        spark: the frame's session.
        table: in any chunks, also none or empty ones.
        scratch: an existing folder that Spark can read by path. A large table is written there as a Parquet file,
            which must stay until the frame was used.
        inline_rows: with a `scratch`, tables with more rows are large.
    """
    if scratch is not None and table.num_rows > inline_rows:
        path = scratch / f"{id(table):x}-{table.num_rows}.parquet"
        pq.write_table(table, path, compression="zstd", write_page_index=True)
        return spark.read.schema(spark_schema(table.schema)).parquet(str(path))
    # One chunk per column: see the module's docstring.
    return spark.createDataFrame(table.combine_chunks(), schema=spark_schema(table.schema))


def at_most(frame: DataFrame, rows: int) -> DataFrame:
    """A frame with at most `rows` rows of each partition; which ones is undefined.

    Unlike a LIMIT it needs no exchange that brings partitions together. Nor does Spark compile it anew for each
    query, as it does a LIMIT, whose generated code has a counter numbered afresh each time. Rows beyond the bound
    are computed and left out.
    """
    place = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    return frame.where(place < F.lit(rows))


def range_condition(
    column: Column, ranges: Sequence[KeyRange], *, floating: bool = False
) -> Column:
    """Whether a column lies in one of the ranges (of values or literals). A (None, None) range makes it true, not NULL,
    for NULL.

    With ``floating`` the column is a float, for which NaN is greater than all numbers; bounds must then be values,
    not literals.
    """
    conditions: list[Column] = []
    for lo, hi in ranges:
        if lo is None and hi is None:
            conditions.append(column.isNull())
        elif floating and (hi is None or _is_nan(hi)):
            conditions.append(_up_to_nan(column, lo))
        elif lo is None:
            conditions.append(column <= F.lit(hi))
        elif hi is None:
            conditions.append(column >= F.lit(lo))
        elif not isinstance(lo, Column) and lo == hi:
            conditions.append(column == F.lit(lo))
        else:
            conditions.append((column >= F.lit(lo)) & (column <= F.lit(hi)))
    return reduce(lambda a, b: a | b, conditions, F.lit(False))


def _up_to_nan(column: Column, lo: Any) -> Column:
    """Whether floats are at or beyond ``lo``. NaN is tested explicitly, because the statistics by which Spark prunes do
    not cover it.
    """
    if lo is None:
        return column.isNotNull()
    return F.isnan(column) if _is_nan(lo) else (column >= F.lit(lo)) | F.isnan(column)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _parquet_frame(spark: SparkSession, paths: Sequence[str], schema: pa.Schema) -> DataFrame:
    """The rows of Parquet parts. Spark lists the paths on the driver here; beyond a threshold it would start a job to
    do so.
    """
    # Spark takes a path for a glob pattern, so its special characters are escaped.
    named = [_PATTERN.sub(r"\\\g<0>", path) for path in paths]
    named = [f"file://{path}" if path.startswith("/") else path for path in named]
    read = spark.read.schema(spark_schema(schema)).options(**READ_OPTIONS)
    if len(named) <= int(str(spark.conf.get(_DISCOVERY))):
        return read.parquet(*named)
    # The threshold is a setting of the session, which other threads may use at the same time.
    with _discovery_lock:
        threshold = spark.conf.get(_DISCOVERY)
        spark.conf.set(_DISCOVERY, str(len(named)))
        try:
            return read.parquet(*named)
        finally:
            spark.conf.set(_DISCOVERY, threshold)


def parts_frame(
    spark: SparkSession,
    parts: Iterable[PartRef],
    columns: pa.Schema,
    *,
    as_of: Timestamp | None = None,
    between: tuple[Timestamp, Timestamp] | None = None,
    key_ranges: Sequence[KeyRange] | None = None,
    filters: Mapping[str, Sequence[KeyRange]] | None = None,
) -> DataFrame:
    """Updates from persist's parts, read by Spark. Parts that it cannot open are read on the driver if they are few,
    else by executors.

    Args:
        spark: the frame's session.
        parts: must be kept alive by the caller until the frame was used.
        columns: the row's columns.
        as_of: present the contents at this time: all times become it, later updates are left out …
        between: … or the updates with ``lower <= mz_time < upper`` at their own times. Exactly one of the two is
            given.
        key_ranges: at most `PUSHED_RANGES` ranges of the first column, pushed into the scan; None reads everything.
        filters: ranges of columns that the caller filters by. Parts that executors read leave out other rows where
            that saves reading.

    Raises:
        UsageError: parts that are too large for the driver are in a Blob store that executors cannot open.
        InternalError: both or neither of `as_of` and `between` are given.
    """
    if (as_of is None) == (between is None):
        raise InternalError("parts are read either at a time or between two")
    full = pa.schema(
        [*columns, pa.field(TIME_COLUMN, pa.int64()), pa.field(DIFF_COLUMN, pa.int64())]
    )
    by_floor: dict[Timestamp, list[str]] = {}
    here: list[PartRef] = []
    late = False
    for part in parts:
        if as_of is not None and part.time_min > as_of:
            continue
        late = late or as_of is None or part.time_max > as_of
        path = part.spark_path
        if path is None or not can_open(spark, path):
            here.append(part)
        else:
            # With `as_of` all times become equal anyway, and the floor of a part that was not skipped is at or before
            # it.
            floor = 0 if as_of is not None else part.time_floor
            by_floor.setdefault(floor, []).append(path)
    frames = [_parquet_frame(spark, paths, full) for paths in by_floor.values()]
    for position, floor in enumerate(by_floor):
        if floor:
            time = F.greatest(F.col(TIME_COLUMN), F.lit(floor).cast("bigint"))
            frames[position] = frames[position].withColumn(TIME_COLUMN, time)
    wanted = dict(filters or {})
    if key_ranges is not None:
        wanted[columns.names[0]] = key_ranges
    times = between if between is not None else (0, None if as_of is None else as_of + 1)
    frames += _without_path(spark, here, full, wanted, times)
    if not frames:
        frames = [arrow_frame(spark, full.empty_table())]
    if key_ranges is not None:
        floating = pa.types.is_floating(columns.types[0])
        condition = range_condition(F.col(columns.names[0]), key_ranges, floating=floating)
        frames = [frame.where(condition) for frame in frames]
    frame = reduce(DataFrame.unionAll, frames)
    time = F.col(TIME_COLUMN)
    if as_of is not None:
        # without a later update there is no need to read the times at all
        kept = frame.where(time <= F.lit(as_of)) if late else frame
        return kept.withColumn(TIME_COLUMN, F.lit(as_of).cast("bigint"))
    assert between is not None
    return frame.where((time >= F.lit(between[0])) & (time < F.lit(between[1])))


def _without_path(
    spark: SparkSession,
    parts: Sequence[PartRef],
    full: pa.Schema,
    filters: Mapping[str, Sequence[KeyRange]],
    times: tuple[Timestamp, Timestamp | None],
) -> list[DataFrame]:
    """Updates of parts that the session cannot open by path, at their own times; may include times beyond those wanted."""
    away: list[PartRef] = []
    if beyond_driver(parts):
        away = [part for part in parts if not part.inline]
    here = [part for part in parts if part.inline or not away]
    frames = []
    if here:
        names = full.names[:-2]
        tables = [part.to_arrow(columns=names).select(full.names).cast(full) for part in here]
        frames.append(arrow_frame(spark, pa.concat_tables(tables)))
    if away:
        lower, upper = times
        frames.append(
            executor_frame(
                spark, away, full, spark_schema(full), filters=filters, lower=lower, upper=upper
            )
        )
    return frames


def beyond_driver(parts: Iterable[PartRef]) -> bool:
    """Whether the parts are more than may be read on the driver."""
    found = list(parts)
    return (
        sum(part.rows for part in found) > DRIVER_ROWS
        or sum(part.bytes for part in found) > DRIVER_BYTES
    )


def rows_at(parts: Sequence[PartRef], schema: pa.Schema, as_of: Timestamp) -> pa.Table:
    """The parts' updates at or before `as_of`, read here, with all times set to it. `schema` includes mz_time and
    mz_diff.
    """
    tables = [part.to_arrow().select(schema.names).cast(schema) for part in parts]
    if not tables:
        return schema.empty_table()
    return all_at(until(pa.concat_tables(tables), as_of), as_of)
