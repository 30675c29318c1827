"""A dataflow that lives in this process as long as somebody subscribes to it: DuckDB hydrates and steps it, and nothing
is durable.

Promise: it runs the same rendered statements as a maintained view, so its output at every timestamp is the query's.
A step costs what the updates touch plus one scan of the arrangements that it reads. The inputs are read in full
once, at `as_of`. State is in tables of a DuckDB that spills to a temporary directory beyond `MEMORY_LIMIT`; a table
is consolidated whenever it has doubled. Trade-offs: no lookups by key (a step scans the state that it joins with),
and nothing is shared between subscribers or survives them.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping

import duckdb
import pyarrow as pa
from sqlglot import expressions as exp

from mzsql.expr.engines import locked_connection, to_sql
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.render.dataflow import RenderedDataflow
from mzsql.render.rendered import ArrangementSpec
from mzsql.render.statement import (
    DIFF,
    ERROR,
    TIME,
    Ast,
    col,
    named,
    select,
    subquery,
    union_all,
)
from mzsql.render.updates import added_up, consolidated
from mzsql.repr.errors import Unsupported
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

#: Memory of one such dataflow, beyond which DuckDB spills to disk.
MEMORY_LIMIT = "256MiB"
#: Bytes of a piece in which rows are handed to DuckDB.
PIECE_BYTES = 32 << 20
#: An arrangement with fewer updates is never consolidated.
_CONSOLIDATE_ROWS = 50_000


@contextlib.contextmanager
def given(
    connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table | pa.RecordBatch
) -> Iterator[None]:
    """Register rows as a relation of this name within the block."""
    connection.register(name, rows)
    try:
        yield
    finally:
        connection.unregister(name)


def bounded_connection(directory: str) -> duckdb.DuckDBPyConnection:
    """Open an in-process DuckDB that keeps `MEMORY_LIMIT` in memory and spills to ``directory``."""
    return locked_connection(settings={"memory_limit": MEMORY_LIMIT, "temp_directory": directory})


def load(
    connection: duckdb.DuckDBPyConnection, name: str, rows: pa.RecordBatchReader | pa.Table
) -> None:
    """Create a table of rows, piece by piece. The rows are produced outside of DuckDB, so that errors of their producer
    are raised unchanged.
    """
    made = False
    for piece in _pieces(rows):
        statement = f'INSERT INTO "{name}"' if made else f'CREATE TABLE "{name}" AS'
        with given(connection, "given", piece):
            connection.execute(f"{statement} SELECT * FROM given")
        made = True


def _pieces(rows: pa.RecordBatchReader | pa.Table) -> Iterator[pa.Table]:
    """The rows in few pieces of bounded size, at least one; each piece costs a statement."""
    schema, size, made = rows.schema, 0, False
    waiting: list[pa.RecordBatch] = []
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
        waiting.append(batch)
        size += batch.nbytes
        if size >= PIECE_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting, size, made = [], 0, True
    if waiting or not made:
        yield pa.Table.from_batches(waiting, schema)


class TransientDataflow:
    """One dataflow's state: call `hydrate`, then `step` again and again. For one thread at a time, except `interrupt`.

    Args:
        rendered: the dataflow; it must not read indexes.
        as_of: the time of its first contents.

    Raises:
        Unsupported: the dataflow is recursive.
    """

    def __init__(self, rendered: RenderedDataflow, as_of: Timestamp) -> None:
        if rendered.recursions:
            raise Unsupported(
                "WITH MUTUALLY RECURSIVE cannot be subscribed to",
                hint="create a materialized view of it and subscribe to that",
            )
        self._rendered = rendered
        self._as_of = as_of
        self._directory = tempfile.TemporaryDirectory(prefix="mzsql-transient-")
        self._duck = bounded_connection(self._directory.name)
        self._specs = {spec.name: spec for spec in rendered.arrangements}
        self._settled: dict[str, int] = {}

    @property
    def temporal(self) -> bool:
        """Whether rows appear and disappear as time passes, without updates of the inputs."""
        return self._rendered.temporal

    def interrupt(self) -> None:
        """Interrupt the running statement; from any thread."""
        self._duck.interrupt()

    def close(self) -> None:
        """Discard the state. Idempotent."""
        self._duck.close()
        self._directory.cleanup()

    # --- hydration ------------------------------------------------------------------------------

    def hydrate(self, snapshots: Mapping[GlobalId, pa.RecordBatchReader | pa.Table]) -> pa.Table:
        """Fill the arrangements; return the output's contents at `as_of`: c0 …, mz_error, mz_diff, consolidated.

        Args:
            snapshots: each input's contents at `as_of`: c0 …, [mz_error], mz_diff; a reader is read once.
        """
        for gid, rows in snapshots.items():
            load(self._duck, f"snap_{gid}", rows)
        self._duck.execute("CREATE TABLE mz_errors (mz_error VARCHAR, mz_diff BIGINT)")
        for stage in self._rendered.hydration(Engine.DUCKDB, self._as_of):
            text = to_sql(stage.statement, Engine.DUCKDB)
            self._duck.execute(f"CREATE OR REPLACE TEMP TABLE stage AS {text}")
            if stage.target is None:
                break
            columns = ", ".join(f'"c{i}"' for i in range(len(stage.columns)))
            listed = f"{columns}, " if columns else ""
            if stage.has_errors:
                self._duck.execute(
                    "INSERT INTO mz_errors SELECT mz_error, mz_diff FROM stage WHERE mz_error IS NOT NULL"
                )
            state = f"state_{stage.target}"
            self._duck.execute(
                f'CREATE TABLE "{state}" AS SELECT {listed}mz_diff FROM stage WHERE mz_error IS NULL'
            )
            self._present(stage.target, self._as_of)
            self._settled[stage.target] = self._count(state)
        for gid in snapshots:
            self._duck.execute(f'DROP TABLE "snap_{gid}"')
        row: list[Ast] = [col(f"c{i}") for i in range(len(self._rendered.output_columns))]
        nulls = [named(s.null(), f"c{i}") for i in range(len(row))]
        both = union_all(
            [
                select([*row, col(ERROR), col(DIFF)], "stage"),
                select([*nulls, col(ERROR), col(DIFF)], "mz_errors"),
            ]
        )
        return self._asked(consolidated(subquery(both, "both"), [*row, col(ERROR)]))

    def _asked(self, query: exp.Expression) -> pa.Table:
        return self._duck.sql(to_sql(query, Engine.DUCKDB)).to_arrow_table()

    def _count(self, table: str) -> int:
        ((rows,),) = self._duck.execute(f'SELECT count(*) FROM "{table}"').fetchall()
        return int(rows)

    def _present(self, name: str, at: Timestamp) -> None:
        """Show an arrangement's state as the relation that statements read, with every row at one time."""
        self._duck.execute(
            f'CREATE OR REPLACE TEMP VIEW "{name}" AS'
            f' SELECT * EXCLUDE (mz_diff), CAST({at} AS BIGINT) AS mz_time, mz_diff FROM "state_{name}"'
        )

    # --- steps ----------------------------------------------------------------------------------

    def step(
        self, deltas: Mapping[GlobalId, pa.Table], lower: Timestamp, upper: Timestamp
    ) -> pa.Table:
        """Process the inputs' updates of ``[lower, upper)``; return the output's: c0 …, mz_error, mz_time, mz_diff,
        consolidated.

        Args:
            deltas: each input's updates at their times: c0 …, [mz_error], mz_time, mz_diff.
            lower: the upper of the step before, or the time after `as_of`.
            upper: where the step ends; the inputs are complete below it.
        """
        step = self._rendered.step(Engine.DUCKDB, lower, upper)
        for name in self._specs:
            self._present(name, lower - 1)
        with contextlib.ExitStack() as relations:
            for gid, rows in deltas.items():
                relations.enter_context(given(self._duck, f"delta_{gid}", rows))
            statement: exp.Expression = step.statement
            self._duck.execute(
                f"CREATE OR REPLACE TEMP TABLE step AS {to_sql(statement, Engine.DUCKDB)}"
            )
        export = None
        for output in step.outputs:
            if output.arrangement is None:
                row: list[Ast] = [col(f"c{at}") for at in output.positions]
                shown = [named(one, f"c{i}") for i, one in enumerate(row)]
                beside: list[Ast] = [col(ERROR), col(TIME)]
                mine = s.eq(col("mz_tag"), s.num(output.tag))
                export = consolidated(
                    "step", [*row, *beside], shown=[*shown, *beside], where=[mine]
                )
                continue
            listed = "".join(f'"c{at}" AS "c{i}", ' for i, at in enumerate(output.positions))
            self._duck.execute(
                f'INSERT INTO "state_{output.arrangement}"'
                f" SELECT {listed}mz_diff FROM step WHERE mz_tag = {output.tag}"
            )
            self._settle(output.arrangement)
        assert export is not None
        return self._asked(export)

    def _settle(self, name: str) -> None:
        """Consolidate an arrangement that has doubled since it was last consolidated."""
        state = f"state_{name}"
        rows = self._count(state)
        if rows < max(_CONSOLIDATE_ROWS, 2 * self._settled[name]):
            return
        self._duck.execute(
            f"CREATE TABLE settled AS {self._consolidated(self._specs[name], state)}"
        )
        self._duck.execute(f'DROP TABLE "{state}" CASCADE')
        self._duck.execute(f'ALTER TABLE settled RENAME TO "{state}"')
        self._settled[name] = self._count(state)

    def _consolidated(self, spec: ArrangementSpec, state: str) -> str:
        if not spec.additive:
            row: list[Ast] = [col(f"c{i}") for i in range(len(spec.columns))]
            return to_sql(consolidated(state, row), Engine.DUCKDB)
        # An accumulator's value is the sum over a key's rows, so one row with the sums replaces them.
        made = added_up(state, spec.columns, spec.additive, Engine.DUCKDB)
        return to_sql(made, Engine.DUCKDB)
