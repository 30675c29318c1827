"""What the tables of planners are made of: each family of statements has one, which `mzsql.frontend.plan.plan` puts together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mzsql.frontend.catalog import CatalogView
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan.sequenced import StatementPlan

#: Plans any statement.
PlanStatement = Callable[[st.Statement, CatalogView], StatementPlan]
#: By the statement's class, what plans it.
Planners = Mapping[type[st.Statement], Callable[[Any, CatalogView], StatementPlan]]
#: Of statements that others stand in: their planners are handed what plans those.
NestingPlanners = Mapping[
    type[st.Statement], Callable[[Any, CatalogView, PlanStatement], StatementPlan]
]
