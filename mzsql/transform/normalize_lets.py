"""NormalizeLets: makes bindings flat, used more than once, and numbered from 0 in order of definition.

Promise: a `Let` or `LetRec` stands only at the root, in a chain of bindings, and at the root of a recursive value
that contains a recursion of its own. A binding that is used once, or that is just a Get, is inlined; unused ones are
removed; the type of every Get of a binding is its value's. What is bound before a recursion is bound in it;
independent recursions with the same limits are merged; a recursion that does not recur becomes plain bindings.

In a recursion a value reads earlier bindings as of this iteration, and itself and later bindings as of the iteration
before. So a binding moves only to a place at which everything that it reads is the same.
Source: Materialize's transform `NormalizeLets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo
from mzsql.expr.parts import kinds_of, part_of, parts
from mzsql.expr.typing import recursive_types, relation_type
from mzsql.repr.types import RelationType
from mzsql.transform.visit import kept, replace_inputs

_BINDINGS = kinds_of(mir.Let, mir.LetRec)
#: The most iterations of a recursion, and whether it then returns its result rather than fail.
Limit = tuple[int, bool] | None


class LetStage(msgspec.Struct, frozen=True):
    """A binding."""

    id: int
    value: mir.Relation


class RecStage(msgspec.Struct, frozen=True):
    """The bindings of a recursion."""

    ids: tuple[int, ...]
    values: tuple[mir.Relation, ...]
    limits: tuple[Limit, ...]


Stage = LetStage | RecStage


def normalize_lets(rel: mir.Relation, *, inline_mfp: bool = False) -> mir.Relation:
    """Flatten, inline, renumber; with `inline_mfp` a binding that is a Get under maps, filters and projections is
    inlined too.
    """
    return _normalized(rel, inline_mfp=inline_mfp)


def settle_lets(rel: mir.Relation) -> mir.Relation:
    """As `normalize_lets`, but keeps the numbers, if all bindings are plain and have distinct ones.

    Used while a plan is being made smaller: a part whose bindings keep their numbers is recognized as unchanged.
    """
    return _normalized(rel, inline_mfp=False, keep=_are_distinct(rel))


def _normalized(rel: mir.Relation, *, inline_mfp: bool, keep: bool = False) -> mir.Relation:
    if not part_of(rel, parts()).kinds & _BINDINGS:
        return rel
    if _is_normal(rel, inline_mfp=inline_mfp, keep=keep):
        return rel
    while True:
        stages, body = _Hoist(keep=keep).frame(rel, {})
        stages, body = _smaller(stages, body, inline_mfp=inline_mfp)
        done = _Renumber(keep=keep).visit(assemble(_merged(stages), body), {}, {})
        # Plain bindings are done after one round; a recursion that was merged or has lost bindings may leave more to
        # do.
        if done == rel or not any(isinstance(stage, RecStage) for stage in stages):
            return done
        rel = done


def _are_distinct(rel: mir.Relation) -> bool:
    """Whether all bindings are plain ones with distinct numbers."""
    known = parts()
    ids: set[int] = set()
    stack = [rel]
    while stack:
        node = stack.pop()
        if not part_of(node, known).kinds & _BINDINGS:
            continue
        if type(node) is mir.LetRec or (type(node) is mir.Let and node.id in ids):
            return False
        if type(node) is mir.Let:
            ids.add(node.id)
        stack.extend(mir.inputs(node))
    return True


def _is_normal(rel: mir.Relation, *, inline_mfp: bool, keep: bool) -> bool:
    """Whether plain bindings are in normal form, so that nothing has to be done; with `keep` whatever their numbers."""
    known = parts()
    types: dict[int, RelationType] = {}
    counts: dict[int, int] = {}
    while True:
        value = rel.value if type(rel) is mir.Let else rel
        if part_of(value, known).kinds & _BINDINGS:
            return False
        for get, times in _local_gets(value).items():
            local = get.id
            assert isinstance(local, int)
            if get.typ != types.get(local):
                return False
            counts[local] = counts.get(local, 0) + times
        if type(rel) is not mir.Let:
            return all(counts.get(local, 0) > 1 for local in types)
        if (not keep and rel.id != len(types)) or _is_trivial(value, inline_mfp=inline_mfp):
            return False
        types[rel.id] = relation_type(value, types)
        rel = rel.body


def _local_gets(rel: mir.Relation) -> Mapping[mir.Get, int]:
    """The Gets of bindings in a relation, with their number."""
    known: dict[int, tuple[mir.Relation, Mapping[mir.Get, int]]] = memo("local gets")
    found = known.get(id(rel))
    if found is None:
        gets: dict[mir.Get, int] = {}
        around = parts()
        stack = [rel]
        while stack:
            node = stack.pop()
            if type(node) is mir.Get:
                if isinstance(node.id, int):
                    gets[node] = gets.get(node, 0) + 1
            elif (part := part_of(node, around)).order or part.kinds & _BINDINGS:
                stack += mir.inputs(node)[::-1]
        found = known[id(rel)] = rel, gets
    return found[1]


def assemble(stages: Sequence[Stage], body: mir.Relation) -> mir.Relation:
    """Put bindings in front of a body."""
    for stage in reversed(stages):
        if isinstance(stage, LetStage):
            body = mir.Let(stage.id, stage.value, body)
        else:
            body = mir.LetRec(stage.ids, stage.values, stage.limits, body)
    return body


class _Hoist:
    """Collects all bindings, each after those that it reads; ids are made unique unless they are to be kept."""

    def __init__(self, *, keep: bool) -> None:
        self._stages: list[Stage] = []
        self._next = 0
        self._keep = keep
        self._parts = parts()

    def frame(
        self, rel: mir.Relation, scope: Mapping[int, int]
    ) -> tuple[list[Stage], mir.Relation]:
        """The relation without its bindings, and these."""
        outer = self._stages
        self._stages = []
        body = self._visit(rel, scope)
        stages, self._stages = self._stages, outer
        return stages, body

    def _visit(self, rel: mir.Relation, scope: Mapping[int, int]) -> mir.Relation:
        """The relation without its bindings; `scope` maps old ids to new ones."""
        if self._keep and not part_of(rel, self._parts).kinds & _BINDINGS:
            return rel
        while isinstance(rel, mir.Let | mir.LetRec):
            if isinstance(rel, mir.Let):
                value = self._visit(rel.value, scope)
                scope = {**scope, rel.id: rel.id if self._keep else self._fresh()}
                self._stages.append(LetStage(scope[rel.id], value))
            else:
                scope = self._recursion(rel, scope)
            rel = rel.body
        if type(rel) is mir.Get:
            return rel if not isinstance(rel.id, int) else _renamed(rel, scope[rel.id])
        kids = mir.inputs(rel)
        return replace_inputs(rel, kids, [self._visit(kid, scope) for kid in kids])

    def _recursion(self, rel: mir.LetRec, scope: Mapping[int, int]) -> Mapping[int, int]:
        """Bind a recursion. What its values bind is bound before them, unless that is a recursion of its own."""
        inner = {**scope, **{local: self._fresh() for local in rel.ids}}
        ids: list[int] = []
        values: list[mir.Relation] = []
        limits: list[Limit] = []
        for local, value, limit in zip(rel.ids, rel.values, rel.limits, strict=True):
            stages, body = self.frame(value, inner)
            if any(isinstance(stage, RecStage) for stage in stages):
                body = assemble(stages, body)
                stages = []
            for stage in stages:
                assert isinstance(stage, LetStage)
                ids.append(stage.id)
                values.append(stage.value)
                limits.append(limit)
            ids.append(inner[local])
            values.append(body)
            limits.append(limit)
        self._stages.append(RecStage(tuple(ids), tuple(values), tuple(limits)))
        return inner

    def _fresh(self) -> int:
        self._next += 1
        return self._next - 1


def _renamed(get: mir.Get, local: int) -> mir.Get:
    return get if get.id == local else msgspec.structs.replace(get, id=local)


def _reads(rel: mir.Relation) -> Mapping[int, int]:
    """The bindings that a relation reads, and how often."""
    counts: dict[int, int] = {}
    for get, times in _local_gets(rel).items():
        assert isinstance(get.id, int)
        counts[get.id] = counts.get(get.id, 0) + times
    return counts


def _bindings(stages: Sequence[Stage]) -> Iterator[tuple[int, mir.Relation]]:
    for stage in stages:
        if isinstance(stage, LetStage):
            yield stage.id, stage.value
        else:
            yield from zip(stage.ids, stage.values, strict=True)


# --- unused and needless bindings ---------------------------------------------------------------


def _smaller(
    stages: Sequence[Stage], body: mir.Relation, *, inline_mfp: bool
) -> tuple[list[Stage], mir.Relation]:
    """Drop unused bindings and inline needless ones, until all that are left are needed."""
    while True:
        before = _shape(stages)
        stages, body = _Inliner(_unrolled(_alive(stages, body)), body, inline_mfp=inline_mfp).run()
        # Dropping and inlining only take bindings away, and unrolling changes the kind of one: the same shape means
        # that nothing has happened.
        if _shape(stages) == before:
            return list(stages), body


def _shape(stages: Sequence[Stage]) -> list[int]:
    """How many bindings each recursion has (0 for a plain binding)."""
    return [0 if isinstance(stage, LetStage) else len(stage.ids) for stage in stages]


def _alive(stages: Sequence[Stage], body: mir.Relation) -> list[Stage]:
    """Only the bindings that the body needs."""
    values = dict(_bindings(stages))
    needed: set[int] = set()
    due = [body]
    while due:
        for local in _reads(due.pop()):
            if local in values and local not in needed:
                needed.add(local)
                due.append(values[local])
    kept: list[Stage] = []
    for stage in stages:
        if isinstance(stage, LetStage):
            if stage.id in needed:
                kept.append(stage)
            continue
        rest = [i for i, local in enumerate(stage.ids) if local in needed]
        if rest:
            kept.append(_chosen(stage, rest))
    return kept


def _chosen(stage: RecStage, positions: Sequence[int]) -> RecStage:
    return RecStage(
        tuple(stage.ids[i] for i in positions),
        tuple(stage.values[i] for i in positions),
        tuple(stage.limits[i] for i in positions),
    )


def _unrolled(stages: Sequence[Stage]) -> list[Stage]:
    """Recursions that do not recur, as plain bindings."""
    done: list[Stage] = []
    for stage in stages:
        if isinstance(stage, LetStage) or _recurs(stage):
            done.append(stage)
        else:
            done.extend(map(LetStage, stage.ids, stage.values))
    return done


def _recurs(stage: RecStage) -> bool:
    """Whether a value reads itself or a later one. A recursion inside a value stays where it is."""
    later = set(stage.ids)
    for local, value in zip(stage.ids, stage.values, strict=True):
        if not later.isdisjoint(_reads(value)) or _is_nested(value):
            return True
        later.discard(local)
    return False


def _is_nested(value: mir.Relation) -> bool:
    return isinstance(value, mir.Let | mir.LetRec)


class _Inliner:
    """Inlines bindings that are used once, and those that cost nothing."""

    def __init__(self, stages: Sequence[Stage], body: mir.Relation, *, inline_mfp: bool) -> None:
        self._stages = stages
        self._body = body
        self._inline_mfp = inline_mfp
        self._replacement: dict[int, mir.Relation] = {}
        self._counts: dict[int, int] = {}
        for value in (*(v for _, v in _bindings(stages)), body):
            for local, times in _reads(value).items():
                self._counts[local] = self._counts.get(local, 0) + times

    def run(self) -> tuple[list[Stage], mir.Relation]:
        """The remaining stages, and the body."""
        kept: list[Stage] = []
        for stage in self._stages:
            if isinstance(stage, RecStage):
                rest = self._recursion(stage)
                if rest.ids:
                    kept.append(rest)
                continue
            value = self._put(stage.value)
            if self._is_needless(stage.id, value):
                self._replacement[stage.id] = value
            else:
                kept.append(LetStage(stage.id, value))
        return kept, self._put(self._body)

    def _put(self, rel: mir.Relation) -> mir.Relation:
        def put(get: mir.Get) -> mir.Relation:
            assert isinstance(get.id, int)
            return self._replacement.get(get.id, get)

        return _with_gets(rel, put) if self._replacement else rel

    def _is_needless(self, local: int, value: mir.Relation) -> bool:
        return self._counts.get(local, 0) == 1 or _is_trivial(value, inline_mfp=self._inline_mfp)

    def _recursion(self, stage: RecStage) -> RecStage:
        order = {local: i for i, local in enumerate(stage.ids)}
        readers: dict[int, set[int]] = {local: set() for local in stage.ids}
        for i, value in enumerate(stage.values):
            for local in _reads(value):
                if local in readers:
                    readers[local].add(i)
        inside = dict.fromkeys(stage.ids, 0)
        for value in stage.values:
            for local, times in _reads(value).items():
                if local in inside:
                    inside[local] += times
        rest: list[int] = []
        values = list(stage.values)
        for i, local in enumerate(stage.ids):
            values[i] = self._put(values[i])
            places: set[int | None] = set(readers[local])
            if self._counts.get(local, 0) > inside[local]:
                places.add(None)
            reads = {order[r] for r in _reads(values[i]) if r in order}
            movable = not _is_nested(values[i]) and all(
                _reads_the_same(i, place, reads) for place in places
            )
            if movable and self._is_needless(local, values[i]):
                self._replacement[local] = values[i]
            else:
                rest.append(i)
        return _chosen(RecStage(stage.ids, tuple(values), stage.limits), rest)


def _reads_the_same(position: int, place: int | None, reads: set[int]) -> bool:
    """Whether what a recursive value reads is the same at another place of the recursion (None: after it)."""
    if place is None:
        return all(read < position for read in reads)
    return place > position and all(read < position or read >= place for read in reads)


def _is_trivial(value: mir.Relation, *, inline_mfp: bool) -> bool:
    """Whether a value costs nothing: a Get, or a constant."""
    while inline_mfp and isinstance(value, mir.Map | mir.Filter | mir.Project):
        value = value.input
    return isinstance(value, mir.Get | mir.Constant)


# --- the shape ----------------------------------------------------------------------------------


def _merged(stages: Sequence[Stage]) -> list[Stage]:
    """Move what is bound before a recursion into it, and merge independent recursions with the same limits."""
    done: list[Stage] = []
    for stage in stages:
        if isinstance(stage, LetStage):
            done.append(stage)
            continue
        lets: list[LetStage] = []
        while done and isinstance(done[-1], LetStage):
            let = done.pop()
            assert isinstance(let, LetStage)
            lets.insert(0, let)
        limit = stage.limits[0]
        merged = RecStage(
            (*(let.id for let in lets), *stage.ids),
            (*(let.value for let in lets), *stage.values),
            (*(limit for _ in lets), *stage.limits),
        )
        before = done[-1] if done else None
        if isinstance(before, RecStage) and set(before.limits) == set(merged.limits):
            read = {local for value in merged.values for local in _reads(value)}
            if read.isdisjoint(before.ids):
                done.pop()
                merged = RecStage(
                    before.ids + merged.ids,
                    before.values + merged.values,
                    before.limits + merged.limits,
                )
        done.append(merged)
    return done


class _Renumber:
    """Numbers bindings in order of definition, unless their numbers are to be kept, and gives every Get its value's
    type.
    """

    def __init__(self, *, keep: bool) -> None:
        self._next = 0
        self._keep = keep

    def visit(
        self, rel: mir.Relation, names: dict[int, int], types: dict[int, RelationType]
    ) -> mir.Relation:
        """Renumber the chain of bindings at the root of `rel`; `types` are those of the bindings around it, by new id."""
        stages: list[Stage] = []
        while isinstance(rel, mir.Let | mir.LetRec):
            if isinstance(rel, mir.Let):
                value = self.visit(rel.value, names, types)
                new = rel.id if self._keep else self._next
                names = {**names, rel.id: new}
                types = {**types, new: relation_type(value, types)}
                stages.append(LetStage(new, value))
                self._next += 1
            else:
                names = {**names, **{local: self._next + i for i, local in enumerate(rel.ids)}}
                self._next += len(rel.ids)
                ids = tuple(names[local] for local in rel.ids)
                values = [self.visit(value, names, types) for value in rel.values]
                types = {**types, **recursive_types(ids, values, types)}
                # The types of a recursion's values depend on each other, so what the values read of each other gets
                # its type only now.
                values = [_typed(value, types) for value in values]
                stages.append(RecStage(ids, tuple(values), rel.limits))
            rel = rel.body
        return assemble(stages, _named(rel, names, types))


def _named(
    rel: mir.Relation, names: Mapping[int, int], types: Mapping[int, RelationType]
) -> mir.Relation:
    def renamed(get: mir.Get) -> mir.Relation:
        if not isinstance(get.id, int) or get.id not in names:
            return get
        new = names[get.id]
        typ = types.get(new, get.typ)
        same = new == get.id and typ == get.typ
        return get if same else msgspec.structs.replace(get, id=new, typ=typ)

    if all(renamed(get) is get for get in _local_gets(rel)):
        return rel
    return _with_gets(rel, renamed)


def _typed(rel: mir.Relation, types: Mapping[int, RelationType]) -> mir.Relation:
    def typed(get: mir.Get) -> mir.Relation:
        if not isinstance(get.id, int) or get.id not in types:
            return get
        return msgspec.structs.replace(get, typ=types[get.id])

    return _with_gets(rel, typed)


def _with_gets(rel: mir.Relation, f: Callable[[mir.Get], mir.Relation]) -> mir.Relation:
    """The relation with its Gets of bindings replaced by what `f` returns; parts without any stay the same objects."""
    known = parts()
    done: list[mir.Relation] = []
    stack: list[mir.Relation | tuple[mir.Relation, tuple[mir.Relation, ...]]] = [rel]
    while stack:
        task = stack.pop()
        if isinstance(task, tuple):
            node, kids = task
            new = done[-len(kids) :]
            del done[-len(kids) :]
            done.append(replace_inputs(node, kids, new))
        elif type(task) is mir.Get:
            done.append(kept(task, f(task)) if isinstance(task.id, int) else task)
        elif (part := part_of(task, known)).reads or part.kinds & _BINDINGS:
            kids = mir.inputs(task)
            stack.append((task, kids))
            stack.extend(reversed(kids))
        else:
            done.append(task)
    return done[0]
