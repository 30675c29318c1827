"""RedundantJoin: removes a join input that adds nothing.

Promise: an input is removed only if every row of the others meets exactly one row of it: it has a unique key (or is
distinct values) and is joined with expressions of another input whose rows come from its rows. What was read of it
is then computed from that other input.
Source: Materialize's transform `RedundantJoin`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.parts import kinds_of
from mzsql.expr.typing import relation_type
from mzsql.repr.types import RelationType
from mzsql.transform.fusion import merge_classes
from mzsql.transform.provenance import Exprs, Provenance, Stage, own_stages
from mzsql.transform.remembered import ScopedPass
from mzsql.transform.visit import filtered, mapped, project, replace_inputs

_WHERE = kinds_of(mir.Join)
#: How many ways to read an input's columns from another input are tried.
_TRIED = 16
#: Inputs wider than this are not searched for columns that are not joined.
_WIDE = 100


def redundant_join(rel: mir.Relation) -> mir.Relation:
    """Remove redundant inputs everywhere."""
    return _Pass().visit(rel)


class _Pass(ScopedPass):
    """One traversal, with the values and types of the bindings around it."""

    def __init__(self) -> None:
        super().__init__("redundant_join", _WHERE)
        self._values: dict[int, mir.Relation] = {}
        self._types: dict[int, RelationType] = {}
        self._provenance = Provenance(self._values, self._scope.key)

    def visited(self, rel: mir.Relation) -> mir.Relation:
        if isinstance(rel, mir.Let):
            value = self.visit(rel.value)
            self._values[rel.id] = value
            self._types[rel.id] = relation_type(value, self._types)
            self._scope.bind(rel.id, value)
            return replace_inputs(rel, (rel.value, rel.body), (value, self.visit(rel.body)))
        if isinstance(rel, mir.LetRec):
            for local in rel.ids:  # what an iteration reads is not what the one before did
                self._values.pop(local, None)
                self._types.pop(local, None)
                self._scope.unbind(local)
        kids = mir.inputs(rel)
        rel = replace_inputs(rel, kids, [self.visit(kid) for kid in kids])
        if isinstance(rel, mir.Join) and isinstance(rel.implementation, mir.Unplanned):
            return self._join(rel)
        return rel

    def _join(self, rel: mir.Join) -> mir.Relation:
        starts = list(itertools.accumulate((mir.arity(p) for p in rel.inputs), initial=0))
        joined = {e.index: cls for cls in rel.equivalences for e in cls if isinstance(e, sc.Column)}
        for position in reversed(range(len(rel.inputs))):
            part = rel.inputs[position]
            columns = range(starts[position], starts[position + 1])
            if not any(c in joined for c in columns):
                continue
            key = self._joined_key(part, columns, joined)
            if key is None:
                continue
            stages = own_stages(part, self._values)
            for other in range(len(rel.inputs)):
                if other == position:
                    continue
                found = self._read_off(rel, other, starts, columns, key, joined, stages)
                if found is not None:
                    return self._without(rel, position, starts, *found)
        return rel

    def _without(
        self, rel: mir.Join, position: int, starts: Sequence[int], found: Exprs, passed: Exprs
    ) -> mir.Relation:
        """The join without an input, whose columns are computed and filtered from another input's, and without what is
        then redundant too.
        """
        start, end = starts[position], starts[position + 1]
        total = starts[-1]
        width = end - start
        columns: list[sc.Scalar] = [
            sc.Column(c if c < start else c - width) for c in range(total) if not start <= c < end
        ]
        place = {c: (c if c < start else c - width) for c in range(total) if not start <= c < end}
        columns[start:start] = own = [sc.permute(e, place) for e in found]
        inputs = tuple(part for i, part in enumerate(rel.inputs) if i != position)
        classes = merge_classes(
            [tuple(sc.substitute(e, columns) for e in cls) for cls in rel.equivalences]
        )
        single = len(inputs) == 1 and not classes
        joined = inputs[0] if single else self._join(mir.Join(inputs, classes))
        joined = filtered(joined, [sc.substitute(p, own) for p in passed])
        computed = [e for e in dict.fromkeys(columns) if not isinstance(e, sc.Column)]
        outputs = [
            e.index if isinstance(e, sc.Column) else total - width + computed.index(e)
            for e in columns
        ]
        return project(mapped(joined, computed), outputs)

    def _joined_key(
        self, part: mir.Relation, columns: range, joined: Mapping[int, Exprs]
    ) -> frozenset[int] | None:
        """The columns of a unique key of an input (over the join) that are all joined."""
        typ = relation_type(part, self._types)
        for key in typ.keys:
            moved = frozenset(columns.start + c for c in key)
            if moved and all(c in joined for c in moved):
                return moved
        return None

    def _read_off(
        self,
        rel: mir.Join,
        other: int,
        starts: Sequence[int],
        columns: range,
        key: frozenset[int],
        joined: Mapping[int, Exprs],
        stages: Mapping[Stage, Exprs],
    ) -> tuple[Exprs, Exprs] | None:
        """Expressions over the columns of input `other` that equal the redundant input's columns, and its filters in
        terms of these.
        """
        low, high = starts[other], starts[other + 1]
        whole = rel.inputs[other]
        # Tracing takes long, and is in vain where the key is joined with another input or neither has what the other has.
        read = {column: _within(joined.get(column, ()), low, high) for column in columns}
        if not all(read[column] for column in key):
            return None
        if self._provenance.reached(whole).isdisjoint(stage for stage, _ in stages):
            return None
        shift = {c: c - low for c in range(low, high)}
        keys = {
            (node, tuple([exprs[c - columns.start] for c in sorted(key)])) for node, exprs in stages
        }
        if not any(
            not keys.isdisjoint(
                self._provenance.trace(whole, tuple([sc.permute(e, shift) for e in choice]))
            )
            for choice in itertools.islice(
                itertools.product(*[read[c] for c in sorted(key)]), _TRIED
            )
        ):
            return None  # what of them occurs together would too
        options: list[list[sc.Scalar]] = []
        for column, found in read.items():
            if not found and high - low <= _WIDE:
                wanted = {(node, exprs[column - columns.start]) for node, exprs in stages}
                for candidate in range(low, high):
                    seen = self._provenance.trace(whole, (sc.column(candidate - low),))
                    if any((node, e) in wanted for node, (e,) in seen):
                        found.append(sc.Column(candidate))
            if not found:
                return None
            options.append(found)
        for choice in itertools.islice(itertools.product(*options), _TRIED):
            local = tuple(sc.permute(e, shift) for e in choice)
            common = [s for s in self._provenance.trace(whole, local) if s in stages]
            if common:
                return choice, min((stages[stage] for stage in common), key=len)
        return None


def _within(exprs: Exprs, low: int, high: int) -> list[sc.Scalar]:
    """Those of expressions that read columns from ``low`` to before ``high``, and no others."""
    return [e for e in exprs if (reads := sc.support(e)) and all(low <= c < high for c in reads)]
