"""HIR scalars that stand alone: defaults, index keys, AS OF.

Promise: a scalar without subqueries and outer columns is the same tree in MIR; anything else is refused with a person's message.
"""

from __future__ import annotations

from mzsql.expr import scalar as ms
from mzsql.frontend import hir
from mzsql.frontend.coerce import Typed
from mzsql.repr.errors import SqlError, Unsupported


def plain_scalar(value: hir.Scalar, what: str) -> ms.Scalar:
    """The MIR scalar over the same columns.

    Raises:
        Unsupported: it has a subquery or a window function; `what` names the place.
    """
    match value:
        case hir.Column(index=index, level=0):
            return ms.Column(index)
        case hir.Call(func=func, args=args, typ=typ):
            return ms.Call(func, tuple(plain_scalar(a, what) for a in args), typ)
        case hir.If(condition=c, then=t, otherwise=o):
            return ms.If(plain_scalar(c, what), plain_scalar(t, what), plain_scalar(o, what))
        case hir.Column() | hir.Exists() | hir.Select() | hir.Windowing():
            raise Unsupported(f"{what} cannot contain subqueries or window functions")
        case _:
            return value


def constant_scalar(value: Typed, what: str) -> ms.Scalar:
    """The MIR scalar of an expression that reads no column.

    Raises:
        SqlError: it reads a column.
    """
    scalar = plain_scalar(value.expr, what)
    if ms.support(scalar):
        raise SqlError(f"{what} cannot contain column references", sqlstate="42P10")
    return scalar
