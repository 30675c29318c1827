"""EXTRACT, date_part and date_trunc: functions of a unit of time, one function of the table of functions for each unit.

Promise: a unit that no type has, or that the type of the value does not have, is told of as Materialize does.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.scalar import system_functions
from mzsql.frontend.scalar.coerce import Typed, call, can_cast, explicit, function_call, integer
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.repr import types as t
from mzsql.repr.errors import InvalidParameter, SqlError, Unsupported
from mzsql.repr.types import SqlType

_MOMENTS = frozenset({"date", "time", "timestamp", "timestamptz", "interval"})
#: PostgreSQL's units that no type supports here.
_REFUSED = frozenset({"timezone", "timezone_hour", "timezone_minute", "isodoy"})
#: Units that are the session time zone's offset from UTC.
_OF_ZONE = frozenset({"timezone", "timezone_hour", "timezone_minute"})
_CLOCK = frozenset({"hour", "minute", "second", "milliseconds", "microseconds"})


def extract(ctx: ExprContext, node: exp.Expr) -> Typed:
    """EXTRACT(unit FROM value)."""
    value = ctx.plan(node.expression)
    return _with_unit("extract", node.this.name.lower(), [value], position_of(node))


def _with_unit(name: str, unit: str, args: list[Typed], position: int | None) -> Typed:
    """A function of a time unit, such as extract: the unit is part of the function's name in the table of functions."""
    found = functions.UNITS.get(unit.lower(), unit.lower() if unit.lower() in _REFUSED else None)
    if found is None:
        raise InvalidParameter(f"unit '{unit}' not recognized", position=position)
    overloads = {func.args[0].kind for func in functions.scalars_named(f"{name}_{found}")}
    given = args[-1].typ
    if found in _OF_ZONE and given.kind == "timestamptz" and name != "date_trunc":
        # Every session's time zone is UTC, so these are 0.
        result = t.DOUBLE if name == "date_part" else t.NUMERIC
        zero = integer(0)
        return _where_known(args[-1], explicit(zero, result, position))
    # extract has date and time fields of their own; date_part treats a date as its midnight.
    own = given.kind == "time" or (given.kind == "date" and name == "extract")
    if given.kind in _MOMENTS and not any(
        given.kind == kind or (not own and can_cast(given, SqlType(kind), "implicit"))
        for kind in overloads
    ):
        raise _no_such_field(name, unit, found, given.kind, position)
    return function_call(f"{name}_{found}", args, position, shown=name)


def _where_known(value: Typed, result: Typed) -> Typed:
    """``result`` where ``value`` is not NULL, else NULL."""
    null = Typed(Literal(None, result.typ), result.typ, True)
    missing = call("is_null", [value])
    return Typed(hir.If(missing.expr, null.expr, result.expr), result.typ, value.nullable)


def _no_such_field(name: str, unit: str, found: str, kind: str, position: int | None) -> SqlError:
    """A unit that there is, but not in a value of this type."""
    if name == "date_trunc" and kind == "interval":
        return InvalidParameter(f"unit '{unit}' not recognized", position=position)
    if found not in _REFUSED and (kind == "time" or (kind == "date" and found in _CLOCK)):
        return InvalidParameter(f"unit '{found}' not supported for type {kind}", position=position)
    return Unsupported(f"'{found}' timestamp units not yet supported", position=position)


def unit_function(ctx: ExprContext, node: exp.Expr) -> Typed:
    """date_part('year', x), date_trunc('month', x): the unit has to be a literal."""
    name = function_name(node)
    if system_functions.defines(name, len(node.expressions)):
        return system_functions.plan_call(ctx, node)
    if len(node.expressions) != 2 or not node.expressions[0].is_string:
        args = [ctx.plan(e) for e in node.expressions]
        return function_call(name, args, position_of(node))
    unit, value = node.expressions
    return _with_unit(name, unit.name, [ctx.plan(value)], position_of(node))
