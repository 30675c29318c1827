"""What can be read off predicates: how selective they look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mzsql.expr import scalar as sc


@dataclass(frozen=True, order=True)
class FilterCharacteristics:
    """Kinds of filters on a relation, most selective first; greater is thought to be smaller.

    Attributes:
        literal_equality: a column equals a literal (``e``).
        like: a LIKE (``l``).
        is_null: IS NULL (``n``).
        inequality: how many comparisons with a literal other than equality (``i`` for each).
        any_filter: any filter but IS NOT NULL (``f``).
    """

    literal_equality: bool = False
    like: bool = False
    is_null: bool = False
    inequality: int = 0
    any_filter: bool = False

    def __or__(self, other: FilterCharacteristics) -> FilterCharacteristics:
        return FilterCharacteristics(
            self.literal_equality or other.literal_equality,
            self.like or other.like,
            self.is_null or other.is_null,
            self.inequality + other.inequality,
            self.any_filter or other.any_filter,
        )

    def code(self) -> str:
        """As EXPLAIN prints it: ``ef``."""
        flags = (
            ("e", self.literal_equality),
            ("l", self.like),
            ("n", self.is_null),
            ("i", self.inequality),
            ("f", self.any_filter),
        )
        return "".join(letter * there for letter, there in flags)


_ORDERINGS = ("lt_", "lte_", "gt_", "gte_")


def filter_characteristics(predicates: Iterable[sc.Scalar]) -> FilterCharacteristics:
    """What a conjunction of predicates looks like."""
    found = FilterCharacteristics()
    for pred in predicates:
        found |= _one(pred)
    return found


def _one(pred: sc.Scalar) -> FilterCharacteristics:
    match pred:
        case sc.Call(func="not", args=(sc.Call(func="is_null"),)):
            return FilterCharacteristics()
        case sc.Call(func="or", args=args):
            inside = filter_characteristics(args)
            return FilterCharacteristics(
                inside.literal_equality, inside.like, inside.is_null, inside.inequality, True
            )
        case sc.Call(func="is_null"):
            return FilterCharacteristics(is_null=True, any_filter=True)
        case sc.Call(func=func, args=args):
            with_literal = any(isinstance(arg, sc.Literal) for arg in args)
            return FilterCharacteristics(
                literal_equality=func.startswith("eq_") and with_literal,
                like=func in ("like", "ilike"),
                inequality=1 if func.startswith(_ORDERINGS) and with_literal else 0,
                any_filter=True,
            )
        case _:
            return FilterCharacteristics(any_filter=True)
