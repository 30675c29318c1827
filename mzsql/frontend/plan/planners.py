"""Types of the tables of planners: each family of statements has one table, and `mzsql.frontend.plan.plan` combines
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mzsql.frontend.catalog import CatalogView
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan.sequenced import StatementPlan

#: Plans any statement.
PlanStatement = Callable[[st.Statement, CatalogView], StatementPlan]
#: Planners by class of statement.
Planners = Mapping[type[st.Statement], Callable[[Any, CatalogView], StatementPlan]]
#: Planners of statements that contain statements; they are given the function that plans those.
NestingPlanners = Mapping[
    type[st.Statement], Callable[[Any, CatalogView, PlanStatement], StatementPlan]
]
