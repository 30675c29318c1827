"""One-shot queries: the contents of a plan at one time.

Promise: small inputs are answered in process by DuckDB, without a Spark job; past the bound of stored bytes for the driver Spark
answers. Both give the same Arrow table. A query that meets an error row fails with that error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from sqlglot import expressions as exp

from mzsql.compute.driver import Driver
from mzsql.compute.jobs import named_jobs
from mzsql.compute.protocols import ComputeSettings
from mzsql.compute.relations import parts_frame, rows_at
from mzsql.compute.spark_session import STEP_POOL, step_session
from mzsql.compute.spark_start import SparkStart
from mzsql.compute.target import with_time
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.persist import PartRef
from mzsql.render.dataflow import OneShot
from mzsql.repr.errors import InternalError, Unsupported
from mzsql.repr.evaluation import failed
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import arrow_schema

#: Within what it gives, its argument is called when the peek is to end: from another thread, perhaps more than once.
Interruptible = Callable[[Callable[[], None]], AbstractContextManager[None]]
#: What a peek does to the one-shot statement (ORDER BY, LIMIT, projection) for the engine that will run it.
Finish = Callable[[exp.Expression, Engine], exp.Expression]


class Snapshot:
    """One input of a peek: its parts at the peek's time (kept alive with this object) and its columns."""

    def __init__(self, parts: Sequence[PartRef], schema: pa.Schema) -> None:
        self.parts = list(parts)
        self.schema = schema

    @property
    def bytes(self) -> int:
        """As stored."""
        return sum(part.bytes for part in self.parts)


def run_peek(
    rendered: OneShot,
    snapshots: Mapping[str, Snapshot],
    as_of: Timestamp,
    *,
    driver: Driver,
    spark: SparkStart,
    settings: ComputeSettings,
    finish: Finish | None = None,
    interruptible: Interruptible | None = None,
) -> pa.Table:
    """The rows of a one-shot plan.

    Args:
        rendered: the plan.
        snapshots: the relations ``snap_…`` it reads.
        as_of: the time read at.
        driver: DuckDB.
        spark: the Spark session, if it comes to that.
        settings: with the bound on the driver's bytes.
        finish: rewrites the statement for an engine; without it each row comes as many times as it is there.
        interruptible: ends the wait for Spark's start, or Spark's jobs (which fail as Spark has them fail), when the caller is to give up.

    Raises:
        DataError: the first error row's message.
    """
    small = sum(one.bytes for one in snapshots.values()) <= settings.driver_bytes
    engine = Engine.DUCKDB if small else Engine.SPARK
    statement, loops = rendered.rendered(engine)
    if loops:
        raise Unsupported(
            "WITH MUTUALLY RECURSIVE over more data than fits this process is not supported",
            hint="narrow down what the query reads, or raise the limits of the environment",
        )
    if finish is not None:
        statement = finish(statement, engine)
    if engine is Engine.DUCKDB:
        tables = {
            name: rows_at(one.parts, with_time(one.schema), as_of).drop_columns(["mz_time"])
            for name, one in snapshots.items()
        }
        result = driver.query(statement, tables)
    else:
        # In a thread of its own: working in a session makes it the thread's active one, and this thread is the user's.
        with ThreadPoolExecutor(1, "mzsql-peek") as thread:
            result = thread.submit(
                _on_spark, statement, snapshots, as_of, spark, rendered, interruptible
            ).result()
    schema = None if finish is not None else arrow_schema(rendered.output_columns)
    return rows_of(result, schema, driver)


def _started(spark: SparkStart, interruptible: Interruptible | None) -> SparkSession:
    given_up = threading.Event()
    with nullcontext() if interruptible is None else interruptible(given_up.set):
        return spark.session(given_up.is_set)


def _on_spark(
    statement: exp.Expression,
    snapshots: Mapping[str, Snapshot],
    as_of: Timestamp,
    spark: SparkStart,
    rendered: OneShot,
    interruptible: Interruptible | None,
) -> pa.Table:
    # one for each peek: their relations have equal names
    session = step_session(_started(spark, interruptible))
    gid: GlobalId = rendered.desc.export.id
    with ExitStack() as inside:
        jobs = inside.enter_context(named_jobs(session, gid, rendered.lir_ids, "peek", STEP_POOL))
        if interruptible is not None:
            inside.enter_context(interruptible(jobs.cancel))
        for name, one in snapshots.items():
            frame = parts_frame(session, one.parts, one.schema, as_of=as_of)
            frame.drop("mz_time").createOrReplaceTempView(name)
        try:
            return session.sql(to_sql(statement, Engine.SPARK)).toArrow()
        finally:
            for name in snapshots:
                session.catalog.dropTempView(name)


def rows_of(result: pa.Table, schema: pa.Schema | None, driver: Driver) -> pa.Table:
    """A one-shot statement's result (columns c0 …, mz_error, [mz_diff]) as rows.

    Args:
        result: as an engine gave it.
        schema: the columns' types; None: as they are (a finishing may project them).
        driver: adds up equal rows.

    Raises:
        DataError: there is an error row.
        InternalError: a row is there a negative number of times.
    """
    if "mz_diff" in result.column_names:
        result = _consolidated(result, driver)
    errors = pc.drop_null(result.column("mz_error"))
    if len(errors):
        raise failed(errors[0].as_py())
    rows = result.drop_columns([n for n in ("mz_error", "mz_diff") if n in result.column_names])
    if "mz_diff" in result.column_names:
        diffs = result.column("mz_diff").combine_chunks()
        if result.num_rows and pc.min(diffs).as_py() < 0:
            raise InternalError("Invalid data in source, saw negative multiplicity for a row")
        if result.num_rows and pc.max(diffs).as_py() > 1:
            rows = rows.take(_repeated(diffs))
    if schema is None:
        return rows
    return rows.select(schema.names).cast(schema)


def _consolidated(result: pa.Table, driver: Driver) -> pa.Table:
    names = [name for name in result.column_names if name != "mz_diff"]
    diff = exp.cast(exp.Sum(this=exp.column("mz_diff", quoted=True)), "BIGINT")
    select = (
        exp.select(*(exp.column(name, quoted=True) for name in names))
        .select(exp.alias_(diff, "mz_diff", quoted=True))
        .from_("result")
        .group_by(*(exp.column(name, quoted=True) for name in names))
        .having(exp.NEQ(this=diff.copy(), expression=exp.Literal.number(0)))
    )
    return driver.query(select, {"result": result})


def _repeated(diffs: pa.Array) -> pa.Array:
    """Each position as often as its diff says."""
    lists = pa.ListArray.from_arrays(
        pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(diffs).cast(pa.int32())]),
        pa.nulls(int(pc.sum(diffs).as_py())),
    )
    return pc.list_parent_indices(lists)
