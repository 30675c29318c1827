"""Cardinality: estimates a relation's number of rows from statistics and operators.

Promise: an estimate, not a bound; None if its inputs are unknown. A filter keeps a share that its form suggests, a
join by a unique key has no more rows than the other side, a grouping has as many as its input unless a hint gives
the group size. The factors are Materialize's, so that its users find familiar numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.typing import relation_type
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationType

#: A number of rows; None if unknown.
Estimate = float | None
#: Returns the number of rows of a catalog object; None if it was not counted.
Statistics = Callable[[GlobalId], int | None]

#: The fraction of rows assumed to pass a predicate about which nothing is known.
WORST_CASE = 0.1
_RANGE = 0.33
_TRUTH = 0.5
#: The number of rows assumed per input row of a table function.
_EXPLOSION = 4.0
_ORDERINGS = ("lt_", "lte_", "gt_", "gte_")
_MATCHES = frozenset({"like", "ilike", "like_char", "ilike_char"})


def no_statistics(_gid: GlobalId) -> int | None:
    """Statistics if nothing is counted."""
    return None


def cardinality(
    rel: mir.Relation,
    statistics: Statistics,
    known: Mapping[int, Estimate],
    types: Mapping[int, RelationType],
) -> Estimate:
    """Estimate a relation's rows; `known` and `types` are those of the bindings around it."""
    match rel:
        case mir.Constant(rows=rows):
            return float(sum(abs(diff) for _, diff in rows))
        case mir.Get(id=int() as local):
            return known.get(local)
        case mir.Get(id=str() as gid):
            count = statistics(gid)
            return None if count is None else float(count)
        case mir.Let(id=local, value=value, body=body):
            inside = {**known, local: cardinality(value, statistics, known, types)}
            typed = {**types, local: relation_type(value, types)}
            return cardinality(body, statistics, inside, typed)
        case mir.LetRec():
            return None
    parts = [cardinality(part, statistics, known, types) for part in mir.inputs(rel)]
    if isinstance(rel, mir.Join):
        return _join(rel, parts, types)
    if isinstance(rel, mir.Union):
        return _all(parts, sum)
    return _over(rel, parts[0])


def _over(rel: mir.Relation, below: Estimate) -> Estimate:
    """The estimate of an operator with one input."""
    match rel:
        case mir.Reduce(group_key=()):
            return 1.0
        case mir.Reduce(expected_group_size=int() as size):
            return _times(below, 1 / size)
        case mir.TopK():
            return _top_k(rel, below)
        case mir.Filter(predicates=predicates):
            return _times(below, math.prod(selectivity(pred) for pred in predicates))
        case mir.FlatMap():
            return _times(below, _EXPLOSION)
        case _:
            return below


def _times(estimate: Estimate, factor: float) -> Estimate:
    return None if estimate is None else estimate * factor


def _all(parts: Sequence[Estimate], f: Callable[[Sequence[float]], float]) -> Estimate:
    """`f` of the estimates, if all are known."""
    numbers = [part for part in parts if part is not None]
    return float(f(numbers)) if len(numbers) == len(parts) else None


def _top_k(rel: mir.TopK, below: Estimate) -> Estimate:
    limit = rel.limit.value if isinstance(rel.limit, sc.Literal) else None
    if not isinstance(limit, int):
        return below
    if rel.expected_group_size is not None:
        return _times(below, min(1.0, limit / rel.expected_group_size))
    if rel.group_key:
        return below
    return float(limit) if below is None else min(float(limit), below)


def selectivity(pred: sc.Scalar) -> float:
    """The estimated share of rows that a predicate keeps."""
    match pred:
        case sc.If(then=then, otherwise=otherwise):
            return max(selectivity(then), selectivity(otherwise))
        case sc.Call(func="not", args=(arg,)):
            return 1 - selectivity(arg)
        case sc.Call(func="and", args=args):
            return math.prod(selectivity(arg) for arg in args)
        case sc.Call(func="or", args=args):
            return 1 - math.prod(1 - selectivity(arg) for arg in args)
        case sc.Call(func="is_true" | "is_false"):
            return _TRUTH
        case sc.Call(func=func, args=args):
            return _of_call(func, args)
        case _:
            return 1.0


def _of_call(func: str, args: Sequence[sc.Scalar]) -> float:
    if len(args) == 1 or func.startswith("eq_") or func in _MATCHES:
        return WORST_CASE
    if func.startswith("not_eq_"):
        return 1 - WORST_CASE
    return _RANGE if func.startswith(_ORDERINGS) else 1.0


def _join(rel: mir.Join, parts: Sequence[Estimate], types: Mapping[int, RelationType]) -> Estimate:
    """The product of the inputs' estimates, in which inputs that are looked up by a unique column count as one."""
    starts = list(itertools.accumulate((mir.arity(part) for part in rel.inputs), initial=0))
    unique: dict[int, int] = {}
    for number, part in enumerate(rel.inputs):
        for key in relation_type(part, types).keys:
            if len(key) == 1:
                unique[starts[number] + key[0]] = number
    left = list(parts)
    for cls in rel.equivalences:
        found = [unique.get(e.index) if isinstance(e, sc.Column) else None for e in cls]
        sources = sorted({number for number in found if number is not None})
        if not sources:
            continue
        least = _all([left[number] for number in sources], min)
        for number in sources:
            left[number] = 1.0
        if None not in found:
            left[sources[0]] = least
    return _all(left, math.prod)


def shown(estimate: Estimate) -> str:
    """An estimate as EXPLAIN prints it."""
    if estimate is None:
        return "<UNKNOWN>"
    if float(estimate).is_integer():  # which what is too large for a number is not
        return str(int(estimate))
    return format(Decimal(repr(estimate)), "f")
