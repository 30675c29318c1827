"""Recursive nodes of a dataflow (WITH MUTUALLY RECURSIVE): their contents at a time, and their changes in a step.

Promise: at each time at which an input of a recursion changes, the recursion is computed from empty to its fixpoint
over the full contents of its inputs at that time, and the result is compared with that of the time before. So the
changes do not depend on how time is cut into steps. A recursion that reaches its recursion limit has that error as
its only row, until its inputs change so that it ends. This runs in DuckDB in this process, which spills to disk,
whichever engine runs the rest of the step.

Trade-off: only the contents are kept between steps. So a change costs as much as computing the recursion, once for
each time, and once more for the time before if the previous step was not run in this process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.engines import recursion
from mzsql.compute.replica.dataflows.inputs import Input
from mzsql.compute.replica.dataflows.transient import load
from mzsql.compute.replica.target import with_time
from mzsql.expr.engines import (
    WIDE_SETTINGS,
    is_wide,
    locked_connection,
    scratch_directory,
    to_sql,
)
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.persist import TIME_COLUMN, until
from mzsql.render.nodes.recursion import Recursion
from mzsql.render.statement import Ast, big, col, null_of, select, union_all
from mzsql.render.updates import difference
from mzsql.repr.errors import DataError
from mzsql.repr.frontier import Timestamp
from mzsql.repr.types import updates_schema


def schema_of(made: Recursion) -> pa.Schema:
    """The columns of a recursion's changes, without mz_time and mz_diff."""
    return updates_schema(made.columns)


def fill(
    connection: duckdb.DuckDBPyConnection, made: Recursion, check: Callable[[], None], table: str
) -> None:
    """Create a table with a recursion's contents: c0 …, mz_error, mz_diff. Its inputs must exist as relations of the
    connection.

    A recursion that fails has its error as the only row.
    """
    texts = recursion.texts(made.loops)
    try:
        recursion.run(connection, texts, check)
        query = to_sql(made.statement, Engine.DUCKDB)
        connection.execute(f'CREATE OR REPLACE TABLE "{table}" AS {query}')
    except DataError as error:
        # A data error becomes the recursion's only row, so that the view has the error instead of the dataflow
        # failing.
        message = str(error).replace("'", "''")
        listed = "".join(
            f"{to_sql(null_of(typ, Engine.DUCKDB), Engine.DUCKDB)} AS c{i}, "
            for i, typ in enumerate(made.columns)
        )
        connection.execute(
            f'CREATE OR REPLACE TABLE "{table}" AS'
            f" SELECT {listed}'{message}' AS mz_error, CAST(1 AS BIGINT) AS mz_diff"
        )
    finally:
        for name in recursion.tables(texts):
            connection.execute(f'DROP TABLE IF EXISTS "{name}"')


@dataclass
class Kept:
    """The contents of a dataflow's recursions after its last step, for the next one."""

    at: Timestamp
    contents: Mapping[str, pa.Table]


class Fixpoints:
    """Computes the recursions of one dataflow, step by step.

    Args:
        recursions: the recursive nodes.
        rows: contents with more rows are computed again at the next step instead of kept.
        check: called now and then; raises if the step is to end.
    """

    def __init__(
        self, recursions: Sequence[Recursion], rows: int, check: Callable[[], None]
    ) -> None:
        self._recursions = recursions
        self._rows = rows
        self._check = check
        self._kept: Kept | None = None

    def changes(
        self,
        inputs: Sequence[Input],
        deltas: Mapping[str, pa.Table | None],
        lower: Timestamp,
        upper: Timestamp,
    ) -> dict[str, pa.Table]:
        """The changes of each recursion in ``[lower, upper)``: c0 …, mz_error, mz_time, mz_diff.

        `deltas` are the inputs' updates by the relation names of the step; those that are None are read here.
        """
        made = {}
        kept: dict[str, pa.Table] = {}
        for one in self._recursions:
            read = [source for source in inputs if f"snap_{source.spec.id}" in one.inputs]
            updates = {}
            for source in read:
                table = deltas[f"delta_{source.spec.id}"]
                updates[source] = source.updates(lower, upper) if table is None else table
            before = None
            # Contents that were kept are only of use if no step has run in between.
            if self._kept is not None and self._kept.at == lower - 1:
                before = self._kept.contents.get(one.relation)
            if not any(table.num_rows for table in updates.values()):
                made[one.relation] = with_time(schema_of(one)).empty_table()
                if before is not None:
                    kept[one.relation] = before
                continue
            made[one.relation], after = self._changes(one, updates, lower, before)
            if after is not None:
                kept[one.relation] = after
        self._kept = Kept(upper - 1, kept)
        return made

    def _changes(
        self,
        one: Recursion,
        updates: Mapping[Input, pa.Table],
        lower: Timestamp,
        before: pa.Table | None,
    ) -> tuple[pa.Table, pa.Table | None]:
        schema = schema_of(one)
        times = pc.unique(
            pa.concat_tables([table.select([TIME_COLUMN]) for table in updates.values()])[
                TIME_COLUMN
            ]
        )
        row: list[Ast] = [col(name) for name in schema.names]
        changed = to_sql(difference("new", "old", row), Engine.DUCKDB)
        found = []
        with self._opened(one, updates, lower) as connection:
            if before is None:
                self._at(connection, one, updates, lower - 1, "old")
            else:
                load(connection, "old", before)
            # At each time the whole recursion is computed anew from the inputs, and compared with the result before.
            for time in sorted(times.to_pylist()):
                self._at(connection, one, updates, time, "new")
                table = connection.sql(changed).to_arrow_table()
                times_of = pa.repeat(pa.scalar(time, pa.int64()), table.num_rows)
                table = table.add_column(len(schema), TIME_COLUMN, times_of)
                found.append(table.cast(with_time(schema)))
                connection.execute("DROP TABLE old")
                connection.execute("ALTER TABLE new RENAME TO old")
            ((size,),) = connection.execute("SELECT count(*) FROM old").fetchall()
            after = (
                connection.sql("SELECT * FROM old").to_arrow_table() if size <= self._rows else None
            )
        return pa.concat_tables(found), after

    @contextlib.contextmanager
    def _opened(
        self, one: Recursion, updates: Mapping[Input, pa.Table], lower: Timestamp
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """A database that holds the inputs' contents before the step, and their updates in it."""
        wide = is_wide(to_sql(one.statement, Engine.DUCKDB))
        settings = {**(WIDE_SETTINGS if wide else {}), "temp_directory": scratch_directory()}
        with contextlib.closing(locked_connection(settings=settings)) as connection:
            for source, table in updates.items():
                load(connection, f"base_{source.spec.id}", _contents(source, lower - 1))
                load(connection, f"later_{source.spec.id}", table)
            yield connection

    def _at(
        self,
        connection: duckdb.DuckDBPyConnection,
        one: Recursion,
        updates: Mapping[Input, pa.Table],
        time: Timestamp,
        table: str,
    ) -> None:
        for source, rows in updates.items():
            gid = source.spec.id
            names = [name for name in rows.column_names if name != TIME_COLUMN]
            row: list[Ast] = [col(name) for name in names]
            soon = s.lte(col(TIME_COLUMN), big(time, Engine.DUCKDB))
            contents = union_all(
                [select(row, f"base_{gid}"), select(list(row), f"later_{gid}", where=[soon])]
            )
            text = to_sql(contents, Engine.DUCKDB)
            connection.execute(f'CREATE OR REPLACE TEMP VIEW "snap_{gid}" AS {text}')
        fill(connection, one, self._check, table)


def _contents(source: Input, as_of: Timestamp) -> pa.RecordBatchReader:
    """An input's contents in the columns that statements read, part by part."""
    full = with_time(source.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for part in source.parts(as_of):
            table = part.to_arrow(columns=source.schema.names).select(full.names).cast(full)
            if part.time_max > as_of:
                table = until(table, as_of)
            yield from table.to_batches()

    return pa.RecordBatchReader.from_batches(full, batches())
