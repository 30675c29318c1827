"""Where the values of a relation's columns come from.

Promise: what `Provenance.trace` returns holds: for every row of the relation the stage's relation has a row in which its
expressions have these values, all in the same row. Multiplicities of a plan that means a table are not negative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.memo import memo
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.transform.remembered import Key
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


class Provenance:
    """Traces values under the bindings of one traversal. Results are remembered in this run: unions of one binding lead
    to the same stages at every level, and joins that a plan keeps ask again in every round.

    Args:
        values: the bindings around what is traced; the traversal changes them as it goes.
        key: identifies a part of a plan together with what it reads of them (`mzsql.transform.remembered.Scope.key`);
            None if nothing can be remembered beyond this object.
    """

    def __init__(
        self, values: Mapping[int, mir.Relation], key: Callable[[mir.Relation], Key] | None = None
    ) -> None:
        self._values = values
        self._key = key
        self._known: dict[object, dict[Stage, None]] = {} if key is None else memo("provenance")
        self._reached: dict[object, frozenset[mir.Relation]]
        self._reached = {} if key is None else memo("provenance reached")
        self._inlined: dict[tuple[Exprs, int], list[sc.Scalar]] = memo("inlined columns")

    def trace(self, rel: mir.Relation, exprs: Exprs) -> Mapping[Stage, None]:
        """Stages in which the values of `exprs` of every row of `rel` occur together in one row."""
        asked = (rel if self._key is None else self._key(rel), exprs)
        answer = self._known.get(asked)
        if answer is None:
            answer = self._known[asked] = self._traced(rel, exprs)
        return answer

    def reached(self, rel: mir.Relation) -> frozenset[mir.Relation]:
        """The relations of all stages that there are for any expressions, and perhaps more: what is not among them need
        not be traced.
        """
        asked = rel if self._key is None else self._key(rel)
        answer = self._reached.get(asked)
        if answer is None:
            answer = self._reached[asked] = frozenset(self._below(rel))
        return answer

    def _below(self, rel: mir.Relation) -> set[mir.Relation]:
        check_for_interrupts()
        found: set[mir.Relation] = set()
        while True:
            found.add(rel)
            match rel:
                case mir.Get(id=local) if isinstance(local, int) and local in self._values:
                    return found.union(self.reached(self._values[local]))
                case mir.Join(inputs=inputs):
                    return found.union(*map(self.reached, inputs))
                case mir.Union(inputs=inputs):
                    return found.union(self._common(inputs))
                case mir.Constant() | mir.Get() | mir.Let() | mir.LetRec():
                    return found
                case _:
                    (rel,) = mir.inputs(rel)

    def _common(self, inputs: Sequence[mir.Relation]) -> frozenset[mir.Relation]:
        """What all of some relations reach."""
        first, *others = map(self.reached, inputs)
        return first.intersection(*others)

    def _traced(self, rel: mir.Relation, exprs: Exprs) -> dict[Stage, None]:
        check_for_interrupts()
        found: dict[Stage, None] = {}
        while True:
            found[rel, exprs] = None
            match rel:
                case mir.Get(id=local) if isinstance(local, int) and local in self._values:
                    return {**found, **self.trace(self._values[local], exprs)}
                case mir.Project(outputs=outputs):
                    columns = [sc.column(c) for c in outputs]
                    exprs = tuple([sc.substitute(e, columns) for e in exprs])
                    rel = rel.input
                case mir.Map():
                    seen = self._through(rel, exprs)
                    if seen is None:
                        return found
                    rel, exprs = rel.input, seen
                case mir.Filter() | mir.TopK() | mir.Threshold() | mir.Negate() | mir.ArrangeBy():
                    rel = rel.input
                case mir.Reduce(group_key=key) if _reads_only(exprs, len(key)):
                    exprs = tuple([sc.substitute(e, key) for e in exprs])
                    rel = rel.input
                case mir.FlatMap() if _reads_only(exprs, mir.arity(rel.input)):
                    rel = rel.input
                case mir.Join():
                    step = _into_join(rel, exprs)
                    if step is None:
                        return found
                    rel, exprs = step
                case mir.Union(inputs=inputs):
                    if not self._common(inputs):
                        return found
                    parts = [self.trace(part, exprs) for part in inputs]
                    common = [s for s in parts[0] if all(s in part for part in parts[1:])]
                    return {**found, **dict.fromkeys(common)}
                case _:
                    return found

    def _through(self, rel: mir.Map, exprs: Exprs) -> Exprs | None:
        """As `mzsql.expr.scalar.inlined_into`, with the columns of a Map inlined once."""
        width = mir.arity(rel.input)
        columns = self._inlined.get((rel.scalars, width))
        if columns is None:
            columns = self._inlined[rel.scalars, width] = sc.inlined(rel.scalars, width)
        found = tuple([sc.substitute(expr, columns) for expr in exprs])
        return found if all(sc.is_small(expr, width) for expr in found) else None


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
