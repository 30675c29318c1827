"""What is known of a value before it is computed: its DuckDB type, its bounds, whether it may be NULL, whether
computing it may fail.

Promise: every rule errs on the safe side. A fact says what *may* be; `Fact()` says nothing. Bounds are inclusive: of
numbers as they are, of dates in days since 1970-01-01, of booleans 0 and 1. Trade-off: this is plain interval
arithmetic, which knows nothing of relations between columns, so ``a - a`` may be any difference of two values within
a's bounds.

`coarse` deliberately makes the facts of a step's relations coarse (powers of ten), so that a statement made for them
serves for nearly every later step.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

#: Kinds that are not types: a number literal, a text literal and NULL, which take the type of what they are combined
#: with.
NUMBER = "number"
STRING = "string"
NULL = "null"

BOOLEAN = "BOOLEAN"
DATE = "DATE"
BIGINT = "BIGINT"
HUGEINT = "INT128"

#: Bits of each integer type without the sign, by name.
INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, BIGINT: 63, HUGEINT: 127}
#: Digits of the decimals that integers are converted to.
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, BIGINT: 19}
#: The days that every cast of a date supports: years 1 to 9999.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896

#: A bound; None if there is none.
Bound = Fraction | None


@dataclass(frozen=True, slots=True)
class Fact:
    """The possible results of an expression.

    Attributes:
        kind: its type as DuckDB writes it, or one of the kinds above; None: unknown.
        values: whether it may be other than NULL.
        nulls: whether it may be NULL.
        low: no value is lower.
        high: no value is higher.
        fails: whether computing it may throw.
        texts: all possible texts; None: unknown.
        other: whether it is never 0, although its bounds may include 0.
    """

    kind: str | None = None
    values: bool = True
    nulls: bool = True
    low: Bound = None
    high: Bound = None
    fails: bool = True
    texts: frozenset[str] | None = None
    other: bool = False

    @property
    def nonzero(self) -> bool:
        """Whether a number is never 0."""
        above = self.low is not None and self.low > 0
        return self.other or above or (self.high is not None and self.high < 0)

    def covers(self, other: Fact) -> bool:
        """Whether all possible results of `other` are possible results of this."""
        if self is other:
            return True
        if (self.kind != other.kind) or (other.nulls and not self.nulls):
            return False
        if (other.fails and not self.fails) or not other.values:
            return self.fails or not other.fails
        return (
            self.values
            and (self.low is None or (other.low is not None and self.low <= other.low))
            and (self.high is None or (other.high is not None and self.high >= other.high))
            and (self.texts is None or (other.texts is not None and self.texts >= other.texts))
            and (not self.other or other.nonzero)
        )

    @property
    def constant(self) -> Fraction | None:
        """The number that it always is; None if it may vary."""
        if self.nulls or self.low is None or self.low != self.high:
            return None
        return self.low

    @property
    def always(self) -> bool:
        """Whether a condition is always TRUE."""
        return self.kind == BOOLEAN and not self.nulls and self.low == 1

    @property
    def never(self) -> bool:
        """Whether a condition is never TRUE."""
        return not self.values or (self.kind == BOOLEAN and self.high == 0)

    @property
    def size(self) -> Bound:
        """Upper bound on the absolute value."""
        if self.low is None or self.high is None:
            return None
        return max(abs(self.low), abs(self.high))


def number(value: Fraction | int, kind: str | None = NUMBER) -> Fact:
    """The fact of a number literal."""
    exact = Fraction(value)
    return Fact(kind, nulls=False, low=exact, high=exact, fails=False)


def truth(*, may_hold: bool, may_not: bool, nulls: bool, fails: bool) -> Fact:
    """The fact of a condition."""
    low, high = Fraction(0 if may_not else 1), Fraction(1 if may_hold else 0)
    values = may_hold or may_not
    return Fact(
        BOOLEAN,
        values=values,
        nulls=nulls,
        low=low if values else None,
        high=high if values else None,
        fails=fails,
    )


def bounded(fact: Fact) -> Fact:
    """A fact with the bounds that its type implies."""
    if fact.kind != BOOLEAN or not fact.values:
        return fact
    low, high = fact.low, fact.high
    return replace(
        fact,
        low=Fraction(0) if low is None else low,
        high=Fraction(1) if high is None else high,
    )


def null(kind: str | None = NULL) -> Fact:
    """The fact of NULL."""
    return Fact(kind, values=False, fails=False)


def column_of(fact: Fact) -> Fact:
    """The fact of a column that holds an expression's result: a literal then has a type."""
    if fact.kind == NUMBER:
        size = fact.size
        if size is None or not fits(fact, BIGINT):
            return replace(fact, kind=None)
        # At the limits the type is uncertain: DuckDB reads a negative literal as the negation of a positive one, which
        # is one larger.
        narrow = size < 2**31 - 1
        return replace(fact, kind="INT" if narrow else BIGINT if size > 2**31 else None)
    if fact.kind == STRING:
        return replace(fact, kind="TEXT")
    return replace(fact, kind=None) if fact.kind == NULL else fact


def decimal(kind: str | None) -> tuple[int, int] | None:
    """Digits and scale of a decimal type; None for other types."""
    if kind is None or not kind.startswith("DECIMAL("):
        return None
    digits, scale = kind.removeprefix("DECIMAL(").removesuffix(")").split(",")
    return int(digits), int(scale)


def decimal_kind(digits: int, scale: int) -> str:
    """The name of a decimal type."""
    return f"DECIMAL({digits}, {scale})"


def fits(fact: Fact, kind: str | None) -> bool:
    """Whether every possible value of a number, rounded if the type rounds, fits the type."""
    size = fact.size
    if size is None or kind is None:
        return not fact.values
    shape = decimal(kind)
    if shape is not None:
        digits, scale = shape
        return bool(size + Fraction(1, 10**scale) < Fraction(10) ** (digits - scale))
    return kind in INTEGERS and bool(size + 1 < Fraction(2) ** INTEGERS[kind])


def decimal_of(fact: Fact) -> tuple[int, int] | None:
    """The decimal type that a number is converted to when combined with a decimal; None if there is none or it is
    unknown.
    """
    digits = _DIGITS.get(fact.kind or "")
    return decimal(fact.kind) if digits is None else (digits, 0)


def is_number(kind: str | None) -> bool:
    """Whether values of this kind are exact numbers."""
    return kind == NUMBER or kind in INTEGERS or decimal(kind) is not None


def one_of(facts: Iterable[Fact]) -> Fact:
    """What is known of a value that is described by any of the facts."""
    found = list(facts)
    kinds = {fact.kind for fact in found}
    with_values = [fact for fact in found if fact.values]
    lows = [fact.low for fact in with_values if fact.low is not None]
    highs = [fact.high for fact in with_values if fact.high is not None]
    return Fact(
        kinds.pop() if len(kinds) == 1 else None,
        values=bool(with_values),
        nulls=any(fact.nulls for fact in found),
        low=min(lows) if lows and len(lows) == len(with_values) else None,
        high=max(highs) if highs and len(highs) == len(with_values) else None,
        fails=any(fact.fails for fact in found),
        texts=_texts(with_values),
        other=all(fact.nonzero for fact in with_values),
    )


def _texts(facts: list[Fact]) -> frozenset[str] | None:
    found: set[str] = set()
    for fact in facts:
        if fact.texts is None:
            return None
        found |= fact.texts
    return frozenset(found)


def sum_of(left: Fact, right: Fact) -> tuple[Bound, Bound]:
    """Bounds of a sum."""
    if left.low is None or right.low is None or left.high is None or right.high is None:
        return None, None
    return left.low + right.low, left.high + right.high


def negated(fact: Fact) -> Fact:
    """The fact of the negated number."""
    return replace(
        fact,
        low=None if fact.high is None else -fact.high,
        high=None if fact.low is None else -fact.low,
    )


def product_of(left: Fact, right: Fact) -> tuple[Bound, Bound]:
    """Bounds of a product."""
    if left.low is None or right.low is None or left.high is None or right.high is None:
        return None, None
    corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    return min(corners), max(corners)


def total_of(fact: Fact, rows: int) -> tuple[Bound, Bound]:
    """Bounds of a sum over at least one and at most `rows` rows."""
    if fact.low is None or fact.high is None:
        return None, None
    return min(fact.low, fact.low * rows), max(fact.high, fact.high * rows)


#: Powers of ten to which bounds are coarsened.
_POWERS = tuple(10**step for step in (0, 3, 6, 9, 12, 15, 18, 24, 30, 38))
#: Numbers of rows to which those of relations are coarsened.
_ROWS = (0, 10, 1_000, 20_000, 250_000, 10_000_000)


def coarse(kind: str | None, low: int | Decimal, high: int | Decimal, *, nulls: bool) -> Fact:
    """A column of numbers between bounds, coarsened to 0, 1 and powers of ten."""
    # Unary minus would round a decimal to the context's precision.
    above = low.copy_negate() if isinstance(low, Decimal) else -low
    return _between(kind, -_above(above), _above(high), nulls)


@functools.lru_cache(maxsize=4096)
def _between(kind: str | None, low: int, high: int, nulls: bool) -> Fact:
    return Fact(kind, nulls=nulls, low=Fraction(low), high=Fraction(high), fails=False)


def _above(bound: int | Decimal) -> int:
    """The lowest of the coarse bounds that is not below `bound`."""
    if bound <= -1:
        return -1
    if bound <= 0:
        return 0
    place = bisect.bisect_left(_POWERS, bound)
    return _POWERS[place] if place < len(_POWERS) else math.ceil(bound)


def widened(fact: Fact, *, signed: bool = False) -> Fact:
    """A column of numbers with bounds a thousand times as wide, if its type has such numbers; of the signs that it had,
    or with `signed` of either. Bounds between -1 and 1, as of nearly all counts in a change, stay unless `signed`.
    """
    size = fact.size
    if not is_number(fact.kind) or size is None or (size <= 1 and not signed):
        return fact
    place = bisect.bisect_left(_POWERS, size) + 1
    if place >= len(_POWERS):
        return fact
    assert fact.low is not None
    assert fact.high is not None
    wide = Fraction(_POWERS[place])
    low = -wide if signed or fact.low < 0 else fact.low
    high = wide if signed or fact.high > 0 else fact.high
    made = replace(fact, low=low, high=high)
    return made if fits(made, fact.kind) else fact


def more_rows(rows: int) -> int:
    """The next larger of the coarse numbers of rows; 0 stays."""
    return next((kept for kept in _ROWS if kept > rows), rows) if rows else 0


def coarse_rows(rows: int) -> int:
    """The lowest of the coarse numbers of rows that is not below `rows`; 0 for none."""
    return next((kept for kept in _ROWS if kept >= rows), rows)
