"""A one-shot query that was planned: how it is answered, and its statement.

Promise: `PlannedQuery.peek` says how it is answered, as EXPLAIN prints it (`mzsql.transform.fast_path`); what that takes beyond it is made
at first use and kept: the dataflow's plan, and for DuckDB its statement's text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import msgspec
from sqlglot import expressions as exp

from mzsql.catalog.builtin import builtins
from mzsql.compute.engines.recursion import LoopText, texts
from mzsql.compute.peek.files import Prepared
from mzsql.compute.peek.row_reads import RowRead, over, row_read
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.relation import RowSetFinishing
from mzsql.lir import Planned
from mzsql.lir.demand import columns_read as looked_at
from mzsql.lir.plan import FlatMap, IndexImport, walk
from mzsql.render.dataflow import OneShot, cut_at, finish, one_shot, summed
from mzsql.render.lean import Relation as KnownRows
from mzsql.render.lean import columns_read, lean
from mzsql.render.renames import rename
from mzsql.render.semijoins import semi_joined
from mzsql.repr.garbage import undisturbed
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType
from mzsql.transform.fast_path import (
    ConstantPlan,
    DataflowPlan,
    PeekIndexPlan,
    PeekPersistPlan,
    PeekPlan,
)


class Statement(msgspec.Struct, frozen=True):
    """A one-shot query in DuckDB.

    Attributes:
        text: what DuckDB runs, over ``snap_…`` relations.
        inputs: the ids of those relations.
        finished: whether the text skips, cuts off, projects and copies; else it comes as `summed` gives it.
        loops: recursions to be run before.
        limit: how many rows it has at most, where it cuts them off.
    """

    text: str
    inputs: tuple[GlobalId, ...]
    finished: bool
    loops: tuple[LoopText, ...] = ()
    limit: int | None = None


class PlannedQuery:
    """A one-shot query, as far planned as its answer takes. Thread-safe.

    Args:
        peek: how it is answered: what EXPLAIN prints.
        make: plans it as a dataflow; where an index is looked into, over the rows that it gives, without errors.
        finishing: order, limit, offset, projection.
        columns: the columns of the plan's result, before the finishing's projection.
        read: the query as a row-wise read of one collection, where that is known without its plan.
    """

    def __init__(
        self,
        peek: PeekPlan,
        make: Callable[[], Planned],
        finishing: RowSetFinishing,
        columns: tuple[ColumnType, ...],
        read: RowRead | None = None,
    ) -> None:
        self.peek = peek
        self._make = make
        self._planned: Planned | None = None
        self._statements: dict[bool, Statement] = {}
        self._prepared: dict[bool, tuple[Mapping[str, KnownRows], Prepared]] = {}
        self.finishing = finishing
        self.columns = columns
        if read is None:
            read = self._row_wise()
        self.read = read

    def _row_wise(self) -> RowRead | None:
        match self.peek:
            case PeekIndexPlan(on_id=gid, typ=typ, mfp=mfp):
                return over(gid, typ.columns, mfp)
            case PeekPersistPlan(id=gid, typ=typ, mfp=mfp):
                return over(gid, typ.columns, mfp)
            case DataflowPlan():
                return row_read(self.planned.mir)
            case _:
                return None

    @property
    def planned(self) -> Planned:
        """Its optimized and its physical plan, made at first use."""
        if self._planned is None:
            self._planned = self._make()
        return self._planned

    @functools.cached_property
    def looked_at(self) -> Mapping[GlobalId, frozenset[int]]:
        """Of what it reads the columns that have any influence on its answer; what is not named is looked at as a whole."""
        if isinstance(self.peek, ConstantPlan) or not any(gid in builtins() for gid in self.inputs):
            return {}
        return looked_at(self.planned.plan)

    @functools.cached_property
    def makes_rows(self) -> bool:
        """Whether it may come to far more rows than it reads."""
        if isinstance(self.peek, ConstantPlan) or self.read is not None:
            return False
        nodes = (node for one in self.planned.plan.objects for node in walk(one.plan))
        return any(isinstance(node, FlatMap) for node in nodes)

    @property
    def inputs(self) -> tuple[GlobalId, ...]:
        """What it reads, but for what it reads of indexes."""
        if self.read is not None:
            return (self.read.id,)
        if isinstance(self.peek, ConstantPlan):
            return ()
        return tuple(source.id for source in self.planned.plan.source_imports)

    @property
    def reads_indexes(self) -> bool:
        """Whether it is answered by indexes."""
        return isinstance(self.peek, PeekIndexPlan) or bool(self.indexes)

    @property
    def indexes(self) -> tuple[IndexImport, ...]:
        """The indexes whose rows its dataflow is over; none where it is answered without that."""
        if self.read is not None or not isinstance(self.peek, DataflowPlan):
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
            rendered = self.contents(errors_in)
            ast, loops = rendered.rendered(Engine.DUCKDB)
            ast = self.finish(ast, Engine.DUCKDB, ordered=ordered)
            if not loops:
                # Most of what a query over few rows takes is that DuckDB reads and plans its text.
                rename(ast)
            inputs = tuple(one.id for one in rendered.inputs)
            text = to_sql(ast, Engine.DUCKDB)
            known = Statement(text, inputs, self.finished, texts(loops), cut_at(self.finishing))
            self._statements[ordered] = known
        return known

    def contents(self, errors_in: Callable[[GlobalId], bool]) -> OneShot:
        """The query's contents, ready to be rendered; arguments as for `statement`."""
        if isinstance(self.peek, PeekIndexPlan):
            return one_shot(self.planned.plan, errors_in=lambda _: False)
        # An index that holds errors is not read.
        own = {index.id for index in self.indexes}
        return one_shot(self.planned.plan, errors_in=lambda gid: gid not in own and errors_in(gid))

    @undisturbed()
    def prepared(
        self, rendered: OneShot, known: Mapping[str, KnownRows], *, ordered: bool = True
    ) -> Prepared:
        """The statement for DuckDB over what is known of its inputs: that of before where it was made for as much.

        Args:
            rendered: the query's `contents`.
            known: what is true of each ``snap_…`` relation.
            ordered: whether the rows' order matters.
        """
        before = self._prepared.get(ordered)
        if before is not None and all(one.covers(known[name]) for name, one in before[0].items()):
            return before[1]
        ast, loops = rendered.rendered(Engine.DUCKDB)
        made = None
        if not loops:
            made = lean(ast, known, lambda one, rows: self._finished(one, rows, ordered=ordered))
            if made is None:
                # No row meets the conditions.
                made = self.finish(ast, Engine.DUCKDB, ordered=ordered)
                assert isinstance(made, exp.Select)
                made = made.limit(0)
            semi_joined(made, known)
        else:
            made = self.finish(ast, Engine.DUCKDB, ordered=ordered)
        # What a recursion reads is in statements of its own.
        read = {} if loops else columns_read(made, known, drop=True)
        reads = {name: frozenset(columns) for name, columns in read.items()}
        found = Prepared(to_sql(made, Engine.DUCKDB), texts(loops), reads)
        self._prepared[ordered] = (known, found)
        return found

    def _finished(
        self, ast: exp.Expression, known: KnownRows | None, *, ordered: bool
    ) -> exp.Expression:
        if self.finished:
            return finish(ast, self.finishing, self.columns, Engine.DUCKDB)
        return summed(ast, self.finishing, self.columns, in_order=ordered, known=known)

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
