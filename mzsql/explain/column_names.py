"""Column names in MIR plans, for EXPLAIN … WITH (humanized expressions).

Promise: a column has the name that it had in the object it was read from; an aggregate of a column is named after both
(``max_price``), of an expression after the function alone; a copy has the name of its original. A computed column has
an empty name.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.explain.config import Humanizer
from mzsql.explain.scalars import aggregate_name
from mzsql.expr import relation as mir
from mzsql.expr.scalar import AggregateExpr, Column, Scalar

Names = tuple[str, ...]


class ColumnNames:
    """Finds the column names of relations; each relation is analyzed once."""

    def __init__(self, humanizer: Humanizer) -> None:
        self._humanizer = humanizer
        self._known: dict[int, tuple[mir.Relation, Names]] = {}
        self._locals: dict[int, Names] = {}

    def bind(self, local: int, value: mir.Relation) -> None:
        """Give Gets of the local id the names of ``value``."""
        self._locals[local] = self.of(value)

    def rounds(self, rel: mir.LetRec) -> list[ColumnNames]:
        """The names inside each binding of a recursion: those of the bindings before it are known there, its own are
        not.
        """
        found: list[ColumnNames] = []
        scope = ColumnNames(self._humanizer)
        scope._locals = {k: v for k, v in self._locals.items() if k not in rel.ids}
        for local, value in zip(rel.ids, rel.values, strict=True):
            found.append(scope)
            names = scope.of(value)
            # A binding and its use may share subtrees, whose names differ in each.
            scope = ColumnNames(self._humanizer)
            scope._locals = {**found[-1]._locals, local: names}
        self._locals.update(scope._locals)
        self._known.clear()
        return found

    def of(self, rel: mir.Relation) -> Names:
        """The column names of a relation."""
        known = self._known.get(id(rel))
        if known is None:
            # The relation is kept alive, so that its id is not reused for another one.
            known = (rel, self._names(rel))
            self._known[id(rel)] = known
        return known[1]

    def _names(self, rel: mir.Relation) -> Names:
        match rel:
            case mir.Constant(typ=typ):
                return _unknown(typ.arity)
            case mir.Get(id=int() as local, typ=typ):
                return self._locals.get(local, _unknown(typ.arity))
            case mir.Get(id=gid, typ=typ):
                assert not isinstance(gid, int)
                found = self._humanizer.column_names(gid)
                return _unknown(typ.arity) if found is None else tuple(found)
            case mir.Let(id=local, value=value, body=body):
                self.bind(local, value)
                return self.of(body)
            case mir.LetRec(body=body):
                self.rounds(rel)
                return self.of(body)
            case mir.Join(inputs=inputs):
                return tuple(name for part in inputs for name in self.of(part))
            case mir.Union(inputs=inputs):
                parts = [self.of(part) for part in inputs]
                return tuple(
                    next((name for name in same if name), "") for same in zip(*parts, strict=True)
                )
            case _:
                return self._over(rel, self.of(rel.input))

    def _over(self, rel: mir.Relation, names: Names) -> Names:
        """The names of an operator with one input."""
        match rel:
            case mir.Project(outputs=outputs):
                return tuple(names[column] for column in outputs)
            case mir.Map(scalars=scalars):
                for expr in scalars:
                    names = (*names, _name(expr, names))
                return names
            case mir.FlatMap(output=output):
                return names + _unknown(output.arity)
            case mir.Reduce(group_key=key, aggregates=aggregates):
                return (
                    *(_name(expr, names) for expr in key),
                    *(_aggregate(aggr, names) for aggr in aggregates),
                )
            case _:
                return names


def _unknown(arity: int) -> Names:
    return ("",) * arity


def _name(expr: Scalar, names: Sequence[str]) -> str:
    return names[expr.index] if isinstance(expr, Column) else ""


def _aggregate(aggr: AggregateExpr, names: Sequence[str]) -> str:
    func = aggregate_name(aggr.func).split("[", 1)[0]
    expr = _name(aggr.expr, names)
    return f"{func}_{expr}" if expr else func
