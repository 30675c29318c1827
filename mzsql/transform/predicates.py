"""How selective predicates look."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mzsql.expr import scalar as sc


class FilterCharacteristics(msgspec.Struct, frozen=True, order=True):
    """Kinds of filters on a relation, most selective first; a greater value means an estimate of fewer rows.

    Attributes:
        literal_equality: a column equals a literal (``e``).
        like: a LIKE (``l``).
        is_null: IS NULL (``n``).
        inequality: number of comparisons with a literal other than equality (``i`` for each).
        any_filter: any filter except IS NOT NULL (``f``).
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
        """The characteristics as EXPLAIN prints them: ``ef``."""
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
    """The characteristics of a conjunction of predicates."""
    found = FilterCharacteristics()
    for pred in predicates:
        found |= _one(pred)
    return found


def _one(pred: sc.Scalar) -> FilterCharacteristics:
    """The characteristics of a predicate, from everything in it that is not below a NOT; comparisons count once."""
    equality = like = is_null = inequality = is_not_null = False
    stack: list[tuple[sc.Scalar, bool]] = [(pred, False)]
    while stack:
        node, negated = stack.pop()
        if isinstance(node, sc.Call):
            literals = sum(isinstance(arg, sc.Literal) for arg in node.args)
            with_literal = 0 < literals < len(node.args)
            if node.func == "is_null":
                is_not_null |= negated
                is_null |= not negated
            elif not negated and with_literal:
                equality |= node.func.startswith("eq_")
                inequality |= node.func.startswith(_ORDERINGS)
                like |= node.func in ("like", "ilike")
            negated = negated or node.func == "not"
        stack.extend((kid, negated) for kid in sc.children(node))
    return FilterCharacteristics(equality, like, is_null, int(inequality), not is_not_null)
