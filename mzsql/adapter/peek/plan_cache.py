"""One-shot queries that were planned before: their plans and their statements' texts, kept while the catalog stays as it is.

Promise: what is found was planned for an equal query under the same catalog, cluster and optimizer features, so it is what planning
again would give. The key is the query's relation, literals included, and what it reads of its session; what calls functions of the moment
is not kept, nor what spells out much: it is unlikely to be asked again, and would stay in memory as a key.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

import msgspec

from mzsql.adapter.planning.walk import node_scalars
from mzsql.compute.peek.query import PlannedQuery
from mzsql.expr import relation as r
from mzsql.expr.relation import Relation, RowSetFinishing
from mzsql.expr.scalar import Literal, walk
from mzsql.repr.types import ColumnType
from mzsql.transform import OptimizerFeatures

CAPACITY = 512
#: The functions whose values are a session's and not the moment's.
LASTING = frozenset(
    {
        *("current_user", "session_user", "user", "current_role", "current_database"),
        *("current_schema", "current_catalog", "mz_schemas_of_session", "mz_schemas_of_path"),
        *("version", "mz_version", "mz_environment_id"),
    }
)
#: A query whose literals are larger than this together, in bytes, is not kept.
LITERAL_BYTES = 16 * 1024
#: What a literal takes at least.
_DATUM_BYTES = 16


class QueryKey(msgspec.Struct, frozen=True, cache_hash=True):
    """What a plan depends on; `session`: the values, as texts, of the functions of the session that it calls."""

    relation: Relation
    finishing: RowSetFinishing
    columns: tuple[ColumnType, ...]
    step: int
    cluster: str | None
    features: OptimizerFeatures
    session: tuple[tuple[str, str], ...] = ()


class PlanCache:
    """The latest planned queries of a process. Thread-safe."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._kept: OrderedDict[QueryKey, PlannedQuery] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, key: QueryKey, make: Callable[[], PlannedQuery]) -> PlannedQuery:
        """The planned query; ``make`` makes it where it is not there. It is not kept where its literals are large."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                return found
        made = make()
        large = _spells_out_much(key.relation)
        with self._lock:
            self.misses += 1
            if large:
                return made
            self._kept[key] = made
            if len(self._kept) > self._capacity:
                self._kept.popitem(last=False)
        return made


def _spells_out_much(relation: Relation) -> bool:
    """Whether the literals of a relation are larger than those of kept queries may be."""
    left = LITERAL_BYTES
    for value in _literals(relation):
        left -= _DATUM_BYTES + (len(value) if isinstance(value, str) else 0)
        if left < 0:
            return True
    return False


def _literals(relation: Relation) -> Iterator[object]:
    """All values that a relation spells out."""
    for node in r.walk(relation):
        if isinstance(node, r.Constant):
            for row, _ in node.rows:
                yield row  # one without columns counts too
                yield from row
        for scalar in node_scalars(node):
            yield from (part.value for part in walk(scalar) if isinstance(part, Literal))
