"""What rendering hands to those who run it: statements, and what each reads and writes.

Promise: everything here is data; a statement is a sqlglot AST for one engine, over named relations that the runner must provide:

==================  ====================================  ==========================================================
relation            used by                               columns
==================  ====================================  ==========================================================
``delta_<id>``      a step                                the input's updates with ``lower <= mz_time < upper``:
                                                          c0 … cn, [mz_error], mz_time, mz_diff
``snap_<id>``       hydration, one-shot queries           the input at `as_of`: c0 … cn, [mz_error], mz_diff
``<arrangement>``   a step (rows below `lower`, with      the arrangement's columns c0 … cn, mz_time, mz_diff
                    mz_time = lower - 1), hydration
                    (rows at `as_of`)
==================  ====================================  ==========================================================

``<id>`` is a source import's id or, for an index import, the id of the *index*: a step reads ``arr_<index id>`` (rows below
`lower`) and ``delta_<index id>``, hydration and one-shot queries ``snap_<index id>``, all in the index's arranged column order.
`mz_error` (text; NULL on good rows; on bad ones every c is NULL) is there in ``delta_`` and ``snap_`` where `InputSpec.has_errors`;
never in an arrangement. Nothing need be consolidated; an arrangement's ``mz_diff`` may be anything, rows may repeat.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import msgspec
from sqlglot import expressions as exp

from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.scalar import ColumnOrder
from mzsql.render.kept import Kept
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType


class InputSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A collection (or, with `index`, an index's arrangement) that the dataflow reads.

    Attributes:
        id: the collection's id, or the index's.
        columns: the relation's columns c0 …; for an index its key's columns, then the thinned value.
        has_errors: whether ``delta_<id>`` and ``snap_<id>`` must have a column mz_error.
        index: whether it is an index.
        key_arity: for an index: how many leading columns are its key.
    """

    id: GlobalId
    columns: tuple[ColumnType, ...]
    has_errors: bool
    index: bool = False
    key_arity: int = 0


class ArrangementSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """State that a node keeps.

    Attributes:
        name: the relation's name in statements, unique in the dataflow: ``arr_3``, ``arr_5_acc``, ``arr_7_s1``.
        lir_id: the node whose state it is.
        columns: the key's columns first, then the values.
        key_arity: how many leading columns are the key.
        additive: positions of accumulator columns, or (). The state of a key is the sum of ``accumulator * mz_diff`` over its rows,
            so ordinary consolidation (equal rows and times: diffs added) is sound, and so is merging all rows of a key and time into
            one with ``mz_diff = 1`` and the accumulators' sums (dropped when all are 0). A step writes ``mz_diff = 1``.
        fingerprint: equal for arrangements of equal content (same inputs, expressions, key): dataflows share by it.
        order: the order that the rows of a key are read in, over `columns`; (): any. See `Front`.
    """

    name: str
    lir_id: int
    columns: tuple[ColumnType, ...]
    key_arity: int
    additive: tuple[int, ...]
    fingerprint: str
    order: tuple[ColumnOrder, ...] = ()


class Outline(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What must be known of a rendered dataflow to take it up again, before its plan or any of its statements is needed.

    Attributes:
        inputs: as those of `mzsql.render.dataflow.RenderedDataflow`,
        lir_ids: and so on.
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


#: Of each of these sets one relation at least must have rows.
When = frozenset[frozenset[str]]


@dataclass(frozen=True)
class KeySource:
    """Where keys of a lookup may come from: the values of `exprs` in the rows of relation `relation`.

    `relation` is ``delta_<id>`` or an arrangement's name (then: the rows of it that were read). `exprs` are ASTs over its c0 …,
    spelled for DuckDB, that never throw; they correspond to the arrangement's first ``len(exprs)`` key columns. Without any the keys are
    unknown, and every row may be touched. Keys come from there under any of `when` (none given: always). NULL is a value (a group's key
    can be NULL).
    """

    relation: str
    exprs: tuple[exp.Expression, ...]
    when: tuple[When, ...] = ()

    def active(self, rows: frozenset[str]) -> bool:
        """Whether keys can come from there, where these relations have rows (of inputs, and of events)."""
        return not self.when or any(all(one & rows for one in when) for when in self.when)

    def keys(self, arity: int) -> str:
        """DuckDB's statement for the keys: the first expressions as k0 …, each combination once."""
        known = self._texts.get(arity)
        if known is None:
            known = self._texts[arity] = to_sql(self._keys(arity), Engine.DUCKDB)
        return known

    @functools.cached_property
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
    """The rows of a key that come first in an arrangement's order, or with `back` last: so many, multiplicities counted.

    What a step needs of a group, provided that it retracts none of its rows; of a group that loses n rows it needs n more. Rows that the
    order leaves equal stay together.
    """

    count: int
    back: bool = False


@dataclass(frozen=True)
class Lookup:
    """Which rows of an arrangement a step can touch: those whose first key columns are among the values of any one source.

    `sources` None means that every row may be touched (a cross join, a global top-k). A runner reads the arrangements in the
    order of `RenderedDataflow.lookups`; a source mostly names a delta or an arrangement read before it. Where a chain returns (an
    arrangement that names itself or a later one), the pass is repeated until nothing new comes. Reading more rows than
    these is always right.

    With `due` it is an arrangement of events, whose first column is their time: a step touches those that happen within it.

    With `fronts` only those rows of each key are needed that one of them has: whole groups are right as well. Whether a step needs more is
    known once it has run, by the retractions among the arrangement's new rows (`Front`).
    """

    arrangement: str
    sources: tuple[KeySource, ...] | None
    due: bool = False
    fronts: tuple[Front, ...] = ()

    def among(self, rows: frozenset[str]) -> Lookup:
        """What is left of it where only these relations have rows (of inputs, and of events)."""
        if self.sources is None:
            return self
        sources = tuple(one for one in self.sources if one.active(rows))
        known = all(one.exprs for one in sources)
        return replace(self, sources=sources if known else None)


@dataclass(frozen=True)
class StepOutput:
    """Rows of a step's result with ``mz_tag = tag``: the export's delta (`arrangement` is None) or an arrangement's new batch.

    The first ``len(columns)`` columns of the statement's c0 … are the output's, each already of its type where outputs agree and
    otherwise in a column of its own: `positions` says in which c each of the output's columns is. mz_error is never set on rows
    of an arrangement. Rows of one output may repeat or cancel: consolidate.
    """

    tag: int
    arrangement: str | None
    columns: tuple[ColumnType, ...]
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One step: a single statement whose result columns are mz_tag, c0 …, mz_error, mz_time, mz_diff.

    `reads` names every relation that it reads (``delta_…``, ``arr_…``). `columns` are the types of c0 ….
    """

    kept: Kept
    outputs: tuple[StepOutput, ...]
    reads: tuple[str, ...]
    columns: tuple[ColumnType, ...] = ()

    @property
    def statement(self) -> exp.Expression:
        """Not to be changed."""
        return self.kept.statement


@dataclass(frozen=True)
class HydrationStage:
    """One job of a hydration.

    Attributes:
        target: the arrangement that it fills, or None: the export.
        lir_id: the node under whose name it runs.
        completes: the lir_ids that have processed their whole input once this stage is done (and were not complete before).
        statement: result columns c0 …, mz_error, mz_diff; times are all `as_of`. Rows with mz_error (from any stage) belong to
            the *export*; the others to the target. `has_errors` tells whether there can be such rows at all.
        columns: the types of c0 ….
        reads: the relations it reads: ``snap_…`` and arrangements filled by earlier stages.
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
        """See the class. Not to be changed."""
        return self.kept.statement
