"""One-shot queries that were planned before: their plans and their statements' texts, kept while the catalog stays as it is.

Promise: what is found was planned for an equal query under the same catalog, cluster and optimizer features, so it is what planning
again would give. The key is the query's relation, literals included; what calls functions of the session or the moment is not kept, nor
what spells out much: it is unlikely to be asked again, and would stay in memory as a key.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

import msgspec
from sqlglot import expressions as exp

from mzsql.adapter.planning.planner import Planned
from mzsql.adapter.planning.walk import node_scalars
from mzsql.compute.engines.recursion import LoopText, texts
from mzsql.compute.peek.row_reads import RowRead, row_read
from mzsql.expr import relation as r
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.relation import Relation, RowSetFinishing
from mzsql.expr.scalar import Literal, walk
from mzsql.lir.plan import Constant, IndexImport
from mzsql.render.dataflow import finish, one_shot, summed
from mzsql.repr.datum import Row
from mzsql.repr.garbage import undisturbed
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType
from mzsql.transform import OptimizerFeatures
from mzsql.transform.fast_path import PeekIndexPlan

CAPACITY = 512
#: A query whose literals are larger than this together, in bytes, is not kept.
LITERAL_BYTES = 16 * 1024
#: What a literal takes at least.
_DATUM_BYTES = 16


class QueryKey(msgspec.Struct, frozen=True, cache_hash=True):
    """What a plan depends on."""

    relation: Relation
    finishing: RowSetFinishing
    columns: tuple[ColumnType, ...]
    step: int
    cluster: str | None
    features: OptimizerFeatures


class Statement(msgspec.Struct, frozen=True):
    """A one-shot query in DuckDB.

    Attributes:
        text: what DuckDB runs, over ``snap_…`` relations.
        inputs: the ids of those relations.
        finished: whether the text skips, cuts off, projects and copies; else it comes as `summed` gives it.
        loops: recursions to be run before.
    """

    text: str
    inputs: tuple[GlobalId, ...]
    finished: bool
    loops: tuple[LoopText, ...] = ()


class PlannedQuery:
    """A one-shot query, as far planned as its answer takes. Thread-safe.

    Args:
        make: plans it.
        finishing: order, limit, offset, projection.
        columns: the columns of the plan's result, before the finishing's projection.
        read: the query as a row-wise read of one collection, where that is known without its plan.
        lookup: what an index is to be asked for, where the plan is over the rows that it gives, without errors.
        constant: the answer, where that is known without its plan.
        lookups: of indexes that the plan only looks into by literals, those keys.
    """

    def __init__(
        self,
        make: Callable[[], Planned],
        finishing: RowSetFinishing,
        columns: tuple[ColumnType, ...],
        read: RowRead | None = None,
        lookup: PeekIndexPlan | None = None,
        constant: Constant | None = None,
        lookups: Mapping[GlobalId, tuple[Row, ...]] | None = None,
    ) -> None:
        self._make = make
        self._planned: Planned | None = None
        self._statements: dict[bool, Statement] = {}
        self.finishing = finishing
        self.columns = columns
        self.lookup = lookup
        self.lookups = lookups or {}
        self._constant = constant
        self.read = read
        if read is None and constant is None:
            self.read = row_read(self.planned.mir)

    @property
    def planned(self) -> Planned:
        """Its optimized and its physical plan, made at first use."""
        if self._planned is None:
            self._planned = self._make()
        return self._planned

    @property
    def constant(self) -> Constant | None:
        """The constant that the whole query is, if it is one."""
        if self.read is not None or self._constant is not None:
            return self._constant
        desc = self.planned.plan
        plan = desc.root.plan
        return plan if isinstance(plan, Constant) and len(desc.objects) == 1 else None

    @property
    def inputs(self) -> tuple[GlobalId, ...]:
        """What it reads."""
        if self.read is not None:
            return (self.read.id,)
        if self._constant is not None:
            return ()
        return tuple(source.id for source in self.planned.plan.source_imports)

    @property
    def indexes(self) -> tuple[IndexImport, ...]:
        """The indexes whose rows its plan is over; none where it is answered without that."""
        if self.read is not None or self._constant is not None or self.lookup is not None:
            return ()
        return self.planned.plan.index_imports

    @undisturbed()
    def statement(
        self, errors_in: Callable[[GlobalId], bool], *, ordered: bool = True
    ) -> Statement:
        """The statement for DuckDB, rendered at first use.

        Args:
            errors_in: whether an input has the column mz_error: the same at each call.
            ordered: whether the rows' order matters.
        """
        known = self._statements.get(ordered)
        if known is None:
            if self.lookup is not None:
                rendered = one_shot(self.planned.plan, errors_in=lambda _: False)
            else:
                # An index that holds errors is not read.
                own = {index.id for index in self.indexes}
                rendered = one_shot(
                    self.planned.plan, errors_in=lambda gid: gid not in own and errors_in(gid)
                )
            ast, loops = rendered.rendered(Engine.DUCKDB)
            ast = self.finish(ast, Engine.DUCKDB, ordered=ordered)
            inputs = tuple(one.id for one in rendered.inputs)
            text = to_sql(ast, Engine.DUCKDB)
            known = Statement(text, inputs, self.finished, texts(loops))
            self._statements[ordered] = known
        return known

    @property
    def finished(self) -> bool:
        """Whether the engine skips, cuts off and copies the rows: those without columns cannot be counted outside of it."""
        return not self.columns

    def finish(
        self, ast: exp.Expression, engine: Engine, *, ordered: bool = True
    ) -> exp.Expression:
        """The one-shot statement with as much of the finishing as an engine does."""
        if self.finished:
            return finish(ast, self.finishing, self.columns, engine)
        return summed(ast, self.finishing, self.columns, in_order=ordered)


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
