"""Operations on vectors: arithmetic, comparisons, three-valued logic, and choices between values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mzsql.compute.engines.arrays.vectors import (
    NUMBERS,
    WIDE,
    Kind,
    Mask,
    Unsupported,
    Vector,
    alike,
    checked,
    computed,
    either,
    most_of,
    null,
    scaled,
    truth,
)

Comparison = Callable[[Any, Any], Any]


def added(one: Vector, other: Vector) -> Vector:
    """The sum."""
    return _linear(operator.add, one, other)


def subtracted(one: Vector, other: Vector) -> Vector:
    """The difference; of two dates, the days between them."""
    if one.kind is Kind.DATE and other.kind is Kind.DATE:
        return computed(Kind.INTEGER, 64, one.most + other.most, operator.sub, one, other)
    return _linear(operator.sub, one, other)


def _linear(operation: Comparison, one: Vector, other: Vector) -> Vector:
    if one.kind not in NUMBERS or other.kind not in NUMBERS:
        raise Unsupported
    if one.kind is Kind.INTEGER and other.kind is Kind.INTEGER:
        size = max(one.size, other.size)
        return computed(Kind.INTEGER, size, one.most + other.most, operation, one, other)
    # Unlike a CASE, a sum has the larger scale.
    scale = max(each.size for each in (one, other) if each.kind is Kind.DECIMAL)
    left, right = scaled(one, scale), scaled(other, scale)
    return computed(Kind.DECIMAL, scale, left.most + right.most, operation, left, right)


def multiplied(one: Vector, other: Vector) -> Vector:
    """The product.

    Raises:
        Unsupported: they are no numbers, or it may be too large.
    """
    if one.kind not in NUMBERS or other.kind not in NUMBERS:
        raise Unsupported
    most = one.most * other.most
    if one.kind is Kind.INTEGER and other.kind is Kind.INTEGER:
        size = max(one.size, other.size)
        return computed(Kind.INTEGER, size, most, operator.mul, one, other)
    scale = sum(each.size for each in (one, other) if each.kind is Kind.DECIMAL)
    return computed(Kind.DECIMAL, scale, most, operator.mul, one, other)


def divided(one: Vector, other: Vector) -> Vector:
    """The quotient of whole numbers, rounded towards zero.

    Raises:
        Unsupported: a divisor is zero.
    """
    if one.kind is not Kind.INTEGER or other.kind is not Kind.INTEGER:
        raise Unsupported
    if not other.values.all():
        raise Unsupported
    size = max(one.size, other.size)
    # The least number of 64 bits has no absolute value in them, as a divisor neither.
    most = max(one.most, other.most)
    return computed(Kind.INTEGER, size, most, _quotient, one, other)


def _quotient(one: Any, other: Any) -> Any:
    left, right = np.abs(one), np.abs(other)
    return np.where((one < 0) == (other < 0), left // right, -(left // right))


def negated(one: Vector) -> Vector:
    """The number with the other sign.

    Raises:
        Unsupported: it is none.
    """
    if one.kind not in NUMBERS:
        raise Unsupported
    # The least number of 64 bits has no negative in them.
    values = one.values.astype(object) if one.most >= WIDE else one.values
    return checked(Vector(one.kind, -values, one.nulls, one.most, one.size))


def cast(one: Vector, kind: Kind, size: int, digits: int = 0) -> Vector:
    """A value in another type; of decimals `size` is the scale and `digits` the precision.

    Raises:
        Unsupported: such a cast is not known here, or may fail.
    """
    if one.kind is Kind.NULL:
        return null(kind, size)
    if kind is Kind.DECIMAL:
        if one.kind not in NUMBERS or (one.kind is Kind.DECIMAL and one.size > size):
            raise Unsupported
        made = scaled(one, size)
        if made.most >= 10**digits:
            raise Unsupported
        return made
    if kind is Kind.INTEGER and one.kind in NUMBERS:
        whole = _rounded(one) if one.kind is Kind.DECIMAL else one
        return checked(Vector(Kind.INTEGER, whole.values, whole.nulls, whole.most, size))
    if kind is Kind.TIMESTAMP and one.kind is Kind.DATE:
        day = Vector(Kind.INTEGER, np.array([86_400_000_000], np.int64), None, 86_400_000_000)
        return computed(kind, 64, one.most * day.most, operator.mul, one, day)
    if kind is one.kind and kind is not Kind.OTHER:
        return one
    raise Unsupported


def _rounded(one: Vector) -> Vector:
    """A decimal as a whole number, halves away from zero."""
    if not one.size:
        return one
    by = 10**one.size
    most = one.most + by
    values = one.values.astype(object) if most >= WIDE else one.values
    whole = (np.abs(values) + by // 2) // by
    return Vector(
        Kind.INTEGER, np.where(values < 0, -whole, whole), one.nulls, one.most // by + 1, 128
    )


# --- conditions ---


def compared(operation: Comparison, one: Vector, other: Vector) -> Vector:
    """Whether a comparison holds. Texts have to be ranked, unless they are compared for equality."""
    left, right = alike((one, other))
    return truth(_truths(operation(left.values, right.values)), either(left.nulls, right.nulls))


def same(one: Vector, other: Vector) -> Vector:
    """Whether two values are the same, NULL among them."""
    left, right = alike((one, other))
    equal = _truths(left.values == right.values)
    if left.nulls is None and right.nulls is None:
        return truth(equal)
    first, second = _nulls(left), _nulls(right)
    return truth((equal & ~first & ~second) | (first & second))


def _truths(found: Any) -> Mask:
    made: Mask = found if found.dtype == np.bool_ else found.astype(np.bool_)
    return made


def _nulls(one: Vector) -> Mask:
    return np.zeros(len(one), np.bool_) if one.nulls is None else one.nulls


def holds(one: Vector) -> Mask:
    """Where a condition is true.

    Raises:
        Unsupported: it is none.
    """
    if one.kind is Kind.NULL:
        return np.zeros(len(one), np.bool_)
    if one.kind is not Kind.BOOLEAN:
        raise Unsupported
    made: Mask = one.values if one.nulls is None else one.values & ~one.nulls
    return made


def is_null(one: Vector) -> Vector:
    """Whether it is NULL."""
    if one.kind is Kind.OTHER:
        return truth(one.values.is_null().to_numpy(zero_copy_only=False))
    return truth(_nulls(one))


def inverted(one: Vector) -> Vector:
    """NOT."""
    (made,) = _conditions(one)
    return truth(~made.values, made.nulls)


def _conditions(*conditions: Vector) -> list[Vector]:
    made = [null(Kind.BOOLEAN) if one.kind is Kind.NULL else one for one in conditions]
    if any(one.kind is not Kind.BOOLEAN for one in made):
        raise Unsupported
    return made


def both(one: Vector, other: Vector) -> Vector:
    """AND."""
    left, right = _conditions(one, other)
    if left.nulls is None and right.nulls is None:
        return truth(left.values & right.values)
    yes = holds(left) & holds(right)
    no = holds(inverted(left)) | holds(inverted(right))
    return truth(yes, ~yes & ~no)


def any_of(one: Vector, other: Vector) -> Vector:
    """OR."""
    left, right = _conditions(one, other)
    if left.nulls is None and right.nulls is None:
        return truth(left.values | right.values)
    return inverted(both(inverted(left), inverted(right)))


# --- choices ---


def chosen(condition: Mask, one: Vector, other: Vector) -> Vector:
    """`one` where a condition holds, else `other`."""
    left, right = alike((one, other))
    values = np.where(condition, left.values, right.values)
    nulls = None
    if left.nulls is not None or right.nulls is not None:
        nulls = np.where(condition, _nulls(left), _nulls(right))
        if not nulls.any():
            nulls = None
    return Vector(left.kind, values, nulls, most_of((left, right)), left.size)


def first_of(vectors: Sequence[Vector]) -> Vector:
    """The first that is not NULL."""
    made = vectors[-1]
    for one in reversed(vectors[:-1]):
        if one.nulls is None and one.kind is not Kind.OTHER:
            left, _ = alike((one, made))
            made = Vector(left.kind, left.values, None, left.bound, left.size)
        else:
            made = chosen(~is_null(one).values, one, made)
    return made


def extreme(operation: Comparison, vectors: Sequence[Vector]) -> Vector:
    """The least or the greatest of those that are not NULL; `operation` is ``<`` or ``>``.

    Raises:
        Unsupported: they are no numbers.
    """
    made = vectors[0]
    if any(one.kind not in NUMBERS for one in vectors):
        raise Unsupported
    for one in vectors[1:]:
        left, right = alike((made, one))
        wins = _truths(operation(left.values, right.values))
        if left.nulls is not None or right.nulls is not None:
            wins = (wins | _nulls(right)) & ~_nulls(left)
        made = chosen(wins, left, right)
    return made
