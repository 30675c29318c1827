"""Facts about the parts of plans while one plan is optimized: the bindings they read, the kinds of their nodes.

Promise: derived once per part and run, from its inputs, and looked up by identity. A pass over many nodes calls
`parts()` once: outside a run each call returns a new dict.
"""

from __future__ import annotations

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo

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


class Part(msgspec.Struct, frozen=True, gc=False):
    """The facts about a part of a plan.

    Attributes:
        rel: the part; keeping it keeps its ``id()`` from being reused.
        reads: the outer bindings that it reads.
        order: the same in ascending order.
        kinds: the kinds of its nodes, as `kinds_of` encodes them.
    """

    rel: mir.Relation
    reads: frozenset[int]
    order: tuple[int, ...]
    kinds: int


def kinds_of(*kinds: type[mir.Relation]) -> int:
    """A set of kinds of nodes as a bit mask."""
    return sum(_BITS[kind] for kind in kinds)


def parts() -> dict[int, Part]:
    """The facts known in this run, by the part's ``id()``."""
    return memo("parts")


def part_of(rel: mir.Relation, known: dict[int, Part]) -> Part:
    """The facts about a part, derived if missing."""
    found = known.get(id(rel))
    if found is not None:
        return found
    stack = [rel]
    while stack:
        node = stack[-1]
        height = len(stack)
        stack += [kid for kid in mir.inputs(node) if id(kid) not in known]
        if len(stack) == height:
            known[id(node)] = seen(node, known)
            stack.pop()
    return known[id(rel)]


def seen(node: mir.Relation, known: dict[int, Part]) -> Part:
    """The facts about a node whose inputs' facts are known."""
    kind = type(node)
    kinds = _BITS[kind]
    if kind in mir.ONE_INPUT:
        part = known[id(node.input)]  # type: ignore[union-attr]  # the class says it
        return Part(node, part.reads, part.order, kinds | part.kinds)
    if kind is mir.Get:
        local = node.id  # type: ignore[union-attr]  # as above
        if not isinstance(local, int):
            return Part(node, _NOTHING, (), kinds)
        return Part(node, frozenset((local,)), (local,), kinds)
    below = [known[id(kid)] for kid in mir.inputs(node)]
    reads = _NOTHING
    for part in below:
        kinds |= part.kinds
        if part.reads:
            reads |= part.reads
    if type(node) is mir.Let:
        reads = below[0].reads | (below[1].reads - {node.id})
    elif type(node) is mir.LetRec:
        reads -= frozenset(node.ids)
    return Part(node, reads, tuple(sorted(reads)), kinds)
