"""ProjectionPushdown: only columns that something above reads flow through the plan.

Promise: the output columns and their order stay the same. Reduces lose aggregates and Maps lose expressions that
nobody reads, but for the error that a scalar subquery has several rows: it becomes a filter, as without it each of
these rows would multiply those of the query. A TopK that keeps one row of each group, whichever that is
(`mzsql.transform.any_row`), becomes a DISTINCT. What a Threshold, a DISTINCT, a recursion or an arrangement needs stays whole.
Source: Materialize's transform `ProjectionPushdown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.memo import memo
from mzsql.expr.mfp import extract_mfp
from mzsql.expr.parts import Part, kinds_of, part_of, parts
from mzsql.repr.types import BOOLEAN, RelationType
from mzsql.transform.any_row import any_row_will_do
from mzsql.transform.context import OptimizerContext
from mzsql.transform.visit import kept, project, replace_inputs

Columns = tuple[int, ...]


#: For every binding which of its columns are read.
_Demanded = dict[int, set[int]]


def projection_pushdown(rel: mir.Relation) -> mir.Relation:
    """Narrow everything to the columns that are read."""
    return _pushed(rel, {})


def _pushed(rel: mir.Relation, demanded: _Demanded) -> mir.Relation:
    """The narrowed plan; `demanded` is what is read of bindings besides what the traversal sees."""
    arity = mir.arity(rel)
    _collect(rel, range(arity), demanded, parts())
    pushed, kept = _Push({k: tuple(sorted(v)) for k, v in demanded.items()}).run(
        rel, tuple(range(arity))
    )
    assert kept == tuple(range(arity))
    return pushed


def projection_pushdown_after_cse(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Narrow again after CSE, since no reader of a new binding may need all of it. What is read from storage stays as
    it is.
    """
    if not ctx.features.enable_projection_pushdown_after_relation_cse:
        return rel
    whole = (node for node in mir.walk(rel) if isinstance(node, mir.Let) and _is_read(node.value))
    return _pushed(rel, {let.id: set(range(mir.arity(let.value))) for let in whole})


def _is_read(rel: mir.Relation) -> bool:
    """Whether a relation is a catalog object, possibly under row-wise operators."""
    _, below = extract_mfp(rel)
    match below:
        case mir.Join(implementation=implementation):
            return isinstance(implementation, mir.IndexedFilter)
        case _:
            return isinstance(below, mir.Get)


def needed_inputs(rel: mir.Relation, wanted: Iterable[int]) -> list[set[int]]:
    """For each input of a node the columns that it needs to output `wanted`."""
    need = set(wanted)
    match rel:
        case mir.Project(outputs=outputs):
            return [{outputs[column] for column in need}]
        case mir.Map(input=inner, scalars=scalars):
            width = mir.arity(inner)
            for offset in range(len(scalars) - 1, -1, -1):
                if width + offset in need:
                    need |= sc.support(scalars[offset])
            return [{column for column in need if column < width}]
        case mir.FlatMap(input=inner, exprs=exprs):
            width = mir.arity(inner)
            passed = {column for column in need if column < width}
            return [passed.union(*(sc.support(e) for e in exprs))]
        case mir.Filter(predicates=predicates):
            return [need.union(*(sc.support(p) for p in predicates))]
        # Only unplanned joins: the inputs of a planned one are arranged with the columns they have.
        case mir.Join(inputs=inputs, equivalences=classes, implementation=mir.Unplanned()):
            need = need.union(*(sc.support(e) for cls in classes for e in cls))
            found: list[set[int]] = []
            start = 0
            for part in inputs:
                width = mir.arity(part)
                found.append({c - start for c in need if start <= c < start + width})
                start += width
            return found
        case mir.Reduce(group_key=key, aggregates=aggregates):
            reads: set[int] = set().union(*(sc.support(e) for e in key))
            for offset, aggregate in enumerate(aggregates):
                if len(key) + offset in need:
                    reads |= sc.support(aggregate.expr)
            return [reads]
        case mir.TopK() if any_row_will_do(rel, need):
            return [set(rel.group_key)]
        case mir.TopK(group_key=group, order_key=order, limit=limit):
            need |= {*group, *(o.column for o in order)}
            return [need if limit is None else need | sc.support(limit)]
        case mir.Negate():
            return [need]
        case mir.Union(inputs=inputs):
            return [set(need) for _ in inputs]
        case _:
            # Whatever compares whole rows (Threshold above all) or has a plan already needs all columns.
            return [set(range(mir.arity(part))) for part in mir.inputs(rel)]


_BINDINGS = kinds_of(mir.Let, mir.LetRec)


def _collect(
    rel: mir.Relation, wanted: Iterable[int], demanded: _Demanded, known: dict[int, Part]
) -> None:
    """Record for every binding which of its columns are read; `known` parts without a reader are skipped."""
    part = part_of(rel, known)
    if not part.reads and not part.kinds & _BINDINGS:
        return
    match rel:
        case mir.Get(id=local) if isinstance(local, int):
            demanded.setdefault(local, set()).update(wanted)
        case mir.Let(id=local, value=value, body=body):
            # The body first: it says what is read of the value.
            _collect(body, wanted, demanded, known)
            _collect(value, demanded.get(local, set()), demanded, known)
        case mir.LetRec():
            _collect_recursive(rel, wanted, demanded, known)
        case _:
            kids = mir.inputs(rel)
            for kid, need in zip(kids, needed_inputs(rel, wanted), strict=True):
                _collect(kid, need, demanded, known)


def _collect_recursive(
    rel: mir.LetRec, wanted: Iterable[int], demanded: _Demanded, known: dict[int, Part]
) -> None:
    """Record what is read of recursive bindings: by the body, and by what is read of the bindings."""
    for local in rel.ids:
        demanded.setdefault(local, set())
    _collect(rel.body, wanted, demanded, known)
    while True:
        before = {local: set(demanded[local]) for local in rel.ids}
        for local, value in zip(rel.ids, rel.values, strict=True):
            _collect(value, before[local], demanded, known)
        if all(demanded[local] == before[local] for local in rel.ids):
            return


class _Push:
    """Rewrites a plan so that each node outputs exactly the columns asked of it, in the order in which they are asked for."""

    def __init__(self, bindings: Mapping[int, Columns]) -> None:
        self._bindings = bindings
        self._parts = parts()
        self._known: dict[tuple[object, ...], tuple[mir.Relation, Columns]] = memo(
            "projection_pushdown"
        )

    def run(self, rel: mir.Relation, keep: Columns) -> tuple[mir.Relation, Columns]:
        """The narrowed relation, and which of the old columns it has: those in `keep`, each once."""
        reads = part_of(rel, self._parts).order
        # What comes out depends on the part, on the columns asked of it, and on how the bindings that it reads are
        # narrowed.
        key = (id(rel), keep, *map(self._bindings.get, reads))
        found = self._known.get(key)
        if found is None:
            new, have = self._narrowed(rel, keep)
            found = self._known[key] = kept(rel, new), have
        return found

    def _narrowed(self, rel: mir.Relation, keep: Columns) -> tuple[mir.Relation, Columns]:
        match rel:
            case mir.Get(id=local, typ=typ) if isinstance(local, int) and local in self._bindings:
                have = self._bindings[local]
                narrow = msgspec.structs.replace(rel, typ=narrowed(typ, have))
                return project(narrow, [have.index(c) for c in keep]), keep
            case mir.Let(id=local, value=value, body=body):
                new_value, _ = self.run(value, self._bindings.get(local, ()))
                new_body, _ = self.run(body, keep)
                return mir.Let(local, new_value, new_body), keep
            case mir.LetRec(ids=ids, values=values):
                kids = [
                    self.run(value, self._bindings.get(local, ()))[0]
                    for local, value in zip(ids, values, strict=True)
                ]
                return mir.with_inputs(rel, [*kids, self.run(rel.body, keep)[0]]), keep
            case mir.Constant() | mir.Get():
                return project(rel, keep), keep
            case _:
                needs = needed_inputs(rel, keep)
                parts = [
                    self.run(kid, _ordered(rel, need, keep))
                    for kid, need in zip(mir.inputs(rel), needs, strict=True)
                ]
                return self._node(rel, parts, keep), keep

    def _node(
        self, rel: mir.Relation, parts: Sequence[tuple[mir.Relation, Columns]], keep: Columns
    ) -> mir.Relation:
        inner, have = parts[0]
        place = {old: new for new, old in enumerate(have)}
        match rel:
            case mir.Project(outputs=outputs):
                return project(inner, [place[outputs[column]] for column in keep])
            case mir.Map():
                return _map(rel, inner, place, keep)
            case mir.FlatMap(input=old, exprs=exprs, output=output):
                width = mir.arity(old)
                exprs = tuple(sc.permute(e, place) for e in exprs)
                for offset in range(output.arity):
                    place[width + offset] = len(have) + offset
                new: mir.Relation = mir.FlatMap(inner, rel.func, exprs, output)
                return project(new, [place[column] for column in keep])
            case mir.Filter(predicates=predicates):
                new = mir.Filter(inner, tuple(sc.permute(p, place) for p in predicates))
                return project(new, [place[column] for column in keep])
            case mir.Join():
                return _join(rel, parts, keep)
            case mir.Reduce():
                return _reduce(rel, inner, place, keep)
            case mir.TopK():
                return _top_k(rel, inner, place, keep)
            case mir.Negate():
                return mir.Negate(inner)
            case mir.Union():
                return mir.Union(tuple(part for part, _ in parts))
            case _:
                kids = mir.inputs(rel)
                new = replace_inputs(rel, kids, [part for part, _ in parts])
                return project(new, keep)


def _ordered(rel: mir.Relation, need: set[int], keep: Columns) -> Columns:
    """The columns that an input is asked for, in their order: that of the node's output where the node hands rows on as
    they are, so that an exchange of columns ends up below it and not above.
    """
    match rel:
        case mir.Project(outputs=outputs) if len(need) == len(keep):
            return tuple(outputs[column] for column in keep)
        case mir.Filter() | mir.TopK() | mir.Negate() | mir.Union() if len(need) == len(keep):
            return keep
        # None of its scalars is read, so that it goes.
        case mir.Map(input=below) if need == set(keep) and max(keep, default=0) < mir.arity(below):
            return keep
        case _:
            return tuple(sorted(need))


def narrowed(typ: RelationType, columns: Sequence[int]) -> RelationType:
    """The type of a projection of a relation."""
    place = {column: position for position, column in enumerate(columns)}
    keys = tuple(
        tuple(sorted(place[c] for c in key)) for key in typ.keys if all(c in place for c in key)
    )
    return RelationType(tuple(typ.columns[c] for c in columns), keys)


def _map(rel: mir.Map, inner: mir.Relation, place: dict[int, int], keep: Columns) -> mir.Relation:
    width = mir.arity(rel.input)
    # From the last one on, below: a scalar may read those before it.
    wanted = set(keep)
    for offset in range(len(rel.scalars) - 1, -1, -1):
        if width + offset in wanted:
            wanted |= sc.support(rel.scalars[offset])
    scalars: list[sc.Scalar] = []
    base = len(place)
    for offset, scalar in enumerate(rel.scalars):
        if width + offset in wanted:
            scalars.append(sc.permute(scalar, place))
            place[width + offset] = base + len(scalars) - 1
    unread = (one for offset, one in enumerate(rel.scalars) if width + offset not in wanted)
    # As predicates, so that they are the same as one that is there already.
    failures = (sc.LiteralError(one.message, BOOLEAN) for one in unread if sc.guards_rows(one))
    guards = tuple(dict.fromkeys(failures))
    below = mir.Filter(inner, guards) if guards else inner
    new = mir.Map(below, tuple(scalars)) if scalars else below
    return project(new, [place[column] for column in keep])


def _join(
    rel: mir.Join, parts: Sequence[tuple[mir.Relation, Columns]], keep: Columns
) -> mir.Relation:
    place: dict[int, int] = {}
    old_start = 0
    for old, (_, have) in zip(rel.inputs, parts, strict=True):
        for column in have:
            place[old_start + column] = len(place)
        old_start += mir.arity(old)
    classes = tuple(tuple(sc.permute(e, place) for e in cls) for cls in rel.equivalences)
    new = msgspec.structs.replace(rel, inputs=tuple(p for p, _ in parts), equivalences=classes)
    return project(new, [place[column] for column in keep])


def _reduce(
    rel: mir.Reduce, inner: mir.Relation, place: Mapping[int, int], keep: Columns
) -> mir.Relation:
    width = len(rel.group_key)
    kept = [offset for offset in range(len(rel.aggregates)) if width + offset in keep]
    aggregates = tuple(
        msgspec.structs.replace(a, expr=sc.permute(a.expr, place))
        for a in (rel.aggregates[offset] for offset in kept)
    )
    key = tuple(sc.permute(e, place) for e in rel.group_key)
    new = msgspec.structs.replace(rel, input=inner, group_key=key, aggregates=aggregates)
    have = [*range(width), *(width + offset for offset in kept)]
    return project(new, [have.index(column) for column in keep])


def _top_k(
    rel: mir.TopK, inner: mir.Relation, place: Mapping[int, int], keep: Columns
) -> mir.Relation:
    if any_row_will_do(rel, set(keep)):
        group = tuple(dict.fromkeys(rel.group_key))
        key = tuple(sc.Column(place[c]) for c in group)
        distinct = mir.Reduce(inner, key, (), expected_group_size=rel.expected_group_size)
        return project(distinct, [group.index(c) for c in keep])
    order = tuple(msgspec.structs.replace(o, column=place[o.column]) for o in rel.order_key)
    new: mir.Relation = msgspec.structs.replace(
        rel,
        input=inner,
        group_key=tuple(place[c] for c in rel.group_key),
        order_key=order,
        limit=None if rel.limit is None else sc.permute(rel.limit, place),
    )
    return project(new, [place[column] for column in keep])
