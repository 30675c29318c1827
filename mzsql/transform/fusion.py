"""Fusion: merges adjacent operators of the same kind, and removes operators that do nothing.

Promise: meaning is unchanged. No two adjacent Maps, Filters, Projects, Unions or Negates are left, and nested
unplanned joins are one join, with their filters pulled above it.
Source: Materialize's transform `Fusion`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import msgspec

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import cost, rank
from mzsql.expr.memo import memo
from mzsql.expr.typing import relation_type
from mzsql.repr.types import BIGINT, BOOLEAN
from mzsql.transform.equal_values import all_equal
from mzsql.transform.visit import filtered, mapped, project, rewrite

_TRUE = sc.Literal(True, BOOLEAN)


def fusion(rel: mir.Relation) -> mir.Relation:
    """Fuse everywhere, bottom-up."""
    return rewrite(rel, fuse, memo("fusion"))


def fuse(rel: mir.Relation) -> mir.Relation:
    """Fuse a node with its (already fused) inputs."""
    match rel:
        case mir.Map(input=inner, scalars=scalars):
            return mapped(inner, scalars)
        case mir.Filter(input=inner, predicates=predicates):
            return filtered(inner, [p for p in conjuncts(predicates) if p != _TRUE])
        case mir.Project(input=inner, outputs=outputs):
            return project(inner, outputs)
        case mir.Union(inputs=inputs):
            return _union(inputs)
        case mir.Negate(input=mir.Negate(input=inner)):
            return inner
        case mir.Negate(input=mir.Union(inputs=inputs)):
            # Negations move to the leaves of a union, so that unions meet unions.
            return _union(tuple(fuse(mir.Negate(part)) for part in inputs))
        case mir.Threshold(input=mir.Threshold() as inner):
            return inner
        case mir.Join() if isinstance(rel.implementation, mir.Unplanned):
            return _join(rel)
        case mir.Reduce():
            return _reduce(rel)
        case mir.TopK():
            return _top_k(rel)
        case _:
            return rel


def conjuncts(predicates: tuple[sc.Scalar, ...]) -> list[sc.Scalar]:
    """The predicates with top-level ANDs taken apart."""
    flat: list[sc.Scalar] = []
    stack = list(reversed(predicates))
    while stack:
        pred = stack.pop()
        if isinstance(pred, sc.Call) and pred.func == "and":
            stack.extend(reversed(pred.args))
        else:
            flat.append(pred)
    return flat


def _union(inputs: tuple[mir.Relation, ...]) -> mir.Relation:
    flat: list[mir.Relation] = []
    for part in inputs:
        flat.extend(part.inputs if isinstance(part, mir.Union) else (part,))
    return flat[0] if len(flat) == 1 else mir.Union(tuple(flat))


def _reduce(rel: mir.Reduce) -> mir.Relation:
    """Simplify a Reduce: DISTINCT has no effect on MIN and MAX, and repeated keys and aggregates are computed once."""
    aggregates = tuple(
        msgspec.structs.replace(a, distinct=False)
        if a.distinct and functions.aggregate(a.func).kind == "hierarchical"
        else a
        for a in rel.aggregates
    )
    if aggregates != rel.aggregates:
        rel = msgspec.structs.replace(rel, aggregates=aggregates)
    rel = _absorbed(rel)
    key = tuple(dict.fromkeys(rel.group_key))
    distinct = tuple(dict.fromkeys(rel.aggregates))
    if key == rel.group_key and len(distinct) == len(rel.aggregates):
        return rel
    outputs = [key.index(expr) for expr in rel.group_key]
    outputs.extend(len(key) + distinct.index(a) for a in rel.aggregates)
    return project(msgspec.structs.replace(rel, group_key=key, aggregates=distinct), outputs)


#: The most nodes of a Reduce's expression after it takes in what a Map below it computes.
_ABSORBED = 200


def _map_below(rel: mir.Relation) -> mir.Map | mir.Project | None:
    """The relation, if it is a Map, a Project over one, or one that reorders or repeats columns."""
    top = rel
    while isinstance(rel, mir.Project):
        rel = rel.input
    if isinstance(top, mir.Project) and any(a >= b for a, b in itertools.pairwise(top.outputs)):
        return top
    return top if isinstance(rel, mir.Map) and isinstance(top, mir.Map | mir.Project) else None


def _absorbed(rel: mir.Reduce) -> mir.Reduce:
    """The Reduce with the Maps directly below it, and the Projects among them, substituted in its expressions."""
    while (below := _map_below(rel.input)) is not None:
        columns: list[sc.Scalar]
        if isinstance(below, mir.Project):
            columns = [sc.Column(c) for c in below.outputs]
        else:
            columns = sc.inlined(below.scalars, mir.arity(below.input))
        key = tuple(sc.substitute(e, columns) for e in rel.group_key)
        aggregates = tuple(
            msgspec.structs.replace(a, expr=sc.substitute(a.expr, columns)) for a in rel.aggregates
        )
        width = mir.arity(below.input)
        for expr in (*key, *(a.expr for a in aggregates)):
            # `inlined` refers to the Map's column where an expression would become too large; then the Map stays.
            if cost(expr) > _ABSORBED or any(c >= width for c in sc.support(expr)):
                return rel
        rel = msgspec.structs.replace(rel, input=below.input, group_key=key, aggregates=aggregates)
    return rel


def _top_k(rel: mir.TopK) -> mir.Relation:
    """A TopK without limit and offset keeps all rows; one over another of the same order becomes one."""
    if rel.offset == 0 and (rel.limit is None or _is_unlimited(rel.limit)):
        return rel.input
    order: dict[int, sc.ColumnOrder] = {}
    for by in rel.order_key:
        # Equal in all rows of a group, it would order nothing.
        if by.column not in rel.group_key:
            order.setdefault(by.column, by)
    if len(order) < len(rel.order_key):
        rel = msgspec.structs.replace(rel, order_key=tuple(order.values()))
    inner = rel.input
    if (
        isinstance(inner, mir.TopK)
        and inner.group_key == rel.group_key
        and inner.order_key == rel.order_key
        and inner.expected_group_size == rel.expected_group_size
    ):
        return _both(rel, inner)
    return rel


def _is_unlimited(limit: sc.Scalar) -> bool:
    return isinstance(limit, sc.Literal) and limit.value is None


def _both(outer: mir.TopK, inner: mir.TopK) -> mir.TopK:
    """One TopK for two with the same groups and order, if their limits are known."""
    rest: int | None = None
    if inner.limit is not None:
        if not isinstance(inner.limit, sc.Literal) or not isinstance(inner.limit.value, int):
            return outer
        rest = max(inner.limit.value - outer.offset, 0)
    limit = outer.limit
    if rest is not None and isinstance(limit, sc.Literal) and isinstance(limit.value, int):
        limit = sc.Literal(min(limit.value, rest), limit.typ)
    elif rest is not None and limit is None:
        limit = sc.Literal(rest, BIGINT)
    elif rest is not None:
        return outer
    return msgspec.structs.replace(
        outer, input=inner.input, offset=outer.offset + inner.offset, limit=limit
    )


def _join(rel: mir.Join) -> mir.Relation:
    """Flatten nested joins (also under a Filter, Map or Project) into one, with those operators on top of it."""
    if len(rel.inputs) == 1:
        # With a single input, the equivalences compare columns of the same row.
        return filtered(rel.inputs[0], _checks(rel.equivalences, rel.inputs))
    if not any(_is_fusable(part) for part in rel.inputs):
        return _without_units(rel)
    inputs: list[mir.Relation] = []
    equivalences: list[tuple[sc.Scalar, ...]] = []
    predicates: list[sc.Scalar] = []
    # For each column of the old join, the expression over the new join's columns that replaces it.
    place: list[sc.Scalar] = []
    start = 0
    for part in rel.inputs:
        outer, filters, inner = _peel(part)
        if inner is None:
            inputs.append(part)
            width = mir.arity(part)
            place.extend(sc.Column(c) for c in range(start, start + width))
        else:
            inputs.extend(inner.inputs)
            width = mir.arity(inner)
            shift = {c: c + start for c in range(width)}
            equivalences.extend(
                tuple(sc.permute(e, shift) for e in cls) for cls in inner.equivalences
            )
            predicates.extend(sc.permute(p, shift) for p in filters)
            place.extend(sc.permute(expr, shift) for expr in outer)
        start += width
    equivalences.extend(tuple(sc.substitute(e, place) for e in cls) for cls in rel.equivalences)
    joined = _without_units(mir.Join(tuple(inputs), merge_classes(equivalences)))
    new = [expr for expr in place if not isinstance(expr, sc.Column)]
    columns = iter(range(start, start + len(new)))
    outputs = [e.index if isinstance(e, sc.Column) else next(columns) for e in place]
    return project(mapped(filtered(joined, predicates), new), outputs)


def _is_fusable(part: mir.Relation) -> bool:
    return _peel(part)[2] is not None


def _peel(
    part: mir.Relation,
) -> tuple[tuple[sc.Scalar, ...], tuple[sc.Scalar, ...], mir.Join | None]:
    """Take a Project over a Map over a Filter over an unplanned Join apart (of Maps only liftable ones).

    Returns:
        The outputs over the join's columns, the filters, and the join; None as the join if `part` is something else.
    """
    outputs: tuple[int, ...] | None = None
    new: tuple[sc.Scalar, ...] = ()
    filters: tuple[sc.Scalar, ...] = ()
    if isinstance(part, mir.Project):
        outputs = part.outputs
        part = part.input
    if isinstance(part, mir.Map) and _is_liftable(part):
        new = part.scalars
        part = part.input
    if isinstance(part, mir.Filter):
        filters = part.predicates
        part = part.input
    if isinstance(part, mir.Join) and isinstance(part.implementation, mir.Unplanned):
        width = mir.arity(part)
        columns = (*map(sc.Column, range(width)), *new)
        put_out = columns if outputs is None else tuple(columns[c] for c in outputs)
        return put_out, filters, part
    return (), (), None


def _is_liftable(part: mir.Map) -> bool:
    """Whether a Map only makes columns NULL where another one is. That works above a join as well, which then sees all
    inputs.
    """
    width = mir.arity(part.input)
    return all(_is_blanked(expr, width) for expr in part.scalars)


def _is_blanked(expr: sc.Scalar, width: int) -> bool:
    match expr:
        case sc.If(
            condition=sc.Call(func="is_null", args=(sc.Column(index=flag),)),
            then=sc.Literal(value=None),
            otherwise=sc.Column(index=column),
        ):
            return flag < width and column < width
        case _:
            return False


def _without_units(rel: mir.Join) -> mir.Relation:
    """Remove inputs that are a single constant row: their columns become literals above the join."""
    if not any(_is_single_row(part) for part in rel.inputs):
        return rel
    rest: list[mir.Relation] = []
    values: dict[int, sc.Literal] = {}
    place: dict[int, int] = {}
    start = 0
    for part in rel.inputs:
        width = mir.arity(part)
        if isinstance(part, mir.Constant) and _is_single_row(part):
            ((row, _),) = part.rows
            for offset, (value, column) in enumerate(zip(row, part.typ.columns, strict=True)):
                values[start + offset] = sc.Literal(value, column.type)
        else:
            for offset in range(width):
                place[start + offset] = len(place)
            rest.append(part)
        start += width
    if not rest:
        return rel  # constants alone are folded elsewhere
    columns: list[sc.Scalar] = [
        values[c] if c in values else sc.Column(place[c]) for c in range(start)
    ]
    owner = [i for i, part in enumerate(rest) for _ in range(mir.arity(part))]
    kept: list[tuple[sc.Scalar, ...]] = []
    checks: list[sc.Scalar] = []
    for cls in rel.equivalences:
        members = [sc.substitute(expr, columns) for expr in cls]
        constant = next((m for m in members if not sc.support(m)), None)
        if len(rest) > 1 and (
            constant is None or all(_reads_several(m, owner) for m in members if m is not constant)
        ):
            # A class that no input can check alone stays with the join.
            kept.append(tuple(members))
        else:
            checks.extend(_checks((members,), rest))
    joined = rest[0] if len(rest) == 1 else mir.Join(tuple(rest), merge_classes(kept))
    literals = [values[c] for c in sorted(values)]
    above = {c: len(place) + i for i, c in enumerate(sorted(values))}
    result = mapped(filtered(joined, checks), literals)
    return project(result, [place[c] if c in place else above[c] for c in range(start)])


def _reads_several(expr: sc.Scalar, owner: Sequence[int]) -> bool:
    return len({owner[c] for c in sc.support(expr)}) > 1


def _is_single_row(part: mir.Relation) -> bool:
    return isinstance(part, mir.Constant) and len(part.rows) == 1 and part.rows[0][1] == 1


def _checks(
    classes: Iterable[Sequence[sc.Scalar]], inputs: Sequence[mir.Relation]
) -> list[sc.Scalar]:
    """The equivalences of a join as predicates over its rows."""
    columns = [column for part in inputs for column in relation_type(part).columns]
    return [check for cls in classes for check in all_equal(cls, columns)]


def merge_classes(
    classes: list[tuple[sc.Scalar, ...]] | tuple[tuple[sc.Scalar, ...], ...],
) -> tuple[tuple[sc.Scalar, ...], ...]:
    """Equivalence classes, merged where they share an expression; expressions in order of their columns."""
    merged: list[list[sc.Scalar]] = []
    for cls in classes:
        new = list(dict.fromkeys(cls))
        rest: list[list[sc.Scalar]] = []
        for other in merged:
            if any(e in other for e in new):
                new = [*other, *(e for e in new if e not in other)]
            else:
                rest.append(other)
        merged = [*rest, new]
    found = [tuple(sorted(cls, key=rank)) for cls in merged if len(cls) > 1]
    return tuple(sorted(found, key=lambda cls: [rank(e) for e in cls]))
