"""Properties of HIR that lowering needs: dependencies between scalars, subqueries in them, what a relation reads from
outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mzsql.expr import scalar as ms
from mzsql.frontend import hir
from mzsql.frontend.hir_visit import map_columns
from mzsql.repr.datum import Datum


def independent(scalars: Sequence[hir.Scalar], arity: int) -> list[hir.Scalar]:
    """The longest prefix of the scalars that reads no column appended by them; at least one."""
    batch: list[hir.Scalar] = []
    for scalar in scalars:
        if batch and any(
            isinstance(n, hir.Column) and n.level == 0 and n.index >= arity
            for n in hir.walk_scalar(scalar)
        ):
            break
        if batch and has_subquery(scalar) and _reads_new(scalar, arity):
            break
        batch.append(scalar)
    return batch


def _reads_new(scalar: hir.Scalar, arity: int) -> bool:
    new: list[bool] = []

    def visit(at: int, column: hir.Column) -> hir.Scalar:
        if column.level == at and column.index >= arity:
            new.append(True)
        return column

    map_columns(scalar, visit)
    return bool(new)


def collect(scalar: hir.Scalar, found: list[hir.Exists | hir.Select]) -> None:
    """Append the subqueries of a scalar, left to right; those in a CASE's branches are left to the CASE."""
    match scalar:
        case hir.Exists() | hir.Select():
            found.append(scalar)
        case hir.If(condition=condition, then=then, otherwise=otherwise):
            collect(condition, found)
            if not has_subquery(then) and not has_subquery(otherwise):
                return
        case _:
            for child in hir.scalar_children(scalar):
                collect(child, found)


def has_subquery(scalar: hir.Scalar) -> bool:
    """Whether a scalar has a subquery anywhere."""
    return any(isinstance(n, hir.Exists | hir.Select) for n in hir.walk_scalar(scalar))


def is_row_wise(rel: hir.Relation) -> bool:
    """Whether a relation's rows for an outer row depend on that row alone, without joins or grouping."""
    return all(
        isinstance(node, hir.Constant | hir.Project | hir.Map | hir.Filter | hir.CallTable)
        and not any(
            isinstance(part, hir.Windowing)
            for scalar in hir.relation_scalars(node)
            for part in hir.walk_scalar(scalar)
        )
        for node in hir.walk(rel)
    )


def of_nothing(aggregate: ms.AggregateExpr) -> Datum:
    """An aggregate's value over no rows."""
    match aggregate.func:
        case "count":
            return 0
        case "any":
            return False
        case "all":
            return True
        case _:
            return None


@dataclass(frozen=True)
class Outside:
    """What a relation reads from outside itself.

    Attributes:
        columns: columns of enclosing scopes, by level and index.
        ctes: CTEs that it does not define itself.
    """

    columns: frozenset[tuple[int, int]] = frozenset()
    ctes: frozenset[int] = frozenset()

    def outwards(self) -> Outside:
        """The same as seen from one scope further out."""
        columns = frozenset((level - 1, index) for level, index in self.columns if level > 1)
        return Outside(columns, self.ctes)


@dataclass
class Reads:
    """What relations read from outside themselves; each is analyzed once, however deeply it is nested."""

    # By identity; the relation is kept alive, so that its id is not reused for another one.
    _known: dict[int, tuple[hir.Relation, Outside]] = field(default_factory=dict)

    def of(self, rel: hir.Relation) -> Outside:
        """The reads of a relation."""
        known = self._known.get(id(rel))
        if known is None:
            known = self._known[id(rel)] = rel, self._found(rel)
        return known[1]

    def _found(self, rel: hir.Relation) -> Outside:
        columns: set[tuple[int, int]] = set()
        ctes: set[int] = set()
        for part in self._parts(rel):
            columns |= part.columns
            ctes |= part.ctes
        match rel:
            case hir.Get(id=local) if isinstance(local, int):
                ctes.add(local)
            case hir.Let(id=local, value=value):
                ctes = set(self.of(value).ctes) | (set(self.of(rel.body).ctes) - {local})
            case hir.LetRec(bindings=bindings):
                ctes -= {binding.id for binding in bindings}
            case _:
                pass
        return Outside(frozenset(columns), frozenset(ctes))

    def _parts(self, rel: hir.Relation) -> Iterator[Outside]:
        for scalar in hir.relation_scalars(rel):
            for node in hir.walk_scalar(scalar):
                if isinstance(node, hir.Column) and node.level > 0:
                    yield Outside(frozenset([(node.level, node.index)]))
                elif isinstance(node, hir.Exists | hir.Select):
                    yield self.of(node.relation).outwards()
        if isinstance(rel, hir.Join):
            # A join's right side is one scope further in.
            yield self.of(rel.left)
            yield self.of(rel.right).outwards()
            return
        for inner in hir.relation_inputs(rel):
            yield self.of(inner)
