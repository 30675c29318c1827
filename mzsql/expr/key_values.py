"""One representation for equal values in keys.

Promise: of values that are equal but distinguishable (0.0 and -0.0), keys contain one. Otherwise an engine that groups
or joins could output any of them, one in a step and another in a lookup, and a retraction would miss what was inserted.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions.number.arithmetic import UNSIGNED_ZERO
from mzsql.expr.scalar import Call, Literal, Scalar, scalar_type
from mzsql.repr.types import ColumnType


def as_key(expr: Scalar, columns: Sequence[ColumnType]) -> Scalar:
    """The expression as a key over rows of ``columns``, with equal values made the same."""
    typ = scalar_type(expr, columns)
    func = UNSIGNED_ZERO.get(typ.kind)
    if func is None or isinstance(expr, Literal) or (isinstance(expr, Call) and expr.func == func):
        return expr
    return Call(func, (expr,), typ)
