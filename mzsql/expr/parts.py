"""What is known of the parts of plans while one plan is optimized: what they read of the bindings around them, which nodes are in them.

Promise: derived of each part once in a run, from its inputs, and found again by its identity. Whoever asks at one node after another takes
`parts()` once: outside of a run it is a new one each time.
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
    """What is known of a part of a plan.

    Attributes:
        rel: the part, kept, so that nothing else takes its identity.
        reads: the bindings around it that it reads.
        order: the same in ascending order.
        kinds: which kinds of nodes are in it, as `kinds_of` counts them.
    """

    rel: mir.Relation
    reads: frozenset[int]
    order: tuple[int, ...]
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
    below = [known[id(kid)] for kid in mir.inputs(node)]
    if len(below) == 1:
        (part,) = below
        return Part(node, part.reads, part.order, kinds | part.kinds)
    if isinstance(node, mir.Get):
        order = (node.id,) if isinstance(node.id, int) else ()
        return Part(node, frozenset(order), order, kinds)
    reads = _NOTHING
    for part in below:
        kinds |= part.kinds
        if part.reads:
            reads |= part.reads
    if isinstance(node, mir.Let):
        reads = below[0].reads | (below[1].reads - {node.id})
    elif isinstance(node, mir.LetRec):
        reads -= frozenset(node.ids)
    return Part(node, reads, tuple(sorted(reads)), kinds)
