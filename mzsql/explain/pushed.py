"""Which predicates of a read can be decided by the statistics of its parts: EXPLAIN's `filter pushdown`.

Promise: a predicate counts if everything that it computes from columns is monotone, so that a part's minimum and
maximum bound its result, as in Materialize's interpreter of expressions over ranges. It says what could be skipped;
what is skipped depends on the data, and is shown by `EXPLAIN FILTER PUSHDOWN`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal as OneOf

from mzsql.explain.scalars import shown_in_mfp
from mzsql.expr import functions
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Call, Column, If, Literal, LiteralError, Scalar

#: What is known about an expression's values in a part: one value, a range, or nothing.
_Known = OneOf["constant", "range", "unknown"]
_ORDER: tuple[_Known, ...] = ("constant", "range", "unknown")
_COMPARISONS = frozenset({"=", "<", "<=", ">", ">="})
_TRUTHS = frozenset({"and", "or", "not", "is_null", "is_true", "is_false", "coalesce"})
_EXTREMES = frozenset({"greatest", "least"})
#: Monotone in the first argument only.
_FIRST = frozenset({"/", "round"})
_BOTH = frozenset({"jsonb_get_string", "try_parse_monotonic_iso8601_timestamp", "row"})
_NUMBERS = ("smallint", "integer", "bigint", "uint2", "uint4", "uint8", "real", "double", "numeric")
#: Casts that preserve order although the types' orders differ: from a jsonb number, to mz_timestamp.
_CASTS = frozenset(
    {
        *(f"jsonb_to_{number}" for number in _NUMBERS),
        *(f"{number}_to_mz_timestamp" for number in _NUMBERS),
    }
)


def decidable(mfp: MapFilterProject) -> list[Scalar]:
    """The MFP's predicates that statistics can decide, in order."""
    known: list[_Known] = ["range"] * mfp.input_arity
    for expr in mfp.expressions:
        known.append(_of(expr, known))
    return [pred for _, pred in shown_in_mfp(mfp.predicates) if _of(pred, known) != "unknown"]


def _of(expr: Scalar, columns: Sequence[_Known]) -> _Known:
    match expr:
        case Column(index=index):
            return columns[index]
        case Literal() | LiteralError():
            return "constant"
        case If(condition=condition, then=then, otherwise=otherwise):
            return _widest(_of(part, columns) for part in (condition, then, otherwise))
        case Call(func=key, args=args):
            monotone = _monotone(key, len(args))
            found: list[_Known] = []
            for arg, keeps in zip(args, monotone, strict=True):
                own = _of(arg, columns)
                found.append(own if keeps or own == "constant" else "unknown")
            return _widest(found)
        case _:
            return "range"


def _widest(found: Iterable[_Known]) -> _Known:
    return max(found, key=_ORDER.index, default="constant")


def _monotone(key: str, arity: int) -> tuple[bool, ...]:
    """For each argument, whether a function is monotone in it."""
    func = functions.scalar(key)
    if func.monotone or key in _TRUTHS | _BOTH | _CASTS:
        return (True,) * arity
    if func.name in _COMPARISONS or func.name in _EXTREMES or func.name == "*":
        return (True,) * arity
    if func.name in _FIRST:
        return (True, *(False,) * (arity - 1))
    return (False,) * arity
