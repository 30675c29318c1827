"""Scalar expressions: sqlglot's nodes to typed HIR scalars.

Promise: one function for each kind of node, found through one table; a node that has none is refused, never guessed. Operators and
functions resolve through `mzsql.frontend.coerce`; aggregates, window functions and table functions are handed to the collector of the
clause they stand in, or refused with PostgreSQL's words where the clause allows none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.expr.scalar import Literal, Unmaterializable
from mzsql.frontend import aggregates, hir
from mzsql.frontend.coerce import (
    Typed,
    call,
    cast,
    exact_numeric,
    explicit,
    function_call,
    numeric_literal,
    operator_call,
    to_boolean,
    unify,
)
from mzsql.frontend.parse import fold
from mzsql.frontend.scope import Scope
from mzsql.frontend.types import resolve_type
from mzsql.repr import types as t
from mzsql.repr.errors import (
    DataError,
    GroupingError,
    InvalidParameter,
    SqlError,
    SqlSyntaxError,
    UndefinedFunction,
    Unsupported,
)
from mzsql.repr.types import SqlType

if TYPE_CHECKING:
    from mzsql.frontend.grouping import SelectState
    from mzsql.frontend.query import QueryPlanner

#: How far down a position is looked for.
_NEAR = 32
#: How many conjuncts stand as nested binary calls, as a person wrote them; longer chains are one flat call.
_NESTED_LOGIC = 32


def position_of(node: exp.Expr | None) -> int | None:
    """The 1-based position of a node: its own, or that of its leftmost part; None where nothing near says."""
    for _ in range(_NEAR):
        if node is None:
            return None
        node = _qualifier(node) or node
        start = node.meta.get("start")
        if start is not None:
            return int(start) + 1
        node = next((part for part in node.iter_expressions()), None)
    return None


def _qualifier(node: exp.Expr) -> exp.Expr | None:
    """The first part of a qualified name."""
    if not isinstance(node, exp.Column | exp.Table):
        return None
    parts = (node.args.get(key) for key in ("catalog", "db", "table", "this"))
    return next((part for part in parts if isinstance(part, exp.Expr)), None)


@dataclass
class ExprContext:
    """Where an expression stands.

    Attributes:
        planner: plans its subqueries.
        scope: the columns it may read.
        clause: how an error names the clause: ``WHERE``, ``SELECT``.
        aggregates: collects aggregates, where the clause allows them.
        table_functions: collects set-returning functions of a select list; None where none may stand.
        windows: whether window functions may stand.
        positions: where each column of the innermost scope was first mentioned.
        named_windows: the WINDOW clause.
    """

    planner: QueryPlanner
    scope: Scope
    clause: str
    aggregates: aggregates.Collector | None = None
    table_functions: list[exp.Expr] | None = None
    windows: bool = False
    positions: dict[int, int | None] = field(default_factory=dict)
    named_windows: dict[str, exp.Expr] = field(default_factory=dict)
    inside_aggregate: bool = False
    select: SelectState | None = None

    def plan(self, node: exp.Expr) -> Typed:
        """The typed scalar that a node means."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise Unsupported(f"{_spelled(node)} is not supported", position=position_of(node))
        return handler(self, node)


def _spelled(node: exp.Expr) -> str:
    """A node as a person may recognize it."""
    words = "".join(f" {c}" if c.isupper() else c for c in type(node).__name__).strip().lower()
    return f"expression of kind {words!r}"


# --- leaves --------------------------------------------------------------------------------------


def _column(ctx: ExprContext, node: exp.Expr) -> Typed:
    if isinstance(node.this, exp.Star):
        raise SqlSyntaxError("wildcard in invalid position", position=position_of(node))
    parts = tuple(
        fold(node.args[part]) for part in ("catalog", "db", "table") if node.args.get(part)
    )
    position = position_of(node)
    name = fold(node.this)
    level, index = ctx.scope.resolve(parts or None, name, position)
    if level == 0:
        ctx.positions.setdefault(index, position)
    typ = ctx.scope.item(level, index).typ
    return Typed(hir.Column(index, level), typ.type, typ.nullable)


def _literal(_ctx: ExprContext, node: exp.Expr) -> Typed:
    if node.is_string:
        return Typed(Literal(str(node.this), t.UNKNOWN), t.UNKNOWN, False)
    text = str(node.this)
    try:
        return numeric_literal(text)
    except ValueError:
        raise SqlSyntaxError(f"invalid number: {text[:64]}", position=position_of(node)) from None


def _null(_ctx: ExprContext, _node: exp.Expr) -> Typed:
    return Typed(Literal(None, t.UNKNOWN), t.UNKNOWN, True)


def _boolean(_ctx: ExprContext, node: exp.Expr) -> Typed:
    return Typed(Literal(bool(node.this), t.BOOLEAN), t.BOOLEAN, False)


def _paren(ctx: ExprContext, node: exp.Expr) -> Typed:
    return ctx.plan(node.this)


def _interval(_ctx: ExprContext, node: exp.Expr) -> Typed:
    text = str(node.this.name)
    unit = node.args.get("unit")
    if unit is not None and " TO " not in unit.name:
        text = f"{text} {unit.name.lower()}" if _is_number(text) else text
    elif unit is not None and not _is_number(text):
        text = text.strip()
    value = Typed(Literal(text, t.TEXT), t.TEXT, False)
    done = cast(value, t.INTERVAL, "explicit")
    assert done is not None
    return done


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _bytes(_ctx: ExprContext, node: exp.Expr) -> Typed:
    # E'…': sqlglot hands on the string with its escapes replaced.
    return Typed(Literal(str(node.this), t.UNKNOWN), t.UNKNOWN, False)


def _moment(key: str, typ: SqlType) -> Callable[[ExprContext, exp.Expr], Typed]:
    def plan(_ctx: ExprContext, _node: exp.Expr) -> Typed:
        return Typed(Unmaterializable(key, typ), typ, False)

    return plan


def _current_date(_ctx: ExprContext, _node: exp.Expr) -> Typed:
    now = Typed(Unmaterializable("current_timestamp", t.TIMESTAMPTZ), t.TIMESTAMPTZ, False)
    done = cast(now, t.DATE, "explicit")
    assert done is not None
    return done


# --- logic ---------------------------------------------------------------------------------------


def _connector(ctx: ExprContext, node: exp.Expr) -> Typed:
    kind = type(node)
    key, clause = ("and", "argument of AND") if kind is exp.And else ("or", "argument of OR")
    operands: list[exp.Expr] = []
    while isinstance(node, kind):  # the chain is as long as the text, and leans to the left
        operands.append(node.expression)
        node = node.this
    operands.append(node)
    operands.reverse()
    planned = [to_boolean(ctx.plan(o), clause, position_of(o)) for o in operands]
    return combine(key, planned)


def combine(key: str, operands: list[Typed]) -> Typed:
    """``and`` or ``or`` of one or more conditions."""
    if not operands:
        return Typed(Literal(key == "and", t.BOOLEAN), t.BOOLEAN, False)
    if len(operands) > _NESTED_LOGIC:
        return call(key, operands)
    out = operands[0]
    for operand in operands[1:]:
        out = call(key, [out, operand])
    return out


def _not(ctx: ExprContext, node: exp.Expr) -> Typed:
    inner = node.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.In) and node.this is inner:
        return _in(ctx, inner, negated=True)
    if isinstance(inner, exp.Between) and node.this is inner:
        return _between(ctx, inner, negated=True)
    operand = to_boolean(ctx.plan(node.this), "argument of NOT", position_of(node.this))
    return call("not", [operand])


def negate(value: Typed) -> Typed:
    """NOT value."""
    return call("not", [value])


def _is(ctx: ExprContext, node: exp.Expr) -> Typed:
    value = ctx.plan(node.this)
    right = node.expression
    if isinstance(right, exp.Null):
        done = call("is_null", [_known(value)])
    elif isinstance(right, exp.Boolean):
        condition = to_boolean(value, "argument of IS TRUE", position_of(node.this))
        done = call("is_true" if right.this else "is_false", [condition])
    elif isinstance(right, exp.Column) and right.name.lower() == "unknown":
        condition = to_boolean(value, "argument of IS UNKNOWN", position_of(node.this))
        done = call("is_null", [condition])
    else:
        raise SqlSyntaxError(
            "Expected NULL, NOT NULL, TRUE, NOT TRUE, FALSE, NOT FALSE, UNKNOWN, NOT UNKNOWN after IS",
            position=position_of(right),
        )
    return negate(done) if node.args.get("negate") else done


def _known(value: Typed) -> Typed:
    if value.typ.kind != "unknown":
        return value
    done = cast(value, t.TEXT, "implicit")
    assert done is not None
    return done


def _same(ctx: ExprContext, node: exp.Expr) -> Typed:
    """IS NOT DISTINCT FROM."""
    left, right = ctx.plan(node.this), ctx.plan(node.expression)
    return same_value(left, right, position_of(node))


def same_value(left: Typed, right: Typed, position: int | None) -> Typed:
    """Whether two values are equal, NULL being equal to NULL."""
    if left.typ.kind == "unknown" and right.typ.kind == "unknown":
        left, right = _known(left), _known(right)
    elif left.typ.kind == "unknown":
        left = cast(left, right.typ, "implicit") or left
    elif right.typ.kind == "unknown":
        right = cast(right, left.typ, "implicit") or right
    equal = operator_call("=", [left, right], position)
    left_null, right_null = call("is_null", [left]), call("is_null", [right])
    both = combine("and", [left_null, right_null])
    neither = combine("and", [equal, negate(left_null), negate(right_null)])
    return combine("or", [neither, both])


def _distinct_from(ctx: ExprContext, node: exp.Expr) -> Typed:
    return negate(_same(ctx, node))


# --- operators -----------------------------------------------------------------------------------

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.Pow: "^",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.RegexpLike: "~",
    exp.RegexpILike: "~*",
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.JSONBContains: "?",
    exp.ArrayContainsAll: "@>",
    exp.ArrayContainedBy: "<@",
}


def _binary(ctx: ExprContext, node: exp.Expr) -> Typed:
    symbol = _OPERATORS[type(node)]
    if isinstance(node.expression, exp.Any | exp.All):
        return _quantified(ctx, node, symbol)
    left, right = _unparen(node.this), _unparen(node.expression)
    if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
        return _row_comparison(ctx, symbol, left, right, position_of(node))
    planned = [ctx.plan(node.this), ctx.plan(node.expression)]
    return operator_call(symbol, planned, position_of(node))


def _unparen(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _row_comparison(
    ctx: ExprContext, symbol: str, left: exp.Expr, right: exp.Expr, position: int | None
) -> Typed:
    if len(left.expressions) != len(right.expressions):
        raise SqlSyntaxError("unequal number of entries in row expressions", position=position)
    lefts = [ctx.plan(e) for e in left.expressions]
    rights = [ctx.plan(e) for e in right.expressions]
    return compare_rows(symbol, lefts, rights, position)


def compare_rows(
    symbol: str, lefts: list[Typed], rights: list[Typed], position: int | None
) -> Typed:
    """Rows compared: equality column by column, order lexicographically."""
    pairs = list(zip(lefts, rights, strict=True))
    if symbol == "=":
        return combine("and", [operator_call("=", list(p), position) for p in pairs])
    if symbol == "<>":
        return combine("or", [operator_call("<>", list(p), position) for p in pairs])
    if symbol not in ("<", "<=", ">", ">="):
        raise UndefinedFunction(
            f"operator does not exist: record {symbol} record", position=position
        )
    strict = symbol[0]
    out = operator_call(symbol, list(pairs[-1]), position)
    for pair in reversed(pairs[:-1]):
        before = operator_call(strict, list(pair), position)
        equal = operator_call("=", list(pair), position)
        out = combine("or", [before, combine("and", [equal, out])])
    return out


def _unary(symbol: str) -> Callable[[ExprContext, exp.Expr], Typed]:
    def plan(ctx: ExprContext, node: exp.Expr) -> Typed:
        inner = _unparen(node.this)
        if symbol == "-" and isinstance(inner, exp.Literal) and not inner.is_string:
            return _negative(ctx, inner)
        operand = ctx.plan(node.this)
        if symbol == "+" and operand.typ.kind != "unknown":
            return operand
        return operator_call(symbol, [operand], position_of(node))

    return plan


def _negative(ctx: ExprContext, node: exp.Expr) -> Typed:
    """-<number>: a literal, so that the least integer can be written."""
    text = str(node.this)
    if text.isdigit():
        for kind, bits in (("integer", 31), ("bigint", 63)):
            if int(text) <= 2**bits:
                typ = SqlType(kind)
                return Typed(Literal(-int(text), typ), typ, False)
    plain = exact_numeric(text)
    assert isinstance(plain.expr, Literal)
    del ctx
    return Typed(Literal(f"-{plain.expr.value}", plain.typ), plain.typ, False)


def _like(ctx: ExprContext, node: exp.Expr) -> Typed:
    name = "ilike" if isinstance(node, exp.ILike) else "like"
    args = [ctx.plan(node.this), ctx.plan(node.expression)]
    symbol = "~~*" if name == "ilike" else "~~"
    found = functions.scalars_named(name) or functions.scalars_named(symbol)
    done = (
        function_call(name, args, position_of(node))
        if found and found[0].name == name
        else operator_call(symbol, args, position_of(node))
    )
    return negate(done) if node.args.get("negate") else done


def _escape(ctx: ExprContext, node: exp.Expr) -> Typed:
    inner = node.this
    if not isinstance(inner, exp.Like | exp.ILike) or not node.expression.is_string:
        raise Unsupported("ESCAPE with this operand is not supported", position=position_of(node))
    escape = node.expression.name
    pattern = inner.expression
    if escape != "\\":
        if not pattern.is_string or len(escape) > 1:
            raise Unsupported(
                "ESCAPE with a pattern that is not a literal is not supported",
                position=position_of(node),
            )
        text = pattern.name.replace("\\", "\\\\")
        if escape:
            text = _reescaped(text, escape)
        inner = inner.copy()
        inner.set("expression", exp.Literal.string(text))
    return _like(ctx, inner)


def _reescaped(text: str, escape: str) -> str:
    out: list[str] = []
    i = 0
    while i < len(text):
        if text[i] == escape and i + 1 < len(text):
            out.append(escape if text[i + 1] == escape else "\\" + text[i + 1])
            i += 2
        else:
            out.append(text[i])
            i += 1
    return "".join(out)


def _between(ctx: ExprContext, node: exp.Expr, *, negated: bool = False) -> Typed:
    value, low, high = (ctx.plan(node.args[part]) for part in ("this", "low", "high"))
    position = position_of(node)
    if node.args.get("symmetric"):
        one = _within(value, low, high, position, negated=False)
        other = _within(value, high, low, position, negated=False)
        done = combine("or", [one, other])
        return negate(done) if negated else done
    return _within(value, low, high, position, negated=negated)


def _within(value: Typed, low: Typed, high: Typed, position: int | None, *, negated: bool) -> Typed:
    if negated:
        below = operator_call("<", [value, low], position)
        return combine("or", [below, operator_call(">", [value, high], position)])
    above = operator_call(">=", [value, low], position)
    return combine("and", [above, operator_call("<=", [value, high], position)])


# --- IN, ANY, ALL, subqueries --------------------------------------------------------------------


def _in(ctx: ExprContext, node: exp.Expr, *, negated: bool = False) -> Typed:
    query = node.args.get("query")
    if query is not None:
        done = _any_all(ctx, node.this, "=", query, position_of(node), every=False)
        return negate(done) if negated else done
    if node.args.get("field") is not None or node.args.get("unnest") is not None:
        raise SqlSyntaxError(
            "Expected left parenthesis, found identifier", position=position_of(node)
        )
    if not node.expressions:
        raise SqlSyntaxError(
            "Expected an expression, found right parenthesis", position=position_of(node)
        )
    symbol, key = ("<>", "and") if negated else ("=", "or")
    left = _unparen(node.this)
    position = position_of(node)
    if isinstance(left, exp.Tuple):
        rows = [_unparen(e) for e in node.expressions]
        return combine(key, [_row_comparison(ctx, symbol, left, row, position) for row in rows])
    value = ctx.plan(node.this)
    members = [ctx.plan(e) for e in node.expressions]
    return combine(key, [operator_call(symbol, [value, m], position) for m in members])


def _quantified(ctx: ExprContext, node: exp.Expr, symbol: str) -> Typed:
    quantifier = node.expression
    query = _unparen(quantifier.this)
    if isinstance(query, exp.Subquery | exp.Query | exp.Values):
        every = isinstance(quantifier, exp.All)
        return _any_all(ctx, node.this, symbol, query, position_of(node), every=every)
    raise Unsupported("ANY and ALL of an array are not supported", position=position_of(node))


def _any_all(
    ctx: ExprContext,
    left: exp.Expr,
    symbol: str,
    query: exp.Expr,
    position: int | None,
    *,
    every: bool,
) -> Typed:
    """``left symbol ANY|ALL (query)``: the comparison mapped over the query's rows, then reduced."""
    from mzsql.frontend.hir_visit import shifted  # noqa: PLC0415 -- shared with the query planner

    target = _unparen(left)
    lefts = (
        [ctx.plan(e) for e in target.expressions]
        if isinstance(target, exp.Tuple)
        else [ctx.plan(left)]
    )
    planned = ctx.planner.subquery(query, ctx.scope)
    if len(planned.types) != len(lefts):
        problem = "too many" if len(planned.types) > len(lefts) else "too few"
        raise SqlSyntaxError(f"subquery has {problem} columns", position=position)
    moved = [Typed(shifted(v.expr, 1), v.typ, v.nullable) for v in lefts]
    rights = [Typed(hir.Column(i), c.type, c.nullable) for i, c in enumerate(planned.types)]
    comparison = compare_rows(symbol, moved, rights, position)
    mapped = hir.Map(planned.relation, (comparison.expr,))
    column = hir.Column(len(planned.types))
    aggregate = hir.Aggregate("all" if every else "any", column, False, t.BOOLEAN, True)
    return Typed(hir.Select(hir.Reduce(mapped, (), (aggregate,))), t.BOOLEAN, True)


def _exists(ctx: ExprContext, node: exp.Expr) -> Typed:
    planned = ctx.planner.subquery(node.this, ctx.scope)
    return Typed(hir.Exists(planned.relation), t.BOOLEAN, False)


def _scalar_subquery(ctx: ExprContext, node: exp.Expr) -> Typed:
    planned = ctx.planner.subquery(node, ctx.scope)
    if len(planned.types) != 1:
        raise SqlSyntaxError(
            f"Expected subselect to return 1 column, got {len(planned.types)} columns",
            position=position_of(node),
        )
    return Typed(hir.Select(planned.relation), planned.types[0].type, True)


# --- conditionals --------------------------------------------------------------------------------


def _case(ctx: ExprContext, node: exp.Expr) -> Typed:
    operand = node.args.get("this")
    value = ctx.plan(operand) if operand is not None else None
    conditions: list[Typed] = []
    results: list[Typed] = []
    for branch in node.args["ifs"]:
        test = ctx.plan(branch.this)
        if value is not None:
            test = operator_call("=", [value, test], position_of(branch.this))
        conditions.append(to_boolean(test, "argument of CASE/WHEN", position_of(branch.this)))
        results.append(ctx.plan(branch.args["true"]))
    default = node.args.get("default")
    results.append(_null(ctx, node) if default is None else ctx.plan(default))
    done, typ = unify(results, "CASE", position_of(node))
    out = done[-1]
    for condition, result in zip(reversed(conditions), reversed(done[:-1]), strict=True):
        expr = hir.If(condition.expr, result.expr, out.expr)
        out = Typed(expr, typ, result.nullable or out.nullable)
    return out


def _coalesce(ctx: ExprContext, node: exp.Expr) -> Typed:
    name = str(node.this).lower()
    if not node.expressions:
        raise SqlSyntaxError(
            f"Expected an expression in {name.upper()}", position=position_of(node)
        )
    values = [ctx.plan(e) for e in node.expressions]
    done, _ = unify(values, name.upper(), position_of(node))
    return done[0] if len(done) == 1 else call(name, done)


def _nullif(ctx: ExprContext, node: exp.Expr) -> Typed:
    if len(node.expressions) != 2:
        raise UndefinedFunction("nullif takes two arguments", position=position_of(node))
    left, right = (ctx.plan(e) for e in node.expressions)
    equal = operator_call("=", [left, right], position_of(node))
    if left.typ.kind == "unknown":
        left = _known(left)
    null = Literal(None, left.typ)
    return Typed(hir.If(equal.expr, null, left.expr), left.typ, True)


# --- casts and calls with a grammar of their own --------------------------------------------------


def _cast(ctx: ExprContext, node: exp.Expr) -> Typed:
    target = resolve_type(node.args["to"])
    return explicit(ctx.plan(node.this), target, position_of(node))


def _extract(ctx: ExprContext, node: exp.Expr) -> Typed:
    return _with_unit(
        ctx, "extract", node.this.name, [ctx.plan(node.expression)], position_of(node)
    )


def _with_unit(
    ctx: ExprContext, name: str, unit: str, args: list[Typed], position: int | None
) -> Typed:
    """A function of a unit of time: the unit is part of its name in the table of functions."""
    del ctx
    found = functions.UNITS.get(unit.lower())
    if found is None:
        raise InvalidParameter(f"unit '{unit}' not recognized", position=position)
    return function_call(f"{name}_{found}", args, position, shown=name)


def _unit_function(ctx: ExprContext, node: exp.Expr) -> Typed:
    """date_part('year', x), date_trunc('month', x): the unit has to be a literal."""
    name = function_name(node)
    if len(node.expressions) != 2 or not node.expressions[0].is_string:
        raise Unsupported(f"{name} takes a literal unit and one value", position=position_of(node))
    unit, value = node.expressions
    return _with_unit(ctx, name, unit.name, [ctx.plan(value)], position_of(node))


def _substring(ctx: ExprContext, node: exp.Expr) -> Typed:
    args = [ctx.plan(node.this)]
    start, length = node.args.get("start"), node.args.get("length")
    if start is None:
        start = exp.Literal.number(1)
    args.append(ctx.plan(start))
    if length is not None:
        args.append(ctx.plan(length))
    return function_call("substring", args, position_of(node))


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
    """Adjacent string literals: one literal."""
    if all(e.is_string for e in node.expressions):
        text = "".join(e.name for e in node.expressions)
        return Typed(Literal(text, t.UNKNOWN), t.UNKNOWN, False)
    return function_call("concat", [ctx.plan(e) for e in node.expressions], position_of(node))


# --- calls ---------------------------------------------------------------------------------------

_SPECIAL: dict[str, Callable[[ExprContext, exp.Expr], Typed]] = {
    "coalesce": _coalesce,
    "greatest": _coalesce,
    "least": _coalesce,
    "nullif": _nullif,
    "date_part": _unit_function,
    "date_trunc": _unit_function,
    "now": _moment("current_timestamp", t.TIMESTAMPTZ),
    "mz_now": _moment("mz_now", t.MZ_TIMESTAMP),
    "version": _moment("version", t.TEXT),
    "mz_version": _moment("mz_version", t.TEXT),
    "mz_environment_id": _moment("mz_environment_id", t.TEXT),
    "current_database": _moment("current_database", t.TEXT),
    "current_schema": _moment("current_schema", t.TEXT),
    "pg_backend_pid": _moment("pg_backend_pid", t.INTEGER),
}


def _anonymous(ctx: ExprContext, node: exp.Expr) -> Typed:
    name = function_name(node)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(ctx, node)
    if aggregates.is_aggregate(name):
        return _aggregate(ctx, node, None)
    if name in aggregates.WINDOW_FUNCTIONS:
        raise SqlError(
            f"window function {name} requires an OVER clause",
            position=position_of(node),
            sqlstate="42809",
        )
    args = [ctx.plan(e) for e in node.expressions]
    if not functions.scalars_named(name) and functions.table_funcs_named(name):
        return _table_function(ctx, node, name)
    return function_call(name, args, position_of(node))


def function_name(node: exp.Expr) -> str:
    """A call's name, folded."""
    name = node.this
    return fold(name) if isinstance(name, exp.Identifier) else str(name).lower()


def _table_function(ctx: ExprContext, node: exp.Expr, name: str) -> Typed:
    if ctx.table_functions is None:
        raise SqlError(
            f"table functions are not allowed in {ctx.clause} (function {name})",
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
            f"aggregate functions are not allowed in {ctx.clause} (function {function_name(node)})",
            position=position_of(node),
        )
    inner = ExprContext(ctx.planner, ctx.scope, "an aggregate", positions={}, inside_aggregate=True)
    inner.aggregates = ctx.aggregates
    return aggregates.plan_aggregate(inner, ctx.aggregates, node, where)


def _filter(ctx: ExprContext, node: exp.Expr) -> Typed:
    call_node = node.this
    if not isinstance(call_node, exp.Anonymous) or not aggregates.is_aggregate(
        function_name(call_node)
    ):
        raise SqlError(
            "FILTER specified, but it is not an aggregate function",
            position=position_of(node),
            sqlstate="42809",
        )
    return _aggregate(ctx, call_node, node.expression.this)


def _window(ctx: ExprContext, node: exp.Expr) -> Typed:
    if not ctx.windows:
        raise SqlError(
            f"window functions are not allowed in {ctx.clause}",
            position=position_of(node),
            sqlstate="42P20",
        )
    return aggregates.plan_window(ctx, node)


def _tuple(_ctx: ExprContext, node: exp.Expr) -> Typed:
    raise Unsupported("row values are not supported here", position=position_of(node))


def _star(_ctx: ExprContext, node: exp.Expr) -> Typed:
    raise SqlSyntaxError("wildcard in invalid position", position=position_of(node))


def _parameter(_ctx: ExprContext, node: exp.Expr) -> Typed:
    raise DataError(
        "there is no parameter for this placeholder",
        position=position_of(node),
        hint="Parameters are written %s or %(name)s.",
        sqlstate="42P02",
    )


def _default(_ctx: ExprContext, node: exp.Expr) -> Typed:
    if node.name.upper() == "DEFAULT":
        raise SqlSyntaxError(
            "DEFAULT expression is not allowed in this context", position=position_of(node)
        )
    raise Unsupported(f"{node.name} is not supported here", position=position_of(node))


def _collate(_ctx: ExprContext, node: exp.Expr) -> Typed:
    raise Unsupported("COLLATE is not supported", position=position_of(node))


_HANDLERS: dict[type[exp.Expr], Callable[[ExprContext, Any], Typed]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Paren: _paren,
    exp.Interval: _interval,
    exp.ByteString: _bytes,
    exp.CurrentDate: _current_date,
    exp.CurrentTimestamp: _moment("current_timestamp", t.TIMESTAMPTZ),
    exp.CurrentUser: _moment("current_user", t.TEXT),
    exp.SessionUser: _moment("current_user", t.TEXT),
    exp.CurrentCatalog: _moment("current_database", t.TEXT),
    exp.CurrentSchema: _moment("current_schema", t.TEXT),
    exp.And: _connector,
    exp.Or: _connector,
    exp.Not: _not,
    exp.Is: _is,
    exp.NullSafeEQ: _same,
    exp.NullSafeNEQ: _distinct_from,
    **dict.fromkeys(_OPERATORS, _binary),
    exp.Neg: _unary("-"),
    exp.BitwiseNot: _unary("~"),
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.Between: _between,
    exp.In: _in,
    exp.Exists: _exists,
    exp.Subquery: _scalar_subquery,
    exp.Select: _scalar_subquery,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.Extract: _extract,
    exp.Substring: _substring,
    exp.StrPosition: _position,
    exp.Trim: _trim,
    exp.AtTimeZone: _at_time_zone,
    exp.Concat: _concat,
    exp.Anonymous: _anonymous,
    exp.Filter: _filter,
    exp.Window: _window,
    exp.Tuple: _tuple,
    exp.Star: _star,
    exp.Placeholder: _parameter,
    exp.Parameter: _parameter,
    exp.Var: _default,
    exp.Collate: _collate,
}
