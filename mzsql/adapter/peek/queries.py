"""Queries of sessions: their timestamp, their plan, their rows.

Promise: a query reads at the timestamp that `mzsql.adapter.planning.timestamps` chooses, once its inputs are complete there. Its inputs are
held readable from before the timestamp is chosen until the answer is complete (`mzsql.adapter.session.holds`). A query planned before under
the same catalog is not planned again. See docs/architecture.md, "The way of a SELECT".
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pyarrow as pa

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.peek.plans import PeekPlans, Reads, Value, asked_of
from mzsql.adapter.planning.explain_timestamp import explained
from mzsql.adapter.planning.named_times import as_of_time, named_time
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.planning.timestamps import Question, SourceFrontiers, Timestamps, determine
from mzsql.adapter.session.holds import ReadHolds, TimeDomain
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.session.values import moment_values
from mzsql.adapter.system.activity import ActivePeek, Activity
from mzsql.catalog.builtin import builtins
from mzsql.catalog.objects import Table
from mzsql.compute.peek.execute import Peeker
from mzsql.compute.peek.inputs import Inputs, Overlay
from mzsql.compute.peek.outflow import gathered
from mzsql.compute.peek.query import PlannedQuery
from mzsql.compute.peek.rows import constant_table, named
from mzsql.expr.relation import Relation, RowSetFinishing
from mzsql.expr.scalar import Scalar
from mzsql.frontend import hir, lower_query
from mzsql.frontend.plan import plans as p
from mzsql.lir.plan import SourceImport
from mzsql.persist import PartRef
from mzsql.repr.datum import Datum
from mzsql.repr.errors import Unsupported
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc
from mzsql.transform.fast_path import Asked
from mzsql.transform.spelled_out import spelled_rows

#: Stands in for the object in `mz_active_peeks` of a query without inputs.
_NOTHING = GlobalId("")


class Flowing(msgspec.Struct, frozen=True):
    """A query's rows as a stream.

    Attributes:
        rows: the result in pieces, with the query's column names; can be iterated once.
        desc: names and types of the columns.
        ts: the timestamp it is read at; None for a query that reads nothing with times.
        tables: the tables that its inputs are computed from.
    """

    rows: Iterator[pa.Table]
    desc: RelationDesc
    ts: Timestamp | None
    tables: frozenset[GlobalId]


class Answer(msgspec.Struct, frozen=True):
    """A query's rows, complete.

    Attributes:
        rows: the result, with the query's column names.
        desc: names and types of the columns.
        ts: the timestamp it was read at; None for a query that reads nothing with times.
        tables: the tables that its inputs are computed from.
        size: the rows' bytes in memory.
    """

    rows: pa.Table
    desc: RelationDesc
    ts: Timestamp | None
    tables: frozenset[GlobalId]
    size: int


class _Answering(msgspec.Struct, frozen=True):
    """A query that is being answered, what it reads, and the values of the functions that it calls."""

    asked: Asked
    reads: Reads
    value: Value | None


class Queries:
    """Answers queries. Thread-safe.

    Args:
        env: the environment.
        planner: lowers queries.
        plans: plans them.
        inputs: reads what they read.
        peeker: runs them.
        activity: shows them while they run.

    Attributes:
        timestamps: chooses their timestamps.
        holds: keeps their inputs readable.
        plans: the cache of their plans.
    """

    def __init__(
        self,
        env: Environment,
        planner: Planner,
        plans: PeekPlans,
        inputs: Inputs,
        peeker: Peeker,
        activity: Activity,
    ) -> None:
        self._env = env
        self._planner = planner
        self._plans = plans
        self._inputs = inputs
        self._peeker = peeker
        self._activity = activity
        self.timestamps = Timestamps(env)
        self.holds = ReadHolds(env.collections)
        self.plans = plans.kept

    # --- what a query reads -------------------------------------------------------------------

    def inputs(self, relation: Relation) -> frozenset[GlobalId]:
        """The objects that a relation reads, with plain views expanded."""
        return self._plans.reads(relation).inputs

    def base_tables(self, inputs: Iterable[GlobalId]) -> frozenset[GlobalId]:
        """The tables that some objects are computed from: writes to them change what is read."""
        items = self._env.catalog.state.items
        found: set[GlobalId] = set()
        pending = list(inputs)
        seen: set[GlobalId] = set()
        while pending:
            item = items.get(pending.pop())
            if item is None or item.id in seen:
                continue
            seen.add(item.id)
            if isinstance(item, Table):
                found.add(item.id)
            else:
                pending += item.depends_on
        return frozenset(found)

    def is_timed(self, query: hir.Query) -> bool:
        """Whether a query's answer depends on its timestamp: it reads stored relations or calls ``mz_now()``."""
        reads = self._plans.reads(lower_query(query).relation)
        return bool(self._inputs.stored(sorted(reads.inputs))) or "mz_now" in reads.calls

    # --- timestamps ---------------------------------------------------------------------------

    def timestamp(self, session: Session, inputs: Iterable[GlobalId]) -> Timestamp:
        """The timestamp at which a query over ``inputs`` would read now; waits where the oracle has not reached it."""
        stored = self._inputs.stored(sorted(inputs))
        if not stored:
            return self._env.fresh_timestamp()
        ts = self.timestamps.determine(session, stored).timestamp
        assert ts is not None
        return ts

    def check_as_of(
        self, ts: Timestamp, inputs: Iterable[GlobalId], *, at_least: bool
    ) -> Timestamp:
        """The timestamp of an AS OF query, with ``at_least`` perhaps a later one.

        Raises:
            InvalidParameter: its inputs are not readable there.
        """
        stored = self._inputs.stored(sorted(inputs))
        sources = tuple(
            SourceFrontiers(gid, self._env.collections.since(gid), None) for gid in stored
        )
        question = Question(
            "serializable", sources, time_dependent=True, as_of=ts, at_least=at_least
        )
        chosen = determine(question).timestamp
        assert chosen is not None
        return chosen

    def explain_timestamp(self, session: Session, plan: p.SelectPlan, fmt: str) -> str:
        """The text of EXPLAIN TIMESTAMP for a query, in format ``fmt``."""
        reads = self._plans.reads(lower_query(plan.query).relation)
        transaction = session.transaction
        as_of: Timestamp | None = None
        if plan.as_of is not None:
            as_of = self.as_of(plan)
        elif transaction is not None:
            # All queries of a transaction read at the timestamp of its first.
            as_of = transaction.read_ts
        question = self.timestamps.question(
            session,
            self._inputs.stored(sorted(reads.inputs)),
            time_dependent="mz_now" in reads.calls,
            as_of=as_of,
            at_least=plan.at_least,
            current_uppers=True,
        )
        catalog = self._planner.catalog()
        return explained(
            determine(question),
            self._env.clock.now_ms(),
            lambda gid: str(catalog.item(gid).name),
            fmt,
        )

    def selected_parts(
        self, session: Session, imports: Iterable[SourceImport], as_of: Timestamp | None
    ) -> list[tuple[GlobalId, Sequence[PartRef], Sequence[PartRef]]]:
        """For each stored input: its id, all parts of its contents, and the parts left after pushing the query's filters into the read.

        The contents are those at ``as_of``, or at the timestamp that a query would choose now.
        """
        by_id = {one.id: one for one in imports}
        stored = self._inputs.stored(sorted(by_id))
        with self.holds.of(stored):
            ts = self.timestamps.determine(session, stored, as_of=as_of).timestamp
            ts = 0 if ts is None else ts
            self._inputs.wait(stored, ts, session.timeout)
            return [(gid, *self._inputs.pushed_parts(by_id[gid], ts)) for gid in stored]

    def as_of(self, plan: p.SelectPlan) -> Timestamp:
        """The timestamp that a query's AS OF clause names.

        Raises:
            Unsupported, InvalidParameter: as `as_of_time`.
        """
        assert plan.as_of is not None
        return as_of_time(self._planner, plan.as_of)

    def constant(self, expr: Scalar) -> Datum:
        """The value of a column-free expression of type mz_timestamp, such as that of AS OF; with Materialize's error messages."""
        return named_time(self._planner, expr)

    def spelled_out(self, query: hir.Query, relation: Relation) -> pa.Table | None:
        """The rows of a query that consists of constants, with its column names; None for any other query, or one that orders or limits
        rows.

        Args:
            query: the query.
            relation: its MIR.
        """
        finishing = query.finishing
        if finishing.order_by or finishing.limit is not None or finishing.offset:
            return None
        rows = spelled_rows(relation, self._planner.context())
        if rows is None:
            return None
        made = constant_table(rows, query.input_types)
        return named(made.select(list(finishing.project)), query.desc)

    # --- answers ------------------------------------------------------------------------------

    def answer(
        self,
        session: Session,
        query: hir.Query,
        *,
        as_of: Timestamp | None = None,
        at_least: bool = False,
        read_ts: Timestamp | None = None,
        transaction: Transaction | None = None,
    ) -> Answer:
        """A query's complete answer. Constants that no column type holds come as texts (`mzsql.compute.peek.rows.constant_table`).

        Args:
            session: gives the isolation level, timeout, variables and size limit.
            query: the query.
            as_of: the timestamp of AS OF.
            at_least: whether a later timestamp will do (AS OF AT LEAST).
            read_ts: the timestamp of the transaction, if it has one already.
            transaction: the transaction that the query is in; its first query determines its timestamp and time domain.

        Raises:
            ResultTooLarge: the result exceeds ``max_query_result_size``; it was not computed to the end.
            TransactionError: the query reads a relation outside the transaction's time domain.
        """
        with self.flowing(
            session,
            query,
            as_of=as_of,
            at_least=at_least,
            read_ts=read_ts,
            transaction=transaction,
            spelled=True,
        ) as found:
            rows, size = gathered(found.rows, found.desc, self._inputs.limits, session.check_size)
        return Answer(rows, found.desc, found.ts, found.tables, size)

    @contextmanager
    def flowing(
        self,
        session: Session,
        query: hir.Query,
        *,
        as_of: Timestamp | None = None,
        at_least: bool = False,
        read_ts: Timestamp | None = None,
        overlay: Overlay | None = None,
        transaction: Transaction | None = None,
        linear: bool = False,
        spelled: bool = False,
        ordered: bool = True,
    ) -> Iterator[Flowing]:
        """As `answer`, with the rows as a stream of any length, to be consumed within the block. Beyond its arguments:

        - ``overlay``: the transaction's own writes to tables, which the query sees.
        - ``linear``: whether every acknowledged write must be seen, whatever the isolation level.
        - ``spelled``: whether constants that no column type holds come as texts (`mzsql.compute.peek.rows.constant_table`).
        - ``ordered``: whether the order of many rows matters.
        """
        asked = asked_of(self._planner, query)
        reads = self._plans.reads(asked.relation)
        inputs, calls = reads.inputs, reads.calls
        stored = self._inputs.stored(sorted(inputs))
        with self.holds.of(stored):
            ts = read_ts
            if transaction is not None and stored:
                stored = self._in_domain(transaction, stored)
            elif transaction is not None and ts is None and "mz_now" in calls:
                self._hold_path(session, transaction)
            if ts is None or as_of is not None:
                ts = self.timestamps.determine(
                    session,
                    stored,
                    time_dependent="mz_now" in calls,
                    as_of=as_of,
                    at_least=at_least,
                    linear=linear,
                ).timestamp
            value = None
            if calls:
                now, number = time.time_ns() // 1000, self._activity.number(session)
                value = moment_values(session, self._env, ts, now, number)
            at = 0 if ts is None else ts
            answering = _Answering(asked, reads, value)
            read = next(iter(inputs), _NOTHING)
            # The query is canceled when the block ends, even if somebody keeps the iterator.
            with (
                self._activity.peek(read, at) as peek,
                contextlib.closing(
                    self._run(session, answering, at, overlay, peek, ordered=ordered)
                ) as found,
            ):
                desc = query.desc
                rows = (named(one, desc, spelled=spelled) for one in found)
                yield Flowing(rows, desc, ts, self.base_tables(inputs))

    def _in_domain(self, transaction: Transaction, stored: Sequence[GlobalId]) -> list[GlobalId]:
        """The relations that must be readable at a transaction's timestamp: the first query determines them, later ones stay within."""
        items = self._env.catalog.state.items
        if transaction.domain is None:
            names = self._stored_in({(items[gid].database, items[gid].schema) for gid in stored})
            transaction.domain = TimeDomain(self.holds.acquire(names), names.values())
        read = [(gid, items[gid].full_name) for gid in stored]
        transaction.domain.check(read)
        return sorted(transaction.domain.held.ids)

    def _hold_path(self, session: Session, transaction: Transaction) -> None:
        """Hold the relations in the search path: the transaction's first query fixes its timestamp without reading any, and later ones are
        likely to read these.
        """
        if transaction.held is None:
            transaction.held = self.holds.acquire(
                self._stored_in([(session.get("database"), s) for s in session.search_path])
            )

    def _stored_in(self, schemas: Collection[tuple[str, str]]) -> dict[GlobalId, str]:
        """Ids and full names of the stored relations in some schemas."""
        return {
            item.id: item.full_name
            for item in self._env.catalog.state.stored
            if (item.database, item.schema) in schemas
        }

    def _run(
        self,
        session: Session,
        answering: _Answering,
        at: Timestamp,
        overlay: Overlay | None,
        peek: ActivePeek,
        *,
        ordered: bool,
    ) -> Generator[pa.Table]:
        # An engine merges the transaction's own writes into the inputs; an index does not have them, so it is not read then.
        cluster = None if overlay else self._plans.cluster_read(session, answering.reads)
        planned = self._planned(answering, cluster)
        if planned.reads_indexes:
            peek.planned()
            found = self._peeker.by_index(planned, at, session.timeout)
            if found is not None:
                peek.kind = "index"
                peek.complete()
                return found
            # A query never waits for an index that is behind: it reads the indexed relation instead.
            planned = self._planned(answering, None)
        if overlay:
            self._refuse_stale(planned.inputs, overlay)
        peek.planned()
        self._inputs.wait(planned.inputs, at, session.timeout)
        peek.complete()
        return self._peeker.rows(planned, at, overlay=overlay, ordered=ordered)

    def _planned(self, answering: _Answering, cluster: str | None) -> PlannedQuery:
        return self._plans.planned(
            answering.asked, answering.reads, cluster=cluster, value=answering.value
        )

    def _refuse_stale(self, read: Sequence[GlobalId], overlay: Overlay) -> None:
        """Refuse to read a materialized view over tables that the transaction has written: its own writes reach the view only after
        COMMIT.
        """
        items = self._env.catalog.state.items
        for gid in read:
            if gid in builtins() or isinstance(items[gid], Table):
                continue
            if self.base_tables([gid]) & overlay.keys():
                raise Unsupported(
                    f'this transaction has written to tables below "{items[gid].name}", which will not show it before COMMIT',
                    hint="Commit first, or read the tables themselves.",
                )

    def read_relation(self, session: Session, gid: GlobalId, as_of: Timestamp | None) -> Answer:
        """All rows of any relation, as ``TABLE x`` returns them."""
        desc = self._planner.desc(gid)
        get = hir.Get(gid, desc.typ)
        finishing = RowSetFinishing((), None, 0, tuple(range(desc.arity)))
        query = hir.Query(get, desc, finishing, desc.typ.columns)
        return self.answer(session, query, as_of=as_of)
