"""LiteralConstraints: turns equality of an indexed key with literals into an index lookup.

Promise: a Filter over an indexed object that leaves only a few values of an index's key possible (through ``=``, and
AND and OR of these, as from IN) reads only these keys: it becomes an `IndexedFilter` join of the object with the
constant keys. The longest key wins, then the youngest index. What the lookup does not fully express stays as a
filter.
Source: Materialize's transform `LiteralConstraints`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import row_order
from mzsql.expr.mfp import MapFilterProject, extract_mfp, placed, to_relation
from mzsql.expr.scalar import INLINED, size_over
from mzsql.repr.datum import Datum, Row
from mzsql.repr.types import ColumnType, RelationType
from mzsql.transform.context import IndexDesc, OptimizerContext
from mzsql.transform.fusion import conjuncts
from mzsql.transform.scalars import simplify
from mzsql.transform.visit import rebuilt, replace_inputs

#: The most keys that one lookup has.
MAX_ROWS = 1000


def literal_constraints(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Plan lookups everywhere."""
    mfp, below = extract_mfp(rel)
    if isinstance(below, mir.Get) and not isinstance(below.id, int) and mfp.predicates:
        indexes = ctx.indexes(below.id)
        if not indexes:
            return rel
        mfp = _inlined(mfp, below.typ.columns, ctx)
        found = _best(mfp, below, indexes, ctx)
        return rel if found is None else _lookup(below, mfp, found)
    kids = mir.inputs(below)
    new = replace_inputs(below, kids, [literal_constraints(kid, ctx) for kid in kids])
    return rebuilt(rel, below, new)


def _inlined(
    mfp: MapFilterProject, columns: Sequence[ColumnType], ctx: OptimizerContext
) -> MapFilterProject:
    """The MFP with predicates written over the input's columns, unless that would make them very large."""
    exprs: list[sc.Scalar] = [sc.Column(c) for c in range(mfp.input_arity)]
    sizes = [1] * mfp.input_arity
    for expr in mfp.expressions:
        sizes.append(size_over(expr, sizes))
        small = sizes[-1] <= INLINED
        exprs.append(sc.substitute(expr, exprs) if small else sc.Column(len(exprs)))
    preds: list[sc.Scalar] = []
    for _, pred in mfp.predicates:
        seen = sc.substitute(pred, exprs)
        local = all(c < mfp.input_arity for c in sc.support(seen))
        preds.extend(conjuncts((simplify(seen, columns, ctx) if local else pred,)))
    return msgspec.structs.replace(mfp, predicates=tuple(placed(pred) for pred in preds))


#: Values of some parts of an index's key, by the part's position.
_Fixed = dict[int, Datum]


class _Found(msgspec.Struct, frozen=True):
    """An index, the keys to look up, and the predicates that the lookup makes redundant."""

    index: IndexDesc
    rows: tuple[Row, ...]
    used: tuple[sc.Scalar, ...]


def _best(
    mfp: MapFilterProject, get: mir.Get, indexes: Sequence[IndexDesc], ctx: OptimizerContext
) -> _Found | None:
    """The index with the longest key; of several the youngest."""
    predicates = conjuncts(tuple(p for at, p in mfp.predicates if at <= mfp.input_arity))
    best: _Found | None = None
    for index in indexes:
        key = [simplify(expr, get.typ.columns, ctx) for expr in index.key]
        kinds = [sc.scalar_type(expr, get.typ.columns).kind for expr in key]
        found = _match(index, predicates, key, kinds)
        if found is not None and (best is None or len(index.key) >= len(best.index.key)):
            best = found
    return best


def _match(
    index: IndexDesc,
    predicates: Sequence[sc.Scalar],
    key: Sequence[sc.Scalar],
    kinds: Sequence[str],
) -> _Found | None:
    """The keys of an index that the predicates leave possible, if these are few; else None."""
    options: list[_Fixed] = [{}]
    used: list[sc.Scalar] = []
    for pred in predicates:
        said = _options(pred, key)
        if said is None:
            continue
        fixed, exact = said
        # The predicate stays a filter over what the other ones look up.
        if len(options) * len(fixed) > MAX_ROWS:
            continue
        merged = [_merged(one, other) for one in options for other in fixed]
        options = [option for option in merged if option is not None]
        if exact:
            used.append(pred)
    width = len(index.key)
    # An alternative that leaves a part of the key open cannot be looked up.
    if any(len(option) != width for option in options):
        return None
    rows = {tuple(option[part] for part in range(width)): None for option in options}
    ordered_rows = tuple(sorted(rows, key=lambda row: row_order(row, kinds)))
    return _Found(index, ordered_rows, tuple(used))


def _merged(one: _Fixed, other: _Fixed) -> _Fixed | None:
    """Both combinations together; None if they contradict each other."""
    for part in one.keys() & other.keys():
        if one[part] != other[part]:
            return None
    return {**one, **other}


def _options(pred: sc.Scalar, key: Sequence[sc.Scalar]) -> tuple[list[_Fixed], bool] | None:
    """The combinations of the key's parts that a predicate allows, and whether it says nothing else. None: it says
    nothing of the key.
    """
    for part, expr in enumerate(key):
        said = _literal_of(expr, pred)
        if said is not None:
            return [{part: value} for value in said], True
    match pred:
        case sc.Call(func="or", args=args):
            alternatives: list[_Fixed] = []
            whole = True
            for arg in args:
                inner = _options(arg, key)
                if inner is None:
                    return None
                alternatives.extend(inner[0])
                whole = whole and inner[1]
                if len(alternatives) > MAX_ROWS:
                    return None
            return alternatives, whole
        case sc.Call(func="and", args=args):
            options: list[_Fixed] = [{}]
            exact = True
            for arg in args:
                inner = _options(arg, key)
                if inner is None:
                    exact = False
                    continue
                if len(options) * len(inner[0]) > MAX_ROWS:
                    return None
                merged = [_merged(one, other) for one in options for other in inner[0]]
                options = [option for option in merged if option is not None]
                exact = exact and inner[1]
            return None if options == [{}] else (options, exact)
        case _:
            return None


def _literal_of(expr: sc.Scalar, pred: sc.Scalar) -> list[Datum] | None:
    """The literal that `pred` says `expr` equals (empty if there is no such value); None if it says no such thing."""
    if not (isinstance(pred, sc.Call) and pred.func.startswith("eq_") and len(pred.args) == 2):
        # A boolean expression is true in the rows that pass it as a predicate.
        return [True] if pred == expr and not isinstance(expr, sc.Column) else None
    left, right = pred.args
    for side, other in ((left, right), (right, left)):
        if not isinstance(other, sc.Literal) or other.value is None:
            continue
        if side == expr:
            return [other.value]
        if isinstance(side, sc.Call) and side.args == (expr,) and side.func == "varchar_to_text":
            return [other.value]
        if isinstance(side, sc.Call) and side.args == (expr,) and side.func in _WIDENINGS:
            low, high = _WIDENINGS[side.func]
            if isinstance(other.value, int):
                return [other.value] if low <= other.value <= high else []
    return None


def _widenings() -> dict[str, tuple[int, int]]:
    """Casts of integers that lose nothing, with the lowest and highest value of the source type."""
    ranges = {
        "smallint": (-(2**15), 2**15 - 1),
        "integer": (-(2**31), 2**31 - 1),
        "bigint": (-(2**63), 2**63 - 1),
        "uint2": (0, 2**16 - 1),
        "uint4": (0, 2**32 - 1),
        "uint8": (0, 2**64 - 1),
    }
    return {
        f"{narrow}_to_{wide}": (low, high)
        for narrow, (low, high) in ranges.items()
        for wide, (least, greatest) in ranges.items()
        if narrow != wide and least <= low and high <= greatest
    }


_WIDENINGS = _widenings()


def _lookup(get: mir.Get, mfp: MapFilterProject, found: _Found) -> mir.Relation:
    assert not isinstance(get.id, int)
    index = found.index
    arity = get.typ.arity
    rest = tuple(
        (at, part) for at, p in mfp.predicates for part in conjuncts((p,)) if part not in found.used
    )
    left = MapFilterProject(arity, mfp.expressions, rest, mfp.projection)
    if not found.rows:
        return to_relation(left, mir.Constant((), get.typ))
    key_types = tuple(
        ColumnType(sc.scalar_type(expr, get.typ.columns), False) for expr in index.key
    )
    keys = tuple(range(len(index.key)))
    constant = mir.Constant(tuple((row, 1) for row in found.rows), RelationType(key_types, (keys,)))
    classes = tuple((expr, sc.Column(arity + i)) for i, expr in enumerate(index.key))
    join = mir.Join(
        (
            mir.ArrangeBy(get, (index.key,)),
            mir.ArrangeBy(constant, (tuple(sc.Column(i) for i in keys),)),
        ),
        classes,
        mir.IndexedFilter(get.id, index.id, index.key, found.rows),
    )
    return to_relation(left, mir.Project(join, tuple(range(arity))))
