"""The plans of one-shot queries, for their execution and for EXPLAIN alike.

Promise: whoever asks for a query's plan under the same catalog, cluster and session gets the same one: a query planned
before is not planned again, and EXPLAIN prints what execution takes. `mzsql.transform.fast_path.plan_peek` makes it. The
values of session- and time-dependent functions are in the query, and in the plain views that it reads, before it is
planned, so the plan is one of constants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import msgspec

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.peek.plan_cache import LASTING, PlanCache, QueryKey
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.planning.walk import global_gets, materialize, unmaterializables
from mzsql.adapter.session.session import Session
from mzsql.adapter.session.values import moment_values, targeted_replica
from mzsql.catalog.builtin import only_builtins
from mzsql.catalog.objects import Index
from mzsql.compute.peek.index import IndexReads
from mzsql.compute.peek.query import PlannedQuery, from_bytes
from mzsql.expr.dataflow import MirSource
from mzsql.expr.relation import Relation
from mzsql.frontend import hir
from mzsql.repr.datum import Datum
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import TEXT, SqlType
from mzsql.transform.fast_path import Asked, plan_peek

#: Gives the value of a session- or time-dependent function of a type.
Value: TypeAlias = Callable[[str, SqlType], Datum]


class Reads(msgspec.Struct, frozen=True):
    """What a relation reads.

    Attributes:
        named: the objects, directly or through plain views, the views included.
        inputs: the same with plain views expanded.
        calls: the session- and time-dependent functions that it calls, directly or through plain views.
    """

    named: frozenset[GlobalId]
    inputs: frozenset[GlobalId]
    calls: frozenset[str]


class PeekPlans:
    """Plans one-shot queries, and keeps their plans. Thread-safe.

    Args:
        env: gives the catalog, and the values of functions that depend on the session.
        planner: plans.
        indexes: reads indexes; told when some may have been dropped.

    Attributes:
        kept: the cache.
    """

    def __init__(self, env: Environment, planner: Planner, indexes: IndexReads) -> None:
        self._env = env
        self._planner = planner
        self._indexes = indexes
        self._indexes_at: tuple[int, Mapping[str, frozenset[GlobalId]]] = (-1, {})
        self.kept = PlanCache()

    def reads(self, relation: Relation) -> Reads:
        """What a relation reads."""
        named: set[GlobalId] = set()
        inputs: set[GlobalId] = set()
        calls = set(unmaterializables(relation))
        pending = list(global_gets(relation))
        while pending:
            gid = pending.pop()
            if gid in named:
                continue
            named.add(gid)
            view = self._planner.plain_view(gid)
            if view is None:
                inputs.add(gid)
            else:
                pending += view.reads
                calls |= view.calls
        return Reads(frozenset(named), frozenset(inputs), frozenset(calls))

    def cluster_read(self, session: Session, reads: Reads) -> str | None:
        """The session's cluster, if it has indexes that a query may read; else None.

        One replica serves a cluster's indexes; where ``cluster_replica`` names another one, no index is read.

        Raises:
            UndefinedObject: ``cluster_replica`` names none of the cluster's.
        """
        state = self._env.catalog.state
        cluster = session.get("cluster")
        if only_builtins(reads.named):
            return None  # the system catalog has a cluster of its own
        targeted = targeted_replica(session, state)
        if targeted is not None and targeted != state.serving(cluster):
            return None
        return None if self._indexed(cluster).isdisjoint(reads.named) else cluster

    def _indexed(self, cluster: str) -> frozenset[GlobalId]:
        """The objects that have an index in a cluster."""
        catalog = self._env.catalog
        step, known = self._indexes_at
        if step != catalog.step:
            step = catalog.step
            found: dict[str, set[GlobalId]] = {}
            for index in catalog.state.of(Index):
                found.setdefault(index.cluster, set()).add(index.on_id)
            known = {name: frozenset(gids) for name, gids in found.items()}
            self._indexes.forget_dropped()
            self._indexes_at = (step, known)
        return known.get(cluster, frozenset())

    def planned(
        self, asked: Asked, reads: Reads, *, cluster: str | None, value: Value | None = None
    ) -> PlannedQuery:
        """A query's plan, kept or new.

        Args:
            asked: the query.
            reads: what it reads.
            cluster: the cluster whose indexes may be read; None: none (`cluster_read`).
            value: gives the values of the session- and time-dependent functions that it calls; None: these stay calls.
        """
        features = self._planner.features()

        def make() -> PlannedQuery:
            return _planned(self._planner, asked, cluster, value)

        if value is not None and not reads.calls <= LASTING:
            return make()
        # As texts, since some values are lists, which cannot be hashed.
        given = (
            () if value is None else tuple((c, repr(value(c, TEXT))) for c in sorted(reads.calls))
        )
        # A plan over builtin relations alone does not depend on what users define.
        lasting = cluster is None and only_builtins(reads.named)
        step = None if lasting else self._env.catalog.definitions
        key = QueryKey(asked, step, cluster, features, given)
        # A constant is planned as fast as it is read, and one that a program computes is asked for once.
        filed = lasting and bool(reads.named)
        return self.kept.get(key, partial(self._from_files, key, make) if filed else make)

    def _from_files(self, key: QueryKey, make: Callable[[], PlannedQuery]) -> PlannedQuery:
        """The plan of a query over builtin relations alone: as an earlier process has kept it, else made, and kept once it is
        rendered.
        """
        asked, files = key.asked, self._planner.files
        name = files.key("query", asked, key.features, key.session)

        def decoded(data: bytes) -> PlannedQuery:
            return from_bytes(data, asked.finishing, asked.columns, key.features)

        found = files.get(name, decoded)
        if found is not None:
            return found
        made = make()
        made.keep(partial(files.put, name))
        return made

    def explained(self, session: Session, query: hir.Query) -> PlannedQuery:
        """The plan that a query of the session would be executed with now. Functions whose value is of a moment are
        left as calls.

        Raises:
            UndefinedObject: ``cluster_replica`` names none of the session's cluster.
        """
        asked = asked_of(self._planner, query)
        reads = self.reads(asked.relation)
        value = None
        if reads.calls and reads.calls <= LASTING:
            value = moment_values(session, self._env, None, time.time_ns() // 1000, 0)
        cluster = self.cluster_read(session, reads)
        return self.planned(asked, reads, cluster=cluster, value=value)

    def supposed(self, planner: Planner, query: hir.Query, cluster: str) -> PlannedQuery:
        """The plan that a query would be executed with if the planner were another one; not kept."""
        return _planned(planner, asked_of(planner, query), cluster, None)


def asked_of(planner: Planner, query: hir.Query) -> Asked:
    """A query, decorrelated."""
    return Asked(planner.lowering()(query).relation, query.finishing, query.input_types)


def _planned(
    planner: Planner, asked: Asked, cluster: str | None, value: Value | None
) -> PlannedQuery:
    context = planner.context(cluster=cluster)
    if value is None:
        peek = plan_peek(asked, planner, context)
    else:
        relation = materialize(asked.relation, value)
        with_values = msgspec.structs.replace(asked, relation=relation)
        peek = plan_peek(with_values, _Valued(planner, value), context)
    return PlannedQuery(peek, asked.finishing, asked.columns, context.features)


class _Valued:
    """The objects that a query may read, with values in place of calls in its plain views."""

    def __init__(self, planner: Planner, value: Value) -> None:
        self._planner = planner
        self._value = value

    def lookup_view(self, gid: GlobalId) -> Relation | None:
        """See `mzsql.transform.fast_path.Readable`."""
        view = self._planner.lookup_view(gid)
        return None if view is None else materialize(view, self._value)

    def source(self, gid: GlobalId) -> MirSource:
        """See `mzsql.transform.fast_path.Readable`."""
        return self._planner.source(gid)

    def is_stored(self, gid: GlobalId) -> bool:
        """See `mzsql.transform.fast_path.Readable`."""
        return self._planner.is_stored(gid)
