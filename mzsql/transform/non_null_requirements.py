"""NonNullRequirements: does not produce rows that are dropped above because a column is NULL.

Promise: only rows are removed that a filter above would drop, or for which its comparison could not be true.
Branches that output a NULL in such a column become empty; a binding's rows must be required by all its readers.
Source: Materialize's transform `NonNullRequirements`.
"""

from __future__ import annotations

from collections.abc import Iterable

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.typing import not_null_columns, relation_type, strict_columns
from mzsql.transform.visit import replace_inputs

Columns = frozenset[int]
_NONE: Columns = frozenset()


def non_null_requirements(rel: mir.Relation) -> mir.Relation:
    """Remove rows that are not required."""
    return _Pass().visit(rel, _NONE)


class _Pass:
    """One traversal from the root down; `_asked` is what every reader of a binding requires of it."""

    def __init__(self) -> None:
        self._asked: dict[int, Columns] = {}

    def visit(self, rel: mir.Relation, required: Columns) -> mir.Relation:
        """The relation without rows that are NULL in a required column, as far as that can be seen."""
        match rel:
            case mir.Let(id=local, value=value, body=body):
                new = self.visit(body, required)
                return mir.Let(local, self.visit(value, self._asked.pop(local, _NONE)), new)
            case mir.LetRec():
                kids = [self.visit(value, _NONE) for value in rel.values]
                new = mir.with_inputs(rel, [*kids, self.visit(rel.body, required)])
                for local in rel.ids:
                    self._asked.pop(local, None)
                return new
            case mir.Get(id=int() as local):
                self._asked[local] = self._asked.get(local, required) & required
                return rel
            case mir.Get():
                return rel
            case mir.Constant(rows=rows):
                kept = tuple((r, d) for r, d in rows if all(r[c] is not None for c in required))
                return rel if len(kept) == len(rows) else mir.Constant(kept, rel.typ)
            case mir.Map() if _puts_out_null(rel, required):
                return mir.Constant((), relation_type(rel))
            case _:
                kids_of = mir.inputs(rel)
                asked = _inputs_required(rel, required)
                new_kids = [self.visit(k, a) for k, a in zip(kids_of, asked, strict=True)]
                return replace_inputs(rel, kids_of, new_kids)


def _puts_out_null(rel: mir.Map, required: Columns) -> bool:
    width = mir.arity(rel.input)
    return any(
        width + offset in required and isinstance(scalar, sc.Literal) and scalar.value is None
        for offset, scalar in enumerate(rel.scalars)
    )


def _strict(exprs: Iterable[sc.Scalar]) -> Columns:
    return frozenset().union(*(strict_columns(expr) for expr in exprs))


def _inputs_required(rel: mir.Relation, required: Columns) -> list[Columns]:
    """For each input the columns in which NULLs are not needed."""
    match rel:
        case mir.Project(outputs=outputs):
            return [frozenset(outputs[c] for c in required)]
        case mir.Map(input=inner, scalars=scalars):
            width = mir.arity(inner)
            need = set(required)
            for offset in range(len(scalars) - 1, -1, -1):
                if width + offset in need:
                    need |= strict_columns(scalars[offset])
            return [frozenset(c for c in need if c < width)]
        case mir.Filter(predicates=predicates):
            return [required | not_null_columns(predicates)]
        case mir.FlatMap(input=inner):
            width = mir.arity(inner)
            return [frozenset(c for c in required if c < width)]
        case mir.Join(inputs=inputs, equivalences=classes):
            need = set(required)
            for cls in classes:
                if any(isinstance(e, sc.Column) and e.index in need for e in cls):
                    need |= _strict(cls)
            return _split(inputs, need)
        case mir.Reduce():
            return [_reduce_required(rel, required)]
        case mir.TopK(group_key=group):
            return [required & frozenset(group)]
        case mir.Negate() | mir.Threshold():
            return [required]
        case mir.Union(inputs=inputs):
            return [required for _ in inputs]
        case _:
            return [_NONE for _ in mir.inputs(rel)]


def _reduce_required(rel: mir.Reduce, required: Columns) -> Columns:
    """Input columns whose NULL makes a row unnecessary: those that a required key column is NULL with and, if an
    aggregate is required not to be NULL, those with whose NULL a row is ignored by every aggregate.
    """
    key = rel.group_key
    need = _strict(key[c] for c in required if c < len(key))
    if any(c >= len(key) and _of_values(rel.aggregates[c - len(key)]) for c in required):
        need |= frozenset.intersection(*(_read(one) for one in rel.aggregates))
    return need


def _of_values(aggregate: sc.AggregateExpr) -> bool:
    """Whether the aggregate is NULL for a group of NULLs."""
    func = functions.aggregate(aggregate.func)
    return func.ignores_nulls and func.nullable


def _read(aggregate: sc.AggregateExpr) -> Columns:
    """The columns whose NULL makes a row irrelevant to an aggregate."""
    if not functions.aggregate(aggregate.func).ignores_nulls:
        return _NONE
    return strict_columns(aggregate.expr)


def _split(inputs: Iterable[mir.Relation], columns: Iterable[int]) -> list[Columns]:
    """The columns of a join by input."""
    need = set(columns)
    found: list[Columns] = []
    start = 0
    for part in inputs:
        end = start + mir.arity(part)
        found.append(frozenset(c - start for c in need if start <= c < end))
        start = end
    return found
