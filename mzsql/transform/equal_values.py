"""Equality as in a join's equivalences: NULL equals NULL.

Promise: pure functions of expressions; what cannot be NULL is compared without testing for NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr import scalar as sc
from mzsql.expr.typing import nullable
from mzsql.repr.types import BOOLEAN, ColumnType


def null_safe_equal(left: sc.Scalar, right: sc.Scalar, columns: Sequence[ColumnType]) -> sc.Scalar:
    """The predicate that two expressions over `columns` have one value, or are both NULL."""
    literal, other = (left, right) if isinstance(left, sc.Literal) else (right, left)
    if isinstance(literal, sc.Literal) and literal.value is None:
        return sc.Call("is_null", (other,), BOOLEAN)
    kind = sc.scalar_type(left, columns).kind
    equal = sc.Call(f"eq_{kind}", (left, right), BOOLEAN)
    if not nullable(left, columns) or not nullable(right, columns):
        return equal
    nulls = tuple(sc.Call("is_null", (side,), BOOLEAN) for side in (left, right))
    return sc.Call("or", (equal, sc.Call("and", nulls, BOOLEAN)), BOOLEAN)


def all_equal(cls: Sequence[sc.Scalar], columns: Sequence[ColumnType]) -> list[sc.Scalar]:
    """The predicates that the members of a class have one value: each is compared with one that reads no column, or
    else with the first.
    """
    if not cls:
        return []
    first = next((e for e in cls if not sc.support(e)), cls[0])
    return [null_safe_equal(e, first, columns) for e in cls if e is not first]
