"""What the rows of builtin sources are derived from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.system.activity import Activity
from mzsql.catalog.builtin import Builtin
from mzsql.catalog.objects import Maintained, Replica
from mzsql.compute.transport.usage import Usage
from mzsql.repr.types import RelationDesc

#: A row for each thing there is; a value that takes long to make may stand in it as a function.
Rows: TypeAlias = Iterable[tuple[Any, ...]]


class Source(msgspec.Struct, frozen=True):
    """What the rows are derived from.

    Attributes:
        env: the environment.
        builtin_desc: a builtin relation's columns.
        running: gives the plan that runs for each index and materialized view.
        arrangements: gives object, node, replica and shard of each arrangement of the dataflows that run.
        trouble: gives why a replica does not do its work.
        usage: gives what the process of a replica takes of its machine.
        activity: what sessions of this process do.
    """

    env: Environment
    builtin_desc: Callable[[Builtin], RelationDesc]
    running: Callable[[], Iterable[tuple[Maintained, GlobalExpressions]]]
    arrangements: Callable[[], Iterable[tuple[str, int, str, str]]]
    trouble: Callable[[Replica], str | None]
    usage: Callable[[Replica], Usage | None]
    activity: Activity
