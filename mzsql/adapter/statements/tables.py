"""Types of the tables of statements: each family has one, by class of plan, and `mzsql.adapter.statements.sequencing` combines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.statements.result import Result
from mzsql.frontend.plan import plans as p

#: Carries out a plan in a session's transaction.
Run = Callable[[Session, Transaction, Any], Result]
#: The functions of one family of statements.
Runs = Mapping[type[p.Plan], Run]
#: Carries out the plan of a DDL statement, which knows no transaction: what it says is its plan's tag.
Define = Callable[[Session, Any], None]
#: The functions of one family of DDL.
Definers = Mapping[type[p.Plan], Define]
