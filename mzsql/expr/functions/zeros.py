"""One zero: no expression yields the float -0.0.

Promise: where a float function could make -0.0, its spelling makes 0.0. Equal floats are then identical, so whichever
of them an engine keeps from a group, a join or a sum of updates has the same text, bits and retraction. Trade-off:
PostgreSQL keeps and shows the sign of a zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import FLOATS, INTEGERS, Ast
from mzsql.expr.functions.table import Engine, ScalarFunc, Spelling, Sql
from mzsql.repr.types import SqlType

#: Functions that make no -0.0 from other arguments; in IEEE 754, only the sum of two -0.0 is -0.0.
_NEVER = frozenset(
    f"{name}_{kind}" for name in ("add", "sub", "abs", "unsigned_zero") for kind in FLOATS
)
_WITHOUT_SIGN = frozenset({*INTEGERS, "numeric"})


def unsigned(value: Spelling) -> Spelling:
    """The spelling without the sign of a zero: adding 0.0 turns -0.0 into 0.0 and changes nothing else."""

    def spelling(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return s.add(s.cast(value(engine, args, typ), typ, engine), s.cast(s.num(0), typ, engine))

    return spelling


def with_one_zero(func: ScalarFunc) -> ScalarFunc:
    """The function with its zeros unsigned, as it enters the table."""
    result = func.result
    if callable(result) or result.kind not in FLOATS or func.key in _NEVER:
        return func
    if func.args and all(arg.kind in _WITHOUT_SIGN for arg in func.args):
        return func
    return dataclasses.replace(func, value=unsigned(func.value))
