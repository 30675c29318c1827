"""A cache of one-shot queries' plans and of their statements' texts, valid while the catalog's definitions stay the
same.

Promise: a cached plan was made for an equal query under the same definitions, cluster and optimizer features, so
planning again would give the same; a plan over builtin relations alone stays valid when definitions change. The key is
the query's relation, with its literals, and the values that it reads from its session. Queries that depend on the time
are not cached, nor are those with large literals: they are unlikely to recur, and their keys would fill memory. Nor are
those that take no optimizer: they would only drive out what does.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

import msgspec

from mzsql.adapter.planning.walk import node_scalars
from mzsql.compute.peek.query import PlannedQuery
from mzsql.expr import relation as r
from mzsql.expr.relation import Relation
from mzsql.expr.scalar import Literal, walk
from mzsql.transform import OptimizerFeatures
from mzsql.transform.fast_path import Asked

CAPACITY = 512
#: Functions whose values depend on the session but not on the time.
LASTING = frozenset(
    {
        *("current_user", "session_user", "user", "current_role", "current_database"),
        *("current_schema", "current_catalog", "mz_schemas_of_session", "mz_schemas_of_path"),
        *("version", "mz_version", "mz_environment_id"),
    }
)
#: A query with more bytes of literals in all is not cached.
LITERAL_BYTES = 16 * 1024
#: A literal counts as at least so many bytes.
_DATUM_BYTES = 16


class QueryKey(msgspec.Struct, frozen=True, cache_hash=True):
    """What a plan depends on.

    Attributes:
        asked: the query, with calls of session-dependent functions.
        step: the version of the catalog's definitions; None where only builtin relations are read.
        cluster: the cluster whose indexes it may read.
        features: the optimizer's switches.
        session: the session-dependent functions that it calls, with their values as texts.
    """

    asked: Asked
    step: int | None
    cluster: str | None
    features: OptimizerFeatures
    session: tuple[tuple[str, str], ...] = ()


class PlanCache:
    """The most recently used plans of a process, at most ``capacity``. Thread-safe."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._kept: OrderedDict[QueryKey, PlannedQuery] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, key: QueryKey, make: Callable[[], PlannedQuery]) -> PlannedQuery:
        """The plan under a key; made by ``make`` where it is absent. Not kept where it was found at sight, or the key's literals
        are large.
        """
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                return found
        made = make()
        if made.at_sight:
            return made
        large = _spells_out_much(key.asked.relation)
        with self._lock:
            self.misses += 1
            if large:
                return made
            self._kept[key] = made
            if len(self._kept) > self._capacity:
                self._kept.popitem(last=False)
        return made


def _spells_out_much(relation: Relation) -> bool:
    """Whether a relation has more than `LITERAL_BYTES` of literals."""
    left = LITERAL_BYTES
    for value in _literals(relation):
        left -= _DATUM_BYTES + (len(value) if isinstance(value, str) else 0)
        if left < 0:
            return True
    return False


def _literals(relation: Relation) -> Iterator[object]:
    """All literal rows and values in a relation."""
    for node in r.walk(relation):
        if isinstance(node, r.Constant):
            for row, _ in node.rows:
                yield row  # one without columns counts too
                yield from row
        for scalar in node_scalars(node):
            yield from (part.value for part in walk(scalar) if isinstance(part, Literal))
