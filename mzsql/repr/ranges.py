"""Ranges in Python: the value that a fetched row holds, and what a range means.

Promise: a `Range` is as PostgreSQL keeps it. Ranges of whole numbers and of dates include their lower bound and exclude their upper one;
a range without anything in it is ``empty``, whatever its bounds were; a missing bound is excluded. ``str()`` gives PostgreSQL's text.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from mzsql.repr.errors import DataError

#: The kinds of elements that have a next one, and what the end of them is called.
DISCRETE = {"integer": "integer", "bigint": "bigint", "date": "date"}
#: What the bounds argument of a constructor may be.
BOUNDS = ("[]", "[)", "(]", "()")
MISORDERED = "range lower bound must be less than or equal to range upper bound"


class Range:
    """A range of values.

    Attributes:
        lower: the lower bound; None where there is none, or the range is empty.
        upper: the upper bound, likewise.
        bounds: ``[)`` and its like: whether the bounds belong to it.
        isempty: whether nothing is in it.
    """

    __slots__ = ("_text", "bounds", "isempty", "lower", "upper")

    def __init__(
        self,
        lower: Any = None,
        upper: Any = None,
        bounds: str = "[)",
        *,
        empty: bool = False,
        text: str = "",
    ) -> None:
        if bounds not in BOUNDS:
            msg = f"bounds are one of {', '.join(BOUNDS)}, not {bounds!r}"
            raise ValueError(msg)
        self.isempty = empty
        self.lower = None if empty else lower
        self.upper = None if empty else upper
        opening = "(" if self.lower is None else bounds[0]
        closing = ")" if self.upper is None else bounds[1]
        self.bounds = "()" if empty else opening + closing
        self._text = text

    @property
    def lower_inc(self) -> bool:
        """Whether the lower bound belongs to it."""
        return self.bounds[0] == "["

    @property
    def upper_inc(self) -> bool:
        """Whether the upper bound belongs to it."""
        return self.bounds[1] == "]"

    @property
    def lower_inf(self) -> bool:
        """Whether it has no lower bound."""
        return self.lower is None and not self.isempty

    @property
    def upper_inf(self) -> bool:
        """Whether it has no upper bound."""
        return self.upper is None and not self.isempty

    def _key(self) -> tuple[Any, ...]:
        return (self.isempty, self.lower, self.upper, self.bounds)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Range) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __contains__(self, value: Any) -> bool:
        if self.isempty:
            return False
        if self.lower is not None and not (
            value > self.lower or (self.lower_inc and value == self.lower)
        ):
            return False
        return self.upper is None or bool(
            value < self.upper or (self.upper_inc and value == self.upper)
        )

    def __str__(self) -> str:
        if self._text:
            return self._text
        return range_text(
            None if self.isempty else self.bounds,
            None if self.lower is None else _element_text(self.lower),
            None if self.upper is None else _element_text(self.upper),
        )

    def __repr__(self) -> str:
        if self.isempty:
            return "Range(empty=True)"
        return f"Range({self.lower!r}, {self.upper!r}, {self.bounds!r})"


def _element_text(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat(" ").removesuffix(":00" if value.tzinfo is not None else "\n")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def range_text(bounds: str | None, lower: str | None, upper: str | None) -> str:
    """The text of a range by its bounds (None: it is empty) and the texts of their values."""
    if bounds is None:
        return "empty"
    shown = ["" if text is None else _quoted(text) for text in (lower, upper)]
    return f"{bounds[0]}{shown[0]},{shown[1]}{bounds[1]}"


def _quoted(text: str) -> str:
    if text and not any(char in '"\\()[],' or char.isspace() for char in text):
        return text
    doubled = text.replace("\\", "\\\\").replace('"', '""')
    return f'"{doubled}"'


#: Bounds as datums with whether they are included: (lower, lower included, upper, upper included); None is the empty range.
Parts = tuple[Any, bool, Any, bool] | None


def canonical(lower: Any, upper: Any, bounds: str, kind: str) -> Parts:
    """What a range over elements of a kind is, of comparable values; None of the empty range.

    Raises:
        DataError: the lower bound is greater than the upper one.
    """
    lower_in, upper_in = bounds[0] == "[", bounds[1] == "]"
    if lower is not None and upper is not None and lower > upper:
        raise DataError(MISORDERED, sqlstate="22000")
    if kind in DISCRETE:
        if lower is not None and not lower_in:
            lower, lower_in = lower + 1, True
        if upper is not None and upper_in:
            upper, upper_in = upper + 1, False
    if lower is not None and upper is not None:
        nothing = lower > upper or (lower == upper and not (lower_in and upper_in))
        if nothing:
            return None
    return lower, lower_in and lower is not None, upper, upper_in and upper is not None
