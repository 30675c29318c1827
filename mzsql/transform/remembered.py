"""What a part of a plan depends on, so that what a transform made of it once in a run need not be made again.

Promise: two parts have the same key only if they are the same object and what they read of the bindings around them, directly or through
other bindings, is the same. Equal parts of the plans of a run are one object (`mzsql.transform.visit.shared`): identity tells them.
"""

from __future__ import annotations

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo

#: A part, and what it reads of the bindings around it.
Key = tuple[int, ...]
_NOTHING: frozenset[int] = frozenset()


class Scope:
    """The bindings around a part of a plan, each known by its value and by what that reads."""

    def __init__(self) -> None:
        self._reads: dict[int, tuple[mir.Relation, frozenset[int]]] = memo("reads")
        self._values: dict[Key, int] = memo("bound values")
        self._bound: dict[int, int] = {}

    def bind(self, local: int, value: mir.Relation) -> None:
        """From here on `local` stands for `value`, read within what is bound now."""
        self._bound[local] = self._values.setdefault(self.key(value), len(self._values))

    def unbind(self, local: int) -> None:
        """From here on nothing is known of `local`."""
        self._bound.pop(local, None)

    def key(self, rel: mir.Relation) -> Key:
        """What the meaning of a relation depends on; it stays unique as long as the run lasts."""
        reads = self.reads(rel)
        if not reads:
            return (id(rel),)
        found = [id(rel)]
        for local in sorted(reads):
            found.append(self._bound.get(local, -1))
        return tuple(found)

    def reads(self, rel: mir.Relation) -> frozenset[int]:
        """The bindings around a relation that it reads."""
        known = self._reads.get(id(rel))
        return self._found(rel) if known is None else known[1]

    def _found(self, rel: mir.Relation) -> frozenset[int]:
        known = self._reads
        stack = [rel]
        while stack:
            node = stack[-1]
            due = [kid for kid in mir.inputs(node) if id(kid) not in known]
            if due:
                stack.extend(due)
                continue
            stack.pop()
            known[id(node)] = node, self._of_node(node)
        return known[id(rel)][1]

    def _of_node(self, node: mir.Relation) -> frozenset[int]:
        if isinstance(node, mir.Get):
            return frozenset({node.id}) if isinstance(node.id, int) else _NOTHING
        parts = [self._reads[id(kid)][1] for kid in mir.inputs(node)]
        if isinstance(node, mir.Let):
            return parts[0] | (parts[1] - {node.id})
        if isinstance(node, mir.LetRec):
            return frozenset().union(*parts) - set(node.ids)
        if len(parts) == 1:
            return parts[0]
        return frozenset().union(*parts) if any(parts) else _NOTHING
