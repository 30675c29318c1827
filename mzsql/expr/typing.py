"""The types of scalars and relations, which are derived and never stored.

Promise: a non-nullable column never holds NULL, and a key is unique as long as multiplicities are not negative; where
nothing is known, less is claimed. Result types come from the table of functions. `locals_` gives the types of `Let`
bindings where those in the Gets may be stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr.memo import memo
from mzsql.expr.parts import part_of, parts
from mzsql.expr.relation_keys import (
    filtered_keys,
    join_keys,
    mapped_keys,
    normalize_keys,
    padded_keys,
    projected_keys,
)
from mzsql.expr.scalar import (
    AggregateExpr,
    Call,
    Column,
    If,
    Literal,
    Scalar,
    scalar_type,
    support,
)
from mzsql.repr.types import ColumnType, RelationType

_ALL_NULL = frozenset({"coalesce"})
_ANY_NULL = frozenset({"and", "or"})


def nullable(expr: Scalar, columns: Sequence[ColumnType]) -> bool:
    """Whether the expression can be NULL over rows of ``columns``."""
    if type(expr) is Column:
        return columns[expr.index].nullable
    if type(expr) is Call:
        func = functions.scalar(expr.func)
        if func.strict or expr.func in _ANY_NULL:
            return func.introduces_nulls or any(nullable(arg, columns) for arg in expr.args)
        if expr.func in _ALL_NULL or func.name in ("greatest", "least"):
            return all(nullable(arg, columns) for arg in expr.args)
        return func.introduces_nulls
    if type(expr) is Literal:
        return expr.value is None
    if type(expr) is If:
        return nullable(expr.then, columns) or nullable(expr.otherwise, columns)
    return False


def column_type(expr: Scalar, columns: Sequence[ColumnType]) -> ColumnType:
    """The type and nullability of an expression over rows of ``columns``."""
    return ColumnType(scalar_type(expr, columns), nullable(expr, columns))


def aggregate_type(aggregate: AggregateExpr, columns: Sequence[ColumnType]) -> ColumnType:
    """The type and nullability of an aggregate over a non-empty group."""
    if not aggregate.nullable:
        return ColumnType(aggregate.typ, False)
    func = functions.aggregate(aggregate.func)
    if func.kind == "basic":
        # The argument is a record: never NULL itself, though its fields may be.
        return ColumnType(aggregate.typ, func.nullable)
    # In a non-empty group, only NULL inputs make a NULL.
    return ColumnType(aggregate.typ, func.nullable and nullable(aggregate.expr, columns))


def relation_type(
    rel: mir.Relation, locals_: Mapping[int, RelationType] | None = None
) -> RelationType:
    """The columns and unique keys of a relation.

    Args:
        rel: the relation.
        locals_: the types of the bindings around it; those of its Gets where missing.
    """
    return _relation_type(rel, locals_ or {})


def _relation_type(rel: mir.Relation, known: Mapping[int, RelationType]) -> RelationType:
    if type(rel) is mir.Get:
        return known.get(rel.id, rel.typ) if isinstance(rel.id, int) else rel.typ
    types: dict[tuple[object, ...] | int, RelationType] = memo("relation_type")
    if not known and (found := types.get(id(rel))) is not None:
        return found
    return _Types(types).of(rel, known)


class _Types:
    """A memo of relations' types, keyed by the relation and the types of the bindings that it reads."""

    def __init__(self, types: dict[tuple[object, ...] | int, RelationType]) -> None:
        # A `Part` keeps its relation, so that its ``id()`` is not reused.
        self._parts = parts()
        self._types = types

    def of(self, rel: mir.Relation, known: Mapping[int, RelationType]) -> RelationType:
        """The type of a relation, given the types of the bindings around it."""
        part = self._parts.get(id(rel)) or part_of(rel, self._parts)
        reads = part.order if known else ()
        key = (id(rel), *map(known.get, reads)) if reads else id(rel)
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = self._derived(rel, known)
        return found

    def _derived(self, rel: mir.Relation, known: Mapping[int, RelationType]) -> RelationType:
        if type(rel) is mir.Let:
            return self.of(rel.body, {**known, rel.id: self.of(rel.value, known)})
        if type(rel) is mir.LetRec:
            return self.of(rel.body, {**known, **recursive_types(rel.ids, rel.values, known)})
        inputs = [self.of(part, known) for part in mir.inputs(rel)]
        return derived_type(rel, inputs) if inputs else node_type(rel, inputs, known)


def derived_type(rel: mir.Relation, inputs: Sequence[RelationType]) -> RelationType:
    """Like `node_type`, for a node with inputs, memoized in a run; equal types in a run are one object."""
    # By the node and its inputs' types; a type by itself is found as the object that represents its equals.
    derived: dict[tuple[object, ...] | RelationType, RelationType] = memo("node_type")
    key = (rel, *inputs)
    found = derived.get(key)
    if found is None:
        found = node_type(rel, inputs)
        found = derived[key] = derived.setdefault(found, found)
    return found


def _reads(rel: mir.Relation, ids: frozenset[int]) -> Iterator[mir.Get]:
    """The Gets of the given bindings, except where an inner binding with the same id hides them."""
    stack = [(rel, ids)]
    while stack:
        node, visible = stack.pop()
        match node:
            case mir.Get(id=int() as local):
                if local in visible:
                    yield node
            case mir.Let(id=local, value=value, body=body):
                stack += [(value, visible), (body, visible - {local})]
            case mir.LetRec(ids=inner):
                stack += [(part, visible - set(inner)) for part in mir.inputs(node)]
            case _:
                stack += [(part, visible) for part in mir.inputs(node)]


#: The number of rounds in which recursive types are refined before less is claimed.
_ROUNDS = 20


def recursive_types(
    ids: Sequence[int], values: Sequence[mir.Relation], known: Mapping[int, RelationType]
) -> dict[int, RelationType]:
    """The types of the bindings of a recursion: the strongest claims that hold of the empty start and are preserved by
    every iteration.
    """
    types = dict(known)
    for get in (get for value in values for get in _reads(value, frozenset(ids))):
        assert isinstance(get.id, int)
        types[get.id] = RelationType(tuple(ColumnType(c.type) for c in get.typ.columns))
    for local, value in zip(ids, values, strict=True):
        plain = _relation_type(value, types).columns
        types[local] = RelationType(tuple(ColumnType(c.type) for c in plain))
    least = {local: types[local] for local in ids}
    # An empty relation satisfies every claim; each round withdraws those that do not survive an iteration.
    claimed = {
        local: RelationType(tuple(ColumnType(c.type, False) for c in typ.columns), ((),))
        for local, typ in least.items()
    }
    for _ in range(_ROUNDS):
        types = {**known, **claimed}
        for local, value in zip(ids, values, strict=True):
            types[local] = _relation_type(value, types)
        derived = {local: types[local] for local in ids}
        if derived == claimed:
            return claimed
        claimed = derived
    return least


def node_type(
    rel: mir.Relation,
    inputs: Sequence[RelationType],
    known: Mapping[int, RelationType] | None = None,
) -> RelationType:
    """The type of a node, other than Let and LetRec, whose inputs have these types.

    Args:
        rel: the node.
        inputs: the types of its inputs.
        known: the types of the bindings around it.
    """
    # By class, as in `mir.inputs`; what is most comes first.
    if type(rel) is mir.Project:
        columns = tuple([inputs[0].columns[c] for c in rel.outputs])
        return RelationType(columns, projected_keys(inputs[0].keys, rel.outputs))
    if type(rel) is mir.Filter:
        return _filter_type(inputs[0], rel.predicates)
    if type(rel) is mir.Map:
        grown = list(inputs[0].columns)
        for scalar in rel.scalars:
            grown.append(column_type(scalar, grown))
        width = inputs[0].arity
        return RelationType(tuple(grown), mapped_keys(inputs[0].keys, width, rel.scalars))
    if type(rel) is mir.Join:
        return _join_type(rel, inputs)
    if type(rel) is mir.Reduce:
        return _reduce_type(rel, inputs[0])
    if type(rel) is mir.Get:
        return (known or {}).get(rel.id, rel.typ) if isinstance(rel.id, int) else rel.typ
    if type(rel) is mir.Union:
        return _union_type(rel, inputs, known)
    if type(rel) is mir.Constant:
        return _constant_type(rel)
    if type(rel) is mir.TopK:
        return _top_k_type(rel, inputs[0])
    if type(rel) is mir.Negate:
        return RelationType(inputs[0].columns)
    if type(rel) is mir.FlatMap:
        return RelationType((*inputs[0].columns, *rel.output.columns))
    return inputs[0]


def _union_type(
    rel: mir.Union,
    inputs: Sequence[RelationType],
    known: Mapping[int, RelationType] | None,
) -> RelationType:
    columns = tuple(
        [
            ColumnType(column.type, any(part.columns[i].nullable for part in inputs))
            for i, column in enumerate(inputs[0].columns)
        ]
    )
    return RelationType(columns, padded_keys(rel, inputs, lambda part: relation_type(part, known)))


def _top_k_type(rel: mir.TopK, typ: RelationType) -> RelationType:
    keys = typ.keys
    if isinstance(rel.limit, Literal) and rel.limit.value == 1 and rel.offset == 0:
        keys = (*keys, tuple(sorted(rel.group_key)))
    return RelationType(typ.columns, normalize_keys(keys))


_NO_COLUMNS: frozenset[int] = frozenset()


def not_null_columns(predicates: Iterable[Scalar]) -> frozenset[int]:
    """The columns that cannot be NULL in a row for which all predicates are true."""
    return _NO_COLUMNS.union(*map(_not_null_if_true, predicates))


def _not_null_if_true(pred: Scalar) -> frozenset[int]:
    if type(pred) is not Call:
        return strict_columns(pred)
    match pred:
        case Call(func="not", args=(Call(func="is_null", args=(Column(index=index),)),)):
            return frozenset({index})
        case Call(func="and", args=args):
            return frozenset().union(*(_not_null_if_true(arg) for arg in args))
        case Call(func="or", args=args):
            parts = [_not_null_if_true(arg) for arg in args]
            return parts[0].intersection(*parts[1:]) if parts else frozenset()
        case _:
            return strict_columns(pred)


def strict_columns(expr: Scalar) -> frozenset[int]:
    """The columns whose NULL makes the whole expression NULL."""
    if type(expr) is Column:
        return support(expr)
    if type(expr) is not Call or not functions.scalar(expr.func).strict:
        return _NO_COLUMNS
    return _NO_COLUMNS.union(*[strict_columns(arg) for arg in expr.args])


def _constant_type(rel: mir.Constant) -> RelationType:
    if rel.error is not None or any(diff != 1 for _, diff in rel.rows):
        return RelationType(rel.typ.columns, rel.typ.keys)
    if len(rel.rows) <= 1:
        return RelationType(rel.typ.columns, ((),))
    keys = list(rel.typ.keys)
    for column in range(rel.typ.arity):
        values = {(type(row[column]), row[column]) for row, _ in rel.rows}
        if len(values) == len(rel.rows):
            keys.append((column,))
    return RelationType(rel.typ.columns, normalize_keys(keys))


def _filter_type(typ: RelationType, predicates: Sequence[Scalar]) -> RelationType:
    columns = typ.columns
    sure = [i for i in not_null_columns(predicates) if columns[i].nullable]
    if sure:
        known = list(columns)
        for i in sure:
            known[i] = ColumnType(columns[i].type, False)
        columns = tuple(known)
    return RelationType(columns, filtered_keys(typ.keys, predicates))


def _join_type(join: mir.Join, inputs: Sequence[RelationType]) -> RelationType:
    columns = [column for part in inputs for column in part.columns]
    for cls in join.equivalences:
        equated = [expr.index for expr in cls if type(expr) is Column]
        mixed = [c for c in equated if columns[c].nullable]
        if mixed and len(mixed) < len(equated):
            for c in mixed:
                columns[c] = ColumnType(columns[c].type, False)
    return RelationType(tuple(columns), join_keys(inputs, join.equivalences))


def _reduce_type(reduce: mir.Reduce, typ: RelationType) -> RelationType:
    columns = [column_type(expr, typ.columns) for expr in reduce.group_key]
    columns.extend(aggregate_type(a, typ.columns) for a in reduce.aggregates)
    place: dict[int, int] = {}
    for position, expr in enumerate(reduce.group_key):
        if type(expr) is Column:
            place.setdefault(expr.index, position)
    keys: list[list[int]] = [list(range(len(reduce.group_key)))]
    keys.extend([place[c] for c in key] for key in typ.keys if all(c in place for c in key))
    return RelationType(tuple(columns), normalize_keys(keys))
