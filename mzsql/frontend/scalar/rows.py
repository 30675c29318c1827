"""Comparing rows: value lists, subqueries with several columns, records.

Promise: rows compare column by column, and a NULL makes the result unknown as the SQL standard says; a subquery with
several columns is a row, of NULLs where it returns none. Two values of record type compare as PostgreSQL's composite
values do: NULL fields are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.names.scope import Scope
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar.coerce import Typed, call, cast, operator_call
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import combine, function_name, known, negate, position_of, unparen
from mzsql.frontend.scalar.planned_queries import Planned
from mzsql.repr import types as t
from mzsql.repr.errors import SqlError, SqlSyntaxError, UndefinedFunction
from mzsql.repr.types import type_name


@dataclass(frozen=True)
class Operand:
    """One side of a comparison: a value, or, with `row`, the columns of a written row."""

    values: tuple[Typed, ...]
    row: bool = False

    def columns(self) -> tuple[Typed, ...]:
        """The columns to compare with a row's; a record's fields count as columns too."""
        return self.values if self.row else fields(self.values[0]) or self.values


def operand(ctx: ExprContext, node: exp.Expr) -> Operand:
    """Plan one side of a comparison."""
    inner = unparen(node)
    if isinstance(inner, exp.Tuple) or _is_row_call(inner):
        return Operand(row_items(ctx, inner), True)
    if isinstance(inner, exp.Query | exp.Values):
        value, several = subquery_value(ctx, inner)
        return Operand(fields(value), True) if several else Operand((value,))
    return Operand((ctx.plan(node),))


def row_items(ctx: ExprContext, node: exp.Expr) -> tuple[Typed, ...]:
    """The values of a row constructor; ``a.*`` is every column of a table, or every field of a record."""
    items: list[Typed] = []
    for inner in node.expressions:
        if isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
            items += columns_of(ctx, inner)
        elif isinstance(inner, exp.Dot) and isinstance(inner.expression, exp.Star):
            items += (value for _, value in record_fields(ctx.plan(inner.this), position_of(inner)))
        else:
            items.append(ctx.plan(inner))
    return tuple(items)


def columns_of(ctx: ExprContext, node: exp.Column) -> list[Typed]:
    """``table.*``: each of its columns.

    Raises:
        SqlSyntaxError: no table is named.
        UndefinedTable: no such table is in scope.
    """
    position = position_of(node)
    table = table_of(node)
    if table is None:
        raise SqlSyntaxError("wildcard in invalid position", position=position)
    return [value for _, value in starred(ctx.scope, ctx.positions, table, position)]


def table_of(star: exp.Expr) -> tuple[str, ...] | None:
    """The table's name before ``.*``, in parts; None where there is none."""
    given = [star.args.get(part) for part in ("catalog", "db", "table")]
    return tuple(fold(part) for part in given if part) or None


def starred(
    scope: Scope,
    positions: dict[int, int | None],
    table: tuple[str, ...] | None,
    position: int | None,
) -> list[tuple[str, Typed]]:
    """The columns that ``*`` or ``table.*`` stands for, each with its name; those of this query are noted in ``positions``.

    Raises:
        UndefinedTable: no such table is in scope.
    """
    found = []
    for level, i in scope.star(table, position):
        if level == 0:
            positions.setdefault(i, position)
        item = scope.item(level, i)
        found.append((item.name, Typed(hir.Column(i, level), item.typ.type, item.typ.nullable)))
    return found


def record_fields(value: Typed, position: int | None) -> list[tuple[str, Typed]]:
    """``(record).*``: each field with its name.

    Raises:
        SqlError: ``type integer is not composite``.
    """
    if value.typ.kind != "record":
        raise SqlError(
            f"type {type_name(value.typ)} is not composite", position=position, sqlstate="42809"
        )
    return [
        (name, call(f"record_get_{i}", [value], column.type))
        for i, (name, column) in enumerate(value.typ.fields, start=1)
    ]


def _is_row_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and function_name(node) == "row"


def subquery_value(ctx: ExprContext, node: exp.Expr) -> tuple[Typed, bool]:
    """The value of a subquery's only row: of its only column, or a record of several; the second result says which.

    Raises:
        SqlSyntaxError: the subquery has no columns.
    """
    planned = ctx.planner.subquery(node, ctx.scope)
    if len(planned.names) == 1:
        ctx.planner.named[id(node)] = node, planned.names[0]
        return Typed(hir.Select(planned.relation), planned.types[0].type, True), False
    if not planned.types:
        raise SqlSyntaxError(
            "Expected subselect to return 1 column, got 0 columns", position=position_of(node)
        )
    made = call("row", _columns(planned))
    mapped = hir.Map(planned.relation, (made.expr,))
    record = hir.Project(mapped, (len(planned.types),))
    return Typed(hir.Select(record), made.typ, True), True


def _columns(planned: Planned) -> list[Typed]:
    return [Typed(hir.Column(i), c.type, c.nullable) for i, c in enumerate(planned.types)]


def fields(value: Typed) -> tuple[Typed, ...]:
    """A record's fields; empty for any other value."""
    return tuple(
        call(f"record_get_{i}", [value], column.type)
        for i, (_, column) in enumerate(value.typ.fields, start=1)
    )


def query_sides(left: Operand, planned: Planned, position: int | None) -> tuple[Operand, Operand]:
    """The left side, and the columns of a query's rows, typed so that they can be compared.

    Raises:
        SqlSyntaxError: ``subquery has 2 columns available but 1 columns specified``.
    """
    columns = tuple(_columns(planned))
    if len(columns) == 1:
        if left.row and [value.typ for value in left.values] == [columns[0].typ]:
            return left, Operand(columns, True)
        right = Operand(columns)
        if not left.row or len(right.columns()) == len(left.values):
            return left, right
    elif len(left.columns()) == len(columns):
        return Operand(left.columns(), True), Operand(columns, True)
    raise SqlSyntaxError(
        f"subquery has {len(columns)} columns available but {len(left.values)} columns specified",
        position=position,
    )


def compare(symbol: str, left: Operand, right: Operand, position: int | None) -> Typed:
    """A comparison of two values or two rows."""
    if left.row or right.row:
        return _compare_rows(symbol, _paired(left, right, position), position)
    (a,), (b,) = left.values, right.values
    if a.typ.kind == b.typ.kind == "record" and symbol in ("=", "<>"):
        return _records(symbol, a, b, position)
    return operator_call(symbol, [a, b], position)


def _paired(left: Operand, right: Operand, position: int | None) -> list[tuple[Typed, Typed]]:
    """The pairs of values to compare."""
    if not (left.row or right.row):
        return list(zip(left.values, right.values, strict=True))
    lefts, rights = left.columns(), right.columns()
    if len(lefts) != len(rights):
        raise SqlSyntaxError("unequal number of entries in row expressions", position=position)
    if not lefts:
        raise SqlSyntaxError("cannot compare rows of zero length", position=position)
    return list(zip(lefts, rights, strict=True))


def _compare_rows(symbol: str, pairs: Sequence[tuple[Typed, Typed]], position: int | None) -> Typed:
    """Rows compared: equality column by column, order lexicographically."""
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


def _records(symbol: str, left: Typed, right: Typed, position: int | None) -> Typed:
    """Whether two records are equal; NULL where one of them is NULL as a whole."""
    lefts, rights = fields(left), fields(right)
    if len(lefts) != len(rights):
        raise SqlSyntaxError(
            "cannot compare record types with different numbers of columns",
            position=position,
            sqlstate="42804",
        )
    same = combine("and", [same_value(a, b, position) for a, b in zip(lefts, rights, strict=True)])
    done = same if symbol == "=" else negate(same)
    missing = combine("or", [call("is_null", [left]), call("is_null", [right])])
    expr = hir.If(missing.expr, Literal(None, t.BOOLEAN), done.expr)
    return Typed(expr, t.BOOLEAN, left.nullable or right.nullable)


def same(left: Operand, right: Operand, position: int | None) -> Typed:
    """IS NOT DISTINCT FROM of two values or two rows."""
    pairs = _paired(left, right, position)
    return combine("and", [same_value(a, b, position) for a, b in pairs])


def same_value(left: Typed, right: Typed, position: int | None) -> Typed:
    """IS NOT DISTINCT FROM of two values."""
    if left.typ.kind == "unknown" and right.typ.kind == "unknown":
        left, right = known(left), known(right)
    elif left.typ.kind == "unknown":
        left = cast(left, right.typ, "implicit") or left
    elif right.typ.kind == "unknown":
        right = cast(right, left.typ, "implicit") or right
    equal = compare("=", Operand((left,)), Operand((right,)), position)
    left_null, right_null = call("is_null", [left]), call("is_null", [right])
    both = combine("and", [left_null, right_null])
    neither = combine("and", [equal, negate(left_null), negate(right_null)])
    return combine("or", [neither, both])
