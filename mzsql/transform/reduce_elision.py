"""ReduceElision: a Reduce whose groups have one row each becomes a Map; a DISTINCT of distinct rows is removed.

Source: Materialize's transform `ReduceElision`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.functions.aggregate import windows
from mzsql.expr.mfp import extract_mfp
from mzsql.expr.parts import kinds_of, part_of, parts
from mzsql.expr.relation_keys import lacking, normalize_keys
from mzsql.expr.typing import nullable, relation_type
from mzsql.repr.types import BOOLEAN, ColumnType, RelationType
from mzsql.transform.provenance import Exprs, Provenance, own_stages
from mzsql.transform.visit import Bindings, mapped, project, rewrite_typed

_WHERE = kinds_of(mir.Reduce)
_LOOKED_AT = kinds_of(mir.Reduce, mir.Union)


def reduce_elision(rel: mir.Relation) -> mir.Relation:
    """Replace the Reduces over unique keys."""
    if not part_of(rel, parts()).kinds & _WHERE:
        return rel
    return rewrite_typed(rel, _elide, _keys_of_padding, where=_LOOKED_AT, name="reduce_elision")


def _keys_of_padding(rel: mir.Relation, typ: RelationType, bindings: Bindings) -> RelationType:
    """The keys of a union of a relation and the padded rows that it lacks of another one, as outer joins and scalar
    subqueries make it.
    """
    if not isinstance(rel, mir.Union) or len(rel.inputs) != 2:
        return typ
    found = list(typ.keys)
    some = [part for part in rel.inputs if not _is_nothing(part)]
    if len(some) == 1:
        found.extend(relation_type(some[0], bindings.types).keys)
    for base, rest in (rel.inputs, rel.inputs[::-1]):
        lacked = lacking(rest)
        if lacked is None:
            continue
        outputs, part, whole = lacked
        if part != base:
            continue
        if not outputs:
            # The union adds one row if `base` has none: so it has at most one row if `base` has at most one.
            single = isinstance(whole, mir.Constant) and whole.rows == (((), 1),)
            if single and () in relation_type(base, bindings.types).keys:
                found.append(())
            continue
        columns: Exprs = tuple(sc.Column(c) for c in outputs)
        stages = Provenance(bindings.values).trace(base, columns)
        # Continue only if the values of `base` come from a relation each of whose rows has a row in `whole`, which
        # does not filter it.
        if not any(
            not passed and stage in stages
            for stage, passed in own_stages(whole, bindings.values).items()
        ):
            continue
        # Each row of `whole` is added at most once, and only if `base` lacks it, so keys that both have remain keys.
        base_keys = set(relation_type(base, bindings.types).keys)
        for key in relation_type(whole, bindings.types).keys:
            moved = tuple(sorted(outputs[c] for c in key))
            if moved in base_keys and all(outputs[c] == c for c in key):
                found.append(moved)
    return RelationType(typ.columns, normalize_keys(found))


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "not_eq": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


def _is_nothing(rel: mir.Relation) -> bool:
    """Whether row-wise operators let no row pass because they compare two different numbers: the check of a subquery
    that returns one row.
    """
    mfp, _ = extract_mfp(rel)
    columns = sc.inlined(mfp.expressions, mfp.input_arity)
    return any(_is_false(sc.substitute(pred, columns)) for _, pred in mfp.predicates)


def _is_false(pred: sc.Scalar) -> bool:
    match pred:
        case sc.Call(func=func, args=(sc.Literal(value=int(a)), sc.Literal(value=int(b)))):
            compare = _COMPARISONS.get(func.rpartition("_")[0])
            return compare is not None and not compare(a, b)
        case _:
            return False


def _elide(rel: mir.Relation, types: Sequence[RelationType]) -> mir.Relation:
    if not isinstance(rel, mir.Reduce):
        return rel
    columns = {e.index for e in rel.group_key if isinstance(e, sc.Column)}
    if not any(set(key) <= columns for key in types[0].keys):
        return rel
    scalars: list[sc.Scalar] = list(rel.group_key)
    for aggregate in rel.aggregates:
        value = of_one_row(aggregate, types[0].columns)
        if value is None:
            return rel
        scalars.append(value)
    width = types[0].arity
    return project(mapped(rel.input, scalars), range(width, width + len(scalars)))


def of_one_row(aggregate: sc.AggregateExpr, columns: Sequence[ColumnType]) -> sc.Scalar | None:
    """The aggregate of a group of one row as a scalar of that row; None if it cannot be written so."""
    if windows.parse(aggregate.func) is not None:
        return None  # a list of what it is for each row
    func = functions.aggregate(aggregate.func)
    typ = sc.scalar_type(aggregate.expr, columns)
    match func.name:
        case "min" | "max" | "any" | "all" | "bool_or" | "bool_and":
            return aggregate.expr if typ == aggregate.typ else None
        case "count":
            if not nullable(aggregate.expr, columns):
                return sc.Literal(1, aggregate.typ)
            is_null = sc.Call("is_null", (aggregate.expr,), BOOLEAN)
            return sc.If(is_null, sc.Literal(0, aggregate.typ), sc.Literal(1, aggregate.typ))
        case "sum":
            if typ == aggregate.typ:
                return aggregate.expr
            casts = functions.find_cast(typ, aggregate.typ, "explicit")
            if casts is None or len(casts) != 1:
                return None
            return sc.Call(casts[0], (aggregate.expr,), aggregate.typ)
        case _:
            return None
