"""Typecheck: checks that a plan is well formed and has the expected type.

Promise: what passes can be typed, lowered and run as far as its shape is concerned: every column that is read
exists, predicates are booleans, branches of a union and members of an equivalence agree in types, a binding is bound
once and read only in its scope, with its types. Tests run it between every two transforms; it costs about as much as
deriving the types.
Source: Materialize's transform `Typecheck`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.typing import node_type, recursive_types
from mzsql.repr.errors import InternalError
from mzsql.repr.types import BOOLEAN, ColumnType, RelationType, SqlType, type_name

#: Kinds whose declared length is a bound only.
_MEASURED = frozenset({"varchar", "timestamp", "timestamptz"})

Types = Mapping[int, RelationType]


class IllTyped(InternalError):
    """A plan that no transform may produce: a defect of the optimizer."""


def typecheck(rel: mir.Relation, expected: RelationType | None = None) -> RelationType:
    """The type of a plan.

    Args:
        rel: the plan.
        expected: the types that its output columns must have.

    Raises:
        IllTyped: it is not well formed, or outputs something else.
    """
    _bound_once(rel)
    typ = _check(rel, {})
    if expected is not None:
        _same(rel, "the plan", typ, expected)
    return typ


def _bound_once(rel: mir.Relation) -> None:
    seen: set[int] = set()
    for node in mir.walk(rel):
        ids = (
            (node.id,)
            if isinstance(node, mir.Let)
            else node.ids
            if isinstance(node, mir.LetRec)
            else ()
        )
        for local in ids:
            if local in seen:
                raise IllTyped(f"l{local} is bound twice")
            seen.add(local)


def _check(rel: mir.Relation, known: Types) -> RelationType:
    if isinstance(rel, mir.Let):
        return _check(rel.body, {**known, rel.id: _check(rel.value, known)})
    if isinstance(rel, mir.LetRec):
        if not len(rel.ids) == len(rel.values) == len(rel.limits):
            raise IllTyped("a recursion has as many values and limits as bindings")
        types = {**known, **recursive_types(rel.ids, rel.values, known)}
        for local, value in zip(rel.ids, rel.values, strict=True):
            _same(value, f"l{local}", _check(value, types), types[local])
        return _check(rel.body, types)
    inputs = [_check(part, known) for part in mir.inputs(rel)]
    match rel:
        case mir.Get(id=int() as local):
            if local not in known:
                raise IllTyped(f"l{local} is not bound where it is read")
            _same(rel, f"l{local}", known[local], rel.typ)
        case mir.Constant(rows=rows, typ=typ):
            if any(len(row) != typ.arity for row, _ in rows):
                raise IllTyped(f"a constant of {typ.arity} columns has a row of another width")
        case mir.Union():
            for part in inputs[1:]:
                _same(rel, "a branch of a union", part, inputs[0])
        case _:
            _scalars(rel, inputs)
    typ = node_type(rel, inputs, known)
    for key in typ.keys:
        _columns(rel, key, typ.arity)
    return typ


def _scalars(rel: mir.Relation, inputs: Sequence[RelationType]) -> None:
    """The expressions of a node over its inputs' output."""
    columns = [column for part in inputs for column in part.columns]
    width = len(columns)
    match rel:
        case mir.Project(outputs=outputs):
            _columns(rel, outputs, width)
        case mir.Map(scalars=scalars):
            for offset, scalar in enumerate(scalars):
                _columns(rel, sc.support(scalar), width + offset)
        case mir.Filter(predicates=predicates):
            for pred in predicates:
                _columns(rel, sc.support(pred), width)
                _boolean(pred, columns)
        case mir.FlatMap(exprs=exprs):
            _all_columns(rel, exprs, width)
        case mir.Join(equivalences=classes):
            for cls in classes:
                _all_columns(rel, cls, width)
                types = {carrier(sc.scalar_type(expr, columns)) for expr in cls}
                if len(types) > 1:
                    raise IllTyped(f"an equivalence is of {' and '.join(sorted(types))}")
        case mir.Reduce(group_key=key, aggregates=aggregates):
            _all_columns(rel, (*key, *(a.expr for a in aggregates)), width)
        case mir.TopK(group_key=group, order_key=order, limit=limit):
            _columns(rel, (*group, *(o.column for o in order)), width)
            if limit is not None:
                _columns(rel, sc.support(limit), width)
        case mir.ArrangeBy(keys=keys):
            _all_columns(rel, (expr for key in keys for expr in key), width)
        case _:
            pass


def carrier(typ: SqlType) -> str:
    """What of a type decides how its values are stored: a numeric's scale, a char's length, nothing of a varchar's."""
    plain = msgspec.structs.replace(typ, length=None) if typ.kind in _MEASURED else typ
    if typ.kind == "numeric":
        plain = msgspec.structs.replace(typ, scale=typ.effective_scale)
    return type_name(plain)


def _all_columns(rel: mir.Relation, exprs: Iterable[sc.Scalar], width: int) -> None:
    for expr in exprs:
        _columns(rel, sc.support(expr), width)


def _columns(rel: mir.Relation, columns: Iterable[int], width: int) -> None:
    for column in columns:
        if not 0 <= column < width:
            name = type(rel).__name__
            raise IllTyped(f"{name} reads column #{column} where there are {width}")


def _boolean(pred: sc.Scalar, columns: Sequence[ColumnType]) -> None:
    kind = sc.scalar_type(pred, columns).kind
    if kind != BOOLEAN.kind:
        raise IllTyped(f"a predicate is of type {kind}")


def _same(rel: mir.Relation, what: str, found: RelationType, wanted: RelationType) -> None:
    """Check that columns have the same types; nullability and keys may differ."""
    have = [carrier(column.type) for column in found.columns]
    want = [carrier(column.type) for column in wanted.columns]
    if have != want:
        name = type(rel).__name__
        raise IllTyped(f"{what} has columns of {have} in {name} where {want} are expected")
