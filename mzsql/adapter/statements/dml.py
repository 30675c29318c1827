"""INSERT, UPDATE and DELETE: the rows of a query, checked, then committed or buffered in the session's transaction.

Promise: outside a transaction, a statement that computes its writes from reads (UPDATE, DELETE, INSERT … SELECT) is
serializable: it runs again when something it read was written meanwhile. In a transaction such a conflict fails the
COMMIT. A statement sees what its own transaction has written to tables, and is refused where that was a COPY, which may
exceed memory. Constant rows (INSERT … VALUES) need neither a timestamp nor an engine. Tables are locked from a
statement's read to its answer (`mzsql.adapter.commit.table_locks`), so statements of one process never make each other
run again; conflicts with other processes are retried after random pauses. RETURNING is computed from the same rows that
are written, and is returned once they are committed. Rows are handled as they stream in: past the bound on memory
(docs/architecture.md, decision 11) they are written ahead as Parquet, as by COPY, and committed by reference.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.adapter.commit.group_commit import GroupCommit, WriteConflict
from mzsql.adapter.commit.table_locks import EXCLUSIVE, READ, WRITE
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.peek.queries import Queries
from mzsql.adapter.planning.walk import unmaterializables
from mzsql.adapter.session.commit_batches import Write
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.statements.result import Result
from mzsql.adapter.statements.tables import Runs
from mzsql.compute.peek.outflow import Gathering, Limits
from mzsql.expr.relation import Relation
from mzsql.frontend import hir, lower_query
from mzsql.frontend.catalog import CatalogItem
from mzsql.frontend.plan import dml_plans
from mzsql.persist import Batch
from mzsql.repr.errors import NotNullViolation, Unsupported
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import current
from mzsql.repr.types import RelationDesc
from mzsql.storage import as_updates, empty_updates

#: A statement that loses against concurrent writes runs at most so often.
MAX_ATTEMPTS = 100
#: Upper bounds of the random pause before another run, in seconds: of the first one, and of the last; it doubles in
#: between.
FIRST_PAUSE, LAST_PAUSE = 0.005, 0.5


class Outcome(msgspec.Struct, frozen=True):
    """What a statement did: the number of rows written, and the rows of its RETURNING; None without one."""

    count: int
    returned: pa.Table | None = None


#: From a query's rows (columns c0, c1, …, without RETURNING's) to updates of the table.
_Amounts = Callable[[pa.Table], Sequence[pa.Table]]


class _Change:
    """One run of a statement: its query's rows become updates as they stream in."""

    def __init__(
        self,
        session: Session,
        returning: RelationDesc | None,
        limits: Limits,
        amounts: _Amounts,
    ) -> None:
        self._amounts = amounts
        self._count = 0
        self._returning = returning
        self._returned: Gathering | None = None
        if returning is not None:
            self._returned = Gathering(returning, limits, session.check_size)

    def updates(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The updates.

        Raises:
            ResultTooLarge: the rows of RETURNING exceed ``max_query_result_size``.
        """
        for rows in pieces:
            self._count += rows.num_rows
            given = rows
            if self._returning is not None and self._returned is not None:
                width = rows.num_columns - self._returning.arity
                names = list(self._returning.names)
                self._returned.add(pa.table(rows.columns[width:], names=names))
                given = rows.select(list(range(width)))
            yield from self._amounts(positional(given))

    def outcome(self) -> Outcome:
        """The outcome, once all updates were consumed."""
        if self._returned is None:
            return Outcome(self._count)
        with self._returned as returned:
            return Outcome(self._count, returned.table())

    def close(self) -> None:
        """Release the collected rows of RETURNING where they are not returned. Idempotent."""
        if self._returned is not None:
            with self._returned:
                pass


#: Starts a run of a statement.
_Begin = Callable[[], _Change]


class Changes:
    """Carries out the statements that change tables."""

    def __init__(
        self, env: Environment, queries: Queries, commits: GroupCommit, limits: Limits
    ) -> None:
        self._env = env
        self._queries = queries
        self._commits = commits
        self._limits = limits
        self._rng = random.Random()  # noqa: S311  it only spreads retries

    def runs(self) -> Runs:
        """The functions that carry out these statements, by class of plan."""
        return {
            dml_plans.InsertPlan: partial(self._run, self.insert),
            dml_plans.UpdatePlan: partial(self._run, self.update),
            dml_plans.DeletePlan: partial(self._run, self.delete),
        }

    def _run(
        self,
        change: Callable[[Session, Any], Outcome],
        session: Session,
        _transaction: Transaction,
        plan: dml_plans.InsertPlan | dml_plans.UpdatePlan | dml_plans.DeletePlan,
    ) -> Result:
        outcome = change(session, plan)
        return Result(plan.counted(outcome.count), plan.returning, outcome.returned, outcome.count)

    def insert(self, session: Session, plan: dml_plans.InsertPlan) -> Outcome:
        """Insert the rows of a query.

        Raises:
            NotNullViolation: a column that must have a value gets none.
            Unsupported: it is no table, or the environment is not written by this process.
            SqlError: a value cannot be computed, or the rows of RETURNING are too many.
        """

        def amounts(rows: pa.Table) -> Sequence[pa.Table]:
            check_not_null(rows, plan.table)
            return [as_updates(rows)]

        begin = partial(_Change, session, plan.returning, self._limits, amounts)
        return self._change(session, plan.table, plan.source, begin)

    def delete(self, session: Session, plan: dml_plans.DeletePlan) -> Outcome:
        """Delete the rows that a query selects.

        Raises:
            Unsupported: it is no table, or the environment is not written by this process.
            SqlError: a value cannot be computed, or the rows of RETURNING are too many.
        """

        def amounts(rows: pa.Table) -> Sequence[pa.Table]:
            return [as_updates(rows, -1)]

        begin = partial(_Change, session, plan.returning, self._limits, amounts)
        return self._change(session, plan.table, plan.selection, begin)

    def update(self, session: Session, plan: dml_plans.UpdatePlan) -> Outcome:
        """Replace rows: the query's first half of columns are the old rows, the second half the new ones.

        Raises:
            NotNullViolation: a column that must have a value gets none.
            Unsupported: it is no table, or the environment is not written by this process.
            SqlError: a value cannot be computed, or the rows of RETURNING are too many.
        """
        assert plan.table.desc is not None
        arity = plan.table.desc.arity

        def amounts(rows: pa.Table) -> Sequence[pa.Table]:
            old = rows.select(list(range(arity)))
            new = rows.select(list(range(arity, 2 * arity)))
            new = new.rename_columns(old.column_names).cast(old.schema)
            check_not_null(new, plan.table)
            return [as_updates(old, -1), as_updates(new)]

        begin = partial(_Change, session, plan.returning, self._limits, amounts)
        return self._change(session, plan.table, plan.selection, begin)

    def _change(
        self,
        session: Session,
        table: CatalogItem,
        query: hir.Query,
        begin: _Begin,
    ) -> Outcome:
        self._env.require_writable()
        if table.kind != "table":
            noun = table.kind.replace("-", " ")
            raise Unsupported(f"cannot mutate {noun} '{table.name}'", sqlstate="42809")
        relation = lower_query(query).relation
        if "mz_now" in unmaterializables(relation):
            raise Unsupported("calls to mz_now in write statements are not supported")
        transaction = session.transaction
        assert transaction is not None
        if not transaction.implicit:
            transaction.enter("write")
            return self._buffer(session, transaction, table, query, relation, begin)
        tables = self._tables_below(relation)
        modes = lock_modes(table.id, tables)
        with self._commits.locks.held(modes, current()):
            if tables:
                return self._read_then_write(session, transaction, table, query, begin)
            spelled_out = self._queries.spelled_out(query, relation)
            if spelled_out is not None:
                writes, outcome = self._written(table, begin, [spelled_out])
            else:
                with self._queries.flowing(session, query, ordered=False) as found:
                    writes, outcome = self._written(table, begin, found.rows)
            if outcome.count:
                self._commit(session, transaction, {table.id: writes})
            return outcome

    def _written(
        self, table: CatalogItem, begin: _Begin, rows: Iterable[pa.Table]
    ) -> tuple[list[Write], Outcome]:
        """Turn rows into updates: kept in memory while they are few, else written ahead as they come."""
        with contextlib.closing(begin()) as change:
            updates = change.updates(rows)
            held: list[Write] = []
            size = count = 0
            for one in updates:
                held.append(one)
                size += one.nbytes
                count += one.num_rows
                if self._limits.exceeded(count, size):
                    held = [self._write_ahead(table, itertools.chain(held, updates))]
            return held, change.outcome()

    def _write_ahead(self, table: CatalogItem, updates: Iterable[pa.Table]) -> Batch:
        shard = self._env.collections.table(table.id)
        schema = empty_updates(shard.schema).schema

        def batches() -> Iterator[pa.RecordBatch]:
            for one in updates:
                yield from one.cast(schema).to_batches()

        return shard.batch(pa.RecordBatchReader.from_batches(schema, batches()))

    def _read_then_write(
        self,
        session: Session,
        transaction: Transaction,
        table: CatalogItem,
        query: hir.Query,
        begin: _Begin,
    ) -> Outcome:
        pause = FIRST_PAUSE
        for attempt in range(MAX_ATTEMPTS):
            # Every acknowledged write must be seen, whatever the session's isolation level.
            with self._queries.flowing(session, query, linear=True, ordered=False) as found:
                writes, outcome = self._written(table, begin, found.rows)
            if not outcome.count:
                return outcome
            try:
                self._commit(
                    session,
                    transaction,
                    {table.id: writes},
                    reads=found.tables,
                    read_ts=found.ts,
                )
            except WriteConflict:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                # Another process won. A random pause keeps the two from colliding in step again.
                current().sleep(self._rng.uniform(0, pause))
                pause = min(2 * pause, LAST_PAUSE)
                continue
            return outcome
        raise AssertionError("unreachable")

    def _commit(
        self,
        session: Session,
        transaction: Transaction,
        writes: Mapping[GlobalId, Sequence[Write]],
        reads: Iterable[GlobalId] = (),
        read_ts: Timestamp | None = None,
    ) -> None:
        ts = self._commits.commit(writes, reads=reads, read_ts=read_ts, synced=transaction.synced)
        session.saw(ts)

    def _buffer(
        self,
        session: Session,
        transaction: Transaction,
        table: CatalogItem,
        query: hir.Query,
        relation: Relation,
        begin: _Begin,
    ) -> Outcome:
        spelled_out = self._queries.spelled_out(query, relation)
        if spelled_out is not None:
            writes, outcome = self._written(table, begin, [spelled_out])
            if outcome.count:
                transaction.add(table.id, writes)
            return outcome
        self._refuse_copied(transaction, query)
        overlay = {
            gid: tables
            for gid, writes in transaction.writes.items()
            if (tables := [w for w in writes if isinstance(w, pa.Table)])
        }
        with self._queries.flowing(
            session,
            query,
            read_ts=transaction.write_read_ts,
            overlay=overlay or None,
            transaction=transaction,
            linear=True,
            ordered=False,
        ) as found:
            if found.ts is not None:
                transaction.write_read_ts = found.ts
                transaction.reads |= found.tables
            writes, outcome = self._written(table, begin, found.rows)
        if outcome.count:
            transaction.add(table.id, writes)
        return outcome

    def _tables_below(self, relation: Relation) -> frozenset[GlobalId]:
        """The tables that a relation is computed from."""
        return self._queries.base_tables(self._queries.inputs(relation))

    def _refuse_copied(self, transaction: Transaction, query: hir.Query) -> None:
        """Refuse to read a table that the transaction has copied into: the batch may be of any size, and is not read
        back before COMMIT.
        """
        copied = {
            gid
            for gid, writes in transaction.writes.items()
            if any(isinstance(write, Batch) for write in writes)
        }
        if not copied:
            return
        read = copied & self._tables_below(lower_query(query).relation)
        if read:
            items = self._env.catalog.state.items
            names = ", ".join(sorted(f'"{items[gid].name}"' for gid in read))
            raise Unsupported(
                f"reading {names} in the transaction that has copied into it is not supported",
                detail="A statement of a transaction does not see what COPY FROM has written in it.",
                hint="Commit the COPY first.",
            )

    def commit(self, session: Session, transaction: Transaction) -> None:
        """Commit a transaction's buffered writes as one. From here on the commit keeps or deletes the batches."""
        writes = {gid: written for gid, written in transaction.writes.items() if written}
        if not writes:
            return
        modes = dict.fromkeys(writes, WRITE)
        with self._commits.locks.held(modes, current()):
            transaction.writes.clear()
            self._commit(session, transaction, writes, transaction.reads, transaction.write_read_ts)


def lock_modes(table: GlobalId, read: Iterable[GlobalId]) -> dict[GlobalId, str]:
    """The table locks of a statement that writes ``table``, computed from reads of the tables in ``read``."""
    modes = dict.fromkeys(read, READ)
    modes[table] = EXCLUSIVE if table in modes else WRITE
    return modes


def positional(rows: pa.Table) -> pa.Table:
    """The rows with their columns renamed to c0, c1, …."""
    return rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])


def check_not_null(rows: pa.Table, table: CatalogItem) -> None:
    """Check that no NOT NULL column has a NULL.

    Raises:
        NotNullViolation: a column that takes no NULL has one.
    """
    desc = table.desc
    assert desc is not None
    for i, column in enumerate(desc.typ.columns):
        if not column.nullable and rows.column(i).null_count:
            raise NotNullViolation(
                f'null value in column "{desc.names[i]}" violates not-null constraint'
            )


def first_null(rows: pa.Table, column: int) -> int:
    """The position of the first NULL in a column."""
    return int(pc.index(pc.is_null(rows.column(column)), value=True).as_py())
