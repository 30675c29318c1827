"""What a part of a plan depends on, so that what a transform made of it once in a run need not be made again.

Promise: two parts have the same key only if they are the same object and what they read of the bindings around them, directly or through
other bindings, is the same. Equal parts of the plans of a run are one object (`mzsql.transform.visit.shared`): identity tells them.
"""

from __future__ import annotations

from typing import NamedTuple

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo

#: A part, and what it reads of the bindings around it.
Key = tuple[int, ...]
_NOTHING: frozenset[int] = frozenset()
_KINDS: tuple[type[mir.Relation], ...] = (
    mir.Constant,
    mir.Get,
    mir.Let,
    mir.LetRec,
    mir.Project,
    mir.Map,
    mir.FlatMap,
    mir.Filter,
    mir.Join,
    mir.Reduce,
    mir.TopK,
    mir.Negate,
    mir.Threshold,
    mir.Union,
    mir.ArrangeBy,
)
_BITS = {kind: 1 << place for place, kind in enumerate(_KINDS)}


class Part(NamedTuple):
    """What is known of a part of a plan.

    Attributes:
        rel: the part, kept, so that nothing else takes its identity.
        reads: the bindings around it that it reads.
        kinds: which kinds of nodes are in it, as `kinds_of` counts them.
    """

    rel: mir.Relation
    reads: frozenset[int]
    kinds: int


def kinds_of(*kinds: type[mir.Relation]) -> int:
    """Kinds of nodes as a number, a bit for each."""
    return sum(_BITS[kind] for kind in kinds)


def parts() -> dict[int, Part]:
    """What is known in this run of parts, by their identity."""
    return memo("parts")


def part_of(rel: mir.Relation, known: dict[int, Part]) -> Part:
    """What is known of a part, found out where it is not yet."""
    found = known.get(id(rel))
    if found is not None:
        return found
    stack = [rel]
    while stack:
        node = stack[-1]
        due = [kid for kid in mir.inputs(node) if id(kid) not in known]
        if due:
            stack.extend(due)
            continue
        stack.pop()
        known[id(node)] = seen(node, known)
    return known[id(rel)]


def seen(node: mir.Relation, known: dict[int, Part]) -> Part:
    """What a node is, that of its inputs being known."""
    kinds = _BITS[type(node)]
    if isinstance(node, mir.Get):
        return Part(node, frozenset({node.id}) if isinstance(node.id, int) else _NOTHING, kinds)
    below = [known[id(kid)] for kid in mir.inputs(node)]
    if len(below) == 1:
        return Part(node, below[0].reads, kinds | below[0].kinds)
    reads = _NOTHING
    for part in below:
        kinds |= part.kinds
        if part.reads:
            reads |= part.reads
    if isinstance(node, mir.Let):
        reads = below[0].reads | (below[1].reads - {node.id})
    elif isinstance(node, mir.LetRec):
        reads -= frozenset(node.ids)
    return Part(node, reads, kinds)


class Scope:
    """The bindings around a part of a plan, each known by its value and by what that reads."""

    def __init__(self) -> None:
        self._parts = parts()
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
        return (id(rel), *(self._bound.get(local, -1) for local in sorted(reads)))

    def reads(self, rel: mir.Relation) -> frozenset[int]:
        """The bindings around a relation that it reads."""
        found = self._parts.get(id(rel))
        return part_of(rel, self._parts).reads if found is None else found.reads
