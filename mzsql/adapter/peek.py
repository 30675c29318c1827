"""Answering a query at one time.

Promise: the answer is that of the plan over the inputs' contents at the timestamp, whichever engine runs it: constants need none, inputs
that are small enough for this process are evaluated by DuckDB, others by Spark (architecture, decisions 10 and 11). Reads wait for
their inputs within the statement's timeout and say what they waited for when it is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa
from sqlglot import expressions as exp

from mzsql.adapter import system_rows
from mzsql.adapter.builtin import builtins
from mzsql.adapter.environment import Environment
from mzsql.adapter.results import constant_table, expand
from mzsql.compute import ComputeSettings
from mzsql.compute.controller import ComputeController
from mzsql.expr.engines import duckdb_connection, to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.relation import RowSetFinishing
from mzsql.lir.plan import Constant, DataflowDescription
from mzsql.render.dataflow import finish, render
from mzsql.repr.errors import DataError, NotReadable, Unsupported
from mzsql.repr.frontier import Timestamp, show
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType, arrow_schema
from mzsql.storage import empty_updates

#: Updates, not committed yet, that a transaction's own reads see: by table, columns c0 …, mz_time, mz_diff.
Overlay: TypeAlias = Mapping[GlobalId, Sequence[pa.Table]]


class Limits(msgspec.Struct, frozen=True):
    """How much of its inputs a query may bring into this process."""

    rows: int = ComputeSettings().driver_rows
    bytes: int = ComputeSettings().driver_bytes


class Peeker:
    """Runs one-shot dataflows. Thread-safe.

    Args:
        env: the environment.
        source: what derived builtin relations are made from.
        spark: gives a controller that runs large queries on Spark; None where there is no Spark.
        replicas: who maintains views, for messages.
    """

    def __init__(
        self,
        env: Environment,
        source: system_rows.Source,
        spark: Callable[[], ComputeController | None],
        replicas: Callable[[GlobalId], str],
        limits: Limits | None = None,
    ) -> None:
        self._env = env
        self._source = source
        self._spark = spark
        self._replicas = replicas
        self._limits = limits or Limits()

    # --- waiting ------------------------------------------------------------------------------

    def stored(self, gids: Sequence[GlobalId]) -> list[GlobalId]:
        """Those of the inputs that have contents at times: tables and materialized views."""
        return [gid for gid in gids if gid not in builtins()]

    def wait(self, gids: Sequence[GlobalId], as_of: Timestamp, timeout: float) -> None:
        """Wait until every stored input is complete at ``as_of``.

        Raises:
            NotReadable: one is not within ``timeout`` seconds; names it, its frontier, the time needed and the replicas there are.
        """
        end = time.monotonic() + timeout
        collections = self._env.collections
        for gid in self.stored(gids):
            meta = collections.meta(gid)
            left = max(0.0, end - time.monotonic())
            try:
                collections.wait_for_upper(gid, as_of, left)
            except NotReadable:
                upper = collections.upper(gid)
                raise NotReadable(
                    f'relation "{meta.name}" is not readable at {as_of}: within {timeout:g} s its write '
                    f"frontier has only reached {show(upper)}",
                    detail=self._replicas(gid) if meta.kind != "table" else None,
                    hint="Wait for it to hydrate and ask again, or raise statement_timeout.",
                ) from None

    # --- running ------------------------------------------------------------------------------

    def run(
        self,
        desc: DataflowDescription,
        finishing: RowSetFinishing,
        columns: tuple[ColumnType, ...],
        as_of: Timestamp,
        *,
        overlay: Overlay | None = None,
        timeout: float = 60.0,
    ) -> pa.Table:
        """The rows of a one-shot dataflow: columns c0 … after the finishing, in its order.

        Args:
            desc: the physical plan.
            finishing: order, limit, offset, projection.
            columns: the columns of the plan's result, before the finishing's projection.
            as_of: the time; every stored input is complete there.
            overlay: what the transaction itself has written.
            timeout: seconds Spark may take.

        Raises:
            DataError: a value could not be computed.
        """
        constant = _constant(desc)
        if constant is not None and not finishing.order_by and finishing.limit is None:
            if constant.error is not None:
                raise DataError(constant.error)
            rows = constant_table(constant.rows, constant.columns).slice(finishing.offset)
            picked = [rows.column(i) for i in finishing.project]
            names = [f"c{i}" for i in range(len(picked))]
            # Rows without columns are counted by a column that the caller drops.
            return pa.table(picked, names=names) if picked else rows
        inputs = [source.id for source in desc.source_imports]
        if overlay is None and self._is_large(inputs, as_of):
            controller = self._spark()
            if controller is not None:
                return controller.peek(
                    desc,
                    as_of,
                    finish=lambda ast, engine: finish(ast, finishing, columns, engine),
                    timeout=timeout,
                )
        return self._run_here(desc, finishing, columns, as_of, overlay or {})

    def _is_large(self, gids: Sequence[GlobalId], as_of: Timestamp) -> bool:
        if any(gid in builtins() for gid in gids):
            return False
        parts = [part for gid in gids for part in self._env.collections.parts(gid, as_of)]
        rows, size = sum(p.rows for p in parts), sum(p.bytes for p in parts)
        return rows > self._limits.rows or size > self._limits.bytes

    def _run_here(
        self,
        desc: DataflowDescription,
        finishing: RowSetFinishing,
        columns: tuple[ColumnType, ...],
        as_of: Timestamp,
        overlay: Overlay,
    ) -> pa.Table:
        rendered = render(desc, errors_in=self._has_errors)
        statement = finish(rendered.oneshot(Engine.DUCKDB), finishing, columns, Engine.DUCKDB)
        connection = duckdb_connection()
        try:
            for spec in rendered.inputs:
                if spec.index:
                    raise Unsupported("a one-shot query cannot read an index in this process")
                table = self.snapshot(spec.id, as_of, overlay.get(spec.id, ()))
                connection.register(f"snap_{spec.id}", table)
            result = _fetch(connection, statement)
        finally:
            connection.close()
        return _checked(result)

    def _has_errors(self, gid: GlobalId) -> bool:
        if gid in builtins():
            return False
        return self._env.collections.has_errors(gid)

    def snapshot(
        self, gid: GlobalId, as_of: Timestamp, overlay: Sequence[pa.Table] = ()
    ) -> pa.Table:
        """An input's contents: c0 …, [mz_error], mz_diff, consolidated; builtin relations as they are now."""
        builtin = builtins().get(gid)
        if builtin is None:
            table = self._env.collections.snapshot(gid, as_of)
            if overlay:
                # Rows read and rows made here may differ in what they say of NULLs, not in type.
                both = pa.concat_tables([table, *overlay], promote_options="default")
                table = consolidated(both)
            return table.drop_columns(["mz_time"]) if "mz_time" in table.column_names else table
        if system_rows.is_derived(builtin):
            rows = system_rows.derive(builtin, self._source)
            return rows.append_column("mz_diff", pa.array([1] * rows.num_rows, pa.int64()))
        return self._managed(gid)

    def _managed(self, gid: GlobalId) -> pa.Table:
        if self._env.manager.is_registered(gid):
            self._env.manager.flush(gid)
        collections = self._env.collections
        upper = collections.upper(gid)
        if not upper:
            schema = arrow_schema(collections.meta(gid).columns)
            return empty_updates(schema).drop_columns(["mz_time"])
        return collections.snapshot(gid, upper - 1).drop_columns(["mz_time"])


def consolidated(updates: pa.Table) -> pa.Table:
    """Updates with equal rows added up, times ignored."""
    keys = [c for c in updates.column_names if c not in ("mz_time", "mz_diff")]
    connection = duckdb_connection()
    try:
        connection.register("updates", updates)
        columns = [exp.column(c, quoted=True) for c in keys]
        total = exp.Sum(this=exp.column("mz_diff", quoted=True))
        query = (
            exp.select(*columns, exp.alias_(exp.cast(total, "bigint"), "mz_diff", quoted=True))
            .from_(exp.to_table("updates", quoted=True))
            .group_by(*columns)
            .having(exp.NEQ(this=total.copy(), expression=exp.Literal.number(0)))
        )
        result: pa.Table = _fetch(connection, query)
    finally:
        connection.close()
    schema = pa.schema([updates.schema.field(c) for c in (*keys, "mz_diff")])
    return result.cast(schema)


def _fetch(connection: object, statement: exp.Expression) -> pa.Table:
    return connection.sql(to_sql(statement, Engine.DUCKDB)).to_arrow_table()  # type: ignore[attr-defined]


def _checked(result: pa.Table) -> pa.Table:
    """The rows without the error column; fails with the first error there is."""
    ones = pa.array([1] * result.num_rows, pa.int64())
    return (
        expand(result.append_column("mz_diff", ones), "the result")
        if result.num_rows
        else (result.drop_columns(["mz_error"]) if "mz_error" in result.column_names else result)
    )


def _constant(desc: DataflowDescription) -> Constant | None:
    """The constant that the whole plan is, if it is one."""
    plan = desc.root.plan
    return plan if isinstance(plan, Constant) and len(desc.objects) == 1 else None
