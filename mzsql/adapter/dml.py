"""INSERT, UPDATE and DELETE: rows computed by a query, checked, and committed or buffered in the session's transaction.

Promise: outside a transaction a statement that reads what it writes from (UPDATE, DELETE, INSERT … SELECT) is serializable by running it
again when something it read was written meanwhile; inside one, a conflict fails the COMMIT. A statement of a transaction sees what
the transaction has written to tables, and is refused where that was a COPY, which may be more than fits this process. Rows that the
statement itself names (INSERT … VALUES) need neither a timestamp nor an engine. Tables are locked from a statement's read to its answer
(`mzsql.adapter.table_locks`), so statements of one process never run in vain for each other; those of other processes are met by
running again, with pauses. What a statement returns of its rows comes of the same answer, and is handed out once they are committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.adapter.commit_batches import Write
from mzsql.adapter.environment import Environment
from mzsql.adapter.group_commit import GroupCommit, WriteConflict
from mzsql.adapter.interrupt import current
from mzsql.adapter.queries import Answer, Queries
from mzsql.adapter.results import Result, constant_table, named
from mzsql.adapter.session import Session, Transaction
from mzsql.adapter.table_locks import EXCLUSIVE, READ, WRITE
from mzsql.adapter.walk import unmaterializables
from mzsql.expr.relation import Constant, Relation
from mzsql.frontend import hir, lower_query
from mzsql.frontend import plans as p
from mzsql.frontend.catalog import CatalogItem
from mzsql.persist import Batch
from mzsql.repr.errors import NotNullViolation, Unsupported
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc
from mzsql.storage import as_updates

#: A statement that lost to a concurrent write is run again at most so often.
MAX_ATTEMPTS = 100
#: The longest pauses before it is run again, in seconds: the first, and the last.
FIRST_PAUSE, LAST_PAUSE = 0.005, 0.5


class Outcome(msgspec.Struct, frozen=True):
    """What a statement has done: how many rows it has written, and what it returns of them; None where it returns nothing."""

    count: int
    returned: pa.Table | None = None


class _Change(msgspec.Struct, frozen=True):
    """The updates of a table that a query's answer amounts to, and what is told of them."""

    updates: pa.Table
    outcome: Outcome


#: From a query's answer to what it changes.
_Changed = Callable[[Answer], _Change]


class Changes:
    """Runs the statements that change tables."""

    def __init__(self, env: Environment, queries: Queries, commits: GroupCommit) -> None:
        self._env = env
        self._queries = queries
        self._commits = commits
        self._rng = random.Random()  # noqa: S311  it only spreads retries

    def run(self, session: Session, plan: p.InsertPlan | p.UpdatePlan | p.DeletePlan) -> Result:
        """INSERT, UPDATE or DELETE, with what it returns."""
        match plan:
            case p.InsertPlan():
                tag, outcome = "INSERT 0", self.insert(session, plan)
            case p.UpdatePlan():
                tag, outcome = "UPDATE", self.update(session, plan)
            case _:
                tag, outcome = "DELETE", self.delete(session, plan)
        return Result(f"{tag} {outcome.count}", plan.returning, outcome.returned, outcome.count)

    def insert(self, session: Session, plan: p.InsertPlan) -> Outcome:
        """Insert the rows of a query."""

        def changed(answer: Answer) -> _Change:
            rows, outcome = _taken_apart(session, answer, plan.returning)
            check_not_null(rows, plan.table)
            return _Change(as_updates(rows), outcome)

        return self._change(session, plan.table, plan.source, changed)

    def delete(self, session: Session, plan: p.DeletePlan) -> Outcome:
        """Delete the rows that a query selects."""

        def changed(answer: Answer) -> _Change:
            rows, outcome = _taken_apart(session, answer, plan.returning)
            return _Change(as_updates(rows, -1), outcome)

        return self._change(session, plan.table, plan.selection, changed)

    def update(self, session: Session, plan: p.UpdatePlan) -> Outcome:
        """Replace the rows that a query selects by those beside them."""
        assert plan.table.desc is not None
        arity = plan.table.desc.arity

        def changed(answer: Answer) -> _Change:
            rows, outcome = _taken_apart(session, answer, plan.returning)
            old = rows.select(list(range(arity)))
            new = rows.select(list(range(arity, 2 * arity)))
            new = new.rename_columns(old.column_names).cast(old.schema)
            check_not_null(new, plan.table)
            return _Change(pa.concat_tables([as_updates(old, -1), as_updates(new)]), outcome)

        return self._change(session, plan.table, plan.selection, changed)

    def _change(
        self,
        session: Session,
        table: CatalogItem,
        query: hir.Query,
        changed: _Changed,
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
            return self._buffer(session, transaction, table, query, changed)
        tables = self._tables_below(relation)
        modes = lock_modes(table.id, tables)
        with self._commits.locks.held(modes, current()):
            if tables:
                return self._read_then_write(session, transaction, table, query, changed)
            change = changed(self._constant(session, query, relation))
            if change.outcome.count:
                self._commit(session, transaction, {table.id: [change.updates]})
            return change.outcome

    def _constant(self, session: Session, query: hir.Query, relation: Relation) -> Answer:
        """The answer of a query that reads no table; rows that are spelled out need no engine."""
        if (
            isinstance(relation, Constant)
            and relation.error is None
            and not query.finishing.order_by
            and query.finishing.limit is None
            and not query.finishing.offset
        ):
            rows = constant_table(relation.rows, relation.typ.columns)
            picked = rows.select(list(query.finishing.project))
            return Answer(named(picked, query.desc), query.desc, None, frozenset())
        return self._queries.answer(session, query)

    def _read_then_write(
        self,
        session: Session,
        transaction: Transaction,
        table: CatalogItem,
        query: hir.Query,
        changed: _Changed,
    ) -> Outcome:
        pause = FIRST_PAUSE
        for attempt in range(MAX_ATTEMPTS):
            # Every acknowledged write counts, whatever the session's isolation.
            answer = self._queries.answer(session, query, linear=True)
            change = changed(answer)
            if not change.outcome.count:
                return change.outcome
            try:
                self._commit(
                    session,
                    transaction,
                    {table.id: [change.updates]},
                    reads=answer.tables,
                    read_ts=answer.ts,
                )
            except WriteConflict:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                # Another process was faster; at the same pace as it this one would be late again.
                current().sleep(self._rng.uniform(0, pause))
                pause = min(2 * pause, LAST_PAUSE)
                continue
            return change.outcome
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
        changed: _Changed,
    ) -> Outcome:
        self._refuse_copied(transaction, query)
        overlay = {
            gid: tables
            for gid, writes in transaction.writes.items()
            if (tables := [w for w in writes if isinstance(w, pa.Table)])
        }
        answer = self._queries.answer(
            session,
            query,
            read_ts=transaction.write_read_ts,
            overlay=overlay or None,
            transaction=transaction,
            linear=True,
        )
        if answer.ts is not None:
            transaction.write_read_ts = answer.ts
            transaction.reads |= answer.tables
        change = changed(answer)
        if change.outcome.count:
            transaction.add(table.id, [change.updates])
        return change.outcome

    def _tables_below(self, relation: Relation) -> frozenset[GlobalId]:
        """The tables whose writes can change what a relation reads."""
        return self._queries.base_tables(self._queries.inputs(relation))

    def _refuse_copied(self, transaction: Transaction, query: hir.Query) -> None:
        """What COPY has written ahead, of any size, is not read back into this process before it is committed."""
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
        """Commit what a transaction has buffered, as one; its objects are the commit's to keep or to delete from here on."""
        writes = {gid: written for gid, written in transaction.writes.items() if written}
        if not writes:
            return
        modes = dict.fromkeys(writes, WRITE)
        with self._commits.locks.held(modes, current()):
            transaction.writes.clear()
            self._commit(session, transaction, writes, transaction.reads, transaction.write_read_ts)


def lock_modes(table: GlobalId, read: Iterable[GlobalId]) -> dict[GlobalId, str]:
    """The locks of a statement that writes ``table`` from what it reads of other tables."""
    modes = dict.fromkeys(read, READ)
    modes[table] = EXCLUSIVE if table in modes else WRITE
    return modes


def _taken_apart(
    session: Session, answer: Answer, returning: RelationDesc | None
) -> tuple[pa.Table, Outcome]:
    """What is written, its columns by position, and what is returned of it, which may be too large for the session."""
    rows = answer.rows
    if returning is None:
        return positional(rows), Outcome(rows.num_rows)
    width = rows.num_columns - returning.arity
    returned = pa.table(rows.columns[width:], names=list(returning.names))
    session.check_size(returned)
    return positional(rows.select(list(range(width)))), Outcome(rows.num_rows, returned)


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
