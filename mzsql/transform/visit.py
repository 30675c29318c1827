"""Traversals that transforms share. None recurses: a plan may be as deep as a thousand chained views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo
from mzsql.expr.scalar import Scalar
from mzsql.expr.typing import node_type, relation_type
from mzsql.repr.types import RelationType


def rewrite(
    rel: mir.Relation,
    f: Callable[[mir.Relation], mir.Relation],
    known: dict[int, tuple[mir.Relation, mir.Relation]] | None = None,
) -> mir.Relation:
    """Rewrite bottom-up: `f` sees each node after its inputs were rewritten. What stays equal stays the same object.

    Where `f` is a pure function, `known` may hold what became of relations before, by their identity (equal ones may differ in the
    sign of a zero), and takes in what becomes of these.
    """
    done: list[mir.Relation] = []
    stack: list[tuple[mir.Relation, bool]] = [(rel, False)]
    while stack:
        node, ready = stack.pop()
        if not ready and known is not None and id(node) in known:
            done.append(known[id(node)][1])
            continue
        kids = mir.inputs(node)
        if not ready and kids:
            stack.append((node, True))
            stack.extend((kid, False) for kid in reversed(kids))
            continue
        old = node
        if kids:
            new = done[-len(kids) :]
            del done[-len(kids) :]
            node = replace_inputs(node, kids, new)
        found = kept(node, f(node))
        if known is not None:
            known[id(old)] = old, found
        done.append(found)
    return done[0]


@dataclass(frozen=True)
class Bindings:
    """What local ids stand for: values and their types."""

    values: Mapping[int, mir.Relation]
    types: Mapping[int, RelationType]


def rewrite_typed(
    rel: mir.Relation,
    f: Callable[[mir.Relation, Sequence[RelationType]], mir.Relation],
    refine: Callable[[mir.Relation, RelationType, Bindings], RelationType] | None = None,
    *,
    resolve: Callable[[mir.Get, mir.Relation], mir.Relation] | None = None,
    known: dict[tuple[object, ...], tuple[mir.Relation, mir.Relation]] | None = None,
) -> mir.Relation:
    """Rewrite bottom-up with types: `f` sees each node after its inputs were rewritten, and the types of these inputs.

    What `f` puts in place of a node must have as many columns of the same types. `refine` may add to a node's type what is known beyond
    it; it is told the bindings. `resolve` says what stands for a Get of a binding, told the binding's rewritten value. Where `f` is a pure
    function, `known` may hold what it made of nodes, by their identity, and types before, and takes in what it makes of these.
    """
    done: list[tuple[mir.Relation, RelationType]] = []
    locals_: dict[int, RelationType] = {}
    values: dict[int, mir.Relation] = {}
    bindings = Bindings(values, locals_)
    stack: list[mir.Relation | tuple[mir.Relation] | int] = [rel]
    while stack:
        task = stack.pop()
        if isinstance(task, int):
            values[task], locals_[task] = done[-1]
            continue
        if not isinstance(task, tuple):
            kids = mir.inputs(task)
            stack.append((task,))
            if isinstance(task, mir.Let):
                stack.extend((task.body, task.id, task.value))
            else:
                stack.extend(reversed(kids))
            continue
        (node,) = task
        kids = mir.inputs(node)
        parts = done[len(done) - len(kids) :]
        del done[len(done) - len(kids) :]
        new = [part for part, _ in parts]
        types = [typ for _, typ in parts]
        node = replace_inputs(node, kids, new)
        if resolve is not None and isinstance(node, mir.Get) and node.id in values:
            assert isinstance(node.id, int)
            node = resolve(node, values[node.id])
        if known is None:
            node = kept(node, f(node, types))
        else:
            key = (id(node), *types)
            if key not in known:
                known[key] = node, kept(node, f(node, types))
            node = known[key][1]
        typ = _type_of(node, new, types, locals_)
        done.append((node, typ if refine is None else refine(node, typ, bindings)))
    return done[0][0]


def _type_of(
    node: mir.Relation,
    inputs: Sequence[mir.Relation],
    types: Sequence[RelationType],
    locals_: dict[int, RelationType],
) -> RelationType:
    """The type of a rewritten node: from its inputs' types where it still stands on them, else anew."""
    kids = mir.inputs(node)
    same = len(kids) == len(inputs) and all(a is b for a, b in zip(kids, inputs, strict=True))
    if not same:
        return relation_type(node, locals_)
    if isinstance(node, mir.Let | mir.LetRec):
        return types[-1]
    if isinstance(node, mir.Get):
        return node_type(node, types, locals_)
    derived = memo("node_type")
    key = (node, *types)
    if key not in derived:
        derived[key] = node_type(node, types)
    found: RelationType = derived[key]
    return found


def kept(old: mir.Relation, new: mir.Relation) -> mir.Relation:
    """The new relation; the old object where they are equal, so that what did not change is seen at a glance."""
    return old if new is old or new == old else new


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


def filtered(rel: mir.Relation, predicates: Sequence[Scalar]) -> mir.Relation:
    """A filter, left out where it has no predicates; equal predicates once."""
    if not predicates:
        return rel
    if isinstance(rel, mir.Filter):
        predicates = [*rel.predicates, *predicates]
        rel = rel.input
    return mir.Filter(rel, tuple(dict.fromkeys(predicates)))


def mapped(rel: mir.Relation, scalars: Sequence[Scalar]) -> mir.Relation:
    """A map, left out where it adds nothing."""
    if not scalars:
        return rel
    if isinstance(rel, mir.Map):
        return mir.Map(rel.input, (*rel.scalars, *scalars))
    return mir.Map(rel, tuple(scalars))
