"""Functions of ``mz_unsafe``: ``mz_sleep(seconds)``, ``mz_error_if_null(value, message)``.

Promise: they are there while the system's ``unsafe_enable_unsafe_functions`` is on. A pause is one of the statement, which its timeout and
a cancel end; so how long it is has to be known while the statement is planned.
"""

from __future__ import annotations

import math

from sqlglot import expressions as exp

from mzsql.expr.functions.unmaterializable import sleep_key
from mzsql.expr.scalar import Literal, Unmaterializable
from mzsql.frontend import hir
from mzsql.frontend.scalar import qualified
from mzsql.frontend.scalar.coerce import (
    NO_OVERLOAD,
    Typed,
    call,
    plain_name,
    require,
    settle,
)
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.frontend.scalar.standalone import constant_value, is_constant
from mzsql.repr import types as t
from mzsql.repr.errors import InvalidParameter, UndefinedFunction, Unsupported

SCHEMA = "mz_unsafe"
_NULL = Typed(Literal(None, t.TIMESTAMPTZ), t.TIMESTAMPTZ, True)


def plan_unsafe(ctx: ExprContext, node: exp.Dot) -> Typed:
    """A call of one of them.

    Raises:
        Unsupported: they are switched off.
        UndefinedFunction: there is none of the name, or of these arguments.
    """
    if not ctx.planner.catalog.unsafe_functions:
        raise Unsupported("executing potentially dangerous functions is not supported")
    inner = node.expression
    args = list(inner.expressions)
    match function_name(inner), len(args):
        case "mz_sleep", 1:
            return _sleep(ctx, args[0])
        case "mz_error_if_null", 2:
            return _error_if_null(ctx, args[0], args[1])
        case ("mz_sleep" | "mz_error_if_null") as name, _:
            types = ", ".join(plain_name(ctx.plan(arg).typ) for arg in args)
            raise UndefinedFunction(
                f"function {SCHEMA}.{name}({types}) does not exist",
                position=position_of(node),
                hint=NO_OVERLOAD,
            )
        case _:
            raise qualified.missing(node)


def _error_if_null(ctx: ExprContext, value: exp.Expr, message: exp.Expr) -> Typed:
    """The value, which is not NULL: else an error that says the message."""
    told = require(
        ctx.plan(message), t.TEXT, "implicit", "argument of mz_error_if_null", position_of(message)
    )
    return call("error_if_null", [settle(ctx.plan(value)), told])


def _sleep(ctx: ExprContext, arg: exp.Expr) -> Typed:
    position = position_of(arg)
    given = require(ctx.plan(arg), t.DOUBLE, "implicit", "argument of mz_sleep", position)
    if not is_constant(given.expr):
        raise Unsupported("mz_sleep of what is not a constant is not supported", position=position)
    seconds = constant_value(given, "the argument of mz_sleep")
    if seconds is None:
        return _NULL
    assert isinstance(seconds, float)
    if not math.isfinite(seconds):
        raise InvalidParameter("mz_sleep takes a finite number of seconds", position=position)
    # True when it is over; what is put out is NULL, and nothing can be folded before.
    over = Unmaterializable(sleep_key(seconds), t.BOOLEAN)
    now = Typed(Unmaterializable("current_timestamp", t.TIMESTAMPTZ), t.TIMESTAMPTZ, False)
    return Typed(hir.If(over, _NULL.expr, now.expr), t.TIMESTAMPTZ, True)
