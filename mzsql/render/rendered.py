"""The result of rendering: statements, and what each of them reads and writes.

Promise: everything here is data. A statement is a sqlglot AST for one engine, over named relations that the runner
must provide:

==================  ====================================  ==========================================================
relation            used by                               columns ==================
====================================  ========================================================== ``delta_<id>``
a step                                the input's updates with ``lower <= mz_time < upper``:
    c0 … cn, [mz_error], mz_time, mz_diff
``snap_<id>``       hydration, one-shot queries           the input at `as_of`: c0 … cn, [mz_error], mz_diff
``<arrangement>``   a step (rows below `lower`, with      the arrangement's columns c0 … cn, mz_time, mz_diff
    mz_time = lower - 1), hydration
    (rows at `as_of`)
==================  ====================================  ==========================================================

``<id>`` is a source import's id or, for an index import, the id of the *index*: a step reads ``arr_<index id>``
(rows below `lower`) and ``delta_<index id>``, hydration and one-shot queries ``snap_<index id>``, all in the index's
arranged column order. `mz_error` (text; NULL on good rows; every c is NULL on error rows) exists in ``delta_`` and
``snap_`` if `InputSpec.has_errors`, and never in an arrangement. No relation need be consolidated: an arrangement's
``mz_diff`` may have any value, rows may repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
from sqlglot import expressions as exp

from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.scalar import ColumnOrder
from mzsql.render.kept import Kept
from mzsql.repr.ids import GlobalId
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import ColumnType


class InputSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A collection that the dataflow reads or, with `index`, an index's arrangement.

    Attributes:
        id: the collection's id, or the index's.
        columns: the relation's columns c0 …; for an index its key columns, then the thinned value.
        has_errors: whether ``delta_<id>`` and ``snap_<id>`` must have a column mz_error.
        index: whether it is an index.
        key_arity: for an index: number of leading columns that are its key.
    """

    id: GlobalId
    columns: tuple[ColumnType, ...]
    has_errors: bool
    index: bool = False
    key_arity: int = 0


class ArrangementSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An arrangement that a node keeps as its state.

    Attributes:
        name: the relation's name in statements, unique in the dataflow: ``arr_3``, ``arr_5_acc``, ``arr_7_s1``.
        lir_id: the node whose state it is.
        columns: the key columns first, then the values.
        key_arity: number of leading columns that are the key.
        additive: positions of accumulator columns, or (). The state of a key is the sum of ``accumulator * mz_diff``
            over its rows, so ordinary consolidation (adding the diffs of equal rows and times) is sound, and so is
            merging all rows of a key and time into one with ``mz_diff = 1`` and the accumulators' sums (dropped if
            all are 0). A step writes ``mz_diff = 1``.
        fingerprint: equal for arrangements of equal content (same inputs, expressions, key), so that dataflows can
            share them.
        order: the order over `columns` in which the rows of a key are read; () for any order. See `Front`.
    """

    name: str
    lir_id: int
    columns: tuple[ColumnType, ...]
    key_arity: int
    additive: tuple[int, ...]
    fingerprint: str
    order: tuple[ColumnOrder, ...] = ()


class Outline(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What must be known of a rendered dataflow to resume it, before its plan or any of its statements is needed.

    Attributes:
        inputs: as in `mzsql.render.dataflow.RenderedDataflow`.
        lir_ids: likewise.
        arrangements: likewise.
        output_columns: likewise.
        output_key_arity: likewise.
        temporal: likewise.
        recursive: whether there are recursions.
    """

    inputs: tuple[InputSpec, ...]
    lir_ids: tuple[int, ...]
    arrangements: tuple[ArrangementSpec, ...]
    output_columns: tuple[ColumnType, ...]
    output_key_arity: int | None
    temporal: bool
    recursive: bool


#: A condition: at least one relation of each of these sets has rows.
When = frozenset[frozenset[str]]


@dataclass(frozen=True)
class KeySource:
    """A source of lookup keys: the values of `exprs` in the rows of the relation `relation`.

    `relation` is ``delta_<id>`` or an arrangement's name (then: those of its rows that were read). `exprs` are ASTs
    over its c0 …, in DuckDB's dialect, that never throw; they correspond to the arrangement's first ``len(exprs)``
    key columns. If `exprs` is empty the keys are unknown and every row may be touched. Keys come from here under any
    of the conditions `when` (always if there is none). NULL is a value, since a group's key can be NULL.
    """

    relation: str
    exprs: tuple[exp.Expression, ...]
    when: tuple[When, ...] = ()

    def active(self, rows: frozenset[str]) -> bool:
        """Whether keys can come from here if just the relations `rows` (of inputs and of events) have rows."""
        return not self.when or any(all(one & rows for one in when) for when in self.when)

    def keys(self, arity: int) -> str:
        """DuckDB's SQL for the distinct keys: the first `arity` expressions as k0 …."""
        known = self._texts.get(arity)
        if known is None:
            known = self._texts[arity] = to_sql(self._keys(arity), Engine.DUCKDB)
        return known

    def columns(self, arity: int) -> list[str] | None:
        """The columns of the relation that the first `arity` expressions are; None if some are more than columns."""
        found = [key.name for key in self.exprs[:arity] if isinstance(key, exp.Column)]
        return found if len(found) == arity else None

    @lazy_property
    def _texts(self) -> dict[int, str]:
        return {}

    def _keys(self, arity: int) -> exp.Expression:
        keys = (
            exp.alias_(key.copy(), f"k{i}", quoted=True) for i, key in enumerate(self.exprs[:arity])
        )
        relation = exp.Table(this=exp.to_identifier(self.relation, quoted=True))
        return exp.select(*keys).from_(relation).distinct()


@dataclass(frozen=True)
class Front:
    """The first `count` rows of a key in an arrangement's order, or with `back` the last ones, multiplicities counted.

    This is what a step needs of a group if it retracts none of these rows; of a group that loses n rows it needs n
    more. Rows that the order leaves equal stay together.
    """

    count: int
    back: bool = False


@dataclass(frozen=True)
class Lookup:
    """Which rows of an arrangement a step can touch: those whose first key columns are among the values of any source.

    `sources` None means that every row may be touched (a cross join, a global top-k). A runner reads the
    arrangements in the order of `RenderedDataflow.lookups`; a source mostly names a delta, or an arrangement read
    before. Where an arrangement's source is itself or a later one, the pass is repeated until no new keys appear.
    Reading more rows than necessary is always correct.

    With `due` it is an arrangement of temporal events, whose first column is their time: a step touches those that
    happen within it.

    With `fronts` a key's rows are needed only if they are in one of the fronts; whole groups are correct as well.
    Whether the step needs more rows is known after it has run, from the retractions among the arrangement's new rows
    (`Front`).
    """

    arrangement: str
    sources: tuple[KeySource, ...] | None
    due: bool = False
    fronts: tuple[Front, ...] = ()

    def among(self, rows: frozenset[str]) -> Lookup:
        """The lookup reduced to the case that only the relations `rows` (of inputs and of events) have rows."""
        if self.sources is None:
            return self
        sources = tuple(one for one in self.sources if one.active(rows))
        known = all(one.exprs for one in sources)
        return replace(self, sources=sources if known else None)


@dataclass(frozen=True)
class StepOutput:
    """The rows of a step's result with ``mz_tag = tag``: the output's delta (`arrangement` None) or an arrangement's
    new batch.

    `positions` says in which of the statement's columns c0 … each of the output's `columns` is: outputs share a
    column where their types agree, and otherwise have one of their own. mz_error is never set on rows of an
    arrangement. Rows of an output may repeat or cancel, so the runner consolidates.
    """

    tag: int
    arrangement: str | None
    columns: tuple[ColumnType, ...]
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One step: a single statement with result columns mz_tag, c0 …, mz_error, mz_time, mz_diff.

    `reads` names every relation that it reads (``delta_…``, ``arr_…``); `columns` are the types of c0 ….
    """

    kept: Kept
    outputs: tuple[StepOutput, ...]
    reads: tuple[str, ...]
    columns: tuple[ColumnType, ...] = ()

    @property
    def statement(self) -> exp.Expression:
        """The statement; must not be modified."""
        return self.kept.statement


@dataclass(frozen=True)
class HydrationStage:
    """One job of a hydration.

    Attributes:
        target: the arrangement that it fills; None for the dataflow's output.
        lir_id: the node under whose name it runs.
        completes: the nodes that have processed their whole input once this stage is done, and had not before.
        kept: its statement, with result columns c0 …, mz_error, mz_diff; all times are `as_of`. Rows with mz_error
            (from any stage) belong to the *output*, the others to the target.
        columns: the types of c0 ….
        reads: the relations that it reads: ``snap_…`` and arrangements filled by earlier stages.
        has_errors: whether there can be rows with mz_error.
    """

    target: str | None
    lir_id: int
    completes: tuple[int, ...]
    kept: Kept
    columns: tuple[ColumnType, ...]
    reads: tuple[str, ...]
    has_errors: bool = True

    @property
    def statement(self) -> exp.Expression:
        """The statement; must not be modified."""
        return self.kept.statement
