"""Materialized views kept up to date in this process: real shards, arrangements, lookups and steps, and no Spark to wait for.

Promise: within `in_process` the controllers of every environment that is opened hydrate and step by DuckDB; what else happens to a view,
from its statement to its shard, is what happens to any. Trade-off: a hydration by Spark is what `--spark` and the tests of compute run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.adapter.dataflows import dataflows
from mzsql.compute import flows
from mzsql.compute.controller import ComputeController
from mzsql.compute.hydration import Hydration
from mzsql.compute.protocols import ComputeSettings, RefreshStats
from mzsql.compute.relations import rows_at
from mzsql.compute.target import Target, with_time
from mzsql.dbapi import connection
from mzsql.expr.functions.table import Engine
from mzsql.render.rendered import HydrationStage
from mzsql.repr.frontier import Timestamp


class InProcess(Hydration):
    """A hydration whose stages DuckDB runs."""

    def run(self) -> RefreshStats:
        """As on Spark, a stage after the other."""
        dataflow, started = self._dataflow, time.monotonic()
        missing = frozenset(desc.name for desc in dataflow.missing)
        for stage in dataflow.rendered.hydration(Engine.DUCKDB, dataflow.as_of):
            if self._stopped():
                break
            self._fill(stage, missing, Path())
        at = dataflow.as_of
        seconds = time.monotonic() - started
        return RefreshStats(dataflow.gid, at, at + 1, 0, self._rows_out, 0, 0, seconds, "hydration")

    def _write(
        self,
        stage: HydrationStage,
        target: Target,
        upper: Timestamp,
        scratch: Path,
        *,
        corrected: str | None,
    ) -> None:
        del scratch
        assert corrected is None, "nothing has been written before"
        full = with_time(target.schema)
        rows = self._result(stage)
        if stage.target is None:
            tables = [rows, *(one for one in self._errors if isinstance(one, pa.Table))]
            rows = pa.concat_tables(tables, promote_options="default")
            self._rows_out = rows.num_rows
        else:
            self._keep_errors(rows)
            rows = rows.filter(pc.is_null(rows.column("mz_error")))
        at = pa.array([self._dataflow.as_of] * rows.num_rows, pa.int64())
        rows = rows.append_column("mz_time", at).select(full.names).cast(full)
        target.append(rows, upper, self._dataflow.as_of + 1, exact=True)

    def _only_errors(self, stage: HydrationStage, scratch: Path) -> None:
        del scratch
        self._keep_errors(self._result(stage))

    def _keep_errors(self, rows: pa.Table) -> None:
        errors = rows.select(["mz_error", "mz_diff"])
        self._errors.append(errors.filter(pc.is_valid(errors.column("mz_error"))))

    def _result(self, stage: HydrationStage) -> pa.Table:
        return self._arrangements._driver.query(
            stage.statement, {name: self._rows_of(name) for name in stage.reads}
        )

    def _rows_of(self, name: str) -> pa.Table:
        as_of, dataflow = self._dataflow.as_of, self._dataflow
        for one in dataflow.inputs:
            if name == f"snap_{one.spec.id}":
                rows = rows_at(list(one.parts(as_of)), with_time(one.schema), as_of)
                return rows.drop_columns(["mz_time"])
        arrangement = dataflow.readable()[name]
        return arrangement.rows(
            rows_at(list(arrangement.parts(as_of)), with_time(arrangement.schema), as_of)
        )


def _no_spark() -> Any:
    raise AssertionError("these views are to be kept without Spark")


def _controller(*args: Any, settings: ComputeSettings, **more: Any) -> ComputeController:
    mine = msgspec.structs.replace(settings, step_engine="duckdb", step_threads=1)
    return ComputeController(*args, settings=mine, **more)


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Environments that are opened within keep their views without Spark."""
    with (
        mock.patch.object(flows, "Hydration", InProcess),
        mock.patch.object(dataflows, "ComputeController", _controller),
        mock.patch.object(dataflows, "require_java", return_value=None),
        mock.patch.object(connection, "_start_spark", _no_spark),
    ):
        yield
