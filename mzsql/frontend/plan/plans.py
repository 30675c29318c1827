"""Plan structs: statements with names and types resolved, as the adapter carries them out; here the one that all families share.

Promise: a plan is immutable and self-contained: it names objects by id, carries the normalized text of what it creates,
and contains nothing of sqlglot. Making it executed nothing.
"""

from __future__ import annotations

from typing import ClassVar

from mzsql.expr.scalar import Scalar
from mzsql.frontend.hir import Query
from mzsql.frontend.plan.sequenced import StatementPlan


class SelectPlan(StatementPlan, frozen=True, tag="select"):
    """A query to answer.

    Attributes:
        query: the query.
        as_of: the constant expression of AS OF, of type mz_timestamp.
        at_least: whether it was AS OF AT LEAST.
        shows: whether it is a SHOW, which any transaction may contain.
        replicas_of: the cluster of which it shows a replica, the one that ``cluster_replica`` names; None for other queries.
    """

    command: ClassVar[str] = "SELECT"

    query: Query
    as_of: Scalar | None = None
    at_least: bool = False
    shows: bool = False
    replicas_of: str | None = None


#: Any statement's plan. Each family's classes stand in a module of their own, such as `mzsql.frontend.plan.ddl_plans`.
Plan = StatementPlan
