"""Which expressions are equal in each row of a relation, as EXPLAIN … WITH (equivalences) shows it.

Promise: classes of two or more expressions each, of which all are equal (NULL equals NULL) in every row: what a filter
says is in the class of ``true``, what is never NULL has its ``IS NULL`` in that of ``false``. Expressions read the first
members of the classes of their parts, so only values count as equal that are identical in every respect. Literals come
first in a class, then columns, then what is smallest. Nothing is said of no rows (None), nor of recursive bindings
except by their types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import Rank, cost, rank
from mzsql.expr.functions.number.arithmetic import UNSIGNED_ZERO
from mzsql.expr.typing import recursive_types, relation_type
from mzsql.repr.types import BOOLEAN, RelationType
from mzsql.transform.known_values import EXACT

#: Expressions that are equal, at least two.
Class = tuple[sc.Scalar, ...]
#: The classes of a relation; None of one that has no rows.
Classes = tuple[Class, ...] | None

_TRUE, _FALSE = sc.Literal(True, BOOLEAN), sc.Literal(False, BOOLEAN)
#: What makes keys of equal numbers identical.
_ZEROS = frozenset(UNSIGNED_ZERO.values())
#: After how many rounds of reading first members they are read no further.
_ROUNDS = 20


class Equivalences:
    """Derives classes. It must be told the bindings around a relation before it is asked about the relation."""

    def __init__(self) -> None:
        self._locals: dict[int, Classes] = {}
        self._types: dict[int, RelationType] = {}
        self._known: dict[int, tuple[mir.Relation, Classes]] = {}

    def bind(self, rel: mir.Let | mir.LetRec) -> None:
        """Record what a node binds."""
        if isinstance(rel, mir.Let):
            self._locals[rel.id] = self.of(rel.value)
            self._types[rel.id] = relation_type(rel.value, self._types)
            return
        self._types.update(recursive_types(rel.ids, rel.values, self._types))
        for local in rel.ids:
            self._locals[local] = minimal(_never_null(self._types[local]))

    def of(self, rel: mir.Relation) -> Classes:
        """The classes of a relation."""
        found = self._known.get(id(rel))
        if found is None:
            # The entry keeps the relation alive, so that no other one gets its id.
            found = self._known[id(rel)] = rel, self._derived(rel)
        return found[1]

    def _derived(self, rel: mir.Relation) -> Classes:
        if isinstance(rel, mir.Let | mir.LetRec):
            self.bind(rel)
            return self.of(rel.body)
        if isinstance(rel, mir.Get) and isinstance(rel.id, int):
            return self._locals.get(rel.id, ())
        parts = [self.of(part) for part in mir.inputs(rel)]
        if isinstance(rel, mir.Union):
            return _in_all([part for part in parts if part is not None])
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if isinstance(rel, mir.Constant):
            return _constant(rel, relation_type(rel, self._types))
        if isinstance(rel, mir.Get):
            return minimal(_never_null(rel.typ))
        if isinstance(rel, mir.Join):
            return _join(rel, known)
        return _over(rel, known[0], relation_type(rel, self._types))


def _is_null(expr: sc.Scalar) -> sc.Scalar:
    if isinstance(expr, sc.Call) and expr.func in _ZEROS:
        (expr,) = expr.args
    return sc.Call("is_null", (expr,), BOOLEAN)


def _never_null(typ: RelationType) -> list[Class]:
    columns = [_is_null(sc.Column(c)) for c, col in enumerate(typ.columns) if not col.nullable]
    return [(_FALSE, *columns)]


def _constant(rel: mir.Constant, typ: RelationType) -> Classes:
    if rel.error is None and not rel.rows:
        return None
    said = _never_null(typ)
    if rel.error is None:
        for c, column in enumerate(typ.columns):
            values = {(type(row[c]), repr(row[c])) for row, _ in rel.rows}
            if len(values) == 1:
                said.append((sc.Column(c), sc.Literal(rel.rows[0][0][c], column.type)))
    return minimal(said)


def _join(rel: mir.Join, parts: Sequence[tuple[Class, ...]]) -> Classes:
    """Equal keys are identical: they have one zero, and what they are is not NULL."""
    said: list[Class] = []
    start = 0
    for part, classes in zip(rel.inputs, parts, strict=True):
        place = {column: start + column for column in range(mir.arity(part))}
        said += [tuple(sc.permute(expr, place) for expr in cls) for cls in classes]
        start += len(place)
    for cls in rel.equivalences:
        said += [cls, (_FALSE, *(_is_null(expr) for expr in cls))]
    return minimal(said)


def _over(rel: mir.Relation, classes: tuple[Class, ...], typ: RelationType) -> Classes:
    """Of an operator with one input."""
    match rel:
        case mir.Map(scalars=scalars):
            width = typ.arity - len(scalars)
            own = [(sc.Column(width + n), expr) for n, expr in enumerate(scalars)]
            return minimal([*classes, *own])
        case mir.FlatMap():
            return minimal([*classes, *_never_null(typ)])
        case mir.Filter(predicates=predicates):
            return minimal([*classes, (_TRUE, *predicates)])
        case mir.Project(outputs=outputs):
            return _projected(classes, [sc.Column(column) for column in outputs])
        case mir.Reduce(group_key=key):
            below = _projected(classes, key)
            return None if below is None else minimal([*below, *_never_null(typ)])
        case _:
            return classes


def _projected(classes: tuple[Class, ...], outputs: Sequence[sc.Scalar]) -> Classes:
    """What is known of the rows of `outputs`, which are expressions over the rows of which `classes` tell."""
    places: dict[sc.Scalar, int] = {}
    said: list[Class] = []
    firsts = _firsts(classes)
    for place, expr in enumerate(outputs):
        if not isinstance(expr, sc.Column) and not sc.support(expr):
            said.append((sc.Column(place), expr))
        # A literal stays what it is: the column of the rows is in its class.
        for same in {expr, _read(expr, firsts)}:
            if not isinstance(same, sc.Literal):
                said.append((sc.Column(places.setdefault(same, place)), sc.Column(place)))
    for cls in classes:
        kept = [new for expr in cls if (new := _moved(expr, places)) is not None]
        said.append(tuple(kept))
    return minimal(said)


def _moved(expr: sc.Scalar, places: Mapping[sc.Scalar, int]) -> sc.Scalar | None:
    """An expression over the rows that have others as columns; None if it reads what they do not have."""
    place = places.get(expr)
    if place is not None:
        return sc.Column(place)
    if isinstance(expr, sc.Column):
        return None
    kids = [_moved(kid, places) for kid in sc.children(expr)]
    new = [kid for kid in kids if kid is not None]
    return sc.with_children(expr, new) if len(new) == len(kids) else None


def _in_all(parts: Sequence[tuple[Class, ...]]) -> Classes:
    """What holds in every branch."""
    if not parts:
        return None
    common = parts[0]
    for other in parts[1:]:
        common = tuple(
            both
            for cls in common
            for theirs in other
            if len(both := tuple(expr for expr in cls if expr in theirs)) > 1
        )
    return minimal(common)


# --- one form for what is known -----------------------------------------------------------------


def minimal(said: Iterable[Class]) -> Classes:
    """Classes without anything in common, each of what is left of expressions over first members, in order; None if two
    different literals are equal.
    """
    classes = _merged(_implied(said))
    for _ in range(_ROUNDS):
        firsts = _firsts(classes)
        new = _merged(_implied(tuple(_inside(expr, firsts) for expr in cls) for cls in classes))
        if new == classes:
            break
        classes = new
    if any(sum(isinstance(expr, sc.Literal) for expr in cls) > 1 for cls in classes):
        return None
    return tuple(sorted(classes, key=lambda cls: [rank(expr) for expr in cls]))


def _implied(said: Iterable[Class]) -> list[Class]:
    """Classes, and what follows of those of ``true`` and ``false``: of ``a = b`` that the two are equal and not NULL."""
    due = list(said)
    found: list[Class] = []
    while due:
        cls = due.pop(0)
        kept = list(cls)
        for decided, other in ((_TRUE, _FALSE), (_FALSE, _TRUE)):
            if decided not in cls:
                continue
            for expr in cls:
                match expr:
                    case sc.Call(func="not", args=(denied,)):
                        due.append((other, denied))
                    case sc.Call(func="and", args=args) if decided is _TRUE:
                        due.append((_TRUE, *args))
                    case sc.Call(func="or", args=args) if decided is _FALSE:
                        due.append((_FALSE, *args))
                    case sc.Call(func=func, args=(a, b)) if decided is _TRUE and func.startswith(
                        "eq_"
                    ):
                        due.append((_FALSE, _is_null(a), _is_null(b)))
                        if func[3:] not in EXACT:
                            continue
                        due.append((a, b))
                    case _:
                        continue
                kept.remove(expr)
        found.append(tuple(kept))
    return found


def _merged(said: Sequence[Class]) -> tuple[Class, ...]:
    """Classes that have an expression in common are one. Without those of one member, and without what says nothing."""
    home: dict[sc.Scalar, list[sc.Scalar]] = {}
    for cls in said:
        one: list[sc.Scalar] = []
        for expr in cls:
            other = home.setdefault(expr, [expr])
            if other is not one:
                one.extend(other)
                home.update(dict.fromkeys(other, one))
    classes = {id(cls): tuple(sorted(set(filter(_says, cls)), key=_order)) for cls in home.values()}
    return tuple(cls for cls in classes.values() if len(cls) > 1)


def _says(expr: sc.Scalar) -> bool:
    """Not so of ``3 IS NULL``, which is known without being said."""
    match expr:
        case sc.Call(func="is_null", args=(sc.Literal(),)):
            return False
        case _:
            return True


def _order(expr: sc.Scalar) -> Rank:
    return (0 if isinstance(expr, sc.Literal) else cost(expr), rank(expr))


def _firsts(classes: Iterable[Class]) -> dict[sc.Scalar, sc.Scalar]:
    return {expr: cls[0] for cls in classes for expr in cls[1:]}


def _read(expr: sc.Scalar, firsts: Mapping[sc.Scalar, sc.Scalar]) -> sc.Scalar:
    """An expression that reads the first members of classes."""
    return sc.transform(expr, lambda node: firsts.get(node, node))


def _inside(expr: sc.Scalar, firsts: Mapping[sc.Scalar, sc.Scalar]) -> sc.Scalar:
    """An expression whose parts read the first members of classes."""
    kids = sc.children(expr)
    return sc.with_children(expr, [_read(kid, firsts) for kid in kids]) if kids else expr
