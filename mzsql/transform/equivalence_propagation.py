"""EquivalencePropagation: of columns known to be equal the first is read everywhere.

Promise: only references change, never columns put out. That makes joins carry each value once, and makes filters on equal columns equal,
so that one of them is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.transform.visit import replace_inputs

#: For each column the first one equal to it (itself, where there is none before).
Firsts = tuple[int, ...]


def equivalence_propagation(rel: mir.Relation) -> mir.Relation:
    """Read the first of equal columns."""
    return _visit(rel)[0]


def _visit(rel: mir.Relation) -> tuple[mir.Relation, Firsts]:
    kids = mir.inputs(rel)
    parts = [_visit(kid) for kid in kids]
    rel = replace_inputs(rel, kids, [part for part, _ in parts])
    first = parts[0][1] if parts else ()
    match rel:
        case mir.Filter(predicates=predicates):
            new = tuple(dict.fromkeys(_canonical(p, first) for p in predicates))
            return mir.Filter(rel.input, new), _equated(first, _equal_columns(new))
        case mir.Project(outputs=outputs):
            chosen = tuple(first[column] for column in outputs)
            return mir.Project(rel.input, chosen), tuple(chosen.index(c) for c in chosen)
        case mir.Map(scalars=scalars):
            grown = list(first)
            done: list[sc.Scalar] = []
            for scalar in scalars:
                expr = _canonical(scalar, grown)
                done.append(expr)
                grown.append(grown[expr.index] if isinstance(expr, sc.Column) else len(grown))
            return mir.Map(rel.input, tuple(done)), tuple(grown)
        case mir.FlatMap(exprs=exprs, output=output):
            width = len(first)
            args = tuple(_canonical(e, first) for e in exprs)
            mapped = msgspec.structs.replace(rel, exprs=args)
            return mapped, (*first, *range(width, width + output.arity))
        case mir.Join(equivalences=classes):
            joined = _side_by_side([firsts for _, firsts in parts])
            pairs = [[e.index for e in cls if isinstance(e, sc.Column)] for cls in classes]
            return rel, _equated(joined, pairs)
        case mir.Reduce(group_key=key, aggregates=aggregates):
            new_key = tuple(_canonical(e, first) for e in key)
            new_aggregates = tuple(
                msgspec.structs.replace(a, expr=_canonical(a.expr, first)) for a in aggregates
            )
            firsts = [new_key.index(e) for e in new_key]
            firsts.extend(range(len(key), len(key) + len(aggregates)))
            new_rel = msgspec.structs.replace(rel, group_key=new_key, aggregates=new_aggregates)
            return new_rel, tuple(firsts)
        case mir.TopK() | mir.Negate() | mir.Threshold() | mir.ArrangeBy():
            return rel, first
        case mir.Let() | mir.LetRec():
            return rel, parts[-1][1]
        case _:
            return rel, tuple(range(mir.arity(rel)))


def _canonical(expr: sc.Scalar, firsts: Sequence[int]) -> sc.Scalar:
    return sc.permute(expr, _Lookup(firsts))


class _Lookup(dict[int, int]):
    """Column to first column, without a dictionary for each expression."""

    def __init__(self, firsts: Sequence[int]) -> None:
        super().__init__()
        self._firsts = firsts

    def __missing__(self, column: int) -> int:
        return self._firsts[column]


def _side_by_side(parts: Sequence[Firsts]) -> Firsts:
    joined: list[int] = []
    for firsts in parts:
        start = len(joined)
        joined.extend(start + column for column in firsts)
    return tuple(joined)


def _equated(firsts: Firsts, classes: Sequence[Sequence[int]]) -> Firsts:
    """The firsts once the columns of each class are equal too."""
    result = list(firsts)
    for cls in classes:
        if len(cls) > 1:
            members = {result[column] for column in cls}
            first = min(members)
            result = [first if column in members else column for column in result]
    return tuple(result)


def _equal_columns(predicates: Sequence[sc.Scalar]) -> list[list[int]]:
    """Columns that a true filter makes equal."""
    found: list[list[int]] = []
    for pred in predicates:
        match pred:
            case sc.Call(func=func, args=(sc.Column(index=a), sc.Column(index=b))):
                if func.startswith("eq_") and not func.startswith(("eq_real", "eq_double")):
                    found.append([a, b])
            case _:
                pass
    return found
