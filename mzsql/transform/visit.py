"""Traversals that transforms share. None recurses: a plan may be as deep as a thousand chained views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo
from mzsql.expr.parts import parts, seen
from mzsql.expr.scalar import Scalar
from mzsql.expr.typing import derived_type, node_type, relation_type
from mzsql.location import check_caller
from mzsql.repr.types import RelationType
from mzsql.transform.remembered import Key, Scope


def rewrite(
    rel: mir.Relation,
    f: Callable[[mir.Relation], mir.Relation],
    known: dict[int, tuple[mir.Relation, mir.Relation]] | None = None,
    *,
    where: int | None = None,
) -> mir.Relation:
    """Rewrite bottom-up: `f` sees each node after its inputs were rewritten. What stays equal stays the same object.

    Where `f` is a pure function, `known` may hold what became of relations before, by their identity, and takes in what becomes of these.
    Where `f` has an eye only for some kinds of nodes (`remembered.kinds_of`), `where` says which: what has none of them is passed over.
    """
    around = parts()
    done: list[mir.Relation] = []
    stack: list[mir.Relation | tuple[mir.Relation, tuple[mir.Relation, ...]]] = [rel]
    while stack:
        task = stack.pop()
        if isinstance(task, tuple):
            old, kids = task
            new = done[-len(kids) :]
            del done[-len(kids) :]
            node = replace_inputs(old, kids, new)
        else:
            old = node = task
            if known is not None and (before := known.get(id(node))) is not None:
                done.append(before[1])
                continue
            if where is not None and (part := around.get(id(node))) and not part.kinds & where:
                done.append(node)
                continue
            kids = mir.inputs(node)
            if kids:
                stack.append((node, kids))
                stack.extend(reversed(kids))
                continue
        check_caller()
        found = kept(node, f(node))
        if known is not None:
            known[id(old)] = old, found
        done.append(found)
    return done[0]


def shared(rel: mir.Relation) -> mir.Relation:
    """The relation, built of the objects that stood for equal relations before in this run, and kept with it."""
    objects: dict[mir.Relation, mir.Relation] = memo("shared")
    # By identity: asked for each input of what a transform has made, and most stand there already.
    ours: dict[int, None] = memo("shared, by identity")
    known = parts()
    if id(rel) in ours:
        return rel
    done: list[mir.Relation] = []
    stack: list[mir.Relation | tuple[mir.Relation, tuple[mir.Relation, ...]]] = [rel]
    while stack:
        task = stack.pop()
        if isinstance(task, tuple):
            node, kids = task
            new = done[-len(kids) :]
            del done[-len(kids) :]
            node = replace_inputs(node, kids, new)
        elif id(task) in ours:
            done.append(task)
            continue
        else:
            node = task
            kids = mir.inputs(node)
            if kids:
                stack.append((node, kids))
                stack.extend(reversed(kids))
                continue
        found = objects.setdefault(node, node)
        if found is node:
            ours[id(node)] = None
            known[id(node)] = seen(node, known)
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
    name: str | None = None,
) -> mir.Relation:
    """Rewrite bottom-up with types: `f` sees each node after its inputs were rewritten, and the types of these inputs.

    What `f` puts in place of a node must have as many columns of the same types. `refine` may add to a node's type what is known beyond
    it; it is told the bindings. `resolve` says what stands for a Get of a binding, told the binding's rewritten value. With a `name`, `f`,
    `refine` and `resolve` are pure, and what became of a part is remembered in this run under that name.
    """
    return _TypedRewrite(f, refine, resolve, name).run(rel)


_Typed = tuple[mir.Relation, RelationType]


class _TypedRewrite:
    """One traversal, with what is known of the bindings around the part that it is at."""

    def __init__(
        self,
        f: Callable[[mir.Relation, Sequence[RelationType]], mir.Relation],
        refine: Callable[[mir.Relation, RelationType, Bindings], RelationType] | None,
        resolve: Callable[[mir.Get, mir.Relation], mir.Relation] | None,
        name: str | None,
    ) -> None:
        self._f = f
        self._refine = refine
        self._resolve = resolve
        self._types: dict[int, RelationType] = {}
        self._values: dict[int, mir.Relation] = {}
        self._bindings = Bindings(self._values, self._types)
        self._scope = Scope()
        self._parts: dict[Key, _Typed] = {} if name is None else memo(name)
        self._nodes: dict[tuple[object, ...], tuple[mir.Relation, mir.Relation]] = (
            {} if name is None else memo(f"{name}, one node")
        )

    def run(self, rel: mir.Relation) -> mir.Relation:
        """The relation rewritten."""
        done: list[_Typed] = []
        stack: list[mir.Relation | tuple[mir.Relation, Key] | int] = [rel]
        while stack:
            task = stack.pop()
            if isinstance(task, int):
                self._bind(task, *done[-1])
            elif isinstance(task, tuple):
                node, key = task
                width = len(mir.inputs(node))
                parts = done[len(done) - width :]
                del done[len(done) - width :]
                self._parts[key] = self._rewritten(node, parts)
                done.append(self._parts[key])
            elif (known := self._parts.get(key := self._scope.key(task))) is not None:
                done.append(known)
            else:
                stack.append((task, key))
                if isinstance(task, mir.Let):
                    stack.extend((task.body, task.id, task.value))
                else:
                    stack.extend(reversed(mir.inputs(task)))
        return done[0][0]

    def _bind(self, local: int, value: mir.Relation, typ: RelationType) -> None:
        self._values[local], self._types[local] = value, typ
        self._scope.bind(local, value)

    def _rewritten(self, node: mir.Relation, parts: Sequence[_Typed]) -> _Typed:
        """A node over rewritten inputs, rewritten itself."""
        check_caller()
        new = [part for part, _ in parts]
        types = [typ for _, typ in parts]
        node = replace_inputs(node, mir.inputs(node), new)
        if self._resolve is not None and isinstance(node, mir.Get) and node.id in self._values:
            assert isinstance(node.id, int)
            node = self._resolve(node, self._values[node.id])
        key = (id(node), *types)
        known = self._nodes.get(key)
        if known is None:
            # With the node itself, so that nothing else takes its identity.
            known = self._nodes[key] = node, kept(node, self._f(node, types))
        node = known[1]
        typ = _type_of(node, new, types, self._types)
        return node, typ if self._refine is None else self._refine(node, typ, self._bindings)


def _type_of(
    node: mir.Relation,
    inputs: Sequence[mir.Relation],
    types: Sequence[RelationType],
    locals_: dict[int, RelationType],
) -> RelationType:
    """The type of a rewritten node: from its inputs' types where it still stands on them, else anew."""
    kids = mir.inputs(node)
    same = len(kids) == len(inputs) and all(map(is_, kids, inputs))
    if not same:
        return relation_type(node, locals_)
    if isinstance(node, mir.Let | mir.LetRec):
        return types[-1]
    if not kids:
        return node_type(node, types, locals_)
    return derived_type(node, types)


def kept(old: mir.Relation, new: mir.Relation) -> mir.Relation:
    """The new relation; the old object where they are equal, so that what did not change is seen at a glance."""
    return old if new is old or new == old else new


def replace_inputs(
    node: mir.Relation, old: Sequence[mir.Relation], new: Sequence[mir.Relation]
) -> mir.Relation:
    """The node over new inputs; itself where they are the same objects."""
    if all(map(is_, old, new)):
        return node
    return mir.with_inputs(node, new)


def rebuilt(rel: mir.Relation, below: mir.Relation, new: mir.Relation) -> mir.Relation:
    """The row-wise operators from `rel` down to `below` over another relation; themselves where that is the same object."""
    if new is below:
        return rel
    chain: list[mir.Relation] = []
    while isinstance(rel, mir.Map | mir.Filter | mir.Project):
        chain.append(rel)
        rel = rel.input
    for node in reversed(chain):
        new = mir.with_inputs(node, [new])
    return new


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
