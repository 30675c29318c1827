"""HIR scalars that stand alone as MIR: column defaults, index keys, AS OF.

Promise: a scalar without subqueries and outer columns becomes the same tree in MIR; any other is refused with an error
message.
"""

from __future__ import annotations

from mzsql.expr import scalar as ms
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import Typed
from mzsql.frontend.scalar.placeholders import undecided
from mzsql.repr.datum import Datum
from mzsql.repr.errors import SqlError, Unsupported
from mzsql.repr.evaluation import failed


def plain_scalar(value: hir.Scalar, what: str) -> ms.Scalar:
    """The MIR scalar over the same columns.

    Raises:
        Unsupported: it has a subquery or a window function; ``what`` names the place.
    """
    match value:
        case hir.Column(index=index, level=0):
            return ms.Column(index)
        case hir.Call(func=func, args=args, typ=typ):
            return ms.Call(func, tuple(plain_scalar(a, what) for a in args), typ)
        case hir.If(condition=c, then=t, otherwise=o):
            return ms.If(plain_scalar(c, what), plain_scalar(t, what), plain_scalar(o, what))
        case hir.Column() | hir.Exists() | hir.Select() | hir.Windowing():
            if isinstance(value, hir.Windowing):
                raise Unsupported(f"window functions are not allowed in {what}")
            raise Unsupported(f"{what} does not allow subqueries")
        case hir.CastLiteral(value=known, typ=typ):
            return ms.Literal(known, typ)
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


def constant_value(value: Typed, what: str) -> Datum:
    """The value of an expression that `is_constant`.

    Raises:
        DataError: the evaluation fails.
    """
    evaluator = Evaluator()
    try:
        (found,) = evaluator.evaluate([constant_scalar(value, what)])
    finally:
        evaluator.close()
    if isinstance(found, EvalError):
        raise failed(found.message)
    return found


def is_constant(scalar: hir.Scalar) -> bool:
    """Whether a scalar has a single value that is known while the statement is planned."""
    variable = hir.Column | hir.Exists | hir.Select | hir.Windowing | ms.Unmaterializable
    return not of_parameters(scalar) and not any(
        isinstance(part, variable) for part in hir.walk_scalar(scalar)
    )


def of_parameters(scalar: hir.Scalar) -> bool:
    """Whether a scalar reads a parameter of a statement that is only being prepared."""
    return any(
        isinstance(part, ms.Literal) and undecided(part.value) for part in hir.walk_scalar(scalar)
    )
