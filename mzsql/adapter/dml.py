"""INSERT, UPDATE and DELETE: rows computed by a query, checked, and committed or buffered in the session's transaction.

Promise: outside a transaction a statement that reads what it writes from (UPDATE, DELETE, INSERT … SELECT) is serializable by running it
again when something it read was written meanwhile; inside one, a conflict fails the COMMIT. A statement of a transaction sees what
the transaction has written to tables.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from mzsql.adapter.environment import Environment
from mzsql.adapter.group_commit import GroupCommit, WriteConflict
from mzsql.adapter.queries import Answer, Queries
from mzsql.adapter.session import Session, Transaction
from mzsql.frontend import hir
from mzsql.frontend import plans as p
from mzsql.frontend.catalog import CatalogItem
from mzsql.repr.errors import NotNullViolation, Unsupported
from mzsql.storage import as_updates

#: A statement that lost to a concurrent write is run again at most so often.
MAX_ATTEMPTS = 100


#: From a query's answer to the updates of the table, and how many rows the client hears of.
_Updates = Callable[[Answer], tuple[pa.Table, int]]


class Changes:
    """Runs the statements that change tables."""

    def __init__(self, env: Environment, queries: Queries, commits: GroupCommit) -> None:
        self._env = env
        self._queries = queries
        self._commits = commits

    def insert(self, session: Session, plan: p.InsertPlan) -> int:
        """Insert the rows of a query; how many."""

        def updates(answer: Answer) -> tuple[pa.Table, int]:
            rows = positional(answer.rows)
            check_not_null(rows, plan.table)
            return as_updates(rows), rows.num_rows

        return self._change(session, plan.table, plan.source, updates)

    def delete(self, session: Session, plan: p.DeletePlan) -> int:
        """Delete the rows that a query selects; how many."""

        def updates(answer: Answer) -> tuple[pa.Table, int]:
            rows = positional(answer.rows)
            return as_updates(rows, -1), rows.num_rows

        return self._change(session, plan.table, plan.selection, updates)

    def update(self, session: Session, plan: p.UpdatePlan) -> int:
        """Replace the rows that a query selects by those beside them; how many."""
        assert plan.table.desc is not None
        arity = plan.table.desc.arity

        def updates(answer: Answer) -> tuple[pa.Table, int]:
            rows = positional(answer.rows)
            old = rows.select(list(range(arity)))
            new = rows.select(list(range(arity, 2 * arity)))
            new = new.rename_columns(old.column_names).cast(old.schema)
            check_not_null(new, plan.table)
            return pa.concat_tables([as_updates(old, -1), as_updates(new)]), rows.num_rows

        return self._change(session, plan.table, plan.selection, updates)

    def _change(
        self,
        session: Session,
        table: CatalogItem,
        query: hir.Query,
        updates: _Updates,
    ) -> int:
        self._env.require_writable()
        if table.kind != "table":
            noun = table.kind.replace("-", " ")
            raise Unsupported(f"cannot mutate {noun} '{table.name}'", sqlstate="42809")
        transaction = session.transaction
        if transaction is not None and not transaction.implicit:
            transaction.enter("write")
            return self._buffer(session, transaction, table, query, updates)
        for attempt in range(MAX_ATTEMPTS):
            answer = self._queries.answer(session, query)
            rows, count = updates(answer)
            try:
                if count:
                    self._commits.commit({table.id: [rows]}, reads=answer.tables, read_ts=answer.ts)
            except WriteConflict:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                continue
            return count
        raise AssertionError("unreachable")

    def _buffer(
        self,
        session: Session,
        transaction: Transaction,
        table: CatalogItem,
        query: hir.Query,
        updates: _Updates,
    ) -> int:
        overlay = {
            gid: [w for w in writes if isinstance(w, pa.Table)]
            for gid, writes in transaction.writes.items()
        }
        answer = self._queries.answer(
            session, query, read_ts=transaction.write_read_ts, overlay=overlay or None
        )
        if answer.ts is not None:
            transaction.write_read_ts = answer.ts
            transaction.reads |= answer.tables
        rows, count = updates(answer)
        if count:
            transaction.add(table.id, [rows])
        return count

    def commit(self, transaction: Transaction) -> None:
        """Commit what a transaction has buffered, as one."""
        writes = {gid: written for gid, written in transaction.writes.items() if written}
        if writes:
            self._commits.commit(writes, reads=transaction.reads, read_ts=transaction.write_read_ts)


def positional(rows: pa.Table) -> pa.Table:
    """Rows with their columns by position."""
    return rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])


def check_not_null(rows: pa.Table, table: CatalogItem) -> None:
    """Raise NotNullViolation where a column that must not be NULL is."""
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
