"""What the rows of builtin sources are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, TypeAlias

import msgspec

from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.system.activity import Activity
from mzsql.catalog.builtin import Builtin
from mzsql.catalog.objects import Maintained, Replica
from mzsql.catalog.state import CatalogState
from mzsql.compute.transport.usage import Usage
from mzsql.repr.types import RelationDesc

#: The schema of temporary objects, as the catalog keeps it, of the session whose statement runs.
READER: ContextVar[str] = ContextVar("temporary schema of the session that reads", default="")
#: Rows in the order of the relation's columns; an expensive value may be a function without arguments.
Rows: TypeAlias = Iterable[tuple[Any, ...]]


class Source(msgspec.Struct, frozen=True):
    """What the rows are computed from.

    Attributes:
        env: the environment.
        builtin_desc: gives a builtin relation's columns.
        running: gives each index and materialized view with the plan that it runs with; None where that is not known.
        arrangements: gives object id, LIR id, replica id and shard of each arrangement of running dataflows.
        trouble: gives why a replica does not work; None where it does.
        usage: gives the CPU, memory and disk that a replica's process uses.
        activity: what this process's sessions do.
        temporary: the schema of temporary objects of the session that reads; empty: no session's.
    """

    env: Environment
    builtin_desc: Callable[[Builtin], RelationDesc]
    running: Callable[[], Iterable[tuple[Maintained, GlobalExpressions | None]]]
    arrangements: Callable[[], Iterable[tuple[str, int, str, str]]]
    trouble: Callable[[Replica], str | None]
    usage: Callable[[Replica], Usage | None]
    activity: Activity
    temporary: str = ""

    @property
    def state(self) -> CatalogState:
        """The catalog as the session that reads sees it."""
        return self.env.catalog.state.seen_by(self.temporary)
