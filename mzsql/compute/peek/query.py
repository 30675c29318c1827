"""A planned one-shot query: how it is answered, and its statement.

Promise: `PlannedQuery.peek` says how the query is answered, as EXPLAIN prints it (`mzsql.transform.fast_path`). What
the answer needs beyond that follows from it alone, and is made at first use and kept: the physical plan, and the SQL
text for DuckDB. A query may be kept beyond the process, as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec
from sqlglot import expressions as exp

from mzsql.catalog.builtin import builtins
from mzsql.compute.engines.recursion import LoopText, texts
from mzsql.compute.peek.files import Prepared
from mzsql.expr.dataflow import MirDataflow
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.relation import RowSetFinishing
from mzsql.lir import lower
from mzsql.lir.demand import columns_read as looked_at
from mzsql.lir.plan import DataflowDescription, FlatMap, IndexImport, walk
from mzsql.render.dataflow import OneShot, cut_at, finish, one_shot, summed
from mzsql.render.rewrites.lean import Relation as KnownRows
from mzsql.render.rewrites.lean import columns_read, lean
from mzsql.render.rewrites.renames import rename
from mzsql.render.rewrites.semijoins import semi_joined
from mzsql.repr.garbage import undisturbed
from mzsql.repr.ids import GlobalId
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import ColumnType
from mzsql.transform.fast_path import (
    ConstantPlan,
    DataflowPlan,
    PeekIndexPlan,
    PeekPersistPlan,
    PeekPlan,
    peek_dataflow,
)
from mzsql.transform.features import OptimizerFeatures
from mzsql.transform.row_wise import Condition, RowRead, over


class Statement(msgspec.Struct, frozen=True):
    """A one-shot query as DuckDB runs it.

    Attributes:
        text: SQL over ``snap_…`` relations.
        inputs: the ids of those relations.
        finished: whether the text applies OFFSET, LIMIT, projection and multiplicities; else its result is that of
            `summed`.
        loops: recursions to run before it.
        limit: the LIMIT in the text, if there is one.
        errors: the inputs of which rendering it asked whether they have the column mz_error, and the answers: with others, the
            text is another.
    """

    text: str
    inputs: tuple[GlobalId, ...]
    finished: bool
    loops: tuple[LoopText, ...] = ()
    limit: int | None = None
    errors: dict[GlobalId, bool] = {}


class _Dataflow(msgspec.Struct, frozen=True, tag="dataflow"):
    """A `DataflowPlan` that reads no index, optimized, with its physical plan."""

    built: MirDataflow
    read: RowRead | None
    plan: DataflowDescription


class _Kept(msgspec.Struct, frozen=True):
    """A query: how it is answered, and its statements by whether they are ordered."""

    peek: ConstantPlan | _Dataflow
    statements: dict[bool, Statement]


_KEPT = msgspec.msgpack.Decoder(_Kept)


class PlannedQuery:
    """A one-shot query, planned. Immutable but for what it computes from its plan and keeps; thread-safe.

    Args:
        peek: how it is answered, as EXPLAIN prints it.
        finishing: order, limit, offset, projection.
        columns: the columns of the plan's result, before the projection.
        features: the optimizer's switches that it was planned with.
        plan: the physical plan, where it is known.
        statements: the statements that were rendered for it before, by whether they are ordered.

    Attributes:
        read: the query as a row-wise read of one collection; None if it is more.
        had_few_rows: whether an engine's result had few rows when the query was run in pieces before; set by who runs it.
    """

    def __init__(
        self,
        peek: PeekPlan,
        finishing: RowSetFinishing,
        columns: tuple[ColumnType, ...],
        features: OptimizerFeatures,
        *,
        plan: DataflowDescription | None = None,
        statements: Mapping[bool, Statement] = MappingProxyType({}),
    ) -> None:
        self.peek = peek
        self.finishing = finishing
        self.columns = columns
        self._features = features
        if plan is not None:
            self.__dict__["plan"] = plan
        self._statements = dict(statements)
        self._put: Callable[[bytes], object] | None = None
        self._prepared: dict[bool, tuple[Mapping[str, KnownRows], Prepared]] = {}
        self.read = _row_wise(peek)
        self.had_few_rows = False

    @property
    def at_sight(self) -> bool:
        """Whether it was planned without the optimizer, so that planning it again costs next to nothing."""
        return not isinstance(self.peek, PeekIndexPlan) and self.peek.at_sight

    @lazy_property
    def plan(self) -> DataflowDescription:
        """The physical plan of what an engine runs, where one is needed: of the dataflow, or of the work over the rows
        that a fast path reads, which have no errors if an index gave them.
        """
        return lower(peek_dataflow(self.peek), self._features)

    @lazy_property
    def looked_at(self) -> Mapping[GlobalId, frozenset[int]]:
        """For some inputs the columns that can affect the answer; all columns matter of inputs that are absent."""
        if isinstance(self.peek, ConstantPlan) or not any(gid in builtins() for gid in self.inputs):
            return {}
        return looked_at(self.plan)

    @lazy_property
    def conditions(self) -> Mapping[GlobalId, tuple[Condition, ...]]:
        """For some builtin inputs the conditions that every row which can affect the answer meets."""
        if isinstance(self.peek, ConstantPlan) or not any(gid in builtins() for gid in self.inputs):
            return {}
        return {
            one.id: over(one.id, one.typ.columns, one.mfp).conditions
            for one in self.plan.source_imports
            if one.mfp is not None and one.id in builtins()
        }

    @lazy_property
    def makes_rows(self) -> bool:
        """Whether the result may have far more rows than the inputs (through a table function)."""
        if isinstance(self.peek, ConstantPlan) or self.read is not None:
            return False
        nodes = (node for one in self.plan.objects for node in walk(one.plan))
        return any(isinstance(node, FlatMap) for node in nodes)

    @property
    def inputs(self) -> tuple[GlobalId, ...]:
        """The collections that it reads, other than through indexes."""
        if self.read is not None:
            return (self.read.id,)
        if isinstance(self.peek, ConstantPlan):
            return ()
        return tuple(source.id for source in self.plan.source_imports)

    @property
    def reads_indexes(self) -> bool:
        """Whether it reads an index."""
        return isinstance(self.peek, PeekIndexPlan) or bool(self.indexes)

    @property
    def indexes(self) -> tuple[IndexImport, ...]:
        """The indexes whose rows its dataflow reads; empty if it is answered without a dataflow."""
        if self.read is not None or not isinstance(self.peek, DataflowPlan):
            return ()
        return self.plan.index_imports

    @undisturbed()
    def statement(
        self, errors_in: Callable[[GlobalId], bool], *, ordered: bool = True
    ) -> Statement:
        """The statement for DuckDB, rendered at first use.

        Args:
            errors_in: whether an input has the column mz_error; must answer the same at each call.
            ordered: whether the order of rows matters.
        """
        known = self._statements.get(ordered)
        # Another process may have rendered it, where other inputs had errors.
        if known is None or any(errors_in(gid) != had for gid, had in known.errors.items()):
            errors: dict[GlobalId, bool] = {}
            rendered = self.contents(lambda gid: errors.setdefault(gid, errors_in(gid)))
            ast, loops = rendered.rendered(Engine.DUCKDB)
            ast = self.finish(ast, Engine.DUCKDB, ordered=ordered)
            if not loops:
                # A query over few rows costs mainly its parsing and planning, so its names are shortened.
                rename(ast)
            inputs = tuple(one.id for one in rendered.inputs)
            text = to_sql(ast, Engine.DUCKDB)
            limit = cut_at(self.finishing)
            known = Statement(text, inputs, self.finished, texts(loops), limit, errors)
            self._statements[ordered] = known
            self._tell()
        return known

    def keep(self, put: Callable[[bytes], object]) -> None:
        """Have the query kept beyond the process.

        Args:
            put: is given the bytes for `from_bytes`, again once more of it is rendered. Not called for a query that was planned
                at sight or reads an index or a shard by itself: planning it again costs little.
        """
        self._put = put
        if isinstance(self.peek, ConstantPlan):  # There is nothing to render.
            self._tell()

    def _encoded(self) -> bytes | None:
        if self.at_sight:
            return None
        match self.peek:
            case ConstantPlan() as constant:
                kept = _Kept(constant, {})
            case DataflowPlan(built=built, read=read, lookups=lookups) if not lookups:
                kept = _Kept(_Dataflow(built, read, self.plan), self._statements)
            case _:
                return None
        data = msgspec.msgpack.encode(kept)
        # Values of some types come back as others: such a query is not kept.
        return data if _same(data, kept) else None

    def _tell(self) -> None:
        data = None if self._put is None else self._encoded()
        if self._put is not None and data is not None:
            self._put(data)

    def contents(self, errors_in: Callable[[GlobalId], bool]) -> OneShot:
        """The query, ready to be rendered; arguments as for `statement`."""
        if isinstance(self.peek, PeekIndexPlan):
            return one_shot(self.plan, errors_in=lambda _: False)
        # Indexes that contain errors are not read, so they have no column mz_error.
        own = {index.id for index in self.indexes}
        return one_shot(self.plan, errors_in=lambda gid: gid not in own and errors_in(gid))

    @undisturbed()
    def prepared(
        self, rendered: OneShot, known: Mapping[str, KnownRows], *, ordered: bool = True
    ) -> Prepared:
        """The statement for DuckDB, simplified by what is known of its inputs. An earlier one is reused if it covers
        what is known now.

        Args:
            rendered: the query's `contents`.
            known: what is true of each ``snap_…`` relation.
            ordered: whether the order of rows matters.
        """
        before = self._prepared.get(ordered)
        if before is not None and all(one.covers(known[name]) for name, one in before[0].items()):
            return before[1]
        ast, loops = rendered.rendered(Engine.DUCKDB)
        made = None
        if not loops:
            made = lean(ast, known, lambda one, rows: self._finished(one, rows, ordered=ordered))
            if made is None:
                # By what is known no row can meet the conditions.
                made = self.finish(ast, Engine.DUCKDB, ordered=ordered)
                assert isinstance(made, exp.Select)
                made = made.limit(0)
            semi_joined(made, known)
        else:
            made = self.finish(ast, Engine.DUCKDB, ordered=ordered)
        # A recursion's reads are in statements of its own, so nothing is known of the columns.
        read = {} if loops else columns_read(made, known, drop=True)
        reads = {name: frozenset(columns) for name, columns in read.items()}
        found = Prepared(to_sql(made, Engine.DUCKDB), texts(loops), reads)
        self._prepared[ordered] = (known, found)
        if before is None:
            self._tell()
        return found

    def _finished(
        self, ast: exp.Expression, known: KnownRows | None, *, ordered: bool
    ) -> exp.Expression:
        if self.finished:
            return finish(ast, self.finishing, self.columns, Engine.DUCKDB)
        return summed(ast, self.finishing, self.columns, in_order=ordered, known=known)

    @property
    def finished(self) -> bool:
        """Whether the engine applies the whole finishing. It must for rows without columns, which cannot be counted
        outside of it.
        """
        return not self.columns

    def finish(
        self, ast: exp.Expression, engine: Engine, *, ordered: bool = True
    ) -> exp.Expression:
        """The one-shot statement with the part of the finishing that the engine applies."""
        if self.finished:
            return finish(ast, self.finishing, self.columns, engine)
        return summed(ast, self.finishing, self.columns, in_order=ordered)


def _row_wise(peek: PeekPlan) -> RowRead | None:
    match peek:
        case PeekIndexPlan(on_id=gid, typ=typ, mfp=mfp) | PeekPersistPlan(id=gid, typ=typ, mfp=mfp):
            return over(gid, typ.columns, mfp)
        case DataflowPlan(read=read):
            return read
        case _:
            return None


def _same(data: bytes, kept: _Kept) -> bool:
    try:
        return _KEPT.decode(data) == kept
    except msgspec.MsgspecError:
        return False


def from_bytes(
    data: bytes,
    finishing: RowSetFinishing,
    columns: tuple[ColumnType, ...],
    features: OptimizerFeatures,
) -> PlannedQuery:
    """The query that was encoded. It answers as that one does, without the optimizer, and without rendering where its statement
    was rendered before.

    Args:
        data: what `PlannedQuery.keep` gave.
        finishing: its finishing, as `PlannedQuery` is given it, like what follows.
        columns: its columns.
        features: its optimizer's switches.

    Raises:
        msgspec.MsgspecError: the bytes are no such query.
    """
    kept = _KEPT.decode(data)
    if isinstance(kept.peek, ConstantPlan):
        return PlannedQuery(kept.peek, finishing, columns, features)
    peek = DataflowPlan(kept.peek.built, {}, kept.peek.read)
    return PlannedQuery(
        peek, finishing, columns, features, plan=kept.peek.plan, statements=kept.statements
    )
