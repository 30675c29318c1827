"""SELECT, VALUES, TABLE and SHOW: a query, at a time that fits the session's transaction."""

from __future__ import annotations

import pyarrow as pa

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.peek.queries import Queries
from mzsql.adapter.planning.walk import global_gets
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.session.values import targeted_replica
from mzsql.adapter.statements.result import Result
from mzsql.catalog.builtin import builtins
from mzsql.catalog.objects import CATALOG_CLUSTER
from mzsql.frontend import lower_query
from mzsql.frontend.plan import plans as p
from mzsql.repr.errors import SqlError, UndefinedObject
from mzsql.repr.types import RelationDesc


class Selects:
    """Runs these statements."""

    def __init__(self, env: Environment, queries: Queries) -> None:
        self._env = env
        self._queries = queries

    def run(self, session: Session, transaction: Transaction, plan: p.SelectPlan) -> Result:
        """The rows of a query.

        Raises:
            UndefinedObject: the session's cluster does not exist, and the query reads users' relations.
            TransactionError: it does not fit the transaction.
        """
        self._require_cluster(session, plan)
        as_of = None
        if plan.as_of is not None:
            as_of = self._queries.as_of(plan)
        read_ts = None
        apart = transaction.implicit or plan.shows
        if as_of is None and not apart:
            # AS OF names its own time, so it may stand in any transaction, as may what has no time.
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
        return Result(f"{plan.command} {count}", answer.desc, answer.rows, count, answer.ts)

    def rows(
        self, session: Session, transaction: Transaction, plan: p.SelectPlan
    ) -> tuple[RelationDesc, pa.Table]:
        """As `run`: the columns and the rows."""
        result = self.run(session, transaction, plan)
        assert result.desc is not None
        return result.desc, result.rows

    def _require_cluster(self, session: Session, plan: p.SelectPlan) -> None:
        """Refuse to read users' relations on a cluster that does not exist, as Materialize does; the system's are on one of its own.

        A replica that the session names is to be one of its cluster.
        """
        cluster = session.get("cluster")
        if self._env.catalog.state.cluster(cluster) is not None:
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
                hint="SET cluster to one that exists, or RESET cluster.",
            )
