"""A delta join's paths over the raw columns of all inputs, and the order in which their lookups are made together.

Promise: all paths compute the same rows, so one closure (the first path's) is evaluated at the end for all of them,
and every failing evaluation is counted once, whichever input changed. Predicates that cannot fail also run as early
as each path allows; one that another path has as a predicate and the first path as a lookup key runs at that path's
end at the latest. Paths that look up the same input by the same key are scheduled to do it together, so that it is
read once (fewer scans, fewer jobs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Column, Literal, Scalar, permute, substitute, support
from mzsql.lir import plan as lir
from mzsql.render.nodes.collection import Collection
from mzsql.render.nodes.naming import arranged_row
from mzsql.render.nodes.rows import may_fail
from mzsql.repr.types import ColumnType

#: Types whose equal values are indistinguishable (unlike -0.0 and 0.0, or intervals of a month and of 30 days).
_IDENTICAL = frozenset(
    (
        *("boolean", "smallint", "integer", "bigint", "uint2", "uint4", "uint8", "oid", "numeric"),
        *("text", "varchar", "bytea", "uuid"),
        *("date", "time", "timestamp", "timestamptz", "mz_timestamp"),
    )
)

#: An input, and the key by which it is looked up.
Probe = tuple[int, tuple[Scalar, ...]]


@dataclass
class PathPlan:
    """One path over the global columns, which are those of all inputs side by side.

    Attributes:
        source: the input whose updates it follows.
        lookups: for each stage the input and key, and the stream's key over global columns.
        closure: all its row-wise work, over global columns.
        early: its predicates that cannot fail, over global columns.
    """

    source: int
    lookups: list[tuple[Probe, tuple[Scalar, ...]]]
    closure: MapFilterProject
    early: list[Scalar]


@dataclass
class Layout:
    """The positions of the inputs' columns among the global ones."""

    offsets: tuple[int, ...]
    types: tuple[ColumnType, ...]

    @staticmethod
    def of(inputs: Sequence[Collection]) -> Layout:
        """The layout of these inputs side by side."""
        offsets: list[int] = []
        types: list[ColumnType] = []
        for one in inputs:
            offsets.append(len(types))
            types.extend(one.columns)
        return Layout(tuple(offsets), tuple(types))

    def columns(self, relation: int) -> range:
        """An input's global columns."""
        ends = (*self.offsets[1:], len(self.types))
        return range(self.offsets[relation], ends[relation])

    def owner(self, column: int) -> int:
        """The input that a global column belongs to."""
        return max(i for i, start in enumerate(self.offsets) if start <= column)


class Equal:
    """Which global columns have the same values, on rows for which some lookups were made."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._of: dict[int, set[int]] = {}

    def add(self, probe: Probe, stream: Sequence[Scalar]) -> None:
        """Record a lookup: its key's columns equal the stream's."""
        start = self._layout.offsets[probe[0]]
        for theirs, ours in zip(probe[1], stream, strict=True):
            if isinstance(theirs, Column) and isinstance(ours, Column):
                self._join(theirs.index + start, ours.index)

    def _join(self, one: int, other: int) -> None:
        ours, theirs = (self._layout.types[column].type for column in (one, other))
        # Equal is not identical for every type (1.0 and 1.00, -0.0 and 0.0), and a key that is computed from the other
        # column has to be the same value.
        if ours == theirs and ours.kind in _IDENTICAL:
            both = self._of.get(one, {one}) | self._of.get(other, {other})
            self._of.update(dict.fromkeys(both, both))

    def local(self, exprs: Sequence[Scalar], relation: int) -> tuple[Scalar, ...]:
        """The leading expressions, as far as they can be written over an input's own columns."""
        span = self._layout.columns(relation)
        known: list[Scalar] = []
        for expr in exprs:
            mapping: dict[int, int] = {}
            for column in support(expr):
                same = column if column in span else self._in(column, span)
                if same is None:
                    return tuple(known)
                mapping[column] = same - span.start
            known.append(permute(expr, mapping))
        return tuple(known)

    def _in(self, column: int, span: range) -> int | None:
        return min((c for c in self._of.get(column, ()) if c in span), default=None)


@dataclass
class _Tracer:
    """Applies closures one after another, and collects what they compute over global columns."""

    arity: int
    expressions: list[Scalar] = field(default_factory=list)
    inlined: list[Scalar] = field(default_factory=list)
    predicates: list[tuple[int, Scalar]] = field(default_factory=list)

    def run(self, closure: MapFilterProject | None, row: list[Scalar]) -> list[Scalar]:
        """The row that a closure makes of `row`; both over global columns and the expressions so far."""
        if closure is None:
            return row
        current = list(row)
        for expr in closure.expressions:
            current.append(self.column(substitute(expr, current)))
        for _, predicate in closure.predicates:
            self.predicates.append(
                (self.arity + len(self.expressions), substitute(predicate, current))
            )
        return [current[c] for c in closure.projection]

    def column(self, expr: Scalar) -> Scalar:
        """A column that holds the expression's value."""
        if isinstance(expr, Column | Literal):
            return expr
        self.expressions.append(expr)
        self.inlined.append(self.flat(expr))
        return Column(self.arity + len(self.expressions) - 1)

    def flat(self, expr: Scalar) -> Scalar:
        """The expression over global columns only."""
        return substitute(expr, [*(Column(i) for i in range(self.arity)), *self.inlined])


def trace_path(
    path: lir.DeltaPath,
    layout: Layout,
    forms: dict[Probe, lir.ArrangementForm],
    source_form: lir.ArrangementForm,
) -> PathPlan:
    """Rewrite a path over the global columns."""
    tracer = _Tracer(len(layout.types))
    own = [Column(c) for c in layout.columns(path.source_relation)]
    row: list[Scalar] = [substitute(e, own) for e in arranged_row(source_form)]
    row = tracer.run(path.initial_closure, [tracer.column(e) for e in row])
    lookups: list[tuple[Probe, tuple[Scalar, ...]]] = []
    for stage in path.stages:
        probe = (stage.lookup_relation, stage.lookup_key)
        key = [substitute(e, row) for e in stage.stream_key]
        lookups.append((probe, tuple(tracer.flat(e) for e in key)))
        theirs = layout.columns(stage.lookup_relation)
        row = [
            *(tracer.column(e) for e in key),
            *(row[c] for c in stage.stream_thinning),
            *(Column(theirs[c]) for c in forms[probe].thinning),
        ]
        row = tracer.run(stage.closure, row)
    row = tracer.run(path.final_closure, row)
    projection: list[int] = []
    for output in row:
        if not isinstance(output, Column):
            tracer.expressions.append(output)
            tracer.inlined.append(output)
            projection.append(tracer.arity + len(tracer.expressions) - 1)
        else:
            projection.append(output.index)
    closure = MapFilterProject(
        tracer.arity, tuple(tracer.expressions), tuple(tracer.predicates), tuple(projection)
    )
    flat = [tracer.flat(p) for _, p in tracer.predicates]
    early = [p for p in flat if not may_fail(p, layout.types)]
    return PathPlan(path.source_relation, lookups, closure, early)


def demand(closure: MapFilterProject) -> frozenset[int]:
    """The input columns that a closure reads."""
    needed = set(closure.projection)
    for _, predicate in closure.predicates:
        needed |= support(predicate)
    for index in range(len(closure.expressions) - 1, -1, -1):
        if closure.input_arity + index in needed:
            needed |= support(closure.expressions[index])
    return frozenset(c for c in needed if c < closure.input_arity)


def schedule(paths: Sequence[PathPlan]) -> list[tuple[Probe, tuple[int, ...]]]:
    """The lookups in order, each with the paths that make it together."""
    at = [0] * len(paths)
    made: list[tuple[Probe, tuple[int, ...]]] = []
    while True:
        waiting: dict[Probe, list[int]] = {}
        later: set[Probe] = set()
        for number, path in enumerate(paths):
            left = [probe for probe, _ in path.lookups[at[number] :]]
            if left:
                waiting.setdefault(left[0], []).append(number)
                later.update(left[1:])
        if not waiting:
            return made
        # A lookup that no path needs later can be made now without missing a chance to share it; otherwise take the
        # one most paths wait for.
        ready = [probe for probe in waiting if probe not in later]
        probe = ready[0] if ready else max(waiting, key=lambda p: len(waiting[p]))
        made.append((probe, tuple(waiting[probe])))
        for number in waiting[probe]:
            at[number] += 1
