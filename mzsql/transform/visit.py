"""Traversals that transforms share. None of them recurses, because a plan may be as deep as a thousand chained views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo
from mzsql.expr.parts import parts, seen
from mzsql.expr.scalar import Scalar
from mzsql.expr.typing import derived_type, node_type, relation_type
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.repr.types import RelationType
from mzsql.transform.remembered import Key, Scope


def rewrite(
    rel: mir.Relation,
    f: Callable[[mir.Relation], mir.Relation],
    known: dict[int, tuple[mir.Relation, mir.Relation]] | None = None,
    *,
    where: int | None = None,
) -> mir.Relation:
    """Rewrite bottom-up: `f` gets each node after its inputs were rewritten. What stays equal stays the same object.

    If `f` is a pure function, `known` may contain earlier results by the relations' identity, and receives new ones.
    If `f` is interested only in some kinds of nodes (`remembered.kinds_of`), `where` says which; parts without any
    are skipped.
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
        check_for_interrupts()
        found = kept(node, f(node))
        if known is not None:
            known[id(old)] = old, found
        done.append(found)
    return done[0]


def shared(rel: mir.Relation) -> mir.Relation:
    """The relation, built from the objects that represent equal relations in this run, and remembered with them."""
    objects: dict[mir.Relation, mir.Relation] = memo("shared")
    # By identity, because this is called for each input of what a transform has made, and most of them are
    # representatives already.
    ours: dict[int, None] = memo("shared, by identity")
    known = parts()
    if id(rel) in ours:
        return rel
    # What stands for the nodes of this call; they live as long as it, so their identity is theirs.
    made: dict[int, mir.Relation] = {}
    stack = [rel]
    while stack:
        node = stack[-1]
        kids = mir.inputs(node)
        height = len(stack)
        stack += [kid for kid in kids if id(kid) not in ours and id(kid) not in made]
        if len(stack) > height:
            continue
        stack.pop()
        new = replace_inputs(node, kids, [made.get(id(kid), kid) for kid in kids])
        found = objects.setdefault(new, new)
        if found is new:
            ours[id(new)] = None
            known[id(new)] = seen(new, known)
        made[id(node)] = found
    return made[id(rel)]


@dataclass(frozen=True)
class Bindings:
    """The values of local ids, and their types."""

    values: Mapping[int, mir.Relation]
    types: Mapping[int, RelationType]


def rewrite_typed(
    rel: mir.Relation,
    f: Callable[[mir.Relation, Sequence[RelationType]], mir.Relation],
    refine: Callable[[mir.Relation, RelationType, Bindings], RelationType] | None = None,
    *,
    stands_for: Callable[[mir.Relation], mir.Relation | None] | None = None,
    where: int | None = None,
    name: str | None = None,
) -> mir.Relation:
    """Rewrite bottom-up with types: `f` gets each node after its inputs were rewritten, and the types of these inputs.

    The replacement of a node must have as many columns, of the same types. `refine` may add to a node's type what is
    known beyond it, and gets the bindings. `stands_for` gets a binding's rewritten value and returns what replaces
    each Get of it, if anything. If they are interested only in some kinds of nodes, `where` says which, as in
    `rewrite`. With a `name` they are pure functions, and results are remembered in this run under that name.
    """
    return _TypedRewrite(f, refine, stands_for, where, name).run(rel)


_Typed = tuple[mir.Relation, RelationType]


class _TypedRewrite:
    """One traversal, with what is known of the bindings around the present part."""

    def __init__(
        self,
        f: Callable[[mir.Relation, Sequence[RelationType]], mir.Relation],
        refine: Callable[[mir.Relation, RelationType, Bindings], RelationType] | None,
        stands_for: Callable[[mir.Relation], mir.Relation | None] | None,
        where: int | None,
        name: str | None,
    ) -> None:
        self._f = f
        self._refine = refine
        self._stands_for = stands_for
        self._put: dict[int, mir.Relation] = {}
        self._types: dict[int, RelationType] = {}
        self._values: dict[int, mir.Relation] = {}
        self._bindings = Bindings(self._values, self._types)
        self._scope = Scope()
        self._where = where
        self._parts: dict[Key, _Typed] = {} if name is None else memo(name)

    def run(self, rel: mir.Relation) -> mir.Relation:
        """The relation rewritten."""
        done: list[mir.Relation] = []
        types: list[RelationType] = []
        stack: list[mir.Relation | tuple[mir.Relation, tuple[mir.Relation, ...], Key] | int] = [rel]
        while stack:
            task = stack.pop()
            if isinstance(task, int):
                self._bind(task, done[-1], types[-1])
                continue
            if isinstance(task, tuple):
                node, kids, key = task
                start = len(done) - len(kids)
                found = self._rewritten(node, kids, done[start:], types[start:])
                self._parts[key] = found
                del done[start:], types[start:]
            elif (known := self._known(task, key := self._scope.key(task))) is not None:
                found = known
            else:
                kids = mir.inputs(task)
                stack.append((task, kids, key))
                if type(task) is mir.Let:
                    stack.extend((task.body, task.id, task.value))
                else:
                    stack.extend(kids[::-1])
                continue
            done.append(found[0])
            types.append(found[1])
        return done[0]

    def _known(self, rel: mir.Relation, key: Key) -> _Typed | None:
        """The earlier result for a part, or the part itself if it has nothing to rewrite."""
        found = self._parts.get(key)
        if found is not None or self._where is None or self._scope.part(rel).kinds & self._where:
            return found
        found = self._parts[key] = rel, relation_type(rel, self._types)
        return found

    def _bind(self, local: int, value: mir.Relation, typ: RelationType) -> None:
        self._values[local], self._types[local] = value, typ
        put = self._stands_for and self._stands_for(value)
        if put is None:
            self._put.pop(local, None)
        else:
            self._put[local] = put
        if put is None and self._refine is None:
            # Only the type of the value matters here: if it stays the same, so does what reads the binding.
            self._scope.bind_as(local, typ)
        else:
            self._scope.bind(local, value)

    def _rewritten(
        self,
        node: mir.Relation,
        kids: Sequence[mir.Relation],
        new: Sequence[mir.Relation],
        types: Sequence[RelationType],
    ) -> _Typed:
        """Rewrite a node over rewritten inputs of these types."""
        check_for_interrupts()
        node = replace_inputs(node, kids, new)
        if self._put and type(node) is mir.Get and isinstance(node.id, int):
            node = self._put.get(node.id, node)
        node = kept(node, self._f(node, types))
        typ = _type_of(node, new, types, self._types)
        return node, typ if self._refine is None else self._refine(node, typ, self._bindings)


#: Nodes whose type is that of their last input.
_BINDING = frozenset({mir.Let, mir.LetRec})


def _type_of(
    node: mir.Relation,
    inputs: Sequence[mir.Relation],
    types: Sequence[RelationType],
    locals_: dict[int, RelationType],
) -> RelationType:
    """The type of a rewritten node: from its inputs' types if it still has these inputs, else derived anew."""
    kids = mir.inputs(node)
    if len(kids) != len(inputs) or not all(map(is_, kids, inputs)):
        return relation_type(node, locals_)
    if type(node) in _BINDING:
        return types[-1]
    if not kids:
        return node_type(node, types, locals_)
    return derived_type(node, types)


def kept(old: mir.Relation, new: mir.Relation) -> mir.Relation:
    """The new relation, or the old object if they are equal, so that unchanged parts are recognized by identity."""
    return old if new is old or new == old else new


def replace_inputs(
    node: mir.Relation, old: Sequence[mir.Relation], new: Sequence[mir.Relation]
) -> mir.Relation:
    """The node over new inputs; itself if they are the same objects."""
    for before, now in zip(old, new, strict=True):
        if before is not now:
            return mir.with_inputs(node, new)
    return node


def rebuilt(rel: mir.Relation, below: mir.Relation, new: mir.Relation) -> mir.Relation:
    """The row-wise operators from `rel` down to `below` over another relation; themselves if that is the same object."""
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
    """A projection, omitted if it changes nothing."""
    wide = len(outputs)
    if tuple(outputs) == tuple(range(wide)) and mir.arity(rel) == wide:
        return rel
    if type(rel) is mir.Project:
        return project(rel.input, [rel.outputs[column] for column in outputs])
    return mir.Project(rel, tuple(outputs))


def filtered(rel: mir.Relation, predicates: Sequence[Scalar]) -> mir.Relation:
    """A filter, omitted if it has no predicates; equal predicates occur once."""
    if not predicates:
        return rel
    if type(rel) is mir.Filter:
        predicates = [*rel.predicates, *predicates]
        rel = rel.input
    return mir.Filter(rel, tuple(dict.fromkeys(predicates)))


def mapped(rel: mir.Relation, scalars: Sequence[Scalar]) -> mir.Relation:
    """A map, omitted if it adds nothing."""
    if not scalars:
        return rel
    if type(rel) is mir.Map:
        return mir.Map(rel.input, (*rel.scalars, *scalars))
    return mir.Map(rel, tuple(scalars))
