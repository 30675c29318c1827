"""RelationCSE: equal parts of a plan become one binding.

Promise: every relation with inputs that occurs more than once (Gets and constants aside) is bound and read by Gets; NormalizeLets then
drops the bindings that turned out to be used once. Nothing is moved into or out of a recursion.
"""

from __future__ import annotations

from mzsql.expr import relation as mir
from mzsql.expr.typing import relation_type
from mzsql.transform.normalize_lets import normalize_lets
from mzsql.transform.visit import replace_inputs


def relation_cse(rel: mir.Relation) -> mir.Relation:
    """Bind what is repeated."""
    return normalize_lets(_shared(rel))


def relation_cse_inline_mfp(rel: mir.Relation) -> mir.Relation:
    """Bind what is repeated, but what only reads an object row by row: each reader may find an index of its own for it."""
    return normalize_lets(_shared(rel), inline_mfp=True)


def _shared(rel: mir.Relation) -> mir.Relation:
    if any(isinstance(node, mir.LetRec) for node in mir.walk(rel)):
        return rel
    return _Anf().run(rel)


class _Anf:
    """Gives every operator a binding of its own, equal operators over equal inputs the same."""

    def __init__(self) -> None:
        self._names: dict[mir.Relation, mir.Get] = {}
        self._bindings: list[tuple[int, mir.Relation]] = []

    def run(self, rel: mir.Relation) -> mir.Relation:
        body = self._visit(rel, {})
        for local, value in reversed(self._bindings):
            body = mir.Let(local, value, body)
        return body

    def _visit(self, rel: mir.Relation, scope: dict[int, mir.Relation]) -> mir.Relation:
        while isinstance(rel, mir.Let):
            scope = {**scope, rel.id: self._visit(rel.value, scope)}
            rel = rel.body
        match rel:
            case mir.Get(id=local) if isinstance(local, int):
                return scope[local]
            case mir.Get() | mir.Constant():
                return rel
            case mir.ArrangeBy(input=inner):
                return self._bind(mir.ArrangeBy(self._visit(inner, scope), rel.keys))
            case _:
                kids = mir.inputs(rel)
                return self._bind(replace_inputs(rel, kids, [self._visit(k, scope) for k in kids]))

    def _bind(self, rel: mir.Relation) -> mir.Relation:
        known = self._names.get(rel)
        if known is None:
            local = len(self._bindings)
            self._bindings.append((local, rel))
            known = mir.Get(local, relation_type(rel))
            self._names[rel] = known
        return known
