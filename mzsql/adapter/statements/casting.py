"""Casts for values that COPY and appends read or write, as expressions.

Promise: a value is cast by the same functions as an SQL cast (`mzsql.expr.functions.find_cast`).
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import scalar
from mzsql.expr.scalar import Call, Scalar
from mzsql.repr.types import SqlType


def cast_by(keys: Sequence[str], expr: Scalar, typ: SqlType) -> Scalar:
    """The expression that casts ``expr`` to ``typ`` through the functions that `find_cast` returned, in order."""
    for key in keys:
        result = scalar(key).result
        expr = Call(key, (expr,), typ if key == keys[-1] or callable(result) else result)
    return expr
