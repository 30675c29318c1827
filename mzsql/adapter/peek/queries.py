"""Queries of sessions: their time, their one-shot plan, their answer under the query's names.

Promise: a query is at the time that `mzsql.adapter.planning.timestamps` chooses for it, answered when its inputs are complete
there. What it reads is held readable from before the time is chosen until it is answered (`mzsql.adapter.session.holds`). A query that
was planned before under the same catalog is not planned again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec
import pyarrow as pa

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.peek.plan_cache import LASTING, PlanCache, QueryKey
from mzsql.adapter.planning.explain_timestamp import explained
from mzsql.adapter.planning.named_times import named_time
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.planning.timestamps import Question, SourceFrontiers, Timestamps, determine
from mzsql.adapter.planning.walk import global_gets, unmaterializables
from mzsql.adapter.session.holds import ReadHolds, TimeDomain
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.session.values import moment_values, targeted_replica
from mzsql.adapter.system.activity import ActivePeek, Activity
from mzsql.catalog.builtin import builtins
from mzsql.catalog.objects import Index, Stored, Table
from mzsql.compute.peek.execute import Peeker
from mzsql.compute.peek.inputs import Inputs, Overlay
from mzsql.compute.peek.outflow import gathered
from mzsql.compute.peek.query import PlannedQuery
from mzsql.compute.peek.row_reads import needs_no_engine, over, source
from mzsql.compute.peek.rows import constant_table, named
from mzsql.compute.peek.spelled import spelled_rows
from mzsql.expr.dataflow import PeekExport
from mzsql.expr.mfp import to_relation
from mzsql.expr.relation import Constant, Get, Relation, RowSetFinishing, Union
from mzsql.expr.scalar import Scalar
from mzsql.frontend import hir, lower_query
from mzsql.frontend.plan import plans as p
from mzsql.lir import Planned
from mzsql.lir.plan import SourceImport
from mzsql.persist import PartRef
from mzsql.repr.datum import Datum, Row
from mzsql.repr.errors import InvalidParameter, Unsupported
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import TEXT, ColumnType, RelationDesc, RelationType, SqlType
from mzsql.transform.fast_path import (
    ConstantPlan,
    PeekIndexPlan,
    index_lookup,
    peek_plan,
    persist_plan,
)
from mzsql.transform.scalars import simplify

#: What a query reads that reads nothing.
_NOTHING = GlobalId("")


class Flowing(msgspec.Struct, frozen=True):
    """A query's rows as they come, and what they are read from.

    Attributes:
        rows: the result, piece by piece, its columns named as the query names them; taken once.
        desc: names and types of the columns.
        ts: the time it is read at; None for a query that reads nothing with times.
        tables: the tables below everything that it reads.
    """

    rows: Iterator[pa.Table]
    desc: RelationDesc
    ts: Timestamp | None
    tables: frozenset[GlobalId]


class Answer(msgspec.Struct, frozen=True):
    """A query's rows and what they were read from.

    Attributes:
        rows: the result, its columns named as the query names them.
        desc: names and types of the columns.
        ts: the time it was read at; None for a query that reads nothing with times.
        tables: the tables below everything that it read.
    """

    rows: pa.Table
    desc: RelationDesc
    ts: Timestamp | None
    tables: frozenset[GlobalId]


class Queries:
    """Answers queries. Thread-safe.

    Attributes:
        timestamps: chooses their times.
        holds: keeps what they read readable.
        plans: their plans.
    """

    def __init__(
        self,
        env: Environment,
        planner: Planner,
        inputs: Inputs,
        peeker: Peeker,
        activity: Activity,
    ) -> None:
        self._env = env
        self._planner = planner
        self._inputs = inputs
        self._peeker = peeker
        self._activity = activity
        self.timestamps = Timestamps(env)
        self.holds = ReadHolds(env.collections)
        self.plans = PlanCache()
        self._indexes_at: tuple[int, Mapping[str, frozenset[GlobalId]]] = (-1, {})

    # --- what a query reads -------------------------------------------------------------------

    def _named(self, relation: Relation) -> frozenset[GlobalId]:
        """What a relation names, itself or by plain views, these included."""
        seen: set[GlobalId] = set()
        pending = list(global_gets(relation))
        while pending:
            gid = pending.pop()
            view = None if gid in seen else self._planner.lookup_view(gid)
            seen.add(gid)
            if view is not None:
                pending += global_gets(view)
        return frozenset(seen)

    def inputs(self, relation: Relation) -> frozenset[GlobalId]:
        """What a relation reads, plain views looked through."""
        named = self._named(relation)
        return frozenset(gid for gid in named if self._planner.lookup_view(gid) is None)

    def base_tables(self, inputs: Iterable[GlobalId]) -> frozenset[GlobalId]:
        """The tables whose writes can change what is read."""
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
        """Whether a query's answer depends on the time it is read at: it reads what is stored, or says ``mz_now()``."""
        relation = lower_query(query).relation
        return bool(self._inputs.stored(sorted(self.inputs(relation)))) or (
            "mz_now" in self.calls(relation)
        )

    # --- timestamps ---------------------------------------------------------------------------

    def timestamp(self, session: Session, inputs: Iterable[GlobalId]) -> Timestamp:
        """The time at which a query over ``inputs`` reads now; waited for where the oracle has not reached it."""
        stored = self._inputs.stored(sorted(inputs))
        if not stored:
            return self._env.fresh_timestamp()
        ts = self.timestamps.determine(session, stored).timestamp
        assert ts is not None
        return ts

    def check_as_of(
        self, ts: Timestamp, inputs: Iterable[GlobalId], *, at_least: bool
    ) -> Timestamp:
        """The time of an AS OF query; raises InvalidParameter where its inputs no longer have it."""
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
        """EXPLAIN TIMESTAMP of a query."""
        relation = lower_query(plan.query).relation
        transaction = session.transaction
        as_of: Timestamp | None = None
        if plan.as_of is not None:
            as_of = self.as_of(plan)
        elif transaction is not None:
            # Whatever else is read in a transaction is read at the time of its first query.
            as_of = transaction.read_ts
        question = self.timestamps.question(
            session,
            self._inputs.stored(sorted(self.inputs(relation))),
            time_dependent="mz_now" in self.calls(relation),
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
        """Of each stored input all parts of its contents, and those that what is pushed into its read cannot do without.

        Read at ``as_of``, or at the time that a query would choose now.
        """
        by_id = {one.id: one for one in imports}
        stored = self._inputs.stored(sorted(by_id))
        with self.holds.of(stored):
            ts = self.timestamps.determine(session, stored, as_of=as_of).timestamp
            ts = 0 if ts is None else ts
            self._inputs.wait(stored, ts, session.timeout)
            return [(gid, *self._inputs.pushed_parts(by_id[gid], ts)) for gid in stored]

    def as_of(self, plan: p.SelectPlan) -> Timestamp:
        """The time that a query's AS OF names; raises InvalidParameter for NULL."""
        assert plan.as_of is not None
        value = self.constant(plan.as_of)
        if value is None:
            raise InvalidParameter("can't use null as a mz_timestamp for AS OF")
        return int(str(value))

    def constant(self, expr: Scalar) -> Datum:
        """The value of an expression without columns of type mz_timestamp, such as that of AS OF; errors in Materialize's words."""
        return named_time(self._planner, expr)

    # --- plans --------------------------------------------------------------------------------

    def calls(self, relation: Relation) -> frozenset[str]:
        """The functions of the session or the moment that a relation calls, plain views looked through."""
        found = set(unmaterializables(relation))
        for gid in self._named(relation):
            view = self._planner.lookup_view(gid)
            if view is not None:
                found |= unmaterializables(view)
        return frozenset(found)

    def plan(
        self,
        relation: Relation,
        *,
        cluster: str | None,
        value: Callable[[str, SqlType], Datum] | None = None,
    ) -> Planned:
        """A one-shot dataflow for a relation.

        Args:
            relation: the query.
            cluster: the cluster whose indexes may be read; None: none.
            value: values of the functions of the session or the moment.
        """
        return self._planner.dataflow(self._export(), relation, cluster=cluster, value=value)

    def _export(self) -> PeekExport:
        return PeekExport(self._env.transient_ids())

    def planned(
        self,
        relation: Relation,
        query: hir.Query,
        *,
        cluster: str | None = None,
        value: Callable[[str, SqlType], Datum] | None = None,
    ) -> PlannedQuery:
        """A query's plan: the one that was made before, where there is one."""

        def make() -> PlannedQuery:
            if cluster is not None and value is None:
                rows = to_relation(*source(relation))
                found = index_lookup(rows, self._planner.context(cluster=cluster))
                if found is not None:
                    return self._over_index(found, query.finishing, query.input_types)
            planned = self.plan(relation, cluster=cluster, value=value)
            finishing, columns = query.finishing, query.input_types
            peek = peek_plan(planned.mir, finishing, self._planner.features())
            if isinstance(peek, PeekIndexPlan):
                return self._over_index(peek, finishing, columns)
            return PlannedQuery(peek, lambda: planned, finishing, columns)

        calls = frozenset[str]() if value is None else self.calls(relation)
        if not calls <= LASTING:
            return make()
        # Spelled, as some are lists.
        read = () if value is None else tuple((c, repr(value(c, TEXT))) for c in sorted(calls))
        step = self._env.catalog.definitions
        features = self._planner.features()
        typ = query.input_types
        key = QueryKey(relation, query.finishing, typ, step, cluster, features, read)
        return self.plans.get(key, make)

    def _over_index(
        self, fast: PeekIndexPlan, finishing: RowSetFinishing, columns: tuple[ColumnType, ...]
    ) -> PlannedQuery:
        """What is left to do beside an index: row-wise work over the rows found."""

        def make() -> Planned:
            rest = to_relation(fast.mfp, Get(fast.on_id, fast.typ))
            return self._planner.over_rows(self._export(), rest)

        return PlannedQuery(fast, make, finishing, columns)

    def spelled_out(self, query: hir.Query, relation: Relation) -> pa.Table | None:
        """The rows of a query that spells them out, under its names; None for any other, or one that the engine is to put in order.

        Args:
            query: the query.
            relation: what it is lowered to.
        """
        finishing = query.finishing
        if finishing.order_by or finishing.limit is not None or finishing.offset:
            return None
        rows = self._spelled_rows(relation)
        if rows is None:
            return None
        made = constant_table(rows, query.input_types)
        return named(made.select(list(finishing.project)), query.desc)

    def _spelled_rows(self, relation: Relation) -> tuple[tuple[Row, int], ...] | None:
        context = self._planner.context()
        known = partial(simplify, columns=(), ctx=context)
        return spelled_rows(relation, known, context.evaluator)

    def _direct(
        self, relation: Relation, query: hir.Query, *, literals_only: bool
    ) -> PlannedQuery | None:
        """A query of constants, or a row-wise read of one table or materialized view, that needs neither an engine nor the optimizer."""
        mfp, below = source(relation)
        if isinstance(below, Constant | Union):
            rows = self._spelled_rows(relation)
            if rows is None:
                return None
            columns = query.input_types
            return PlannedQuery(
                ConstantPlan(rows, None, RelationType(columns)),
                lambda: self.plan(relation, cluster=None),
                query.finishing,
                columns,
            )
        if literals_only or not isinstance(below, Get):
            return None
        if isinstance(below.id, int) or below.id in builtins():
            return None
        item = self._env.catalog.state.items[below.id]
        if not isinstance(item, Stored):
            return None
        mfp = mfp.optimize()
        read = over(below.id, below.typ.columns, mfp)
        compared = [condition.column for condition in read.conditions]
        if not needs_no_engine(read) or len(set(compared)) < len(compared):
            # Of several conditions on a column the optimizer may know that none can hold.
            return None
        return PlannedQuery(
            persist_plan(below.id, below.typ, mfp, query.finishing, self._planner.features()),
            lambda: self.plan(relation, cluster=None),
            query.finishing,
            query.input_types,
            read,
        )

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
        """A query's answer, constants that no column holds as texts (`mzsql.compute.peek.rows.constant_table`).

        Args:
            session: whose isolation, timeout, values and bounds count.
            query: the query.
            as_of: the time of AS OF.
            at_least: whether a later one will do.
            read_ts: the time of the transaction it is in, if it has one already.
            transaction: the transaction that it is in: its first query settles what it may read, and when.

        Raises:
            ResultTooLarge: it is larger than the session takes; the rest was not made then.
            TransactionError: it reads what lies outside of the transaction's time domain.
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
            rows = gathered(found.rows, found.desc, self._inputs.limits, session.check_size)
        return Answer(rows, found.desc, found.ts, found.tables)

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
        """As `answer`, its rows as they come, however many; they can be taken within the block.

        Args:
            session: whose isolation, timeout and values count.
            query: the query.
            as_of: the time of AS OF.
            at_least: whether a later one will do.
            read_ts: the time of the transaction it is in, if it has one already.
            overlay: what the transaction has written to tables.
            transaction: the transaction that it is in: its first query settles what it may read, and when.
            linear: whether every acknowledged write must be seen whatever the isolation.
            spelled: whether constants that no column holds come as texts (`mzsql.compute.peek.rows.constant_table`).
            ordered: whether the order of many rows matters.
        """
        lower = self._planner.lowering()
        relation = lower(query).relation
        inputs = self.inputs(relation)
        calls = self.calls(relation)
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
            read = next(iter(inputs), _NOTHING)
            # What is under way ends with the block, whoever still has the rows.
            with (
                self._activity.peek(read, 0 if ts is None else ts) as peek,
                contextlib.closing(
                    self._run(session, relation, query, ts, overlay, value, peek, ordered=ordered)
                ) as found,
            ):
                rows = (named(one, query.desc, spelled=spelled) for one in found)
                yield Flowing(rows, query.desc, ts, self.base_tables(inputs))

    def _with_indexes(
        self,
        session: Session,
        relation: Relation,
        query: hir.Query,
        value: Callable[[str, SqlType], Datum] | None,
    ) -> PlannedQuery | None:
        """The plan with the indexes of the session's cluster; None where nothing that is named has any.

        Of the cluster's replicas one serves its indexes; where the session names another one they are not read.
        """
        cluster = session.get("cluster")
        targeted = targeted_replica(session, self._env.catalog.state)
        if targeted is not None and targeted != self._env.catalog.state.serving(cluster):
            return None
        if not self._indexed(cluster) & self._named(relation):
            return None
        return self.planned(relation, query, cluster=cluster, value=value)

    def _indexed(self, cluster: str) -> frozenset[GlobalId]:
        """What has an index in a cluster."""
        step, known = self._indexes_at
        if step != self._env.catalog.step:
            step = self._env.catalog.step
            found: dict[str, set[GlobalId]] = {}
            for index in self._env.catalog.state.of(Index):
                found.setdefault(index.cluster, set()).add(index.on_id)
            known = {name: frozenset(gids) for name, gids in found.items()}
            self._peeker.indexes.forget_dropped()
            self._indexes_at = (step, known)
        return known.get(cluster, frozenset())

    def _in_domain(self, transaction: Transaction, stored: Sequence[GlobalId]) -> list[GlobalId]:
        """What a transaction's time must be fit for, once its time domain is settled and ``stored`` is known to be in it."""
        items = self._env.catalog.state.items
        if transaction.domain is None:
            names = self._stored_in({(items[gid].database, items[gid].schema) for gid in stored})
            transaction.domain = TimeDomain(self.holds.acquire(names), names.values())
        read = [(gid, items[gid].full_name) for gid in stored]
        transaction.domain.check(read)
        return sorted(transaction.domain.held.ids)

    def _hold_path(self, session: Session, transaction: Transaction) -> None:
        """Hold what a transaction is likely to read, whose time is fixed by a query that reads nothing: what unqualified names may mean."""
        if transaction.held is None:
            transaction.held = self.holds.acquire(
                self._stored_in([(session.get("database"), s) for s in session.search_path])
            )

    def _stored_in(self, schemas: Collection[tuple[str, str]]) -> dict[GlobalId, str]:
        """Ids and whole names of what has contents at times in some schemas."""
        return {
            item.id: item.full_name
            for item in self._env.catalog.state.stored
            if (item.database, item.schema) in schemas
        }

    def _run(
        self,
        session: Session,
        relation: Relation,
        query: hir.Query,
        ts: Timestamp | None,
        overlay: Overlay | None,
        value: Callable[[str, SqlType], Datum] | None,
        peek: ActivePeek,
        *,
        ordered: bool,
    ) -> Generator[pa.Table]:
        at = 0 if ts is None else ts
        # What was written is laid over inputs by an engine: indexes do not have it.
        planned = None if overlay else self._with_indexes(session, relation, query, value)
        if planned is not None and planned.reads_indexes:
            peek.planned()
            found = self._peeker.by_index(planned, at, session.timeout)
            if found is not None:
                peek.kind = "index"
                peek.complete()
                return found
            # Nobody waits for an index: what it is on is read instead.
            planned = None
        if planned is None and value is None:
            # Literals have nothing that was written.
            planned = self._direct(relation, query, literals_only=bool(overlay))
        if planned is None:
            planned = self.planned(relation, query, value=value)
        if overlay:
            self._refuse_stale(planned.inputs, overlay)
        peek.planned()
        self._inputs.wait(planned.inputs, at, session.timeout)
        peek.complete()
        return self._peeker.rows(planned, at, overlay=overlay, ordered=ordered)

    def _refuse_stale(self, read: Sequence[GlobalId], overlay: Overlay) -> None:
        """A transaction's own writes reach a materialized view when they are committed, not before."""
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
        """All rows of any relation, as ``TABLE x`` gives them."""
        desc = self._planner.desc(gid)
        get = hir.Get(gid, desc.typ)
        finishing = RowSetFinishing((), None, 0, tuple(range(desc.arity)))
        query = hir.Query(get, desc, finishing, desc.typ.columns)
        return self.answer(session, query, as_of=as_of)
