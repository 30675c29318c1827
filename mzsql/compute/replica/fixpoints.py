"""Recursive nodes of a dataflow: their contents at a time, and their changes in a step.

Promise: at each time at which anything that a recursion reads changes, it is computed from empty to its fixpoint, over the whole
contents of its inputs then; what it puts out is the difference to the time before, so it is the same however time was cut into steps.
A recursion that fails at its limit holds that error as its only row, until a change makes it end. This is done in process by a DuckDB
that goes to disk beyond its memory, whichever engine runs the rest of a step.

Trade-off: nothing is kept between steps but the contents themselves, so a change costs what computing the recursion costs, once for each
time and, where the step before was not in this process, once more for the time before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.engines import recursion
from mzsql.compute.replica.inputs import Input
from mzsql.compute.replica.target import with_time
from mzsql.compute.replica.transient import load
from mzsql.expr.engines import (
    WIDE_SETTINGS,
    is_wide,
    locked_connection,
    scratch_directory,
    to_sql,
)
from mzsql.expr.functions.table import Engine
from mzsql.persist import TIME_COLUMN
from mzsql.render.recursion import Recursion
from mzsql.render.statement import Ast, col, null_of
from mzsql.render.updates import difference
from mzsql.repr.errors import DataError
from mzsql.repr.frontier import Timestamp
from mzsql.repr.types import arrow_schema


def schema_of(made: Recursion) -> pa.Schema:
    """The columns of a recursion's changes, before mz_time and mz_diff."""
    return arrow_schema(made.columns).append(pa.field("mz_error", pa.string()))


def fill(
    connection: duckdb.DuckDBPyConnection, made: Recursion, check: Callable[[], None], table: str
) -> None:
    """Make a table of a recursion's contents: c0 …, mz_error, mz_diff. The relations of its inputs are there."""
    texts = recursion.texts(made.loops)
    try:
        recursion.run(connection, texts, check)
        query = to_sql(made.statement, Engine.DUCKDB)
        connection.execute(f'CREATE OR REPLACE TABLE "{table}" AS {query}')
    except DataError as error:
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
    """The contents of a dataflow's recursions at the end of its last step, for the next one."""

    at: Timestamp
    contents: Mapping[str, pa.Table]


class Fixpoints:
    """The recursions of one dataflow, step by step.

    Args:
        recursions: they.
        rows: contents of more rows than this are computed again rather than kept.
        check: raises where the step is to end.
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

        `deltas` are the inputs' updates by the names that steps have for them; None: to be read.
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
        """A database with the inputs' contents below a step and their updates in it."""
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
            listed = ", ".join(f'"{name}"' for name in names)
            connection.execute(
                f'CREATE OR REPLACE TEMP VIEW "snap_{gid}" AS SELECT {listed} FROM "base_{gid}"'
                f' UNION ALL SELECT {listed} FROM "later_{gid}" WHERE {TIME_COLUMN} <= {time}'
            )
        fill(connection, one, self._check, table)


def _contents(source: Input, as_of: Timestamp) -> pa.RecordBatchReader:
    """An input's contents as statements read them, a part at a time."""
    full = with_time(source.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for part in source.parts(as_of):
            table = part.to_arrow(columns=source.schema.names).select(full.names).cast(full)
            if part.time_max > as_of:
                table = table.filter(pc.less_equal(table.column(TIME_COLUMN), as_of))
            yield from table.to_batches()

    return pa.RecordBatchReader.from_batches(full, batches())
