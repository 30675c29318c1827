"""SELECT, VALUES, TABLE and SHOW: a query, at a timestamp that fits the session's transaction.

Promise: the first query of a transaction fixes the timestamp of all later ones. AS OF names its own, so it fits any
transaction; SHOW reads the catalog apart from it.
"""

from __future__ import annotations

import pyarrow as pa

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.peek.queries import Queries
from mzsql.adapter.planning.walk import global_gets
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.session.values import targeted_replica
from mzsql.adapter.statements.result import Result
from mzsql.catalog.builtin import builtins, only_builtins
from mzsql.catalog.objects import CATALOG_CLUSTER
from mzsql.frontend import lower_query
from mzsql.frontend.hir import depends_on
from mzsql.frontend.plan import plans as p
from mzsql.repr.errors import SqlError, UndefinedObject, alike
from mzsql.repr.types import RelationDesc


class Selects:
    """Carries out queries that return rows."""

    def __init__(self, env: Environment, queries: Queries) -> None:
        self._env = env
        self._queries = queries

    def run(self, session: Session, transaction: Transaction, plan: p.SelectPlan) -> Result:
        """Answer a query.

        Raises:
            UndefinedObject: the session's cluster does not exist, and the query reads users' relations.
            TransactionError: the query does not fit the transaction.
        """
        self._require_cluster(session, plan)
        as_of = None
        if plan.as_of is not None:
            as_of = self._queries.as_of(plan)
        read_ts = None
        apart = transaction.implicit or plan.shows
        if as_of is None and not apart:
            # Only a query without AS OF takes part in the transaction's time.
            transaction.query(timed=self._queries.is_timed(plan.query))
            read_ts = transaction.read_ts
        answer = self._queries.answer(
            session,
            plan.query,
            as_of=as_of,
            at_least=plan.at_least,
            read_ts=read_ts,
            transaction=None if apart or as_of is not None else transaction,
        )
        if as_of is None and not apart and answer.ts is not None:
            transaction.read_ts = answer.ts
        count = answer.rows.num_rows
        return Result(
            f"{plan.command} {count}", answer.desc, answer.rows, count, answer.ts, size=answer.size
        )

    def rows(
        self, session: Session, transaction: Transaction, plan: p.SelectPlan
    ) -> tuple[RelationDesc, pa.Table]:
        """As `run`; only the columns and the rows."""
        result = self.run(session, transaction, plan)
        assert result.desc is not None
        return result.desc, result.rows

    def _require_cluster(self, session: Session, plan: p.SelectPlan) -> None:
        """Refuse to read users' relations on a cluster that does not exist, as Materialize does.

        The system catalog is read on a cluster of its own, by SHOW always, by others unless the session says otherwise. Of all else a
        replica named by ``cluster_replica`` must be one of the session's cluster; of EXPLAIN ANALYZE, one of what that is about.
        """
        cluster = session.get("cluster")
        if plan.replicas_of is not None:
            targeted_replica(session, self._env.catalog.state, plan.replicas_of)
        if self._env.catalog.state.cluster(cluster) is not None:
            # Nearly always no replica is named, and where the query is run makes no difference.
            if session.get("cluster_replica") and not _on_catalog_cluster(session, plan):
                targeted_replica(session, self._env.catalog.state)
            return
        named = global_gets(lower_query(plan.query).relation)
        users = [gid for gid in named if gid not in builtins()]
        if users and cluster == CATALOG_CLUSTER.name:
            items = self._env.catalog.state.items
            found = (items[gid] for gid in users if gid in items)
            listed = ", ".join(sorted(f'"{i.full_name}"' for i in found))
            raise SqlError(
                f'querying the following items {listed} is not allowed from the "{cluster}" cluster',
                sqlstate="42501",
                hint="Use another cluster: SET CLUSTER = <cluster-name>",
            )
        if users:
            raise UndefinedObject(
                f"unknown cluster '{cluster}'",
                hint=alike(cluster, [one.name for one in self._env.catalog.state.clusters.values()])
                or "SET cluster to one that exists, or RESET cluster.",
            )


def _on_catalog_cluster(session: Session, plan: p.SelectPlan) -> bool:
    if plan.shows:
        return True
    read = depends_on(plan.query.relation)
    routed = session.get("auto_route_catalog_queries") == "on"
    return routed and bool(read) and only_builtins(read)
