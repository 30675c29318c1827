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

``<id>`` is a source import's id or, for an index import, the id of the *index*: then ``<arrangement>`` relations of that index
are named ``arr_<index id>`` and its updates ``delta_<index id>``, both in the index's arranged column order.
`mz_error` (text; NULL on good rows, and then every c is NULL on bad ones) is there where `InputSpec.has_errors`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType


@dataclass(frozen=True)
class InputSpec:
    """A collection (or, with `index`, an index's arrangement) that the dataflow reads."""

    id: GlobalId
    columns: tuple[ColumnType, ...]
    has_errors: bool
    index: bool = False


@dataclass(frozen=True)
class ArrangementSpec:
    """State that a node keeps.

    Attributes:
        name: the relation's name in statements, unique in the dataflow: ``arr_3``, ``arr_5_acc``, ``arr_7_s1``.
        lir_id: the node whose state it is.
        columns: the key's columns first, then the values.
        key_arity: how many leading columns are the key.
        additive: positions of accumulator columns: equal keys and times merge by adding them (and mz_diff).
        fingerprint: equal for arrangements of equal content (same inputs, expressions, key): dataflows share by it.
    """

    name: str
    lir_id: int
    columns: tuple[ColumnType, ...]
    key_arity: int
    additive: tuple[int, ...]
    fingerprint: str


@dataclass(frozen=True)
class KeySource:
    """Where keys of a lookup may come from: the values of `exprs` (ASTs over c0 …) in the rows of relation `relation`."""

    relation: str
    exprs: tuple[exp.Expression, ...]


@dataclass(frozen=True)
class Lookup:
    """Which rows of an arrangement a step can touch: those whose first key columns are among the sources' values.

    `sources` empty means that every row may be touched (a cross join, a global top-k). A runner reads the arrangements in the
    order of `RenderedDataflow.lookups`: a source may name a delta or an arrangement read before it (or itself again, when a
    chain returns to it: then the values found so far are used until nothing new comes).
    """

    arrangement: str
    sources: tuple[KeySource, ...]


@dataclass(frozen=True)
class StepOutput:
    """Rows of a step's result with ``mz_tag = tag``: the export's delta (`arrangement` is None) or an arrangement's new batch.

    The first ``len(columns)`` columns c0 … of the statement's result are the output's; then mz_error, mz_time, mz_diff.
    """

    tag: int
    arrangement: str | None
    columns: tuple[ColumnType, ...]


@dataclass(frozen=True)
class Step:
    """One step: a single statement whose result columns are mz_tag, c0 …, mz_error, mz_time, mz_diff."""

    statement: exp.Expression
    outputs: tuple[StepOutput, ...]
    reads: tuple[str, ...]


@dataclass(frozen=True)
class HydrationStage:
    """One job of a hydration.

    Attributes:
        target: the arrangement that it fills, or None: the export.
        lir_id: the node under whose name it runs.
        completes: the lir_ids that have processed their whole input once this stage is done (and were not complete before).
        statement: result columns c0 …, [mz_error for the export], mz_diff; times are all `as_of`.
        reads: the relations it reads: ``snap_…`` and arrangements filled by earlier stages.
    """

    target: str | None
    lir_id: int
    completes: tuple[int, ...]
    statement: exp.Expression
    columns: tuple[ColumnType, ...]
    reads: tuple[str, ...]
