"""WillDistinct: a DISTINCT below another one does nothing.

Promise: a DISTINCT is removed if only row-wise operators, and unions of what is never negative, are between it and
one above.
Source: Materialize's transform `WillDistinct`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo
from mzsql.expr.parts import kinds_of, part_of, parts
from mzsql.transform.non_negative import non_negative, recursive_signs
from mzsql.transform.remembered import Key, Scope
from mzsql.transform.visit import filtered, mapped, project, replace_inputs

Signs = Mapping[int, bool]
_WHERE = kinds_of(mir.Reduce)


def will_distinct(rel: mir.Relation) -> mir.Relation:
    """Remove the DISTINCTs that another one above makes redundant."""
    return _Pass().visit(rel, {}) if part_of(rel, parts()).kinds & _WHERE else rel


class _Pass:
    """One traversal; `signs` says which of the bindings around are never negative."""

    def __init__(self) -> None:
        self._scope = Scope()
        self._known: dict[Key, tuple[mir.Relation, mir.Relation]] = memo("will_distinct")

    def visit(self, rel: mir.Relation, signs: Signs) -> mir.Relation:
        """The relation without DISTINCTs that are redundant within it."""
        part = self._scope.part(rel)
        if not part.kinds & _WHERE:
            return rel
        key = (id(rel), *[signs.get(local, False) for local in part.order])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = rel, self._visited(rel, signs)
        return found[1]

    def _visited(self, rel: mir.Relation, signs: Signs) -> mir.Relation:
        if isinstance(rel, mir.Let):
            value = self.visit(rel.value, signs)
            known = {**signs, rel.id: non_negative(value, signs)}
            return replace_inputs(rel, mir.inputs(rel), (value, self.visit(rel.body, known)))
        if isinstance(rel, mir.LetRec):
            signs = {**signs, **recursive_signs(rel, signs)}
        if isinstance(rel, mir.Reduce) and not rel.aggregates:
            rel = replace_inputs(rel, (rel.input,), (_without(rel.input, signs),))
        kids = mir.inputs(rel)
        return replace_inputs(rel, kids, [self.visit(kid, signs) for kid in kids])


def _without(rel: mir.Relation, signs: Signs) -> mir.Relation:
    """What is below a DISTINCT, without the DISTINCTs that this makes redundant."""
    match rel:
        case mir.Reduce(input=inner, group_key=key, aggregates=()):
            width = mir.arity(inner)
            return _without(project(mapped(inner, key), range(width, width + len(key))), signs)
        case mir.Project(input=inner, outputs=outputs):
            below = _without(inner, signs)
            return rel if below is inner else project(below, outputs)
        case mir.Map(input=inner, scalars=scalars):
            below = _without(inner, signs)
            return rel if below is inner else mapped(below, scalars)
        case mir.Filter(input=inner, predicates=predicates):
            below = _without(inner, signs)
            return rel if below is inner else filtered(below, predicates)
        case mir.Union(inputs=inputs) if all(non_negative(part, signs) for part in inputs):
            return replace_inputs(rel, inputs, [_without(part, signs) for part in inputs])
        case _:
            return rel
