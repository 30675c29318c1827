"""The output rows of a subscription: updates turned into rows, by envelope and order.

Promise: rows come in order of their timestamps. Without an envelope they are the updates, those of one timestamp in the
requested order (else ordered by their columns). ENVELOPE UPSERT and DEBEZIUM give one row for each key and timestamp
with updates; where a key has, gains or loses more than one row at a timestamp it is a key_violation, with NULL values
(https://materialize.com/docs/sql/subscribe/). DuckDB does the work, streaming, and spills to disk what does not fit
into memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa

from mzsql.compute.replica.dataflows.transient import given
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.frontend.plan.cursor_plans import SubscribePlan
from mzsql.render.statement import TIME, col
from mzsql.render.updates import consolidated
from mzsql.repr.frontier import Timestamp
from mzsql.repr.tables import pieces
from mzsql.repr.types import arrow_schema

#: At most so many output rows per piece …
BATCH_ROWS = 16 * 1024
#: … and so many bytes, unless a single row is larger.
BATCH_BYTES = 16 * 1024 * 1024
#: Rows per Arrow batch from DuckDB: the text of one batch must fit Arrow's 2 GiB string arrays.
_ASKED_ROWS = 2048


def _over(batches: list[pa.RecordBatch]) -> bool:
    rows, size = sum(b.num_rows for b in batches), sum(b.nbytes for b in batches)
    return bool(rows > BATCH_ROWS or size > BATCH_BYTES)


class OutputRows:
    """Turns updates into output rows, for one subscription."""

    def __init__(self, plan: SubscribePlan) -> None:
        self._plan = plan
        schema = arrow_schema(plan.desc.typ.columns)
        self._types = [field.type for field in schema]
        self._query = self._statement()

    def _statement(self) -> str:
        plan = self._plan
        columns = [f'"c{i}"' for i in range(plan.row.arity)]
        row = [col(TIME), *(col(f"c{i}") for i in range(plan.row.arity))]
        updates = to_sql(consolidated("updates", row), Engine.DUCKDB)
        progressed = ["FALSE"] if plan.progress else []
        if plan.envelope is None:
            order = [
                f"{(*columns, 'mz_diff')[o.column]} {'DESC' if o.desc else 'ASC'}"
                f" NULLS {'LAST' if o.nulls_last else 'FIRST'}"
                for o in plan.order
            ]
            items = ["mz_time", *progressed, "mz_diff", *columns]
            rest = [*order, *columns, "mz_diff"]
            return (
                f"SELECT {self._listed(items)} FROM ({updates}) ORDER BY mz_time, {', '.join(rest)}"
            )
        keys = [columns[i] for i in plan.keys]
        values = [c for i, c in enumerate(columns) if i not in plan.keys]
        return self._enveloped(updates, keys, values, progressed)

    def _enveloped(
        self, updates: str, keys: list[str], values: list[str], progressed: list[str]
    ) -> str:
        """The statement for an envelope: one row per key and timestamp; ``mz_state`` follows from how many rows were
        removed and added.
        """
        debezium = self._plan.envelope == "debezium"
        # any_value() would skip a NULL, and return the value of another row.
        before = [f"first({v}) FILTER (WHERE mz_diff < 0)" for v in values]
        after = [f"first({v}) FILTER (WHERE mz_diff > 0)" for v in values]
        went = "coalesce(sum(mz_diff) FILTER (WHERE mz_diff < 0), 0)"
        came = "coalesce(sum(mz_diff) FILTER (WHERE mz_diff > 0), 0)"
        state = (
            f"CASE WHEN {went} = 0 AND {came} = 1 THEN '{'insert' if debezium else 'upsert'}'"
            f" WHEN {went} = -1 AND {came} = 1 THEN 'upsert'"
            f" WHEN {went} = -1 AND {came} = 0 THEN 'delete' ELSE 'key_violation' END"
        )
        parts = [f"{e} AS b{i}" for i, e in enumerate(before)]
        parts += [f"{e} AS a{i}" for i, e in enumerate(after)]
        inner = (
            f"SELECT {', '.join(['mz_time', *keys, f'{state} AS mz_state', *parts])}"
            f" FROM ({updates}) GROUP BY mz_time, {', '.join(keys)}"
        )
        shown = []
        n = len(values)
        violated = "mz_state = 'key_violation'"
        if debezium:
            shown += [f"CASE WHEN NOT {violated} THEN b{i} END" for i in range(n)]
            shown += [f"CASE WHEN NOT {violated} THEN a{i} END" for i in range(n)]
        else:
            shown += [f"CASE WHEN mz_state = 'upsert' THEN a{i} END" for i in range(n)]
        items = ["mz_time", *progressed, "mz_state", *keys, *shown]
        return (
            f"SELECT {self._listed(items)} FROM ({inner}) ORDER BY {', '.join(['mz_time', *keys])}"
        )

    @staticmethod
    def _listed(items: list[str]) -> str:
        return ", ".join(f"{item} AS o{i}" for i, item in enumerate(items))

    def of(self, duck: duckdb.DuckDBPyConnection, updates: pa.Table) -> Iterator[pa.Table]:
        """The output rows of updates, in pieces.

        Args:
            duck: the connection to compute on.
            updates: columns c0, c1, …, mz_time, mz_diff; all updates of each of their timestamps.
        """
        with given(duck, "updates", updates):
            yield from self._rows(duck)

    def of_table(
        self, duck: duckdb.DuckDBPyConnection, table: str, ts: Timestamp
    ) -> Iterator[pa.Table]:
        """The output rows of a snapshot at ``ts`` that is in a table of DuckDB, in pieces."""
        columns = "".join(f'"c{i}", ' for i in range(self._plan.row.arity))
        duck.execute(
            f"CREATE TEMP VIEW updates AS SELECT {columns}CAST({ts} AS BIGINT) AS mz_time, mz_diff FROM {table}"
        )
        yield from self._rows(duck)
        duck.execute("DROP VIEW updates")

    def _rows(self, duck: duckdb.DuckDBPyConnection) -> Iterator[pa.Table]:
        held: list[pa.RecordBatch] = []
        for batch in duck.sql(self._query).to_arrow_reader(_ASKED_ROWS):
            if held and _over([*held, batch]):
                yield from self._pieces(held)
                held = []
            held.append(batch)
        yield from self._pieces(held)

    def _pieces(self, batches: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        if batches:
            yield from pieces(self._typed(pa.Table.from_batches(batches)), BATCH_ROWS, BATCH_BYTES)

    def progress(self, ts: Timestamp) -> pa.Table:
        """The progress row: no more updates come before ``ts``."""
        arrays = [
            pa.array([ts if i == 0 else True if i == 1 else None]).cast(typ)
            for i, typ in enumerate(self._types)
        ]
        return pa.table(arrays, names=list(self._plan.desc.names))

    def nothing(self) -> pa.Table:
        """An empty table with the output's columns."""
        arrays = [pa.array([], typ) for typ in self._types]
        return pa.table(arrays, names=list(self._plan.desc.names))

    def _typed(self, rows: pa.Table) -> pa.Table:
        arrays = [
            column if column.type == typ else column.cast(typ)
            for column, typ in zip(rows.columns, self._types, strict=True)
        ]
        return pa.table(arrays, names=list(self._plan.desc.names))
