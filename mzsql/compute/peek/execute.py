"""Answers a query at one time.

Promise: the answer is that of the plan over the inputs' contents at the timestamp, whichever engine runs it
(docs/architecture.md, decisions 10 and 11). What is done is what `PlannedQuery.peek` says and EXPLAIN prints: a
constant needs no engine; an index gives the rows with some keys; a row-wise read of one collection is evaluated over
Arrow where that is exact. Other queries run in DuckDB over tables if their inputs are small enough to be held in
memory; else in DuckDB over the stored parts, if what they read has at most `Limits.stored` bytes; else on Spark,
unless there is none or it cannot see all inputs (builtin relations, a transaction's own writes). ``step_engine``
overrides the choice between the last two. Rows come piece by piece, and no more are computed than are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

import pyarrow as pa

from mzsql.catalog.builtin import builtins
from mzsql.compute.engines.pool import AT_ONCE_ROWS, DuckDbPool
from mzsql.compute.peek.constants import answered
from mzsql.compute.peek.files import FLOWING_BYTES, FilePeeks, Prepared, Source
from mzsql.compute.peek.index import IndexReads
from mzsql.compute.peek.inputs import Inputs, Overlay
from mzsql.compute.peek.outflow import finished
from mzsql.compute.peek.query import PlannedQuery
from mzsql.compute.peek.row_reads import evaluated, narrowed, placed
from mzsql.compute.peek.rows import counted, expand
from mzsql.compute.peek.spark import Peeks
from mzsql.compute.replica.step.statistics import known_of
from mzsql.expr.engines import no_memory
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import current
from mzsql.transform.fast_path import ConstantPlan, DataflowPlan, PeekIndexPlan
from mzsql.transform.row_wise import RowRead

#: Over fewer rows a statement runs as it is: finding what can be left out of it costs more than it saves.
_MANY_ROWS = 20_000
#: The same where all inputs are builtin relations: their few columns are cheap to carry along, and a statement that does not depend
#: on what is known of the inputs is kept beyond the process.
_MANY_SYSTEM_ROWS = 1_000_000
#: Over fewer rows of builtin relations a long statement that had few rows before is planned once, in the order of its text: parsing and
#: planning it again takes longer than joins in another order save.
_PLANNED_SYSTEM_ROWS = 100_000


class Peeker:
    """Runs one-shot queries. Thread-safe.

    Args:
        inputs: reads collections.
        indexes: reads indexes.
        spark: runs large queries; None if there is no Spark.
        engine: returns the present ``step_engine``, for large queries.
    """

    def __init__(
        self, inputs: Inputs, indexes: IndexReads, spark: Peeks | None, engine: Callable[[], str]
    ) -> None:
        self._inputs = inputs
        self.indexes = indexes
        self._spark = spark
        self._engine = engine
        self._duckdb = DuckDbPool()
        self._files = FilePeeks()

    def close(self) -> None:
        """Close the engines; no query may be running. Idempotent."""
        self._duckdb.close()
        self._files.close()

    def rows(
        self,
        query: PlannedQuery,
        as_of: Timestamp,
        *,
        overlay: Overlay | None = None,
        ordered: bool = True,
    ) -> Generator[pa.Table]:
        """The rows of a one-shot query, piece by piece: columns c0 … after the finishing, in its order.

        Args:
            query: the query.
            as_of: the time, at which every stored input is complete.
            overlay: what the transaction itself has written.
            ordered: whether the order of rows matters.

        Raises:
            DataError: a value could not be computed.
            QueryCanceled: the statement was canceled, or its deadline passed.
        """
        if isinstance(query.peek, ConstantPlan):
            rows = answered(query.peek, query.finishing)
            if rows is not None:
                yield rows
                return
        read = query.read
        if read is not None and query.columns and not overlay and read.id not in builtins():
            rows = self._inputs.rows_of(read, as_of)
            if rows is not None:
                yield from self._row_wise(query, read, rows)
                return
        tables = self._inputs.whole(
            query.inputs, as_of, overlay or {}, query.looked_at, query.conditions
        )
        if tables is not None:
            yield from self._here(query, tables, ordered=ordered)
        else:
            yield from self._large(query, as_of, overlay or {}, ordered=ordered)

    def _large(
        self, query: PlannedQuery, as_of: Timestamp, overlay: Overlay, *, ordered: bool
    ) -> Generator[pa.Table]:
        """The answer of a query whose inputs are too large to be held in memory: DuckDB or Spark over their parts."""
        spark = self._on_spark(query, overlay)
        engine = self._engine()
        if spark and engine == "spark":
            yield from self._by_spark(query, as_of, ordered=ordered)
            return
        sources, prepared = self._sources(query, as_of, overlay, ordered=ordered)
        if spark and engine == "auto" and self._beyond(sources, prepared):
            # Releases the leases on the parts; Spark's way takes its own.
            del sources
            yield from self._by_spark(query, as_of, ordered=ordered)
            return
        most = None if ordered else FLOWING_BYTES
        found = self._as_rows(query, self._files.rows(prepared, sources, most))
        try:
            yield next(found)
        except StopIteration:
            return
        except Exception as failure:
            if not (spark and engine == "auto" and no_memory(failure)):
                raise
            # No row was handed out yet, so the query can begin again.
            yield from self._by_spark(query, as_of, ordered=ordered)
            return
        yield from found

    def _beyond(self, sources: Mapping[str, Source], prepared: Prepared) -> bool:
        """Whether what a query reads exceeds what is read in this process."""
        left = self._inputs.limits.stored
        for name, source in sources.items():
            whole = sum(part.bytes for part in source.parts)
            columns = prepared.reads.get(name)
            if columns is not None and whole > left:
                whole = self._files.footers.bytes(source.parts, columns)
            left -= whole
        return left < 0

    def _sources(
        self, query: PlannedQuery, as_of: Timestamp, overlay: Overlay, *, ordered: bool
    ) -> tuple[dict[str, Source], Prepared]:
        """The inputs of a query, and its statement, made for what their statistics tell."""
        rendered = query.contents(self._inputs.has_errors)
        sources = {
            f"snap_{one.id}": self._inputs.source(one, as_of, overlay.get(one.id, ()))
            for one in rendered.inputs
        }
        known = {name: self._files.known(source) for name, source in sources.items()}
        return sources, query.prepared(rendered, known, ordered=ordered)

    def _on_spark(self, query: PlannedQuery, overlay: Overlay) -> bool:
        """Whether Spark can run a query: there is one, it can read all inputs, and there is no recursion."""
        return (
            self._spark is not None
            and not overlay
            and not any(gid in builtins() for gid in query.inputs)
            and not query.statement(self._inputs.has_errors).loops
        )

    def _by_spark(
        self, query: PlannedQuery, as_of: Timestamp, *, ordered: bool
    ) -> Generator[pa.Table]:
        assert self._spark is not None
        interrupt = current()
        try:
            found = self._spark.rows(
                query.plan,
                as_of,
                finish=lambda ast, engine: query.finish(ast, engine, ordered=ordered),
                timeout=interrupt.left(),
                interruptible=interrupt.on_interrupt,
            )
            yield from self._as_rows(query, found)
        except GeneratorExit:
            raise
        except BaseException:
            # Canceled jobs fail with an error of Spark's; raise the reason of the interrupt instead.
            interrupt.check()
            raise

    @staticmethod
    def _as_rows(query: PlannedQuery, found: Iterable[pa.Table]) -> Generator[pa.Table]:
        """The rows of a statement's result, with what is left of the finishing applied."""
        if query.finished:
            for piece in found:
                yield counted(piece, "the result")[0]
        else:
            yield from finished(found, query.finishing)

    def by_index(
        self, query: PlannedQuery, as_of: Timestamp, timeout: float
    ) -> Generator[pa.Table] | None:
        """As `rows`, for a query that reads indexes; None if an index cannot be used at this time. The caller then
        plans the query without indexes.

        Args:
            query: the query.
            as_of: the time.
            timeout: seconds to wait for inputs besides indexes.
        """
        match query.peek:
            case PeekIndexPlan() as plan:
                rows = self.indexes.rows(plan, as_of)
                return None if rows is None else self._looked_up(query, rows)
            case DataflowPlan(lookups=lookups) if query.indexes:
                arranged = self.indexes.arranged(query.indexes, lookups, as_of)
                if arranged is None:
                    return None
                self._inputs.wait(query.inputs, as_of, timeout)
                tables = self._inputs.whole(query.inputs, as_of, {})
                return None if tables is None else self._here(query, {**tables, **arranged})
            case _:
                return None

    def _looked_up(self, query: PlannedQuery, rows: pa.Table) -> Generator[pa.Table]:
        """The answer of a query over the rows that an index gave: c0 …, mz_diff."""
        read = query.read
        if read is not None and query.columns:
            return self._row_wise(query, read, rows)
        return self._here(query, dict.fromkeys(query.inputs, rows))

    def _row_wise(self, query: PlannedQuery, read: RowRead, rows: pa.Table) -> Generator[pa.Table]:
        """The answer of a row-wise read, over rows of its collection."""
        rows = narrowed(rows, read.conditions)
        done = evaluated(rows, read)
        if done is not None:
            done = placed(_good(done), query.finishing, query.columns)
        if done is None:
            return self._here(query, {read.id: rows})
        return finished([done], query.finishing)

    def _here(
        self, query: PlannedQuery, tables: Mapping[GlobalId, pa.Table], *, ordered: bool = True
    ) -> Generator[pa.Table]:
        """The answer by DuckDB over the inputs' contents in memory."""
        rendered = query.contents(self._inputs.has_errors)
        relations = {f"snap_{one.id}": tables[one.id] for one in rendered.inputs}
        rows = sum(one.num_rows for one in relations.values())
        most, at_once = _MANY_ROWS, _MANY_ROWS
        if builtins().keys() >= tables.keys():
            most = _MANY_SYSTEM_ROWS
            at_once = _PLANNED_SYSTEM_ROWS if query.had_few_rows else _MANY_ROWS
        # A statement that adds equal rows up first would compute all rows before the first is taken.
        if rows < most and (ordered or not query.makes_rows):
            statement = query.statement(self._inputs.has_errors)
            text, loops = statement.text, statement.loops
            if rows < at_once and not loops and not statement.finished:
                whole = self._duckdb.at_once(text, relations, statement.limit)
                if whole is not None:
                    return self._as_rows(query, [whole])
        else:
            known = {
                name: known_of(one.schema, one.num_rows, (), [one])
                for name, one in relations.items()
            }
            prepared = query.prepared(rendered, known, ordered=ordered)
            text, loops = prepared.text, prepared.loops
        return self._as_rows(query, _noted(query, self._duckdb.pieces(text, relations, loops)))


def _noted(query: PlannedQuery, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same pieces; whether they are few is noted of the query once all were taken."""
    rows = 0
    for piece in pieces:
        rows += piece.num_rows
        yield piece
    query.had_few_rows = rows <= AT_ONCE_ROWS


def _good(rows: pa.Table) -> pa.Table:
    """The rows without the error column.

    Raises:
        DataError: there is an error row.
    """
    if "mz_error" not in rows.column_names:
        return rows
    errors = rows.column("mz_error")
    if errors.null_count < len(errors):
        expand(rows, "the result")
    return rows.drop_columns(["mz_error"])
