"""LiteralConstraints: equality of an indexed key with literals becomes a lookup in the index.

Promise: a Filter over an indexed object that fixes every part of an index's key to one of a few literals (by ``=``, by OR of such, as IN
gives) reads only these keys: an `IndexedFilter` join of the object with the constant keys. The longest key wins, then the oldest index.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.mfp import MapFilterProject, extract_mfp, to_relation
from mzsql.repr.datum import Datum, Row
from mzsql.repr.types import ColumnType, RelationType
from mzsql.transform.context import IndexDesc, OptimizerContext
from mzsql.transform.fusion import conjuncts
from mzsql.transform.visit import replace_inputs

#: The most keys that one lookup has.
MAX_ROWS = 1000


def literal_constraints(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Plan lookups everywhere."""
    mfp, below = extract_mfp(rel)
    if isinstance(below, mir.Get) and not isinstance(below.id, int) and mfp.predicates:
        found = _best(mfp, ctx.indexes(below.id))
        return rel if found is None else _lookup(below, mfp, *found)
    kids = mir.inputs(below)
    new = replace_inputs(below, kids, [literal_constraints(kid, ctx) for kid in kids])
    return rel if new is below else _rebuilt(rel, new)


def _rebuilt(rel: mir.Relation, below: mir.Relation) -> mir.Relation:
    """The same row-wise operators over another relation."""
    chain: list[mir.Relation] = []
    while isinstance(rel, mir.Map | mir.Filter | mir.Project):
        chain.append(rel)
        rel = rel.input
    for node in reversed(chain):
        below = mir.with_inputs(node, [below])
    return below


_Found = tuple[IndexDesc, list[Row], list[sc.Scalar]]


def _best(mfp: MapFilterProject, indexes: Sequence[IndexDesc]) -> _Found | None:
    """The index, the keys to look up, and the predicates that the lookup makes needless."""
    predicates = conjuncts(tuple(p for at, p in mfp.predicates if at <= mfp.input_arity))
    best: _Found | None = None
    for index in indexes:
        rows: list[Row] = [()]
        used: list[sc.Scalar] = []
        for expr in index.key:
            fixed = _fixed_by(expr, predicates)
            if fixed is None:
                break
            values, preds = fixed
            rows = [(*row, value) for row in rows for value in values]
            used.extend(p for p in preds if p not in used)
        else:
            if (
                rows
                and len(rows) <= MAX_ROWS
                and (best is None or len(index.key) > len(best[0].key))
            ):
                best = (index, rows, used)
    return best


def _fixed_by(
    expr: sc.Scalar, predicates: Sequence[sc.Scalar]
) -> tuple[list[Datum], list[sc.Scalar]] | None:
    for pred in predicates:
        values = _values(expr, pred)
        if values is not None:
            return values, [pred]
    return None


def _values(expr: sc.Scalar, pred: sc.Scalar) -> list[Datum] | None:
    """The literals that `pred` says `expr` is one of."""
    match pred:
        case sc.Call(func=func, args=(left, right)) if func.startswith("eq_"):
            for side, other in ((left, right), (right, left)):
                if side == expr and isinstance(other, sc.Literal) and other.value is not None:
                    return [other.value]
            return None
        case sc.Call(func="or", args=args):
            found: list[Datum] = []
            for arg in args:
                values = _values(expr, arg)
                if values is None:
                    return None
                found.extend(value for value in values if value not in found)
            return sorted(found, key=_datum_order)
        case _:
            return None


def _datum_order(value: Datum) -> tuple[str, float, str]:
    if isinstance(value, str):
        return ("text", 0.0, value)
    return ("number", float(value or 0), "")


def _lookup(
    get: mir.Get, mfp: MapFilterProject, index: IndexDesc, rows: list[Row], used: list[sc.Scalar]
) -> mir.Relation:
    assert not isinstance(get.id, int)
    arity = get.typ.arity
    key_types = tuple(
        ColumnType(sc.scalar_type(expr, get.typ.columns), False) for expr in index.key
    )
    keys = tuple(range(len(index.key)))
    constant = mir.Constant(tuple((row, 1) for row in rows), RelationType(key_types, (keys,)))
    classes = tuple((expr, sc.Column(arity + i)) for i, expr in enumerate(index.key))
    join = mir.Join(
        (
            mir.ArrangeBy(get, (index.key,)),
            mir.ArrangeBy(constant, (tuple(sc.Column(i) for i in keys),)),
        ),
        classes,
        mir.IndexedFilter(get.id, index.id, index.key, tuple(rows)),
    )
    rest = tuple((at, p) for at, p in mfp.predicates if p not in used)
    left = MapFilterProject(arity, mfp.expressions, rest, mfp.projection)
    return to_relation(left, mir.Project(join, tuple(range(arity))))
