"""The compute controller: one replica's dataflows, brought forward as their inputs advance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from sqlglot import expressions as exp

from mzsql.compute.protocols import (
    ArrangementRegistry,
    ComputeSettings,
    DataflowStatus,
    OperatorHydrationStatus,
    RefreshStats,
    StatusSink,
    StorageReader,
)
from mzsql.expr.functions.table import Engine
from mzsql.lir.plan import DataflowDescription
from mzsql.persist import Clock, PersistClient
from mzsql.repr.errors import Unsupported
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId

#: What a peek does to the one-shot statement (ORDER BY, LIMIT, projection) for the engine that will run it.
Finish = Callable[[exp.Expression, Engine], exp.Expression]


class ComputeController:
    """Runs the dataflows of one replica on its own threads. Methods may be called from any thread."""

    def __init__(
        self,
        persist: PersistClient,
        spark: SparkSession | Callable[[], SparkSession],
        storage: StorageReader,
        registry: ArrangementRegistry,
        status_sink: StatusSink,
        *,
        replica_id: str = "r1",
        settings: ComputeSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Starts the threads; `spark` may be a function that makes the session when it is first needed."""

    def create_dataflow(
        self,
        gid: GlobalId,
        desc: DataflowDescription,
        *,
        output_shard: str | None,
        as_of: Timestamp,
        name: str,
    ) -> None:
        """Install a dataflow that maintains a materialized view (its shard has columns c0 …, mz_error) or, with `output_shard` None,
        an index. A new one hydrates at `as_of`, which must be readable in all inputs; one whose shards are there goes on.
        """
        raise Unsupported("")

    def drop(self, gid: GlobalId) -> None:
        """Stop the dataflow, retract its statuses and give up the arrangements nobody else uses. Idempotent."""
        raise Unsupported("")

    def retire_unused(self) -> int:
        """Give up arrangements in the registry that no installed dataflow uses (after startup); how many."""
        raise Unsupported("")

    def frontier(self, gid: GlobalId) -> Frontier:
        """The upper of the export as known here."""
        raise Unsupported("")

    def wait_until(self, gid: GlobalId, ts: Timestamp, timeout: float) -> None:
        """Wait until `ts` is complete in the export. Raises NotReadable naming frontier, time and replicas."""
        raise Unsupported("")

    def status(self) -> tuple[DataflowStatus, ...]:
        """Every installed dataflow, by id."""
        raise Unsupported("")

    def hydration(self) -> tuple[OperatorHydrationStatus, ...]:
        """The operator statuses that are in the sink now."""
        raise Unsupported("")

    def refreshes(self) -> tuple[RefreshStats, ...]:
        """The latest refreshes, oldest first."""
        raise Unsupported("")

    def peek(
        self,
        desc: DataflowDescription,
        as_of: Timestamp,
        *,
        finish: Finish | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """The rows of a one-shot query at `as_of` (columns c0 …; a row for each of its copies). Raises DataError for an error row."""
        raise Unsupported("")

    def index_snapshot(
        self, gid: GlobalId, as_of: Timestamp, *, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The contents of an index that is installed here: its arrangement's columns and mz_diff."""
        raise Unsupported("")

    def close(self) -> None:
        """Stop and join all threads; shards and statuses stay. Idempotent."""
        raise Unsupported("")
