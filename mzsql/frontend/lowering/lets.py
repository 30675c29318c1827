"""Normalizing the bindings of a lowered plan.

Promise: afterwards every binding is used at least twice, bindings precede the whole relation (those that depend on a
recursive binding: its value or body), and ids count from 0 in order of definition. Nothing else changes.
"""

from __future__ import annotations

from collections import Counter

from mzsql.expr import relation as mir
from mzsql.repr.types import RelationType


def normalize_lets(rel: mir.Relation) -> mir.Relation:
    """The relation with normalized bindings."""
    while True:
        uses: Counter[int] = Counter()
        bound: list[int] = []
        recursive = False
        for node in mir.walk(rel):
            if type(node) is mir.Get:
                if isinstance(node.id, int):
                    uses[node.id] += 1
            elif type(node) is mir.Let:
                bound.append(node.id)
            elif type(node) is mir.LetRec:
                recursive = True
        if not bound and not recursive:
            return rel
        rel = _Pass(uses).frame(rel)
        if all(uses[local] for local in bound):
            return rel


class _Pass:
    def __init__(self, uses: Counter[int]) -> None:
        self.uses = uses
        # The replacement of each binding. Of a Get only the id counts: each use keeps its own type.
        self.known: dict[int, mir.Relation] = {}
        self.next_id = 0

    def fresh(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def frame(self, rel: mir.Relation) -> mir.Relation:
        """A relation under all the bindings found in it."""
        bindings: list[tuple[int, mir.Relation]] = []
        body = self.rewrite(rel, bindings)
        for local, value in reversed(bindings):
            body = mir.Let(local, value, body)
        return body

    def rewrite(self, rel: mir.Relation, bindings: list[tuple[int, mir.Relation]]) -> mir.Relation:
        """The relation without its bindings, which are appended to ``bindings``."""
        match rel:
            case mir.Let(id=local, value=value, body=body):
                if self.uses[local]:
                    done = self.rewrite(value, bindings)
                    if self.uses[local] == 1 or isinstance(done, mir.Get):
                        self.known[local] = done
                    else:
                        new = self.fresh()
                        bindings.append((new, done))
                        self.known[local] = mir.Get(new, RelationType(()))
                return self.rewrite(body, bindings)
            case mir.LetRec(ids=ids, values=values, limits=limits, body=body):
                for old in ids:
                    self.known[old] = mir.Get(self.fresh(), RelationType(()))
                new_ids = tuple(_local_id(self.known[old]) for old in ids)
                done_values = tuple(self.frame(v) for v in values)
                return mir.LetRec(new_ids, done_values, limits, self.frame(body))
            case mir.Get(id=local) if isinstance(local, int):
                found = self.known[local]
                if isinstance(found, mir.Get) and isinstance(found.id, int):
                    return mir.Get(found.id, rel.typ, rel.access)
                return found
            case _:
                parts = [self.rewrite(part, bindings) for part in mir.inputs(rel)]
                return mir.with_inputs(rel, parts)


def _local_id(rel: mir.Relation) -> int:
    assert isinstance(rel, mir.Get)
    assert isinstance(rel.id, int)
    return rel.id
