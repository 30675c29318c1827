"""LIMIT, OFFSET and FETCH.

Promise: an amount without columns, subqueries or parameters becomes a literal here, whatever expression it was; a
negative amount, or one that is no number or fails, is an error at once. Other limits stay expressions over the
enclosing query's columns; an OFFSET must be constant.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.names.scope import Scope
from mzsql.frontend.scalar.coerce import Typed, cast, operator_call
from mzsql.frontend.scalar.context import ExprContext, QueryPlans
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.placeholders import undecided
from mzsql.frontend.scalar.planned_queries import Pending
from mzsql.frontend.scalar.standalone import constant_value, is_constant, of_parameters
from mzsql.repr import types as t
from mzsql.repr.errors import (
    DatatypeMismatch,
    InvalidParameter,
    InvalidTextRepresentation,
    SqlSyntaxError,
    Unsupported,
)
from mzsql.repr.types import ColumnType


def plan_limit(
    planner: QueryPlans, node: exp.Expr, outer: Scope | None
) -> tuple[Typed | None, int]:
    """A query's limit (None: none) and its offset."""
    limit: Typed | None = None
    clause = node.args.get("limit")
    if clause is not None:
        amount = clause.expression if isinstance(clause, exp.Limit) else clause.args.get("count")
        if isinstance(clause, exp.Fetch):
            _refuse_options(clause, ordered=node.args.get("order") is not None)
        amount = exp.Literal.number(1) if amount is None else amount
        limit = _limit_amount(planner, amount, outer)
    offset = node.args.get("offset")
    return limit, 0 if offset is None else _offset(planner, offset.expression)


def _has_option(clause: exp.Expr | None, option: str) -> bool:
    options = clause.args.get("limit_options") if isinstance(clause, exp.Fetch) else None
    return options is not None and bool(options.args.get(option))


def _refuse_options(clause: exp.Fetch, *, ordered: bool) -> None:
    if _has_option(clause, "with_ties") and not ordered:
        raise Unsupported(
            "FETCH ... WITH TIES not yet supported without ORDER BY",
            hint="Say by ORDER BY which rows are ties.",
            position=position_of(clause),
        )
    if _has_option(clause, "percent"):
        raise Unsupported("FETCH ... PERCENT not yet supported", position=position_of(clause))


def with_ties(pending: Pending, node: exp.Expr) -> Pending:
    """A query with FETCH … WITH TIES: the rows of its limit, and those that are equal to the last of them in the order.

    These are all rows whose rank is at most the last row's number, which includes the offset.
    """
    if not _has_option(node.args.get("limit"), "with_ties") or pending.limit is None:
        return pending
    keys = tuple(
        hir.Ordering(hir.Column(key.column), key.desc, key.nulls_last) for key in pending.order
    )
    rank = hir.Windowing("rank", "scalar", (), (), keys, t.BIGINT)
    place = Typed(hir.Column(len(pending.types)), t.BIGINT, False)
    offset = Typed(Literal(pending.offset, t.BIGINT), t.BIGINT, False)
    last = operator_call("+", [pending.limit, offset], None) if pending.offset else pending.limit
    condition = operator_call("<=", [place, last], None)
    return replace(
        pending,
        relation=hir.Filter(hir.Map(pending.relation, (rank,)), (condition.expr,)),
        types=(*pending.types, ColumnType(t.BIGINT, False)),
        limit=None,
    )


def _limit_amount(planner: QueryPlans, node: exp.Expr, outer: Scope | None) -> Typed | None:
    if isinstance(node, exp.Null) or (
        isinstance(node, exp.Column | exp.Var | exp.All) and node.name.upper() == "ALL"
    ):
        return None
    value = ExprContext(planner, Scope((), outer), "LIMIT").plan(node)
    return _amount(value, "LIMIT", position_of(node))


def _offset(planner: QueryPlans, node: exp.Expr) -> int:
    position = position_of(node)
    if any(True for _ in node.find_all(exp.Column, exp.Query)):
        raise SqlSyntaxError("OFFSET must be an integer constant", position=position)
    value = _amount(ExprContext(planner, Scope(), "OFFSET").plan(node), "OFFSET", position)
    if is_null(value) or of_parameters(value.expr):
        return 0  # without its parameters' values a statement is only prepared
    found = literal_count(value)
    if found is None:
        raise SqlSyntaxError("OFFSET must be an integer constant", position=position)
    return found


def _amount(value: Typed, clause: str, position: int | None) -> Typed:
    """The value as bigint; a literal if it is constant."""
    if isinstance(value.expr, Literal) and value.typ.kind == "unknown" and not is_null(value):
        text = value.expr.value
        if not undecided(text) and literal_count(value) is None:
            raise InvalidTextRepresentation(
                f'invalid input syntax for type bigint: "{text}"', position=position
            )
    count = literal_count(value)
    if count is None:
        done = cast(value, t.BIGINT, "assignment")
        if done is None:
            raise DatatypeMismatch(
                f"argument of {clause} must be type bigint, not type {t.type_name(value.typ)}",
                position=position,
            )
        if not is_constant(done.expr):
            return done
        found = constant_value(done, clause)
        if found is None:
            return Typed(Literal(None, t.BIGINT), t.BIGINT, True)
        assert isinstance(found, int)
        count = found
    if count < 0:
        raise InvalidParameter(
            f"{clause} must not be negative",
            position=position,
            sqlstate="2201W" if clause == "LIMIT" else "2201X",
        )
    return Typed(Literal(count, t.BIGINT), t.BIGINT, False)


def literal_count(value: Typed) -> int | None:
    """The integer of a literal; None for anything else."""
    if not isinstance(value.expr, Literal) or value.expr.value is None:
        return None
    try:
        return int(str(value.expr.value))
    except ValueError:
        return None


def is_null(value: Typed) -> bool:
    """Whether the value is the literal NULL."""
    return isinstance(value.expr, Literal) and value.expr.value is None
