"""RedundantJoin: a join input that adds nothing is dropped.

Promise: an input goes only if every row of the others meets exactly one row of it: it is the distinct values of columns that another
input has (through the same relation), joined on all of them. Columns taken from it are taken from the other input instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.transform.fusion import merge_classes
from mzsql.transform.visit import project, replace_inputs

#: Where a column of a relation comes from: (the relation, its column). Only through operators that keep each row's values.
_Origin = tuple[mir.Relation, int]


def redundant_join(rel: mir.Relation) -> mir.Relation:
    """Drop redundant inputs everywhere, one from each join."""
    return _visit(rel, {})


def _visit(rel: mir.Relation, locals_: Mapping[int, mir.Relation]) -> mir.Relation:
    if isinstance(rel, mir.Let):
        value = _visit(rel.value, locals_)
        return mir.Let(rel.id, value, _visit(rel.body, {**locals_, rel.id: value}))
    kids = mir.inputs(rel)
    rel = replace_inputs(rel, kids, [_visit(kid, locals_) for kid in kids])
    if isinstance(rel, mir.Join) and isinstance(rel.implementation, mir.Unplanned):
        return _join(rel, locals_)
    return rel


def _join(rel: mir.Join, locals_: Mapping[int, mir.Relation]) -> mir.Relation:
    starts: list[int] = []
    total = 0
    for part in rel.inputs:
        starts.append(total)
        total += mir.arity(part)
    class_of = {
        e.index: number
        for number, cls in enumerate(rel.equivalences)
        for e in cls
        if isinstance(e, sc.Column)
    }
    for position, part in enumerate(rel.inputs):
        origin = _distinct_origin(part, locals_)
        if origin is None:
            continue
        for other, whole in enumerate(rel.inputs):
            if other == position:
                continue
            match = _match(origin, whole, (starts[position], starts[other]), class_of, locals_)
            if match is not None:
                return _without(rel, position, starts, match)
    return rel


def _distinct_origin(
    part: mir.Relation, locals_: Mapping[int, mir.Relation]
) -> list[_Origin] | None:
    """For an input that is distinct values: where each of its columns comes from."""
    part = _resolved(part, locals_)
    if not (isinstance(part, mir.Reduce) and not part.aggregates):
        return None
    origins: list[_Origin] = []
    for expr in part.group_key:
        if not isinstance(expr, sc.Column):
            return None
        origins.append(_origin(part.input, expr.index, locals_))
    return origins


def _resolved(part: mir.Relation, locals_: Mapping[int, mir.Relation]) -> mir.Relation:
    while isinstance(part, mir.Get) and isinstance(part.id, int) and part.id in locals_:
        part = locals_[part.id]
    return part


def _origins(rel: mir.Relation, column: int, locals_: Mapping[int, mir.Relation]) -> list[_Origin]:
    """A column and what it comes from, through operators whose every row is (part of) a row below, outermost first."""
    found: list[_Origin] = []
    while True:
        found.append((rel, column))
        match rel:
            case mir.Get(id=local) if isinstance(local, int) and local in locals_:
                rel = locals_[local]
            case mir.Project(outputs=outputs):
                column = outputs[column]
                rel = rel.input
            case mir.Map(input=inner) if column < mir.arity(inner):
                rel = inner
            case mir.Filter() | mir.TopK():
                rel = rel.input
            case mir.Join(inputs=inputs):
                for part in inputs:
                    width = mir.arity(part)
                    if column < width:
                        rel = part
                        break
                    column -= width
            case _:
                return found


def _origin(rel: mir.Relation, column: int, locals_: Mapping[int, mir.Relation]) -> _Origin:
    """What a column comes from, through operators that keep every row: the distinct values below are the same."""
    while True:
        match rel:
            case mir.Get(id=local) if isinstance(local, int) and local in locals_:
                rel = locals_[local]
            case mir.Project(outputs=outputs):
                column = outputs[column]
                rel = rel.input
            case mir.Map(input=inner) if column < mir.arity(inner):
                rel = inner
            case _:
                return rel, column


def _match(
    origin: Sequence[_Origin],
    whole: mir.Relation,
    starts: tuple[int, int],
    class_of: Mapping[int, int],
    locals_: Mapping[int, mir.Relation],
) -> list[int] | None:
    """For each column of the distinct input a column of `whole` (numbered as the join's) that it is joined with and is drawn from it."""
    start, other_start = starts
    relations = {id(rel) for rel, _ in origin}
    if len({rel for rel, _ in origin}) != 1 or not relations:
        return None
    found: list[int] = []
    for position, (rel, column) in enumerate(origin):
        cls = class_of.get(start + position)
        partner = next(
            (
                other_start + candidate
                for candidate in range(mir.arity(whole))
                if cls is not None
                and class_of.get(other_start + candidate) == cls
                and (rel, column) in _origins(whole, candidate, locals_)
            ),
            None,
        )
        if partner is None:
            return None
        found.append(partner)
    return found if _same_row(found, origin, whole, other_start, locals_) else None


def _same_row(
    found: Sequence[int],
    origin: Sequence[_Origin],
    whole: mir.Relation,
    start: int,
    locals_: Mapping[int, mir.Relation],
) -> bool:
    """Whether the columns found come out of one and the same reading of the relation, so that their values form one of its rows."""
    if len(found) <= 1:
        return True
    # Below joins the same relation may be read twice; then the paths differ.
    paths = [
        _path(whole, column - start, rel, locals_)
        for column, (rel, _) in zip(found, origin, strict=True)
    ]
    return all(path == paths[0] for path in paths)


def _path(
    rel: mir.Relation, column: int, goal: mir.Relation, locals_: Mapping[int, mir.Relation]
) -> tuple[int, ...]:
    """Which inputs of joins lead from a column to the relation it comes from."""
    path: list[int] = []
    for node, at in _origins(rel, column, locals_):
        if node == goal:
            break
        if isinstance(node, mir.Join):
            left = at
            for number, part in enumerate(node.inputs):
                width = mir.arity(part)
                if left < width:
                    path.append(number)
                    break
                left -= width
    return tuple(path)


def _without(
    rel: mir.Join, position: int, starts: Sequence[int], match: Sequence[int]
) -> mir.Relation:
    """The join without an input, its columns read from where they came."""
    start = starts[position]
    width = mir.arity(rel.inputs[position])
    total = sum(mir.arity(part) for part in rel.inputs)
    place: dict[int, int] = {}
    for column in range(total):
        source = match[column - start] if start <= column < start + width else column
        place[column] = source if source < start else source - width
    inputs = tuple(part for i, part in enumerate(rel.inputs) if i != position)
    classes = merge_classes([tuple(sc.permute(e, place) for e in cls) for cls in rel.equivalences])
    joined: mir.Relation = mir.Join(inputs, classes)
    if len(inputs) == 1 and not classes:
        joined = inputs[0]
    return project(joined, [place[column] for column in range(total)])
