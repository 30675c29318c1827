"""Where the values of a relation's columns come from.

Promise: what `trace` returns holds: for every row of the relation the stage's relation has a row in which its
expressions have these values, all in the same row. Multiplicities of a plan that means a table are not negative.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.transform.scalars import may_error

Exprs = tuple[sc.Scalar, ...]
#: A relation and expressions over it, among whose values others are found.
Stage = tuple[mir.Relation, Exprs]


def own_stages(part: mir.Relation, values: Mapping[int, mir.Relation]) -> dict[Stage, Exprs]:
    """The input itself, and what has one row for each of its rows (or distinct values) that passes predicates over its
    own columns.
    """
    exprs: Exprs = tuple(sc.Column(c) for c in range(mir.arity(part)))
    found: dict[Stage, Exprs] = {}
    passed: Exprs = ()
    while True:
        found.setdefault((part, exprs), passed)
        match part:
            case mir.Filter(input=inner, predicates=predicates):
                place = {e.index: n for n, e in enumerate(exprs) if isinstance(e, sc.Column)}
                if any(not sc.support(p) <= place.keys() or may_error(p) for p in predicates):
                    return found
                passed = (*passed, *(sc.permute(p, place) for p in predicates))
                part = inner
            case mir.Get(id=local) if isinstance(local, int) and local in values:
                part = values[local]
            case mir.Project(outputs=outputs):
                columns = [sc.Column(c) for c in outputs]
                exprs = tuple(sc.substitute(e, columns) for e in exprs)
                part = part.input
            case mir.Map():
                seen = sc.inlined_into(exprs, part.scalars, mir.arity(part.input))
                if seen is None:
                    return found
                part, exprs = part.input, seen
            case mir.Reduce(group_key=key) if _reads_only(exprs, len(key)):
                # The group key has every value of its expressions exactly once.
                exprs = tuple(sc.substitute(e, key) for e in exprs)
                part = part.input
            case _:
                return found


#: Earlier results of `trace`, for the same bindings.
Traced = dict[Stage, dict[Stage, None]]


def trace(
    rel: mir.Relation, exprs: Exprs, values: Mapping[int, mir.Relation], known: Traced
) -> dict[Stage, None]:
    """Stages in which the values of `exprs` of every row of `rel` occur together in one row.

    `known` caches results: inputs of unions over one binding lead to the same stages at every level.
    """
    asked = (rel, exprs)
    answer = known.get(asked)
    if answer is None:
        answer = known[asked] = _traced(rel, exprs, values, known)
    return answer


def _traced(
    rel: mir.Relation, exprs: Exprs, values: Mapping[int, mir.Relation], known: Traced
) -> dict[Stage, None]:
    check_for_interrupts()
    found: dict[Stage, None] = {}
    while True:
        found[rel, exprs] = None
        match rel:
            case mir.Get(id=local) if isinstance(local, int) and local in values:
                return {**found, **trace(values[local], exprs, values, known)}
            case mir.Project(outputs=outputs):
                columns = [sc.Column(c) for c in outputs]
                exprs = tuple(sc.substitute(e, columns) for e in exprs)
                rel = rel.input
            case mir.Map():
                seen = sc.inlined_into(exprs, rel.scalars, mir.arity(rel.input))
                if seen is None:
                    return found
                rel, exprs = rel.input, seen
            case mir.Filter() | mir.TopK() | mir.Threshold() | mir.Negate() | mir.ArrangeBy():
                rel = rel.input
            case mir.Reduce(group_key=key) if _reads_only(exprs, len(key)):
                exprs = tuple(sc.substitute(e, key) for e in exprs)
                rel = rel.input
            case mir.FlatMap() if _reads_only(exprs, mir.arity(rel.input)):
                rel = rel.input
            case mir.Join():
                step = _into_join(rel, exprs)
                if step is None:
                    return found
                rel, exprs = step
            case mir.Union(inputs=inputs):
                parts = [trace(part, exprs, values, known) for part in inputs]
                common = [s for s in parts[0] if all(s in part for part in parts[1:])]
                return {**found, **dict.fromkeys(common)}
            case _:
                return found


def _reads_only(exprs: Exprs, width: int) -> bool:
    return all(c < width for e in exprs for c in sc.support(e))


def _into_join(rel: mir.Join, exprs: Exprs) -> Stage | None:
    """The one input of a join that the expressions read, and the expressions over it."""
    reads = {c for e in exprs for c in sc.support(e)}
    start = 0
    for part in rel.inputs:
        width = mir.arity(part)
        if reads and all(start <= c < start + width for c in reads):
            shift = {c: c - start for c in reads}
            return part, tuple(sc.permute(e, shift) for e in exprs)
        start += width
    return None
