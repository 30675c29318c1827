"""Temporal filters: predicates on ``mz_now()`` as the interval of times at which a row is present.

Promise: an `MfpPlan` means the same as its `MapFilterProject` at every time: a row that passes the other predicates is
present from the latest of its lower bounds until before the earliest of its upper bounds; a NULL bound excludes the
row. Only such predicates are planned: ``mz_now()`` alone, compared (``=``, ``<``, ``<=``, ``>``, ``>=``) with an
expression that does not depend on the time. Any other is refused with the reason, since maintaining it would mean
examining every row at every time.
"""

from __future__ import annotations

import msgspec

from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import (
    Call,
    Column,
    Scalar,
    Unmaterializable,
    permute,
    substitute,
    support,
    walk,
)
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import MZ_TIMESTAMP

NOW = Unmaterializable("mz_now", MZ_TIMESTAMP)
_KIND = "_mz_timestamp"
#: The comparison with its sides swapped.
_FLIPPED = {"eq": "eq", "lt": "gt", "lte": "gte", "gt": "lt", "gte": "lte"}


class Bound(msgspec.Struct, frozen=True, cache_hash=True):
    """A time: the value of ``expr`` or, with ``after``, the first time after it."""

    expr: Scalar
    after: bool


class MfpPlan(msgspec.Struct, frozen=True, cache_hash=True):
    """An MFP whose temporal filters are bounds.

    Attributes:
        mfp: the rest of the MFP.
        lower: the row is present from the latest of these; over the columns of ``mfp``, those of its input and its
            expressions.
        upper: the row is absent from the earliest of these.
    """

    mfp: MapFilterProject
    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]

    def with_bounds(self) -> MapFilterProject:
        """The MFP with the values of the bounds appended to its output, lower ones first."""
        mfp = self.mfp
        width = mfp.input_arity + len(mfp.expressions)
        bounds = tuple(bound.expr for bound in (*self.lower, *self.upper))
        return msgspec.structs.replace(
            mfp,
            expressions=(*mfp.expressions, *bounds),
            projection=(*mfp.projection, *range(width, width + len(bounds))),
        ).optimize()


def reads_time(expr: Scalar) -> bool:
    """Whether the expression depends on ``mz_now()``."""
    return any(node == NOW for node in walk(expr))


def is_temporal(mfp: MapFilterProject) -> bool:
    """Whether a predicate depends on the time."""
    columns = _inlined(mfp)
    return any(reads_time(substitute(pred, columns)) for _, pred in mfp.predicates)


def plan_temporal(mfp: MapFilterProject) -> MfpPlan | None:
    """The plan of an MFP with temporal filters; None for an MFP without.

    Raises:
        Unsupported: a predicate on the time is no bound.
    """
    columns = _inlined(mfp)
    others: list[tuple[int, Scalar]] = []
    lower: list[Bound] = []
    upper: list[Bound] = []
    for position, pred in mfp.predicates:
        whole = substitute(pred, columns)
        if not reads_time(whole):
            others.append((position, pred))
            continue
        for part in _conjuncts(whole):
            op, compared = _comparison(part)
            if op in ("eq", "gt", "gte"):
                lower.append(Bound(compared, op == "gt"))
            if op in ("eq", "lt", "lte"):
                upper.append(Bound(compared, op != "lt"))
    if not lower and not upper:
        return None
    rest = msgspec.structs.replace(mfp, predicates=tuple(others))
    return MfpPlan(rest, tuple(dict.fromkeys(lower)), tuple(dict.fromkeys(upper)))


def extract_temporal(mfp: MapFilterProject) -> tuple[MapFilterProject, MapFilterProject | None]:
    """The MFP split in two: without predicates on the time, then one with only these, or None where there are none."""
    if not is_temporal(mfp):
        return mfp, None
    columns = _inlined(mfp)
    now: list[tuple[int, Scalar]] = []
    later: list[Scalar] = []
    for position, pred in mfp.predicates:
        if reads_time(substitute(pred, columns)):
            later.append(_without_time_columns(pred, columns, mfp.input_arity))
        else:
            now.append((position, pred))
    wanted = list(dict.fromkeys(mfp.projection))
    wanted += sorted(frozenset[int]().union(*(support(p) for p in later)) - set(wanted))
    first = msgspec.structs.replace(mfp, predicates=tuple(now), projection=tuple(wanted))
    place = {column: at for at, column in enumerate(wanted)}
    then = MapFilterProject.identity(len(wanted)).filter(permute(p, place) for p in later)
    return first.optimize(), then.project(place[column] for column in mfp.projection)


def _inlined(mfp: MapFilterProject) -> list[Scalar]:
    """The columns of an MFP, with those that depend on the time as expressions over its other columns."""
    columns: list[Scalar] = [Column(i) for i in range(mfp.input_arity)]
    for offset, expr in enumerate(mfp.expressions):
        whole = substitute(expr, columns)
        columns.append(whole if reads_time(whole) else Column(mfp.input_arity + offset))
    return columns


def _without_time_columns(pred: Scalar, columns: list[Scalar], arity: int) -> Scalar:
    """The predicate with inlined columns that depend on the time."""
    timed = [
        expr if at >= arity and reads_time(expr) else Column(at) for at, expr in enumerate(columns)
    ]
    return substitute(pred, timed)


def _conjuncts(pred: Scalar) -> list[Scalar]:
    if isinstance(pred, Call) and pred.func == "and":
        return [part for arg in pred.args for part in _conjuncts(arg)]
    return [pred]


def _comparison(pred: Scalar) -> tuple[str, Scalar]:
    """The operator and the other side of a comparison with ``mz_now()``, as if it stood on the left."""
    if not isinstance(pred, Call) or not pred.func.endswith(_KIND) or len(pred.args) != 2:
        raise _unsupported(
            "mz_now() must be directly compared to an expression of type mz_timestamp"
        )
    op = pred.func.removesuffix(_KIND)
    left, right = pred.args
    if left != NOW:
        left, right, op = right, left, _FLIPPED.get(op, op)
    if left != NOW or reads_time(right):
        raise _unsupported("mz_now() must stand by itself on one side of the comparison only")
    if op not in _FLIPPED:
        raise Unsupported(
            "Unsupported binary temporal operation: NotEq",
            hint="mz_now() can be compared by =, <, <=, > and >= only.",
        )
    if isinstance(right, Unmaterializable):
        raise _unsupported(f"{right.func}() is no value of the row")
    return op, right


def _unsupported(why: str) -> Unsupported:
    return Unsupported(
        "Unsupported temporal predicate. Note: `mz_now()` must be directly compared to a "
        "mz_timestamp-castable expression.",
        detail=why,
        hint="Only filters such as mz_now() < expression are maintained as time passes; "
        "a query that is answered once may use mz_now() anywhere.",
    )


__all__ = [
    "NOW",
    "Bound",
    "MfpPlan",
    "extract_temporal",
    "is_temporal",
    "plan_temporal",
    "reads_time",
]
