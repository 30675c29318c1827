"""Window functions: from a call with an OVER clause to `hir.Windowing`.

Promise: OVER clauses, named windows and frames follow PostgreSQL's rules and messages; other options are Materialize's:
IGNORE NULLS for `lag` and `lead`. `avg` and the variances become window aggregates of sums and counts, as their grouped
forms do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import expressions as exp

from mzsql.expr.functions.aggregate import windows
from mzsql.expr.scalar import Literal, LiteralError
from mzsql.frontend import hir
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar import aggregates, qualified
from mzsql.frontend.scalar.coerce import Typed, call, cast, integer, operator_call, settle, unify
from mzsql.frontend.scalar.collector import Collector
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.frontend.scalar.typed import sortable
from mzsql.frontend.scalar.window_frames import plan_frame
from mzsql.repr import types as t
from mzsql.repr.errors import (
    DatatypeMismatch,
    SqlError,
    UndefinedFunction,
    UndefinedObject,
    Unsupported,
    alike,
)


@dataclass(frozen=True)
class _Over:
    """An OVER clause, merged with the named windows that it refers to."""

    partition: tuple[exp.Expr, ...]
    order: tuple[exp.Expr, ...]
    spec: exp.Expr | None


@dataclass
class _WindowCollector(Collector):
    """Turns each collected aggregate into a window aggregate."""

    template: hir.Windowing | None = None

    def add(self, aggregate: hir.Aggregate, *, part: bool = False) -> Typed:
        """The aggregate over the window, instead of a marker."""
        del part  # each is a window of its own
        assert self.template is not None
        made = replace_window(
            self.template, aggregate.func, "aggregate", (aggregate.expr,), aggregate.typ
        )
        return Typed(made, aggregate.typ, aggregate.nullable)


def replace_window(
    template: hir.Windowing,
    func: str,
    kind: str,
    args: tuple[hir.Scalar, ...],
    typ: t.SqlType,
) -> hir.Windowing:
    """Another function over the same window."""
    return hir.Windowing(
        func,
        kind,
        args,
        template.partition_by,
        template.order_by,
        typ,
        template.frame,
        template.ignore_nulls,
    )


def named_windows(select: exp.Expr) -> dict[str, exp.Expr]:
    """The windows of the WINDOW clause, by name.

    Raises:
        SqlError: ``window "w" is already defined``.
    """
    found: dict[str, exp.Expr] = {}
    for window in select.args.get("windows") or ():
        name = fold(window.this)
        if name in found:
            raise SqlError(
                f'window "{name}" is already defined',
                position=position_of(window.this),
                sqlstate="42P20",
            )
        found[name] = window
    return found


def plan_window(ctx: ExprContext, node: exp.Expr) -> Typed:
    """A call with an OVER clause.

    Raises:
        Unsupported: OVER stands on something that is no call, or on an aggregate with DISTINCT.
        SqlError: the function is neither a window function nor an aggregate (42809).
    """
    func: exp.Expr = node.this
    where: exp.Expr | None = None
    nulls: str | None = None
    while not isinstance(func, exp.Anonymous):
        match func:
            case exp.Dot():
                func = qualified.unqualified(ctx.planner.catalog, func)
                continue
            case exp.Filter():
                where = func.expression.this
            case exp.IgnoreNulls():
                nulls = "ignore"
            case exp.RespectNulls():
                nulls = "respect"
            case _:
                raise Unsupported(
                    "an OVER clause on this expression is not supported", position=position_of(node)
                )
        func = func.this
    name = function_name(func)
    position = position_of(func)
    inner = replace(ctx, windows=False, table_functions=None, clause="window function arguments")
    window = _window(inner, node)
    if name in windows.WINDOW_FUNCTIONS:
        _refuse_modifiers(func, where, position)
        window = replace_options(window, name, nulls, position)
        return _plain(inner, window, name, func)
    if nulls is not None:
        _refuse_nulls(position)
    if not aggregates.is_aggregate(name):
        raise SqlError(
            f"OVER clause not allowed on {name}. The OVER clause can only be used with window "
            "functions (including aggregations).",
            position=position,
            sqlstate="42809",
        )
    if any(isinstance(arg, exp.Distinct) for arg in func.expressions):
        raise Unsupported("DISTINCT in window aggregates not yet supported", position=position)
    collector = _WindowCollector(order=_over(inner, node).order, template=window)
    return aggregates.plan_aggregate(inner, collector, func, where)


def _refuse_modifiers(func: exp.Expr, where: exp.Expr | None, position: int | None) -> None:
    if where is not None:
        raise Unsupported(
            "FILTER in non-aggregate window functions not yet supported", position=position
        )
    if any(isinstance(arg, exp.Distinct) for arg in func.expressions):
        raise Unsupported(
            "DISTINCT in non-aggregate window functions not yet supported", position=position
        )
    if any(isinstance(arg, exp.Order) for arg in func.expressions):
        raise Unsupported(
            "ORDER BY in window function arguments not yet supported", position=position
        )


def _refuse_nulls(position: int | None) -> None:
    raise Unsupported(
        "IGNORE NULLS and RESPECT NULLS options for functions other than LAG and LEAD not yet supported",
        position=position,
    )


def replace_options(
    window: hir.Windowing, name: str, nulls: str | None, position: int | None
) -> hir.Windowing:
    """The window with options that only some functions accept."""
    if nulls is not None and name not in ("lag", "lead"):
        _refuse_nulls(position)
    return hir.Windowing(
        name,
        "scalar",
        (),
        window.partition_by,
        window.order_by,
        t.BIGINT,
        window.frame if name in windows.FRAMED else None,
        nulls == "ignore",
    )


# --- functions ---------------------------------------------------------------------------------------

#: Minimum and maximum number of arguments of functions that do not take exactly one.
_ARGUMENTS = {"lag": (1, 3), "lead": (1, 3), "nth_value": (2, 2)}


def _plain(ctx: ExprContext, window: hir.Windowing, name: str, func: exp.Expr) -> Typed:
    args = [ctx.plan(arg) for arg in func.expressions]
    position = position_of(func)
    fewest, most = _ARGUMENTS.get(name, (0, 0) if name in windows.SCALAR else (1, 1))
    if not fewest <= len(args) <= most:
        raise _no_such(name, args, position)
    if name in windows.SCALAR:
        typ = windows.SCALAR[name]
        return Typed(replace_window(window, name, "scalar", (), typ), typ, False)
    if name == "ntile":
        argument = _count(name, args, 0, position)
    elif name == "nth_value":
        argument = call("row", [settle(args[0]), _count(name, args, 1, position)])
    elif name in ("lag", "lead"):
        argument = _lagged(name, args, position)
    else:
        argument = settle(args[0])
    typ = argument.typ.fields[0][1].type if name in windows.OF_RECORDS else argument.typ
    made = replace_window(window, name, "value", (argument.expr,), typ)
    return Typed(made, typ, True)


def _count(name: str, args: list[Typed], at: int, position: int | None) -> Typed:
    """An argument that counts rows or parts from 1; less than 1 is an error."""
    given = cast(args[at], t.INTEGER, "implicit")
    if given is None:
        raise _no_such(name, args, position)
    one = integer(1)
    few = operator_call("<", [given, one], position)
    fails = LiteralError(f"argument of {name} must be greater than zero", t.INTEGER)
    return Typed(hir.If(few.expr, fails, given.expr), t.INTEGER, given.nullable)


def _lagged(name: str, args: list[Typed], position: int | None) -> Typed:
    """The record of value, offset and default for lag and lead."""
    one = integer(1)
    offset = cast(args[1] if len(args) > 1 else one, t.INTEGER, "implicit")
    if offset is None:
        raise _no_such(name, args, position)
    null = Typed(Literal(None, t.UNKNOWN), t.UNKNOWN, True)
    default = args[2] if len(args) > 2 else null
    try:
        (value, other), _ = unify([args[0], default], name, position)
    except DatatypeMismatch:
        raise _no_such(name, args, position) from None
    return call("row", [value, offset, other])


def _no_such(name: str, args: list[Typed], position: int | None) -> UndefinedFunction:
    shown = ", ".join(t.type_name(a.typ) for a in args)
    return UndefinedFunction(f"function {name}({shown}) does not exist", position=position)


# --- OVER ----------------------------------------------------------------------------------------------


def _window(ctx: ExprContext, node: exp.Expr) -> hir.Windowing:
    over = _over(ctx, node)
    partition = tuple(settle(ctx.plan(e)).expr for e in over.partition)
    keys = [sortable(settle(ctx.plan(item.this))) for item in over.order]
    order = tuple(
        hir.Ordering(key.expr, bool(item.args.get("desc")), not item.args.get("nulls_first"))
        for key, item in zip(keys, over.order, strict=True)
    )
    frame = None if over.spec is None else plan_frame(ctx, over.spec, keys)
    return hir.Windowing("", "scalar", (), partition, order, t.BIGINT, frame)


def _over(ctx: ExprContext, node: exp.Expr, seen: tuple[str, ...] = ()) -> _Over:
    order = node.args.get("order")
    own = _Over(
        tuple(node.args.get("partition_by") or ()),
        () if order is None else tuple(order.expressions),
        node.args.get("spec"),
    )
    alias = node.args.get("alias")
    if alias is None:
        return own
    name = fold(alias)
    named = ctx.named_windows.get(name)
    if named is None or name in seen:
        raise UndefinedObject(
            f'window "{name}" does not exist',
            position=position_of(alias),
            hint=alike(name, (one for one in ctx.named_windows if one not in seen)),
        )
    base = _over(ctx, named, (*seen, name))
    if own.partition:
        raise _cannot(f'override PARTITION BY clause of window "{name}"', alias)
    if own.order and base.order:
        raise _cannot(f'override ORDER BY clause of window "{name}"', alias)
    if base.spec is not None and "order" in node.args:  # in parentheses, that is
        raise SqlError(
            f'cannot copy window "{name}" because it has a frame clause',
            position=position_of(alias),
            hint=None if own.order or own.spec else "Omit the parentheses in this OVER clause.",
            sqlstate="42P20",
        )
    return _Over(base.partition, base.order or own.order, base.spec or own.spec)


def _cannot(what: str, node: exp.Expr) -> SqlError:
    return SqlError(f"cannot {what}", position=position_of(node), sqlstate="42P20")
