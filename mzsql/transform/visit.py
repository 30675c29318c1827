"""Traversals that transforms share. None recurses: a plan may be as deep as a thousand chained views."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.expr import relation as mir


def rewrite(rel: mir.Relation, f: Callable[[mir.Relation], mir.Relation]) -> mir.Relation:
    """Rewrite bottom-up: `f` sees each node after its inputs were rewritten."""
    done: list[mir.Relation] = []
    stack: list[tuple[mir.Relation, bool]] = [(rel, False)]
    while stack:
        node, ready = stack.pop()
        kids = mir.inputs(node)
        if not ready and kids:
            stack.append((node, True))
            stack.extend((kid, False) for kid in reversed(kids))
            continue
        if kids:
            new = done[-len(kids) :]
            del done[-len(kids) :]
            node = replace_inputs(node, kids, new)
        done.append(f(node))
    return done[0]


def replace_inputs(
    node: mir.Relation, old: Sequence[mir.Relation], new: Sequence[mir.Relation]
) -> mir.Relation:
    """The node over new inputs; itself where they are the same objects."""
    if all(a is b for a, b in zip(old, new, strict=True)):
        return node
    return mir.with_inputs(node, new)


def project(rel: mir.Relation, outputs: Sequence[int]) -> mir.Relation:
    """A projection, left out where it changes nothing."""
    if tuple(outputs) == tuple(range(mir.arity(rel))):
        return rel
    if isinstance(rel, mir.Project):
        return project(rel.input, [rel.outputs[column] for column in outputs])
    return mir.Project(rel, tuple(outputs))


def filtered(rel: mir.Relation, predicates: Sequence[mir.Scalar]) -> mir.Relation:
    """A filter, left out where it has no predicates; equal predicates once."""
    if not predicates:
        return rel
    if isinstance(rel, mir.Filter):
        predicates = [*rel.predicates, *predicates]
        rel = rel.input
    return mir.Filter(rel, tuple(dict.fromkeys(predicates)))


def mapped(rel: mir.Relation, scalars: Sequence[mir.Scalar]) -> mir.Relation:
    """A map, left out where it adds nothing."""
    if not scalars:
        return rel
    if isinstance(rel, mir.Map):
        return mir.Map(rel.input, (*rel.scalars, *scalars))
    return mir.Map(rel, tuple(scalars))
