"""One-shot queries on Spark: the result of a plan at one time, piece by piece.

Promise: rows come in the statement's order, a few thousand at a time, and no more than are taken: this process holds
one piece at a time, however large the result is. Nothing is installed or written, so any process may ask, whether it
leads or not. Trade-off: rows pass through Spark's Python workers, which encode them as Arrow where they are; Spark's
own collect would bring the whole result to the driver before anybody could check its size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st
from sqlglot import expressions as exp

from mzsql.compute.dependencies import StorageReader
from mzsql.compute.engines.jobs import named_jobs
from mzsql.compute.engines.relations import parts_frame
from mzsql.compute.engines.spark_session import STEP_POOL, query_session
from mzsql.compute.engines.spark_start import SparkStart
from mzsql.compute.engines.statements import run as run_statement
from mzsql.compute.replica.dataflows.inputs import input_schema
from mzsql.expr.functions.table import Engine
from mzsql.lir.plan import DataflowDescription
from mzsql.persist import PartRef
from mzsql.render.dataflow import one_shot
from mzsql.repr.errors import InternalError, Unsupported
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

#: Returns a context within which its argument is called, from another thread and perhaps repeatedly, when the peek
#: should end.
Interruptible = Callable[[Callable[[], None]], AbstractContextManager[None]]
#: Applies the finishing (ORDER BY, LIMIT, projection) to the one-shot statement, for the engine that will run it.
Finish = Callable[[exp.Expression, Engine], exp.Expression]

_PIECE = st.StructType([st.StructField("piece", st.BinaryType(), False)])


class Snapshot:
    """One input of a peek: its columns, and its parts at the peek's time, which stay leased as long as this object
    lives.
    """

    def __init__(self, parts: Sequence[PartRef], schema: pa.Schema) -> None:
        self.parts = list(parts)
        self.schema = schema


class Peeks:
    """Runs one-shot queries on Spark. Thread-safe.

    Args:
        spark: the session, or a function that makes it when it is first needed.
        storage: reads the inputs.
        ids: makes the ids that the queries' jobs are named by, and canceled by.
    """

    def __init__(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        storage: StorageReader,
        ids: Callable[[], GlobalId],
    ) -> None:
        self._spark = SparkStart(spark)
        self._ids = ids
        self._storage = storage

    def rows(
        self,
        desc: DataflowDescription,
        as_of: Timestamp,
        *,
        finish: Finish | None = None,
        timeout: float = 60.0,
        interruptible: Interruptible | None = None,
    ) -> Iterator[pa.Table]:
        """The result of a plan's one-shot statement at ``as_of``, piece by piece: c0 …, mz_error, [mz_diff].

        Args:
            desc: the plan; it reads no index.
            as_of: the time, which is waited for.
            finish: rewrites the statement; without it equal rows are not added up.
            timeout: seconds to wait for each input.
            interruptible: ends the wait for Spark's start, or the jobs (which then fail with an error of Spark's),
                when the caller gives up.

        Raises:
            NotReadable: an input is not complete in time, or not readable any more.
            Unsupported: the plan is recursive.
        """
        rendered = one_shot(desc, errors_in=self._storage.has_errors)
        statement, loops = rendered.rendered(Engine.SPARK)
        if loops:
            raise Unsupported("WITH MUTUALLY RECURSIVE does not run on Spark")
        if finish is not None:
            statement = finish(statement, Engine.SPARK)
        snapshots: dict[str, Snapshot] = {}
        for one in rendered.inputs:
            if one.index:
                raise InternalError(f"a one-shot query reads the index {one.id}")
            self._storage.wait_for_upper(one.id, as_of, timeout)
            parts = self._storage.parts(one.id, as_of)
            snapshots[f"snap_{one.id}"] = Snapshot(parts, input_schema(one))
        gid = self._ids()

        def run() -> Iterator[pa.Table]:
            # A session for each peek, because the relations of different peeks have equal names.
            session = query_session(self._started(interruptible))
            with ExitStack() as inside:
                jobs = inside.enter_context(
                    named_jobs(session, gid, rendered.lir_ids, "peek", STEP_POOL)
                )
                if interruptible is not None:
                    inside.enter_context(interruptible(jobs.cancel))
                for name, snapshot in snapshots.items():
                    frame = parts_frame(session, snapshot.parts, snapshot.schema, as_of=as_of)
                    frame.drop("mz_time").createOrReplaceTempView(name)
                    inside.callback(session.catalog.dropTempView, name)
                yield from pieces_of(run_statement(session, statement))

        return _elsewhere(run)

    def _started(self, interruptible: Interruptible | None) -> SparkSession:
        given_up = threading.Event()
        with nullcontext() if interruptible is None else interruptible(given_up.set):
            return self._spark.session(given_up.is_set)


def _elsewhere(run: Callable[[], Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yield what ``run`` yields, running it on another thread: using a session makes it the thread's active one, and
    this thread belongs to the user.
    """
    with ThreadPoolExecutor(1, "mzsql-peek") as thread:
        found = thread.submit(run).result()
        try:
            while (piece := thread.submit(next, found, None).result()) is not None:
                yield piece
        finally:
            thread.submit(found.close).result()  # type: ignore[attr-defined]  # it is a generator


def pieces_of(frame: DataFrame) -> Iterator[pa.Table]:
    """The rows of a frame in its order, as Arrow tables that each hold a piece of a partition. A partition is computed
    when it is reached.
    """

    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The function travels to executors by value, so that they need pyarrow only, not mzsql.
        import pyarrow  # noqa: PLC0415

        for batch in batches:
            sink = pyarrow.BufferOutputStream()
            options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
            with pyarrow.ipc.new_stream(sink, batch.schema, options=options) as writer:
                writer.write_batch(batch)
            data = pyarrow.array([sink.getvalue().to_pybytes()], pyarrow.binary())
            yield pyarrow.RecordBatch.from_arrays([data], ["piece"])

    for row in frame.mapInArrow(written, _PIECE).toLocalIterator():
        with pa.ipc.open_stream(row["piece"]) as reader:
            yield reader.read_all()
