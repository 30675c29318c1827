"""SemijoinIdempotence: rows that were selected by a semijoin need not be selected by it again.

Promise: in ``A ⋉ B``, if B's rows are distinct and are the values of ``R ⋉ C`` in the joined columns, and A's rows
are rows of R, then B is replaced by C (with the filters of R that read only these columns): every row of A has its
values in R, so only being in C is left to check. R may be filtered or bound, and B may project, group or arrange the
semijoin.
Source: Materialize's transform `SemijoinIdempotence`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.parts import kinds_of, part_of, parts
from mzsql.expr.typing import relation_type
from mzsql.repr.types import RelationType
from mzsql.transform.join_predicates import is_not_null
from mzsql.transform.known_values import EXACT
from mzsql.transform.remembered import ScopedPass
from mzsql.transform.scalars import may_error
from mzsql.transform.visit import filtered, project, replace_inputs

_WHERE = kinds_of(mir.Join)
_BINDINGS = kinds_of(mir.Let, mir.LetRec)
#: Maps columns of the first input to columns of the second, or the reverse.
Pairs = dict[int, int]
#: A relation, and the filters through which it is read.
Filtered = tuple[mir.Relation, tuple[sc.Scalar, ...]]


@dataclass(frozen=True)
class _Offer:
    """What a relation may be replaced by where it is joined with rows of `base`.

    Attributes:
        base: the relation that was semijoined.
        columns: a column of `base`, the column of the offering relation with its values, and the column of `by` that
            it was joined with.
        by: what it was semijoined with.
    """

    base: mir.Relation
    columns: tuple[tuple[int, int, int], ...]
    by: mir.Relation


def semijoin_idempotence(rel: mir.Relation) -> mir.Relation:
    """Replace what repeats a semijoin everywhere, inner joins first."""
    return _Pass().visit(rel)


class _Pass(ScopedPass):
    """One traversal, with what is known of the bindings around it; of recursive ones, whose rows change, nothing is
    known.
    """

    def __init__(self) -> None:
        super().__init__("semijoin_idempotence", _WHERE)
        self._types: dict[int, RelationType] = {}
        self._offers: dict[int, tuple[_Offer, ...]] = {}
        self._behind: dict[int, tuple[Filtered, ...]] = {}

    def visited(self, rel: mir.Relation) -> mir.Relation:
        if isinstance(rel, mir.Let):
            value = self.visit(rel.value)
            self._types[rel.id] = relation_type(value, self._types)
            self._offers[rel.id] = tuple(self._offered(value))
            self._behind[rel.id] = tuple(self._filtered(value))
            self._scope.bind(rel.id, value)
            return replace_inputs(rel, (rel.value, rel.body), (value, self.visit(rel.body)))
        if isinstance(rel, mir.LetRec):
            for local in rel.ids:
                self._types.pop(local, None)
                self._offers.pop(local, None)
                self._behind.pop(local, None)
                self._scope.unbind(local)
        kids = mir.inputs(rel)
        rel = replace_inputs(rel, kids, [self.visit(kid) for kid in kids])
        if isinstance(rel, mir.Join) and isinstance(rel.implementation, mir.Unplanned):
            while (simpler := self._simpler(rel)) is not None:
                rel = simpler
        return rel

    def _type(self, rel: mir.Relation) -> RelationType:
        return relation_type(rel, self._types)

    def _simpler(self, join: mir.Join) -> mir.Join | None:
        """The join with one of its two inputs replaced; None if that is not possible."""
        pairs = _bijection(join)
        if pairs is None:
            return None
        for kept, replaced, there in ((0, 1, pairs), (1, 0, _reversed(pairs))):
            part = join.inputs[replaced]
            if mir.arity(part) != len(pairs):
                continue
            offers = list(self._offered(part))
            if not offers:
                continue
            bases = [base for base, _ in self._filtered(join.inputs[kept])]
            if not bases or not _is_distinct(self._type(part), there.values()):
                continue
            for offer in offers:
                if offer.base not in bases:
                    continue
                if {a: b for a, b, _ in offer.columns} != there:
                    continue
                by_column = {b: c for _, b, c in offer.columns}
                new = project(offer.by, [by_column[b] for b in range(len(pairs))])
                if new == part or not self._is_alike(new, part):
                    continue
                inputs = list(join.inputs)
                inputs[replaced] = new
                inputs[kept] = self._without_nulls(inputs[kept], self._type(part), there)
                return mir.Join(tuple(inputs), join.equivalences)
        return None

    def _is_alike(self, new: mir.Relation, old: mir.Relation) -> bool:
        """Whether equal values of the two types are interchangeable."""
        pairs = zip(self._type(new).columns, self._type(old).columns, strict=True)
        return all(a.type == b.type and a.type.kind in EXACT for a, b in pairs)

    def _without_nulls(self, part: mir.Relation, other: RelationType, there: Pairs) -> mir.Relation:
        """The rows that are not NULL where what they were joined with cannot be."""
        columns = self._type(part).columns
        return filtered(
            part,
            [
                is_not_null(sc.Column(a))
                for a, b in sorted(there.items())
                if columns[a].nullable and not other.columns[b].nullable
            ],
        )

    # --- what is offered --------------------------------------------------------------------------

    def _offered(self, rel: mir.Relation) -> list[_Offer]:
        """What may replace a relation in a semijoin."""
        match rel:
            case mir.Get(id=int() as local):
                return list(self._offers.get(local, ()))
            case mir.Join(implementation=mir.Unplanned()):
                return self._of_join(rel)
            case mir.Project(input=inner, outputs=outputs):
                return _moved(self._offered(inner), {c: n for n, c in enumerate(outputs)})
            case mir.Reduce(input=inner, group_key=key):
                place = {e.index: n for n, e in enumerate(key) if isinstance(e, sc.Column)}
                return _moved(self._offered(inner), place)
            case mir.ArrangeBy(input=inner):
                return self._offered(inner)
            case _:
                return []

    def _of_join(self, join: mir.Join) -> list[_Offer]:
        """What a semijoin offers: the relation that selects."""
        pairs = _bijection(join)
        if pairs is None:
            return []
        offers: list[_Offer] = []
        for of, by, there in ((0, 1, pairs), (1, 0, _reversed(pairs))):
            other = join.inputs[by]
            bases = [
                (base, preds)
                for base, preds in self._filtered(join.inputs[of])
                # A predicate that can fail must not be evaluated for rows of the other input that match no row of the
                # base.
                if all(sc.support(p) <= there.keys() and not may_error(p) for p in preds)
            ]
            if not bases or _binds(other) or not _is_distinct(self._type(other), there.values()):
                continue
            columns = tuple((a, a if of == 0 else b, b) for a, b in sorted(there.items()))
            for base, preds in bases:
                moved = [sc.permute(pred, there) for pred in preds]
                offers.append(_Offer(base, columns, filtered(other, moved)))
        return offers

    def _filtered(self, rel: mir.Relation) -> list[Filtered]:
        """A relation as another relation with filters on it, seeing through bindings."""
        preds: tuple[sc.Scalar, ...] = ()
        while isinstance(rel, mir.Filter):
            preds = (*preds, *rel.predicates)
            rel = rel.input
        if _binds(rel):
            return []
        found: list[Filtered] = [(rel, preds)]
        if isinstance(rel, mir.Get) and isinstance(rel.id, int):
            behind = self._behind.get(rel.id, ())
            found.extend((base, (*own, *preds)) for base, own in behind)
        return found


def _binds(rel: mir.Relation) -> bool:
    """Whether a relation contains bindings, in which case it must not occur twice."""
    return bool(part_of(rel, parts()).kinds & _BINDINGS)


def _moved(offers: list[_Offer], place: Mapping[int, int]) -> list[_Offer]:
    """The offers of a relation after a projection."""
    return [
        _Offer(offer.base, tuple((a, place[b], c) for a, b, c in offer.columns), offer.by)
        for offer in offers
        if all(b in place for _, b, _ in offer.columns)
    ]


def _is_distinct(typ: RelationType, columns: Iterable[int]) -> bool:
    """Whether a relation has at most one row for each value of these columns."""
    joined = set(columns)
    return any(joined.issuperset(key) for key in typ.keys)


def _reversed(pairs: Pairs) -> Pairs:
    return {b: a for a, b in pairs.items()}


def _bijection(join: mir.Join) -> Pairs | None:
    """The columns that a join of two inputs equates, one to one; None if it does anything else."""
    if len(join.inputs) != 2:
        return None
    width = mir.arity(join.inputs[0])
    pairs: Pairs = {}
    for cls in join.equivalences:
        match sorted(e.index for e in cls if isinstance(e, sc.Column)):
            case (left, right) if len(cls) == 2 and left < width <= right:
                pairs[left] = right - width
            case _:
                return None
    return pairs if len(set(pairs.values())) == len(pairs) else None
