"""Calls: casts, functions, aggregates. A call that fits no overload fails with PostgreSQL's or Materialize's message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.expr.functions.aggregate.windows import WINDOW_FUNCTIONS
from mzsql.expr.functions.container.sequences import dimensions
from mzsql.expr.functions.unmaterializable import UNMATERIALIZABLE
from mzsql.expr.scalar import Literal, Unmaterializable
from mzsql.frontend.names.types import resolve_type
from mzsql.frontend.scalar import (
    aggregates,
    arguments,
    conditionals,
    container_functions,
    groupings,
    qualified,
    sizes,
    standard,
    system_functions,
    time_units,
    unsafe_functions,
    windows,
)
from mzsql.frontend.scalar.clauses import not_allowed
from mzsql.frontend.scalar.coerce import (
    Typed,
    as_jsonb,
    call,
    empty,
    explicit,
    function_call,
    numeric_literal,
    operator_call,
    require,
    unify,
)
from mzsql.frontend.scalar.composed_aggregates import within_group
from mzsql.frontend.scalar.containers import (
    field,
    is_empty_constructor,
    of_query,
    row,
    typed_list,
)
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.datetime_formats import datetime_by_format
from mzsql.frontend.scalar.format_texts import plan_format
from mzsql.frontend.scalar.function_catalog import function_names
from mzsql.frontend.scalar.nodes import (
    function_name,
    moment,
    position_of,
    unparen,
)
from mzsql.frontend.scalar.placeholders import placeholder
from mzsql.frontend.scalar.reg_types import registered_cast
from mzsql.frontend.scalar.type_names import shown
from mzsql.repr import types as t
from mzsql.repr.errors import (
    DatatypeMismatch,
    GroupingError,
    InvalidParameter,
    SqlError,
    SqlSyntaxError,
    UndefinedFunction,
    Unsupported,
    alike,
)
from mzsql.repr.types import SqlType, type_name

# --- casts and calls with a grammar of their own --------------------------------------------------


def _cast(ctx: ExprContext, node: exp.Expr) -> Typed:
    target = resolve_type(node.args["to"], ctx.planner.types)
    if is_empty_constructor(node.this) and target.element is not None:
        return empty(target)
    listed = typed_list(ctx, node.this, target)
    if listed is not None:
        return listed
    number = unparen(node.this)
    sign = "-" if isinstance(number, exp.Neg) else ""
    number = unparen(number.this) if sign else number
    if target.kind in ("real", "double") and isinstance(number, exp.Literal):
        text = str(number.this)
        if not number.is_string and not _exact(text):
            # A literal with more digits than numeric holds is still fine for a float: cast its text.
            literal = Typed(Literal(f"{sign}{text}", t.UNKNOWN), t.UNKNOWN, False)
            return explicit(literal, target, position_of(node))
    value = ctx.plan(node.this)
    named = registered_cast(ctx, node, value, target)
    if named is not None:
        return named
    return explicit(value, target, position_of(node), partial(shown, ctx.planner.catalog))


def _exact(text: str) -> bool:
    """Whether a number as written fits numeric."""
    try:
        numeric_literal(text)
    except (SqlError, ValueError):
        return False
    return True


def _substring(ctx: ExprContext, node: exp.Expr) -> Typed:
    args = [ctx.plan(node.this)]
    start, length = node.args.get("start"), node.args.get("length")
    if start is not None and length is not None and standard.is_similar(node):
        return standard.substring_similar(args[0], start, length, position_of(node))
    if start is None and length is not None:
        start = exp.Literal.number(1)
    args += [ctx.plan(part) for part in (start, length) if part is not None]
    if length is None and len(args) == 2 and standard.is_pattern(args[1]):
        return standard.substring_of_pattern(args[0], args[1], position_of(node))
    return function_call("substring", args, position_of(node))


def _overlay(ctx: ExprContext, node: exp.Expr) -> Typed:
    parts = (node.args.get(key) for key in ("this", "expression", "from_", "for_"))
    args = [ctx.plan(part) for part in parts if part is not None]
    return function_call("overlay", args, position_of(node))


def _local(target: SqlType) -> Callable[[ExprContext, exp.Expr], Typed]:
    """LOCALTIMESTAMP and LOCALTIME: the time of the statement, without time zone (it is UTC)."""

    def plan(_ctx: ExprContext, node: exp.Expr) -> Typed:
        now = Typed(Unmaterializable("current_timestamp", t.TIMESTAMPTZ), t.TIMESTAMPTZ, False)
        return explicit(now, target, position_of(node))

    return plan


def _to_digits(target: SqlType) -> Callable[[ExprContext, exp.Expr], Typed]:
    """``current_timestamp(2)`` and similar: the time of the statement, rounded to a number of fractional digits."""

    def plan(_ctx: ExprContext, node: exp.Expr) -> Typed:
        digits = node.expressions[0] if len(node.expressions) == 1 else None
        if node.expressions and (digits is None or not digits.is_int or int(digits.name) > 6):
            raise InvalidParameter(
                "precision for type timestamp must be between 0 and 6", position=position_of(node)
            )
        now = Typed(Unmaterializable("current_timestamp", t.TIMESTAMPTZ), t.TIMESTAMPTZ, False)
        if digits is not None:
            cut = SqlType("timestamptz", length=int(digits.name))
            now = explicit(now, cut, position_of(node))
        return now if target == t.TIMESTAMPTZ else explicit(now, target, position_of(node))

    return plan


def _position(ctx: ExprContext, node: exp.Expr) -> Typed:
    args = [ctx.plan(node.args["substr"]), ctx.plan(node.this)]
    return function_call("position", args, position_of(node))


def _trim(ctx: ExprContext, node: exp.Expr) -> Typed:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "btrim")
    args = [ctx.plan(node.this)]
    if node.expression is not None:
        args.append(ctx.plan(node.expression))
    return function_call(name, args, position_of(node))


def _at_time_zone(ctx: ExprContext, node: exp.Expr) -> Typed:
    args = [ctx.plan(node.args["zone"]), ctx.plan(node.this)]
    return function_call("timezone", args, position_of(node))


def _concat(ctx: ExprContext, node: exp.Expr) -> Typed:
    """Adjacent string literals are one literal."""
    if all(e.is_string for e in node.expressions):
        text = "".join(e.name for e in node.expressions)
        return Typed(Literal(text, t.UNKNOWN), t.UNKNOWN, False)
    return function_call("concat", [ctx.plan(e) for e in node.expressions], position_of(node))


# --- calls ---------------------------------------------------------------------------------------


def _pg_typeof(ctx: ExprContext, node: exp.Expr) -> Typed:
    """pg_typeof: a literal, since the type is known here. The argument is planned for its errors, but not evaluated."""
    if len(node.expressions) != 1:
        raise UndefinedFunction("pg_typeof takes one argument", position=position_of(node))
    name = shown(ctx.planner.catalog, ctx.plan(node.expressions[0]).typ)
    return Typed(Literal(name, t.TEXT), t.TEXT, False)


def _dot(ctx: ExprContext, node: exp.Dot) -> Typed:
    """``(record).field``, or a call with a schema's name."""
    inner = node.expression
    if isinstance(inner, exp.Identifier | exp.Star):
        return field(ctx, node)
    if not isinstance(qualified.bare(inner), exp.Anonymous):
        raise Unsupported(
            "this form of a qualified name is not supported", position=position_of(node)
        )
    if isinstance(inner, exp.Anonymous) and qualified.names(node.this) == [unsafe_functions.SCHEMA]:
        return unsafe_functions.plan_unsafe(ctx, node)
    plain = qualified.unqualified(ctx.planner.catalog, node)
    name = function_name(qualified.bare(plain))
    if isinstance(plain, exp.Anonymous) and _is_table_function(name):
        return _table_function(ctx, node, name)
    if not _exists(name):
        raise qualified.missing(node)
    return ctx.plan(plain)


def _exists(name: str) -> bool:
    return (
        name in _SPECIAL
        or system_functions.is_system_function(name)
        or name in WINDOW_FUNCTIONS
        or aggregates.is_aggregate(name)
        or bool(functions.scalars_named(name))
    )


def _is_table_function(name: str) -> bool:
    special = (
        "regexp_extract",
        "csv_extract",
        "string_to_table",
        "aclexplode",
        "mz_aclexplode",
        "mz_resolve_object_name",
    )
    known = name in special or bool(functions.table_funcs_named(name))
    return known and not functions.scalars_named(name)


def _logical_timestamp(_ctx: ExprContext, node: exp.Expr) -> Typed:
    raise UndefinedFunction(
        "mz_logical_timestamp() has been renamed to mz_now()", position=position_of(node)
    )


_SPECIAL: dict[str, Callable[[ExprContext, exp.Expr], Typed]] = {
    **standard.CALLS,
    "array_fill": container_functions.array_fill,
    "format": plan_format,
    "grouping": groupings.plan_grouping,
    "map_build": container_functions.map_build,
    "coalesce": conditionals.coalesce,
    "greatest": conditionals.coalesce,
    "least": conditionals.coalesce,
    "nullif": conditionals.nullif,
    "row": row,
    "date_part": time_units.unit_function,
    "date_trunc": time_units.unit_function,
    "pg_typeof": _pg_typeof,
    "pg_column_size": sizes.column_size,
    "mz_row_size": sizes.row_size,
    "current_timestamp": _to_digits(t.TIMESTAMPTZ),
    "localtime": _to_digits(t.TIME),
    "localtimestamp": _to_digits(t.TIMESTAMP),
    "now": moment("current_timestamp", t.TIMESTAMPTZ),
    "transaction_timestamp": moment("current_timestamp", t.TIMESTAMPTZ),
    "statement_timestamp": moment("current_timestamp", t.TIMESTAMPTZ),
    "mz_is_superuser": moment("mz_is_superuser", t.BOOLEAN),
    "mz_now": moment("mz_now", t.MZ_TIMESTAMP),
    "mz_logical_timestamp": _logical_timestamp,
    "version": moment("version", t.TEXT),
    "mz_version": moment("mz_version", t.TEXT),
    "mz_environment_id": moment("mz_environment_id", t.TEXT),
    "current_database": moment("current_database", t.TEXT),
    "current_schema": moment("current_schema", t.TEXT),
    "user": moment("current_user", t.TEXT),
    "current_role": moment("current_user", t.TEXT),
    "pg_backend_pid": moment("pg_backend_pid", t.INTEGER),
    **{
        name: moment(name, UNMATERIALIZABLE[name])
        for name in (
            *("mz_version_num", "mz_viewable_variables", "mz_uptime", "pg_postmaster_start_time"),
            *("mz_schemas_of_session", "mz_schemas_of_path", "mz_introspected_replica"),
        )
    },
}


def _anonymous(ctx: ExprContext, node: exp.Expr) -> Typed:
    named = arguments.placed(node)
    if named is not None:
        return ctx.plan(named)
    name = function_name(node)
    if not aggregates.is_aggregate(name):
        _refuse_clauses(node, name)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(ctx, node)
    if name in ("to_date", "to_timestamp") and len(node.expressions) == 2:
        return datetime_by_format(ctx, node)
    if system_functions.defines(name, len(node.expressions)):
        return system_functions.plan_call(ctx, node)
    if (
        name in ("array", "list")
        and node.expressions
        and isinstance(node.expressions[0], exp.Query | exp.Values)
    ):
        return of_query(ctx, node, name)
    if aggregates.is_aggregate(name):
        return _aggregate(ctx, node, None)
    if name in WINDOW_FUNCTIONS:
        raise SqlError(
            f"window function pg_catalog.{name} requires an OVER clause",
            position=position_of(node),
            sqlstate="42809",
        )
    if _is_table_function(name):
        return _table_function(ctx, node, name)
    if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Star):
        raise SqlError(
            f"* argument is invalid with non-aggregate function {name}",
            position=position_of(node),
            sqlstate="42809",
        )
    name = _AS_JSONB.get(name, name)
    args = [ctx.plan(e) for e in node.expressions]
    if name == "jsonb_build_object" and len(args) % 2:
        raise InvalidParameter(
            "argument list must have even number of elements",
            position=position_of(node),
            hint="The arguments of jsonb_build_object() are keys and values by turns.",
        )
    if name == "jsonb_object" and len(args) == 1 and args[0].typ.kind == "unknown":
        # An untyped literal is an array of text; its braces tell its dimensions.
        args = [explicit(args[0], SqlType("array", element=t.TEXT), position_of(node))]
    if name in _BY_PATH and len(args) > 1:
        path = unify([_text(arg, node) for arg in args[1:]], "ARRAY", position_of(node))[0]
        steps = call("array", path, SqlType("array", element=t.TEXT))
        document = require(args[0], t.JSONB, "implicit", "argument of " + name, position_of(node))
        return operator_call(_BY_PATH[name], [document, steps], position_of(node))
    if name == "to_jsonb" and len(args) == 1:
        return as_jsonb(args[0])
    if name == "array_cat" and _of_two_depths(args):
        return operator_call("||", args, position_of(node))
    if len(args) == 1 and name in _CASTS and not functions.scalars_named(name):
        return explicit(args[0], _CASTS[name], position_of(node))
    if name in qualified.PLANS_ONLY:
        raise UndefinedFunction(f'function "{name}" does not exist', position=position_of(node))
    try:
        return function_call(name, args, position_of(node))
    except UndefinedFunction as unknown:
        if not functions.scalars_named(name):
            unknown.hint = alike(name, function_names())
        raise


def _of_two_depths(args: Sequence[Typed]) -> bool:
    """Whether one of two arrays has as its elements what the other one is."""
    kinds = [arg.typ.kind for arg in args]
    return kinds == ["array", "array"] and len({dimensions(arg.typ) for arg in args}) == 2


#: Types that can be used like functions; other type names are keywords with a syntax of their own.
_CASTS: dict[str, SqlType] = {
    "bool": t.BOOLEAN,
    "bpchar": SqlType("char"),
    "bytea": t.BYTEA,
    "date": t.DATE,
    "float4": t.REAL,
    "float8": t.DOUBLE,
    "int2": t.SMALLINT,
    "int4": t.INTEGER,
    "int8": t.BIGINT,
    "name": t.NAME,
    "oid": t.OID,
    "regclass": t.REGCLASS,
    "regproc": t.REGPROC,
    "regtype": t.REGTYPE,
    "text": t.TEXT,
    "timestamptz": t.TIMESTAMPTZ,
    "uuid": t.UUID,
}
#: Functions that take a path's steps as separate arguments, with the operator that takes them as an array.
_BY_PATH = {"jsonb_extract_path": "#>", "jsonb_extract_path_text": "#>>"}


def _text(value: Typed, node: exp.Expr) -> Typed:
    return require(value, t.TEXT, "implicit", "a step of a path", position_of(node))


#: PostgreSQL's json functions and the jsonb functions that they are here.
_AS_JSONB = {
    **{
        f"json_{name}": f"jsonb_{name}"
        for name in (
            *("array_length", "build_array", "build_object", "extract_path", "extract_path_text"),
            *("object", "strip_nulls", "typeof"),
        )
    },
    **dict.fromkeys(("array_to_json", "row_to_json", "to_json"), "to_jsonb"),
}


def _refuse_clauses(node: exp.Expr, name: str) -> None:
    """Refuse DISTINCT and ORDER BY in a call that is not of an aggregate."""
    args = node.expressions
    for kind, words in ((exp.Distinct, "DISTINCT"), (exp.Order, "ORDER BY")):
        if any(isinstance(arg, kind) for arg in args):
            raise SqlError(
                f"{words} specified, but {name} is not an aggregate function",
                position=position_of(node),
                sqlstate="42809",
            )


def _table_function(ctx: ExprContext, node: exp.Expr, name: str) -> Typed:
    if ctx.table_functions is None:
        raise SqlError(
            not_allowed("table functions", ctx.clause, name),
            position=position_of(node),
            sqlstate="0A000",
        )
    return ctx.planner.select_list_table_function(ctx, node)


def _aggregate(ctx: ExprContext, node: exp.Expr, where: exp.Expr | None) -> Typed:
    if ctx.inside_aggregate:
        raise GroupingError(
            "nested aggregate functions are not allowed", position=position_of(node)
        )
    if ctx.aggregates is None:
        raise GroupingError(
            not_allowed("aggregate functions", ctx.clause, function_name(node)),
            position=position_of(node),
        )
    inner = replace(
        ctx,
        clause="aggregate function calls",
        table_functions=None,
        windows=False,
        positions={},
        inside_aggregate=True,
    )
    return aggregates.plan_aggregate(inner, ctx.aggregates, node, where)


def _filter(ctx: ExprContext, node: exp.Expr) -> Typed:
    call_node = node.this
    if isinstance(call_node, exp.WithinGroup):
        return within_group(ctx, call_node, node.expression.this)
    if not isinstance(call_node, exp.Anonymous) or not aggregates.is_aggregate(
        function_name(call_node)
    ):
        raise SqlError(
            f"FILTER specified, but {_called(call_node)} is not an aggregate function",
            position=position_of(node),
            sqlstate="42809",
        )
    return _aggregate(ctx, call_node, node.expression.this)


def _within_group(ctx: ExprContext, node: exp.WithinGroup) -> Typed:
    return within_group(ctx, node, None)


def _called(node: exp.Expr) -> str:
    return function_name(node) if isinstance(node, exp.Anonymous) else "it"


def _window_name(node: exp.Expr) -> str:
    """The name of the function before an OVER clause."""
    func = node.this
    while isinstance(func, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.Dot):
        func = func.expression if isinstance(func, exp.Dot) else func.this
    return function_name(func) if isinstance(func, exp.Anonymous) else ""


def _window(ctx: ExprContext, node: exp.Expr) -> Typed:
    if not ctx.windows:
        raise SqlError(
            not_allowed("window functions", ctx.clause, _window_name(node)),
            position=position_of(node),
            sqlstate="42P20",
        )
    name = _window_name(node)
    if name and not _exists(name) and not _is_table_function(name):
        raise UndefinedFunction(
            f'function "{name}" does not exist',
            position=position_of(node),
            hint=alike(name, function_names()),
        )
    return windows.plan_window(ctx, node)


def _star(_ctx: ExprContext, node: exp.Expr) -> Typed:
    raise SqlSyntaxError("wildcard in invalid position", position=position_of(node))


def _parameter(_ctx: ExprContext, node: exp.Expr) -> Typed:
    found = placeholder(str(node.name), position_of(node))
    if isinstance(found, str):
        return Typed(Literal(found, t.UNKNOWN), t.UNKNOWN, True)
    return Typed(Literal(None, found), found, True)


def _default(_ctx: ExprContext, node: exp.Expr) -> Typed:
    if node.name.upper() == "DEFAULT":
        raise SqlSyntaxError(
            "DEFAULT expression is not allowed in this context", position=position_of(node)
        )
    raise Unsupported(f"{node.name} is not supported here", position=position_of(node))


def _collate(ctx: ExprContext, node: exp.Expr) -> Typed:
    """A text with COLLATE: only the collation that all texts have is accepted, which compares bytes."""
    parts = [part.name for part in node.expression.find_all(exp.Identifier)]
    name = node.expression.name if node.expression.is_string or not parts else parts[0]
    schema = next((part for part in parts[1:]), "pg_catalog")
    if schema.lower() != "pg_catalog" or name not in ("C", "POSIX", "default"):
        raise Unsupported(f'COLLATE "{name}" is not supported', position=position_of(node))
    planned = ctx.plan(node.this)
    if planned.typ.kind not in ("text", "varchar", "char", "unknown"):
        raise DatatypeMismatch(
            f"collations are not supported by type {type_name(planned.typ)}",
            position=position_of(node),
        )
    return planned


#: This module's handlers.
HANDLERS: dict[type[exp.Expr], Callable[[ExprContext, Any], Typed]] = {
    exp.Case: conditionals.case,
    exp.Cast: _cast,
    exp.Dot: _dot,
    exp.Extract: time_units.extract,
    exp.Substring: _substring,
    exp.StrPosition: _position,
    exp.Overlay: _overlay,
    exp.Localtimestamp: _local(t.TIMESTAMP),
    exp.Localtime: _local(t.TIME),
    exp.Trim: _trim,
    exp.AtTimeZone: _at_time_zone,
    exp.Concat: _concat,
    exp.Anonymous: _anonymous,
    exp.Filter: _filter,
    exp.WithinGroup: _within_group,
    exp.Window: _window,
    exp.Star: _star,
    exp.Placeholder: _parameter,
    exp.Parameter: _parameter,
    exp.Var: _default,
    exp.Collate: _collate,
}
