"""Values that key something, in one representation.

Promise: of values that are equal but not the same (0.0 and -0.0), a key holds one. An engine that groups or joins by them would hand on
any of them, another one in a step than in a lookup, and what one inserted the other could not retract.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions.number.arithmetic import UNSIGNED_ZERO
from mzsql.expr.scalar import Call, Literal, Scalar, scalar_type
from mzsql.repr.types import ColumnType


def as_key(expr: Scalar, columns: Sequence[ColumnType]) -> Scalar:
    """An expression over rows of `columns` as a key."""
    typ = scalar_type(expr, columns)
    func = UNSIGNED_ZERO.get(typ.kind)
    if func is None or isinstance(expr, Literal) or (isinstance(expr, Call) and expr.func == func):
        return expr
    return Call(func, (expr,), typ)
