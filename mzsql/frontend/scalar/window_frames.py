"""Frames of window functions: ROWS, RANGE or GROUPS between two bounds, minus what EXCLUDE removes.

Promise: PostgreSQL's rules and messages. An offset must be a constant: a number of rows or groups, or with RANGE a
distance in the only ORDER BY column, which must be a number, a date or a timestamp. EXCLUDE GROUP and TIES are allowed
with GROUPS and RANGE only: with ROWS the result would depend on the order of equal rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import Typed, cast
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.standalone import constant_value, is_constant
from mzsql.repr import types as t
from mzsql.repr.errors import InvalidParameter, SqlError, SqlSyntaxError, Unsupported
from mzsql.repr.interval import Interval
from mzsql.repr.types import SqlType, type_name
from mzsql.repr.values import python_value

#: The largest offset in rows or groups.
MAX_OFFSET = 1_000_000
_BOUNDS = {"preceding": 1, "current row": 2, "following": 3}
#: The type of a distance in a column of each type.
_DISTANCES: dict[str, SqlType] = {
    **dict.fromkeys(("smallint", "integer", "bigint", "uint2", "uint4", "uint8"), t.BIGINT),
    "numeric": t.NUMERIC,
    **dict.fromkeys(("real", "double"), t.DOUBLE),
    **dict.fromkeys(("date", "timestamp", "timestamptz"), t.INTERVAL),
}


def plan_frame(ctx: ExprContext, spec: exp.Expr, order: Sequence[Typed]) -> hir.WindowFrame | None:
    """The frame that a clause means over rows in this order; None for the default one.

    Raises:
        SqlError: PostgreSQL refuses it.
        Unsupported: an offset of RANGE in a column that has no distances.
    """
    units = str(spec.args.get("kind") or "range").lower()
    excluded = spec.args.get("exclude")
    exclude = "" if excluded is None else str(excluded.name).lower()
    exclude = "" if exclude == "no others" else exclude
    if units == "groups" and not order:
        raise SqlError(
            "GROUPS mode requires an ORDER BY clause", position=position_of(spec), sqlstate="42P20"
        )
    if units == "rows" and exclude in ("group", "ties"):
        raise Unsupported(
            f"EXCLUDE {exclude.upper()} with a frame in ROWS is not supported",
            hint="A frame in GROUPS or RANGE does not depend on how equal rows are ordered.",
            position=position_of(spec),
        )
    kinds = [_kind(spec.args.get(end), spec.args.get(f"{end}_side")) for end in ("start", "end")]
    _check_bounds(*kinds)
    bounds = [
        hir.FrameBound(kind, _offset(ctx, spec.args.get(end), kind, units, order))
        for kind, end in zip(kinds, ("start", "end"), strict=True)
    ]
    if (units, *kinds, exclude) == ("range", "unbounded preceding", "current row", ""):
        return None
    return hir.WindowFrame(units, bounds[0], bounds[1], exclude)


def _kind(value: object, side: object) -> str:
    if value is None or (isinstance(value, str) and value.upper() == "CURRENT ROW"):
        return "current row"
    direction = str(side).lower()
    if direction not in ("preceding", "following"):
        raise SqlSyntaxError("Expected PRECEDING or FOLLOWING behind the bound of a window frame")
    return f"unbounded {direction}" if isinstance(value, str) else direction


def _check_bounds(start: str, end: str) -> None:
    if start == "unbounded following":
        raise SqlSyntaxError("frame start cannot be UNBOUNDED FOLLOWING", sqlstate="42P20")
    if end == "unbounded preceding":
        raise SqlSyntaxError("frame end cannot be UNBOUNDED PRECEDING", sqlstate="42P20")
    first, last = _BOUNDS.get(start, 0), _BOUNDS.get(end, 4)
    if first <= last:
        return
    shown = "current row" if start == "current row" else "following row"
    raise SqlSyntaxError(
        f"frame starting from {shown} cannot have preceding rows", sqlstate="42P20"
    )


def _offset(
    ctx: ExprContext, node: object, kind: str, units: str, order: Sequence[Typed]
) -> int | str | None:
    """The offset of a bound that has one: a count, or a distance as a quoted text."""
    if kind not in ("preceding", "following"):
        return None
    assert isinstance(node, exp.Expr)
    if units == "range":
        return _distance(ctx, node, order)
    if not isinstance(node, exp.Literal) or node.is_string or not str(node.this).isdigit():
        raise SqlSyntaxError(
            "Expected literal unsigned integer as the offset of a window frame",
            position=position_of(node),
        )
    if int(str(node.this)) > MAX_OFFSET:
        raise Unsupported(
            f"Window frame offsets greater than {MAX_OFFSET} are currently not supported",
            position=position_of(node),
        )
    return int(str(node.this))


def _distance(ctx: ExprContext, node: exp.Expr, order: Sequence[Typed]) -> str:
    position = position_of(node)
    if len(order) != 1:
        raise SqlError(
            "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
            position=position,
            sqlstate="42P20",
        )
    column = order[0].typ
    wanted = _DISTANCES.get(column.kind)
    what = "RANGE with offset PRECEDING/FOLLOWING is not supported for column type"
    if wanted is None:
        raise Unsupported(f"{what} {type_name(column)}", position=position)
    given = ctx.plan(node)
    done = cast(given, wanted, "implicit")
    if done is None:
        raise Unsupported(
            f"{what} {type_name(column)} and offset type {type_name(given.typ)}",
            position=position,
            hint="Cast the offset value to an appropriate type.",
        )
    if not is_constant(done.expr):
        raise SqlError(
            "argument of RANGE must not contain variables", position=position, sqlstate="42P10"
        )
    found = constant_value(done, "RANGE")
    if found is None:
        raise InvalidParameter("frame offset must not be null", position=position, sqlstate="22004")
    value = python_value(found, done.typ)
    negative = (
        min(value.months, value.days, value.microseconds) < 0
        if isinstance(value, Interval)
        # NaN is no distance; a decimal one does not even compare.
        else math.isnan(value) or value < 0
    )
    if negative:
        raise InvalidParameter(
            "invalid preceding or following size in window function",
            position=position,
            sqlstate="22013",
        )
    return f"'{value}'"
