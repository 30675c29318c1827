"""NormalizeLets: bindings flat, used more than once, numbered from 0 in the order in which they are defined.

Promise: no `Let` stands inside a value or below another operator than `Let` (a `LetRec` keeps its own); a binding that is used once, or
that is no more than a Get, is put where it is used; unused ones are gone; the type of every Get of a binding is its value's.
"""

from __future__ import annotations

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr.typing import relation_type
from mzsql.repr.types import RelationType
from mzsql.transform.visit import replace_inputs, rewrite


def normalize_lets(rel: mir.Relation, *, inline_mfp: bool = False) -> mir.Relation:
    """Flatten, inline, renumber; with `inline_mfp` a binding that is a Get under maps, filters and projections is inlined too."""
    if not any(isinstance(node, mir.Let | mir.LetRec) for node in mir.walk(rel)):
        return rel
    bindings, body = _Hoist().run(rel)
    while True:
        smaller, body = _inline(bindings, body, inline_mfp=inline_mfp)
        if len(smaller) == len(bindings):
            break
        bindings = smaller
    return _renumber(bindings, body)


_Binding = tuple[int, mir.Relation]


class _Hoist:
    """Collects all bindings in an order in which each stands after those it reads; ids are made unique."""

    def __init__(self) -> None:
        self._bindings: list[_Binding] = []
        self._next = 0

    def run(self, rel: mir.Relation) -> tuple[list[_Binding], mir.Relation]:
        body = self._visit(rel, {})
        return self._bindings, body

    def _visit(self, rel: mir.Relation, scope: dict[int, int]) -> mir.Relation:
        """The relation without its Lets; `scope` maps ids as they are to ids as they become."""
        while isinstance(rel, mir.Let):
            value = self._visit(rel.value, scope)
            scope = {**scope, rel.id: self._next}
            self._bindings.append((self._next, value))
            self._next += 1
            rel = rel.body
        match rel:
            case mir.Get(id=local) if isinstance(local, int):
                return msgspec.structs.replace(rel, id=scope[local])
            case mir.LetRec():
                return self._let_rec(rel, scope)
            case _:
                kids = mir.inputs(rel)
                return replace_inputs(rel, kids, [self._visit(kid, scope) for kid in kids])

    def _let_rec(self, rel: mir.LetRec, scope: dict[int, int]) -> mir.Relation:
        """Bindings inside a recursion may read its variables, so they stay inside."""
        inner = dict(scope)
        ids: list[int] = []
        for local in rel.ids:
            inner[local] = self._next
            ids.append(self._next)
            self._next += 1
        outer = self._bindings
        values: list[mir.Relation] = []
        for part in (*rel.values, rel.body):
            self._bindings = []
            new = self._visit(part, inner)
            for local, value in reversed(self._bindings):
                new = mir.Let(local, value, new)
            values.append(new)
        self._bindings = outer
        return mir.LetRec(tuple(ids), tuple(values[:-1]), rel.limits, values[-1])


def _uses(rel: mir.Relation, counts: dict[int, int]) -> None:
    for node in mir.walk(rel):
        if isinstance(node, mir.Get) and isinstance(node.id, int):
            counts[node.id] = counts.get(node.id, 0) + 1


def _inline(
    bindings: list[_Binding], body: mir.Relation, *, inline_mfp: bool
) -> tuple[list[_Binding], mir.Relation]:
    counts: dict[int, int] = {}
    for _, value in bindings:
        _uses(value, counts)
    _uses(body, counts)
    replacement: dict[int, mir.Relation] = {}

    def put(node: mir.Relation) -> mir.Relation:
        if isinstance(node, mir.Get) and isinstance(node.id, int):
            return replacement.get(node.id, node)
        return node

    kept: list[_Binding] = []
    for local, value in bindings:
        used = counts.get(local, 0)
        if used == 0:
            continue
        new = rewrite(value, put)
        if used == 1 or _is_trivial(new, inline_mfp=inline_mfp):
            replacement[local] = new
        else:
            kept.append((local, new))
    return kept, rewrite(body, put)


def _is_trivial(value: mir.Relation, *, inline_mfp: bool) -> bool:
    """Whether a value is no work: a Get, or a constant of a row or none."""
    while inline_mfp and isinstance(value, mir.Map | mir.Filter | mir.Project):
        value = value.input
    if isinstance(value, mir.Get):
        return True
    return isinstance(value, mir.Constant) and len(value.rows) <= 1


def _renumber(bindings: list[_Binding], body: mir.Relation) -> mir.Relation:
    """Number bindings by definition and give every Get its value's type."""
    names: dict[int, int] = {}
    types: dict[int, RelationType] = {}

    def rename(rel: mir.Relation) -> mir.Relation:
        def get(node: mir.Relation) -> mir.Relation:
            if isinstance(node, mir.Get) and isinstance(node.id, int) and node.id in names:
                new = names[node.id]
                return msgspec.structs.replace(node, id=new, typ=types.get(new, node.typ))
            return node

        return rewrite(rel, get)

    result: list[_Binding] = []
    for number, (local, value) in enumerate(bindings):
        named = _renumber_recursions(rename(value), len(bindings))
        types[number] = relation_type(named)
        names[local] = number
        result.append((number, named))
    rel = _renumber_recursions(rename(body), len(bindings))
    for local, value in reversed(result):
        rel = mir.Let(local, value, rel)
    return rel


def _renumber_recursions(rel: mir.Relation, start: int) -> mir.Relation:
    """Number the bindings of recursions, and what is bound inside them, after the flat ones."""
    names: dict[int, int] = {}
    for node in mir.walk(rel):
        match node:
            case mir.LetRec(ids=ids):
                for local in ids:
                    names.setdefault(local, start + len(names))
            case mir.Let(id=local):
                names.setdefault(local, start + len(names))
            case _:
                pass
    if not names:
        return rel

    def apply(node: mir.Relation) -> mir.Relation:
        match node:
            case mir.LetRec(ids=ids):
                return msgspec.structs.replace(node, ids=tuple(names[i] for i in ids))
            case mir.Let(id=local):
                return mir.Let(names[local], node.value, node.body)
            case mir.Get(id=local) if isinstance(local, int) and local in names:
                return msgspec.structs.replace(node, id=names[local])
            case _:
                return node

    return rewrite(rel, apply)
