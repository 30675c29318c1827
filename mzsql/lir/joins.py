"""Join plans: from the optimizer's order of lookups to stages with keys, thinning and closures.

Promise: `plan_join` decides nothing about order. It follows the MIR join's implementation, spreads its row-wise part
over the stages (`mzsql.lir.closures`), and records which arrangements the inputs lack.
Source: Materialize's `mz_compute_types::plan::join`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.mfp import MapFilterProject
from mzsql.lir import plan as lir
from mzsql.lir.closures import ClosureBuilder
from mzsql.lir.forms import arrangement_form, form_by_key
from mzsql.repr.types import ColumnType

#: Lookups in order: an input, and the key over its own columns by which it is looked up.
_Order = Sequence[tuple[int, tuple[sc.Scalar, ...]]]


class JoinInputs:
    """The inputs of one join: their forms, and the positions of their columns among the join's."""

    def __init__(
        self, forms: Sequence[lir.AvailableCollections], columns: Sequence[Sequence[ColumnType]]
    ) -> None:
        self._forms = list(forms)
        self._ranges: list[range] = []
        start = 0
        for cols in columns:
            self._ranges.append(range(start, start + len(cols)))
            start += len(cols)
        self.columns = tuple(column for cols in columns for column in cols)
        self.missing: list[list[lir.ArrangementForm]] = [[] for _ in forms]

    def global_columns(self, relation: int) -> range:
        """The positions of an input's columns among the join's."""
        return self._ranges[relation]

    def to_global(self, relation: int, key: Sequence[sc.Scalar]) -> tuple[sc.Scalar, ...]:
        """Rewrite expressions over an input's columns to be over the join's columns."""
        mapping = dict(enumerate(self._ranges[relation]))
        return tuple(sc.permute(expr, mapping) for expr in key)

    def arranged(self, relation: int, key: tuple[sc.Scalar, ...]) -> lir.ArrangementForm:
        """The input's arrangement by `key`; recorded as missing if it does not exist."""
        form = form_by_key(self._forms[relation], key)
        if form is None:
            form = arrangement_form(key, len(self._ranges[relation]))
            if form not in self.missing[relation]:
                self.missing[relation].append(form)
        return form


def plan_join(join: mir.Join, mfp: MapFilterProject, inputs: JoinInputs) -> lir.JoinPlan:
    """The physical plan of `join` with `mfp`, which is applied on top of it, absorbed. Missing arrangements are
    recorded in `inputs`.
    """
    classes = join.equivalences
    match join.implementation:
        case mir.Differential(start=start, start_key=key, order=order):
            lookups = [(step.input, step.key) for step in order]
            return _linear((start, key), lookups, classes, mfp, inputs)
        case mir.IndexedFilter(key=key):
            # The constant's columns are the key's values: it is streamed, and the index is looked up.
            start_key = tuple(sc.Column(i) for i in range(len(key)))
            return _linear((1, start_key), [(0, key)], classes, mfp, inputs)
        case mir.DeltaQuery(orders=orders):
            paths = [[(step.input, step.key) for step in order] for order in orders]
            return _delta(paths, classes, mfp, inputs)
        case _:
            assert len(join.inputs) <= 1, "a join reached lowering without an implementation"
            return _linear((0, None), [], classes, mfp, inputs)


def _closure(mfp: MapFilterProject) -> MapFilterProject | None:
    return None if mfp.is_identity else mfp.optimize()


def _linear(
    source: tuple[int, tuple[sc.Scalar, ...] | None],
    order: _Order,
    equivalences: Sequence[Sequence[sc.Scalar]],
    mfp: MapFilterProject,
    inputs: JoinInputs,
) -> lir.LinearJoin:
    start, start_key = source
    if start_key is not None:
        inputs.arranged(start, start_key)
    columns = inputs.global_columns(start)
    builder = ClosureBuilder(columns, equivalences, mfp, inputs.columns)
    # Predicates on the source's rows alone run after the first lookup, since the source may be read from its
    # arrangement as it is.
    stages = _stages(builder, order, inputs)
    return lir.LinearJoin(
        source_relation=start,
        source_key=start_key,
        stages=stages,
        final_closure=_closure(builder.finish()),
    )


def _delta(
    paths: Sequence[_Order],
    equivalences: Sequence[Sequence[sc.Scalar]],
    mfp: MapFilterProject,
    inputs: JoinInputs,
) -> lir.DeltaJoin:
    keys_of: dict[int, set[tuple[sc.Scalar, ...]]] = {}
    for order in paths:
        for relation, key in order:
            keys_of.setdefault(relation, set()).add(key)
    built: list[lir.DeltaPath] = []
    for relation, order in enumerate(paths):
        source_key = min(keys_of[relation], key=key_order)
        form = inputs.arranged(relation, source_key)
        builder = ClosureBuilder(inputs.global_columns(relation), equivalences, mfp, inputs.columns)
        width = len(form.key) + len(form.thinning)
        initial = builder.start(dict(enumerate(form.permutation)), width)
        stages = _stages(builder, order, inputs)
        built.append(
            lir.DeltaPath(
                source_relation=relation,
                source_key=source_key,
                initial_closure=_closure(initial),
                stages=stages,
                final_closure=_closure(builder.finish()),
            )
        )
    return lir.DeltaJoin(tuple(built))


def key_order(key: Sequence[sc.Scalar]) -> tuple[tuple[int, int, bytes], ...]:
    """A total order of keys: columns first, by position; other expressions by their encoding."""
    return tuple(
        (0, expr.index, b"") if isinstance(expr, sc.Column) else (1, 0, msgspec.json.encode(expr))
        for expr in key
    )


def _stages(
    builder: ClosureBuilder, order: _Order, inputs: JoinInputs
) -> tuple[lir.LinearStage, ...]:
    stages: list[lir.LinearStage] = []
    for relation, key in order:
        lookup = inputs.arranged(relation, key)
        matched = inputs.to_global(relation, key)
        stream_width = builder.width
        stream_key = builder.bound_key(matched)
        stream = arrangement_form(stream_key, stream_width)
        kept = len(stream.thinning)
        place = dict(enumerate(stream.permutation))
        for column, at in enumerate(lookup.permutation):
            place[stream_width + column] = at if at < len(key) else at + kept
        width = len(key) + kept + len(lookup.thinning)
        closure = builder.add(inputs.global_columns(relation), matched, place, width)
        stages.append(
            lir.LinearStage(
                lookup_relation=relation,
                stream_key=stream_key,
                stream_thinning=stream.thinning,
                lookup_key=key,
                closure=closure.optimize(),
            )
        )
    return tuple(stages)
