"""RelationCSE: common subexpression elimination for relations: equal parts of a plan become one binding.

Promise: every relation with inputs that occurs more than once (Gets and constants aside) is bound and read by Gets;
NormalizeLets then inlines bindings that are used once. In a recursion a binding is placed before the value that it
was found in, and read until what it reads is computed anew. Nothing that is bound in a recursion is read after it.
Source: Materialize's transform `RelationCSE`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.expr import relation as mir
from mzsql.expr.typing import recursive_types, relation_type
from mzsql.repr.types import RelationType
from mzsql.transform.normalize_lets import LetStage, RecStage, Stage, assemble, normalize_lets
from mzsql.transform.visit import replace_inputs, shared


def relation_cse(rel: mir.Relation) -> mir.Relation:
    """Bind what is repeated."""
    rel = shared(rel)
    return normalize_lets(rel if _is_single(rel) else _Anf().run(rel))


def relation_cse_inline_mfp(rel: mir.Relation) -> mir.Relation:
    """Bind what is repeated, except row-wise reads of an object, for which each reader may find an index of its own."""
    rel = shared(rel)
    return normalize_lets(rel if _is_single(rel) else _Anf().run(rel), inline_mfp=True)


def _is_single(rel: mir.Relation) -> bool:
    """Whether nothing in it occurs more than once, Gets and constants aside; equal parts are the same object."""
    met: set[int] = set()
    stack = [rel]
    while stack:
        node = stack.pop()
        if isinstance(node, mir.Get | mir.Constant):
            continue
        if isinstance(node, mir.LetRec) or id(node) in met:
            return False
        met.add(id(node))
        stack.extend(mir.inputs(node))
    return True


class _Anf:
    """Gives every operator a binding of its own (A-normal form); equal operators over equal inputs share one."""

    def __init__(self) -> None:
        self._next = 0
        self._stages: list[Stage] = []
        self._names: dict[mir.Relation, mir.Get] = {}
        #: For each binding, the recursive bindings on whose current values its value depends.
        self._depends: dict[int, frozenset[int]] = {}

    def run(self, rel: mir.Relation) -> mir.Relation:
        """The relation in A-normal form."""
        body = self._visit(rel, {})
        return assemble(self._stages, body)

    def _visit(self, rel: mir.Relation, scope: Mapping[int, mir.Relation]) -> mir.Relation:
        while isinstance(rel, mir.Let | mir.LetRec):
            match rel:
                case mir.Let(id=bound, value=value):
                    scope = {**scope, bound: self._visit(value, scope)}
                case mir.LetRec():
                    scope = self._recursion(rel, scope)
            rel = rel.body
        match rel:
            case mir.Get(id=local) if isinstance(local, int):
                return scope[local]
            case mir.Get() | mir.Constant():
                return rel
            case _:
                kids = mir.inputs(rel)
                return self._bind(replace_inputs(rel, kids, [self._visit(k, scope) for k in kids]))

    def _bind(self, rel: mir.Relation) -> mir.Relation:
        known = self._names.get(rel)
        if known is None:
            local = self._fresh()
            self._stages.append(LetStage(local, rel))
            known = mir.Get(local, relation_type(rel))
            self._names[rel] = known
            read = (kid.id for kid in mir.inputs(rel) if isinstance(kid, mir.Get))
            self._depends[local] = frozenset().union(
                *(self._depends.get(of, frozenset()) for of in read if isinstance(of, int))
            )
        return known

    def _recursion(
        self, rel: mir.LetRec, scope: Mapping[int, mir.Relation]
    ) -> Mapping[int, mir.Relation]:
        """Bind a recursion. What was found outside of it is read inside, but not the other way around."""
        types = recursive_types(rel.ids, rel.values, self._types(scope))
        inner = dict(scope)
        ids = [self._fresh() for _ in rel.ids]
        for old, new in zip(rel.ids, ids, strict=True):
            inner[old] = mir.Get(new, types[old])
            self._depends[new] = frozenset({new})
        stages, names = self._stages, dict(self._names)
        done: list[tuple[int, mir.Relation, tuple[int, bool] | None]] = []
        for new, value, limit in zip(ids, rel.values, rel.limits, strict=True):
            self._stages = []
            found = self._visit(value, inner)
            if any(isinstance(stage, RecStage) for stage in self._stages):
                found = assemble(self._stages, found)
                self._names = {k: v for k, v in self._names.items() if k in names}
            else:
                done.extend(
                    (stage.id, stage.value, limit)
                    for stage in self._stages
                    if isinstance(stage, LetStage)
                )
            done.append((new, found, limit))
            self._forget(new)
        self._stages, self._names = stages, names
        self._stages.append(
            RecStage(
                tuple(local for local, _, _ in done),
                tuple(value for _, value, _ in done),
                tuple(limit for _, _, limit in done),
            )
        )
        return inner

    def _forget(self, local: int) -> None:
        """A recursive binding has been computed anew: what was computed from it before is out of date."""
        self._names = {
            rel: get
            for rel, get in self._names.items()
            if isinstance(get.id, int) and local not in self._depends[get.id]
        }

    def _types(self, scope: Mapping[int, mir.Relation]) -> dict[int, RelationType]:
        return {local: relation_type(rel) for local, rel in scope.items()}

    def _fresh(self) -> int:
        self._next += 1
        return self._next - 1
