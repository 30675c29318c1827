"""One zero: no float that an expression makes is -0.0.

Promise: where a function of floats could make -0.0 of its arguments, what it is spelled as makes 0.0 instead. Values that are equal are
then the same value, so whichever of them an engine keeps of a group, a join or a sum of updates, its text, its bits and its
retraction are those of the others. Trade-off: PostgreSQL keeps the sign of a zero, and shows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import FLOATS, INTEGERS, Ast
from mzsql.expr.functions.table import Engine, ScalarFunc, Spelling, Sql
from mzsql.repr.types import SqlType

#: What makes no -0.0 of arguments without one: IEEE 754 adds to -0.0 only from two of them.
_NEVER = frozenset(
    f"{name}_{kind}" for name in ("add", "sub", "abs", "unsigned_zero") for kind in FLOATS
)
_WITHOUT_SIGN = frozenset({*INTEGERS, "numeric"})


def unsigned(value: Spelling) -> Spelling:
    """A float's spelling without the sign of a zero: -0.0 + 0.0 is 0.0, and all else as it was."""

    def spelling(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return s.add(s.cast(value(engine, args, typ), typ, engine), s.cast(s.num(0), typ, engine))

    return spelling


def with_one_zero(func: ScalarFunc) -> ScalarFunc:
    """The function as the table has it."""
    result = func.result
    if callable(result) or result.kind not in FLOATS or func.key in _NEVER:
        return func
    if func.args and all(arg.kind in _WITHOUT_SIGN for arg in func.args):
        return func
    return dataclasses.replace(func, value=unsigned(func.value))
