"""What is known to hold in every row of a relation: equal columns, and what is a literal.

Promise: immutable facts and pure functions of them and of predicates. Only values that are identical where they are equal
count as equal, as one is then read for the other. What follows from a predicate follows where it is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import is_

import msgspec

from mzsql.expr import scalar as sc
from mzsql.repr.decimals import is_carried
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import BOOLEAN, ColumnType, SqlType

#: Types whose equal values are identical in every respect; not so: floats (0.0 and -0.0), intervals, padded characters.
EXACT = frozenset(
    {
        *("boolean", "smallint", "integer", "bigint", "uint2", "uint4", "uint8", "numeric"),
        *("text", "varchar", "uuid", "date", "time", "timestamp", "timestamptz", "mz_timestamp"),
    }
)


class Facts(msgspec.Struct, frozen=True, dict=True):
    """What holds in every row of a relation.

    Attributes:
        firsts: for each column the first one that equals it (itself if no earlier one does).
        literals: the columns that are a literal.
        put: for each column the column that is output in its place: the first one that equals it for another reason than
            a filter's demand. None: as `firsts`.
        computed: computed values that are a literal, of the same type; they read first columns and no columns that are
            literals.
    """

    firsts: tuple[int, ...]
    literals: Mapping[int, sc.Literal] = {}
    put: tuple[int, ...] | None = None
    computed: Mapping[sc.Scalar, sc.Literal] = {}

    @property
    def puts(self) -> tuple[int, ...]:
        """For each column the one that is output for it."""
        return self.firsts if self.put is None else self.put

    @lazy_property
    def is_plain(self) -> bool:
        """Whether nothing is known, as of most relations."""
        return (
            not self.literals
            and not self.computed
            and self.firsts == plain(len(self.firsts)).firsts
        )

    @lazy_property
    def _functions(self) -> frozenset[str]:
        """The functions that computed values are calls of: whatever else stands somewhere needs no look at `computed`."""
        return frozenset(key.func for key in self.computed if isinstance(key, sc.Call))

    def read(self, expr: sc.Scalar) -> sc.Scalar:
        """An expression rewritten to read first columns and literals."""
        if self.is_plain:
            return expr
        firsts, literals, computed = self.firsts, self.literals, self.computed
        functions = self._functions

        def replace(node: sc.Scalar) -> sc.Scalar:
            if type(node) is not sc.Column:
                if type(node) is sc.Call and node.func in functions:
                    return computed.get(node, node)
                return node
            first, literal = firsts[node.index], literals.get(node.index)
            if literal is not None:
                return literal
            return node if first == node.index else sc.column(first)

        return sc.transform(expr, replace)

    def within(self, expr: sc.Scalar) -> sc.Scalar:
        """An expression whose parts are rewritten as by `read`; of a column only which of equal ones it is."""
        if isinstance(expr, sc.Column):
            first = self.firsts[expr.index]
            return expr if first == expr.index else sc.column(first)
        kids = sc.children(expr)
        new = [self.read(kid) for kid in kids]
        return expr if all(map(is_, new, kids)) else sc.with_children(expr, new)

    def literal(self, expr: sc.Scalar) -> sc.Literal | None:
        """The literal that a column or a computed value, which reads first columns, is known to be."""
        if isinstance(expr, sc.Column):
            return self.literals.get(expr.index)
        return self.computed.get(expr) if self.computed else None

    def equate(self, classes: Sequence[Sequence[int]], *, asked: bool = False) -> Facts:
        """These facts and that the columns of each class are equal; `asked`: because a filter demands it."""
        if not self.literals and not any(len(cls) > 1 for cls in classes):
            return self
        firsts = _merged(self.firsts, classes)
        put = self.puts if asked else self.put and _merged(self.put, classes)
        literals = dict(self.literals)
        known = {firsts[column]: literal for column, literal in literals.items()}
        if known:
            for column, first in enumerate(firsts):
                if first in known:
                    literals[column] = known[first]
        return Facts(firsts, literals, put).with_computed(self.computed.items())

    def with_computed(self, found: Iterable[tuple[sc.Scalar, sc.Literal]]) -> Facts:
        """These facts and that computed values are literals."""
        known = dict(self.computed)
        for expr, literal in found:
            key = self.read(expr)
            if isinstance(key, sc.Call) and sc.support(key):
                known.setdefault(key, literal)
        if len(known) == len(self.computed):
            return self
        return msgspec.structs.replace(self, computed=known)

    def moved(self, places: Mapping[int, int]) -> dict[sc.Scalar, sc.Literal]:
        """The computed values that read only columns that `places` has, reading these from there."""
        return {
            sc.permute(expr, places): literal
            for expr, literal in self.computed.items()
            if sc.support(expr) <= places.keys()
        }


@lru_cache(maxsize=1024)
def plain(width: int) -> Facts:
    """That nothing is known of so many columns."""
    return Facts(tuple(range(width)))


def _merged(firsts: Sequence[int], classes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The first columns if those of each class are equal too."""
    merged = list(firsts)
    for cls in classes:
        if len(cls) > 1:
            members = {merged[column] for column in cls}
            first = min(members)
            merged = [first if column in members else column for column in merged]
    return tuple(merged)


def places_of(columns: Iterable[int]) -> tuple[int, ...]:
    """For each of some columns the first position at which it stands."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(column, place) for place, column in enumerate(columns)])


def literals_said(
    preds: Sequence[sc.Scalar], columns: Sequence[ColumnType]
) -> dict[int, sc.Literal]:
    """The columns that are literals where all predicates are true."""
    said: dict[int, sc.Literal] = {}
    for pred in preds:
        stated = _states(pred, columns)
        if stated is not None:
            said.setdefault(*stated)
    return said


def computed_said(preds: Iterable[sc.Scalar]) -> Iterator[tuple[sc.Scalar, sc.Literal]]:
    """The computed values that are literals where all predicates are true: the predicates are, at least."""
    for pred in preds:
        match pred:
            case sc.Call(func="not", args=(refused,)):
                yield refused, _FALSE
            case sc.Call(func=func, args=(a, b)) if func.startswith("eq_"):
                yield pred, _TRUE
                expr, literal = (a, b) if isinstance(b, sc.Literal) else (b, a)
                if (
                    isinstance(literal, sc.Literal)
                    and literal.value is not None
                    and isinstance(expr, sc.Call)
                    and expr.typ == literal.typ
                    and literal.typ.kind in EXACT
                ):
                    yield expr, literal
            case _:
                yield pred, _TRUE


_TRUE, _FALSE = sc.Literal(True, BOOLEAN), sc.Literal(False, BOOLEAN)


def _states(pred: sc.Scalar, columns: Sequence[ColumnType]) -> tuple[int, sc.Literal] | None:
    """The column and the literal, of the column's type, that a true predicate equates; None if it does not."""
    match pred:
        case sc.Call(func=func, args=(sc.Column(index=i), sc.Literal() as literal)):
            pass
        case sc.Call(func=func, args=(sc.Literal() as literal, sc.Column(index=i))):
            pass
        case _:
            return None
    if not func.startswith("eq_") or literal.value is None or literal.typ.kind not in EXACT:
        return None
    own = as_type(literal, columns[i].type)
    return None if own is None else (i, own)


def as_type(literal: sc.Literal, typ: SqlType) -> sc.Literal | None:
    """A literal converted to a column's type; None if no column of this type can hold the value."""
    if literal.typ == typ:
        return literal
    if literal.typ.kind != typ.kind or literal.value is None:
        return None
    if typ.kind == "numeric" and not is_carried(str(literal.value), typ):
        return None
    return sc.Literal(literal.value, typ)


def equal_columns(pred: sc.Scalar, columns: Sequence[ColumnType]) -> list[tuple[int, int]]:
    """The columns that a true predicate equates; only of one type, since one is then output for the other."""
    match pred:
        case sc.Call(func=func, args=(sc.Column(index=a), sc.Column(index=b))):
            same = func.startswith("eq_") and func[3:] in EXACT
            return [(a, b)] if same and columns[a].type == columns[b].type else []
        case _:
            return []


def by_type(cls: Sequence[int], columns: Sequence[ColumnType]) -> list[list[int]]:
    """The columns of a class whose equal values are indistinguishable, by type."""
    found: dict[SqlType, list[int]] = {}
    for column in cls:
        typ = columns[column].type
        if typ.kind in EXACT:
            found.setdefault(typ, []).append(column)
    return list(found.values())
