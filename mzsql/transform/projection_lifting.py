"""ProjectionLifting: moves projections up, past operators for which order and number of columns do not matter, and out
of bindings.

Promise: the output columns and their order stay the same. No projection is left directly under a Project, Map,
FlatMap, Filter, Negate, TopK, Reduce or unplanned Join, nor at the root of a binding that is read several times
(unless that would be very wide without it). Under a Union they are left only if its inputs have different ones;
under a Threshold, which counts rows as they are, always. So projections that are pushed down afterwards
(`projection_pushdown`) leave each relation with columns in its inputs' order, and none of them twice.
Source: Materialize's transform `ProjectionLifting`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.memo import memo
from mzsql.expr.parts import Part, part_of, parts
from mzsql.expr.typing import relation_type
from mzsql.repr.types import RelationType
from mzsql.transform.fusion import merge_classes
from mzsql.transform.visit import kept, project, replace_inputs

#: A binding wider than this keeps its projection. Without it, a binding joined with itself would have twice the columns
#: of the one it reads, and so on at each level.
_WIDE = 100
#: For those who read a binding whose projection was lifted: its new type, and the projection that they must apply.
_Lifted = tuple[RelationType, tuple[int, ...]]


def projection_lifting(rel: mir.Relation) -> mir.Relation:
    """Lift all projections as far as possible."""
    return _Lift().run(rel, {})


class _Lift:
    """Rewrites a plan bottom-up; remembers results for parts that read no binding whose projection was lifted."""

    def __init__(self) -> None:
        self._parts: dict[int, Part] = parts()
        self._types: dict[int, RelationType] = {}
        self._known: dict[int, tuple[mir.Relation, mir.Relation]] = memo("projection_lifting")

    def run(self, rel: mir.Relation, lifted: Mapping[int, _Lifted]) -> mir.Relation:
        """The relation with its projections lifted."""
        if isinstance(rel, mir.Let):
            return self._let(rel, lifted)
        if isinstance(rel, mir.Get):
            return self._get(rel, lifted)
        alone = lifted.keys().isdisjoint(part_of(rel, self._parts).reads)
        if alone and (found := self._known.get(id(rel))) is not None:
            return found[1]
        kids = mir.inputs(rel)
        new = kept(rel, self._node(replace_inputs(rel, kids, [self.run(k, lifted) for k in kids])))
        if alone:
            self._known[id(rel)] = rel, new
        return new

    def _let(self, rel: mir.Let, lifted: Mapping[int, _Lifted]) -> mir.Relation:
        value = self.run(rel.value, lifted)
        if isinstance(value, mir.Project) and mir.arity(value.input) <= _WIDE:
            outputs, value = value.outputs, value.input
            typ = self._types[rel.id] = relation_type(value, self._types)
            lifted = {**lifted, rel.id: (typ, outputs)}
        else:
            self._types[rel.id] = relation_type(value, self._types)
        return mir.Let(rel.id, value, self.run(rel.body, lifted))

    def _get(self, rel: mir.Get, lifted: Mapping[int, _Lifted]) -> mir.Relation:
        if not isinstance(rel.id, int) or rel.id not in lifted:
            return rel
        typ, outputs = lifted[rel.id]
        return project(msgspec.structs.replace(rel, typ=typ), outputs)

    def _node(self, rel: mir.Relation) -> mir.Relation:
        match rel:
            case mir.Project(input=inner, outputs=outputs):
                return project(inner, outputs)
            case mir.Join(implementation=mir.Unplanned()):
                return _join(rel)
            case mir.Union(inputs=inputs):
                return self._union(rel, inputs)
            case (
                mir.Map() | mir.FlatMap() | mir.Filter() | mir.Negate() | mir.TopK() | mir.Reduce()
            ):
                if isinstance(rel.input, mir.Project):
                    return _over(rel, rel.input.input, rel.input.outputs)
        return rel

    def _union(self, rel: mir.Union, inputs: Sequence[mir.Relation]) -> mir.Relation:
        """A union of equal projections of relations of one type as a projection of their union."""
        first = inputs[0]
        if not isinstance(first, mir.Project):
            return rel
        below: list[mir.Relation] = []
        for part in inputs:
            if not isinstance(part, mir.Project) or part.outputs != first.outputs:
                return rel
            below.append(part.input)
        types = [relation_type(part, self._types).columns for part in below]
        if any(typ != types[0] for typ in types):
            return rel
        return project(mir.Union(tuple(below)), first.outputs)


def _over(
    rel: mir.Map | mir.FlatMap | mir.Filter | mir.Negate | mir.TopK | mir.Reduce,
    inner: mir.Relation,
    outputs: tuple[int, ...],
) -> mir.Relation:
    """A node over the input of its input's projection, and the projection on top of it."""
    place = dict(enumerate(outputs))
    width = mir.arity(inner)
    match rel:
        case mir.Negate():
            return project(mir.Negate(inner), outputs)
        case mir.Filter(predicates=predicates):
            return project(
                mir.Filter(inner, tuple(sc.permute(p, place) for p in predicates)), outputs
            )
        case mir.Map(scalars=scalars):
            added = range(len(scalars))
            place |= {len(outputs) + i: width + i for i in added}
            new: mir.Relation = mir.Map(inner, tuple(sc.permute(s, place) for s in scalars))
            return project(new, [*outputs, *(width + i for i in added)])
        case mir.FlatMap(exprs=exprs, output=output):
            new = mir.FlatMap(inner, rel.func, tuple(sc.permute(e, place) for e in exprs), output)
            return project(new, [*outputs, *(width + i for i in range(output.arity))])
        case mir.TopK(group_key=group, order_key=order, limit=limit):
            new = msgspec.structs.replace(
                rel,
                input=inner,
                group_key=tuple(place[c] for c in group),
                order_key=tuple(msgspec.structs.replace(o, column=place[o.column]) for o in order),
                limit=None if limit is None else sc.permute(limit, place),
            )
            return project(new, outputs)
        case mir.Reduce(group_key=key, aggregates=aggregates):
            return msgspec.structs.replace(
                rel,
                input=inner,
                group_key=tuple(sc.permute(e, place) for e in key),
                aggregates=tuple(
                    msgspec.structs.replace(a, expr=sc.permute(a.expr, place)) for a in aggregates
                ),
            )


def _join(rel: mir.Join) -> mir.Relation:
    if not any(isinstance(part, mir.Project) for part in rel.inputs):
        return rel
    below: list[mir.Relation] = []
    outputs: list[int] = []
    start = 0
    for part in rel.inputs:
        if isinstance(part, mir.Project):
            outputs.extend(start + column for column in part.outputs)
            below.append(part.input)
        else:
            outputs.extend(range(start, start + mir.arity(part)))
            below.append(part)
        start += mir.arity(below[-1])
    place = dict(enumerate(outputs))
    # Two columns may have become the same one.
    classes = merge_classes([tuple(sc.permute(e, place) for e in c) for c in rel.equivalences])
    joined = msgspec.structs.replace(rel, inputs=tuple(below), equivalences=classes)
    return project(joined, outputs)
