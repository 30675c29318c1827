"""Queries of sessions: their timestamp, their plan, their rows.

Promise: a query reads at the timestamp that `mzsql.adapter.planning.timestamps` chooses, once its inputs are complete there. Its inputs are
held readable from before the timestamp is chosen until the answer is complete (`mzsql.adapter.session.holds`). A query planned before under
the same catalog is not planned again. See docs/architecture.md, "The way of a SELECT".
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
from mzsql.adapter.planning.named_times import as_of_time, named_time
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
from mzsql.repr.errors import Unsupported
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
    """

    rows: pa.Table
    desc: RelationDesc
    ts: Timestamp | None
    tables: frozenset[GlobalId]


class Queries:
    """Answers queries. Thread-safe.

    Attributes:
        timestamps: chooses their timestamps.
        holds: keeps their inputs readable.
        plans: caches their plans.
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
        """The objects that a relation reads, directly or through plain views, the views included."""
        seen: set[GlobalId] = set()
        pending = list(global_gets(relation))
        while pending:
            gid = pending.pop()
            view = None if gid in seen else self._planner.plain_view(gid)
            seen.add(gid)
            if view is not None:
                pending += view.reads
        return frozenset(seen)

    def inputs(self, relation: Relation) -> frozenset[GlobalId]:
        """The objects that a relation reads, with plain views expanded."""
        named = self._named(relation)
        return frozenset(gid for gid in named if self._planner.plain_view(gid) is None)

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
        relation = lower_query(query).relation
        return bool(self._inputs.stored(sorted(self.inputs(relation)))) or (
            "mz_now" in self.calls(relation)
        )

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
        """The timestamp of an AS OF query, with ``at_least`` perhaps a later one; raises InvalidParameter where its inputs are not readable
        there.
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
        relation = lower_query(plan.query).relation
        transaction = session.transaction
        as_of: Timestamp | None = None
        if plan.as_of is not None:
            as_of = self.as_of(plan)
        elif transaction is not None:
            # All queries of a transaction read at the timestamp of its first.
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
        """The timestamp that a query's AS OF clause names; raises as `as_of_time`."""
        assert plan.as_of is not None
        return as_of_time(self._planner, plan.as_of)

    def constant(self, expr: Scalar) -> Datum:
        """The value of a column-free expression of type mz_timestamp, such as that of AS OF; with Materialize's error messages."""
        return named_time(self._planner, expr)

    # --- plans --------------------------------------------------------------------------------

    def calls(self, relation: Relation) -> frozenset[str]:
        """The session- and time-dependent functions that a relation calls, directly or through plain views."""
        found = set(unmaterializables(relation))
        for gid in self._named(relation):
            view = self._planner.plain_view(gid)
            if view is not None:
                found |= view.calls
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
            value: gives the values of session- and time-dependent functions.
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
        """A query's plan, from the cache of plans where it is there."""

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
        # As texts, since some values are lists, which cannot be hashed.
        read = () if value is None else tuple((c, repr(value(c, TEXT))) for c in sorted(calls))
        # A plan over builtin relations alone does not depend on what users define.
        lasting = cluster is None and self._named(relation) <= builtins().keys()
        step = None if lasting else self._env.catalog.definitions
        features = self._planner.features()
        typ = query.input_types
        key = QueryKey(relation, query.finishing, typ, step, cluster, features, read)
        return self.plans.get(key, make)

    def _over_index(
        self, fast: PeekIndexPlan, finishing: RowSetFinishing, columns: tuple[ColumnType, ...]
    ) -> PlannedQuery:
        """The plan for an index lookup, with the row-wise work left to do on the rows found."""

        def make() -> Planned:
            rest = to_relation(fast.mfp, Get(fast.on_id, fast.typ))
            return self._planner.over_rows(self._export(), rest)

        return PlannedQuery(fast, make, finishing, columns)

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
        """The plan of a constant query, or of a row-wise read of one table or materialized view; None where it takes the optimizer or an
        engine.

        This path saves short queries the optimizer's time.
        """
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
            # With several conditions on one column the optimizer may find that they contradict each other.
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
        """As `answer`, with the rows as a stream of any length, to be consumed within the block. Beyond its arguments:

        - ``overlay``: the transaction's own writes to tables, which the query sees.
        - ``linear``: whether every acknowledged write must be seen, whatever the isolation level.
        - ``spelled``: whether constants that no column type holds come as texts (`mzsql.compute.peek.rows.constant_table`).
        - ``ordered``: whether the order of many rows matters.
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
            # The query is canceled when the block ends, even if somebody keeps the iterator.
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
        """The plan with the indexes of the session's cluster; None where no object read has one there.

        One replica serves a cluster's indexes; where ``cluster_replica`` names another one, no index is read.
        """
        cluster = session.get("cluster")
        targeted = targeted_replica(session, self._env.catalog.state)
        if targeted is not None and targeted != self._env.catalog.state.serving(cluster):
            return None
        if not self._indexed(cluster) & self._named(relation):
            return None
        return self.planned(relation, query, cluster=cluster, value=value)

    def _indexed(self, cluster: str) -> frozenset[GlobalId]:
        """The objects that have an index in a cluster."""
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
        # An engine merges the transaction's own writes into the inputs; an index does not have them, so it is not read then.
        planned = None if overlay else self._with_indexes(session, relation, query, value)
        if planned is not None and planned.reads_indexes:
            peek.planned()
            found = self._peeker.by_index(planned, at, session.timeout)
            if found is not None:
                peek.kind = "index"
                peek.complete()
                return found
            # A query never waits for an index that is behind: it reads the indexed relation instead.
            planned = None
        if planned is None and value is None:
            # With an overlay only constant queries may skip the engine: those cannot read what was written.
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
