"""How unique keys pass through the operators of a plan.

Promise: a claimed key is unique as long as multiplicities are not negative; where little is known, less is claimed. The
rules are Materialize's, so that decisions based on keys (dropping a DISTINCT, the order of a join) are Materialize's
too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from mzsql.expr import relation as mir
from mzsql.expr.scalar import Call, Column, Literal, Scalar, support
from mzsql.repr.types import RelationType

Keys = tuple[tuple[int, ...], ...]
#: The number of unique keys tracked per relation.
_MAX_KEYS = 8
_INTEGERS = ("smallint", "integer", "bigint", "uint2", "uint4", "uint8")
#: Injective functions of one argument.
ONE_TO_ONE = frozenset(
    {
        *(f"{a}_to_{b}" for a in _INTEGERS for b in (*_INTEGERS, "text", "numeric") if a != b),
        *(f"{a}_to_double" for a in ("smallint", "integer", "uint2", "uint4", "real")),
        *(f"{a}_to_text" for a in ("boolean", "varchar", "date", "uuid")),
        *("not", "neg_smallint", "neg_integer", "neg_bigint", "date_to_timestamp"),
        *("text_to_varchar", "boolean_to_integer"),
    }
)


def normalize_keys(keys: Iterable[Iterable[int]]) -> Keys:
    """The keys without supersets of another, shortest first, at most `_MAX_KEYS`."""
    different = set(map(frozenset, keys))
    if len(different) < 2:
        return tuple([tuple(sorted(key)) for key in different])
    found: list[frozenset[int]] = []
    for key in sorted(different, key=lambda k: (len(k), sorted(k))):
        if not any(other <= key for other in found):
            found.append(key)
    return tuple(tuple(sorted(key)) for key in found[:_MAX_KEYS])


def projected_keys(keys: Sequence[Sequence[int]], outputs: Sequence[int]) -> Keys:
    """The keys whose columns are all output, renumbered."""
    place: dict[int, int] = {}
    for position, column in enumerate(outputs):
        place.setdefault(column, position)
    return normalize_keys(
        [[place[column] for column in key] for key in keys if place.keys() >= set(key)]
    )


def mapped_keys(keys: Sequence[Sequence[int]], width: int, scalars: Sequence[Scalar]) -> Keys:
    """The keys, and those with a column replaced by an appended injective function of it."""
    found = [frozenset(key) for key in keys]
    for offset, scalar in enumerate(scalars):
        source = scalar
        while type(source) is Call and source.func in ONE_TO_ONE:
            source = source.args[0]
        if type(source) is Column:
            found.extend(
                (key - {source.index}) | {width + offset}
                for key in list(found)
                if source.index in key
            )
    return normalize_keys(found)


#: Types with different values that are equal.
_LOOSE = frozenset({"real", "double", "interval", "char", "bpchar", "jsonb"})


def _is_exact(func: str) -> bool:
    """Whether a function's truth means that two values are identical."""
    return func.startswith("eq_") and func.removeprefix("eq_") not in _LOOSE


def filtered_keys(keys: Sequence[Sequence[int]], predicates: Iterable[Scalar]) -> Keys:
    """The keys without columns that a predicate fixes, and with either of two columns that it equates."""
    fixed: set[int] = set()
    equal: list[tuple[int, int]] = []
    for pred in predicates:
        if type(pred) is not Call:
            continue
        match pred:
            case Call(func=func, args=(Column(index=i), Literal())) if func.startswith("eq_"):
                fixed.add(i)
            case Call(func=func, args=(Literal(), Column(index=i))) if func.startswith("eq_"):
                fixed.add(i)
            case Call(func="is_null", args=(Column(index=i),)):
                fixed.add(i)
            case Call(func=func, args=(Column(index=i), Column(index=j))) if _is_exact(func):
                equal.append((i, j))
            case _:
                pass
    found = {frozenset(key) - fixed for key in keys}
    for pair in map(set, equal):
        found |= {(key - pair) | {one} for key in found if key & pair for one in pair}
    return normalize_keys(found)


def join_keys(inputs: Sequence[RelationType], equivalences: Sequence[Sequence[Scalar]]) -> Keys:
    """The keys of the first input, if every later input is joined by one of its own keys."""
    if not inputs:
        return ((),)
    starts = list(itertools.accumulate((part.arity for part in inputs), initial=0))
    owner = [n for n, part in enumerate(inputs) for _ in range(part.arity)]
    bound: list[set[int]] = [set() for _ in inputs]
    for cls in equivalences:
        lasts = [max([owner[c] for c in support(expr)], default=-1) for expr in cls]
        first = min(lasts)
        for expr, home in zip(cls, lasts, strict=True):
            if type(expr) is Column and home > first:
                bound[home].add(expr.index - starts[home])
    kept = all(
        any(bound[n].issuperset(key) for key in part.keys) for n, part in enumerate(inputs) if n > 0
    )
    return normalize_keys(inputs[0].keys) if kept else ()


def padded_keys(
    rel: mir.Union,
    inputs: Sequence[RelationType],
    type_of: Callable[[mir.Relation], RelationType],
) -> Keys:
    """The keys of a union of a relation with the padded rows it lacks, as outer joins, scalar subqueries and global
    aggregates make it.

    Assumes that what is lacked is part of the other relation, so that no multiplicity is negative.
    """
    if len(rel.inputs) != 2:
        return ()
    found: list[tuple[int, ...]] = []
    for base, rest, typ in (
        (rel.inputs[0], rel.inputs[1], inputs[0]),
        (rel.inputs[1], rel.inputs[0], inputs[1]),
    ):
        lacked = lacking(rest)
        if lacked is None or lacked[1] != base:
            continue
        outputs, _, whole = lacked
        if not outputs:
            single = isinstance(whole, mir.Constant) and whole.rows == (((), 1),)
            found.extend([()] if single and () in typ.keys else ())
        elif base is rel.inputs[0]:
            # As in Materialize: for a subquery, not for an outer join.
            keys = (key for key in type_of(whole).keys if all(outputs[c] == c for c in key))
            found.extend(key for key in keys if key in typ.keys)
    return normalize_keys(found)


def lacking(rel: mir.Relation) -> tuple[tuple[int, ...], mir.Relation, mir.Relation] | None:
    """The projection, base and whole of ``Map(Union(Negate(Project(base)), whole))``; None for any other plan."""
    if type(rel) is not mir.Map or type(rel.input) is not mir.Union:
        return None
    match rel.input.inputs:
        case (mir.Negate(input=minus), whole) | (whole, mir.Negate(input=minus)):
            if isinstance(minus, mir.Project):
                return minus.outputs, minus.input, whole
            return tuple(range(mir.arity(minus))), minus, whole
        case _:
            return None
