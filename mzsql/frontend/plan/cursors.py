"""Plans of SUBSCRIBE, cursors, prepared statements and COPY … TO.

Promise: a subscription's output columns are Materialize's (https://materialize.com/docs/sql/subscribe/): mz_timestamp,
[mz_progressed], mz_diff and the relation's columns; under an envelope mz_state, the key columns and the others.
"""

from __future__ import annotations

import decimal
from typing import ClassVar

from sqlglot import expressions as exp

from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import ColumnOrder, Scalar
from mzsql.frontend import hir
from mzsql.frontend.catalog import CatalogItem, CatalogView
from mzsql.frontend.names.items import item_named
from mzsql.frontend.names.named_types import NamedTypes
from mzsql.frontend.names.scope import Scope
from mzsql.frontend.names.types import resolve_type
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.cursors import Close, Deallocate, Declare, Discard, Fetch
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.plan import cursor_plans, plans
from mzsql.frontend.plan.dml import copied_columns, copy_options
from mzsql.frontend.plan.planners import NestingPlanners, Planners, PlanStatement
from mzsql.frontend.plan.sequenced import StatementPlan
from mzsql.frontend.query.query import QueryPlanner
from mzsql.frontend.query.show import has_show, shown_query
from mzsql.frontend.scalar import placeholders
from mzsql.frontend.scalar.coerce import cast
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.standalone import constant_scalar
from mzsql.repr import types as t
from mzsql.repr.errors import (
    InvalidParameter,
    SqlError,
    SqlSyntaxError,
    UndefinedTable,
    Unsupported,
)
from mzsql.repr.frontier import MAX_TIMESTAMP
from mzsql.repr.types import ColumnType, RelationDesc, RelationType

_STORED = ("table", "materialized-view")


def timestamp_constant(node: exp.Expr, catalog: CatalogView, clause: str) -> Scalar:
    """The time of AS OF or UP TO: a constant expression of type mz_timestamp.

    Raises:
        InvalidParameter: the expression is a fraction (22003), or has a type that no cast makes a time
            (42804).
    """
    if isinstance(node, exp.Literal) and not node.is_string and not _is_time(str(node.this)):
        raise InvalidParameter(
            "decimal cannot be expressed in target primitive type", sqlstate="22003"
        )
    value = ExprContext(QueryPlanner(catalog), Scope(), clause).plan(node)
    done = cast(value, t.MZ_TIMESTAMP, "explicit")
    if done is None:
        raise InvalidParameter(
            f"{clause} must be a timestamp, not of type {value.typ}", sqlstate="42804"
        )
    return constant_scalar(done, clause)


def _is_time(number: str) -> bool:
    """Whether a literal is an integer in the range of timestamps."""
    value = decimal.Decimal(number)
    return 0 <= value <= MAX_TIMESTAMP and value == value.to_integral_value()


# --- plans of cursors and of DISCARD ---------------------------------------------------------------


class DeclarePlan(StatementPlan, frozen=True, tag="declare"):
    """DECLARE name CURSOR FOR `plan`."""

    command: ClassVar[str] = "DECLARE CURSOR"

    name: str
    plan: plans.SelectPlan | cursor_plans.SubscribePlan


class FetchPlan(StatementPlan, frozen=True, tag="fetch"):
    """FETCH; `count` None: ALL; `timeout` as written, None where not given."""

    command: ClassVar[str] = "FETCH"

    name: str
    count: int | None
    timeout: str | None = None


class ClosePlan(StatementPlan, frozen=True, tag="close"):
    """CLOSE; `name` None: ALL."""

    name: str | None

    @property
    def tag_text(self) -> str:
        """``CLOSE CURSOR [ALL]``."""
        return "CLOSE CURSOR ALL" if self.name is None else "CLOSE CURSOR"


class DeallocatePlan(StatementPlan, frozen=True, tag="deallocate"):
    """DEALLOCATE; `name` None: ALL."""

    name: str | None

    @property
    def tag_text(self) -> str:
        """``DEALLOCATE [ALL]``."""
        return "DEALLOCATE ALL" if self.name is None else "DEALLOCATE"


class DiscardPlan(StatementPlan, frozen=True, tag="discard"):
    """DISCARD ALL or TEMP."""

    everything: bool

    @property
    def tag_text(self) -> str:
        """``DISCARD ALL or TEMP``."""
        return "DISCARD ALL" if self.everything else "DISCARD TEMP"


# --- SUBSCRIBE ---------------------------------------------------------------------------------------


def plan_subscribe(statement: st.Subscribe, catalog: CatalogView) -> cursor_plans.SubscribePlan:
    """The plan of SUBSCRIBE to a relation or a query, with its AS OF, UP TO, ENVELOPE and order.

    Raises:
        UndefinedTable: the relation does not exist.
        SqlError: the query is wrong, or the options do not go together.
    """
    item = None
    if isinstance(statement.what, st.Show):
        query = QueryPlanner(catalog).top_level(shown_query(statement.what, catalog))
        row = query.desc
    elif isinstance(statement.what, st.Name):
        item, query = _subscribed_item(statement.what, catalog)
        row = query.desc
    else:
        if has_show(statement.what):
            raise Unsupported(
                "SHOW is not supported within the query of a SUBSCRIBE",
                hint="SUBSCRIBE (SHOW …) follows it by itself.",
            )
        query = QueryPlanner(catalog).top_level(statement.what)
        row = query.desc
    keys = _keys(statement, row)

    def time(node: exp.Expr | None, clause: str) -> Scalar | None:
        return None if node is None else timestamp_constant(node, catalog, clause)

    return cursor_plans.SubscribePlan(
        query,
        item if item is not None and item.kind in _STORED else None,
        row,
        output_desc(row, progress=statement.progress, envelope=statement.envelope, keys=keys),
        statement.snapshot,
        statement.progress,
        time(statement.as_of, "AS OF"),
        statement.at_least,
        time(statement.up_to, "UP TO"),
        statement.envelope,
        keys,
        tuple(_order_item(node, row) for node in statement.order),
    )


def _subscribed_item(name: st.Name, catalog: CatalogView) -> tuple[CatalogItem, hir.Query]:
    item = item_named(catalog, name)
    if item.desc is None:
        raise UndefinedTable(
            f"'{item.name}' cannot be subscribed to because it is {item.described}",
            position=name.position,
            sqlstate="42809",
        )
    finishing = RowSetFinishing((), None, 0, tuple(range(item.desc.arity)))
    get = hir.Get(item.id, item.desc.typ)
    return item, hir.Query(get, item.desc, finishing, item.desc.typ.columns)


def _keys(statement: st.Subscribe, row: RelationDesc) -> tuple[int, ...]:
    found: list[int] = []
    for name, position in statement.keys:
        if row.names.count(name) != 1:
            which = "UPSERT" if statement.envelope == "upsert" else "DEBEZIUM"
            raise SqlError(
                f"invalid keys in SUBSCRIBE ENVELOPE {which} (KEY (..))",
                position=position,
                hint="All keys must be columns on the underlying relation.",
                sqlstate="42P10",
            )
        column = row.names.index(name)
        if column in found:
            raise SqlError(
                f'column "{name}" specified more than once', position=position, sqlstate="42701"
            )
        found.append(column)
    return tuple(found)


def _order_item(item: exp.Expr, row: RelationDesc) -> ColumnOrder:
    """A column of the output by name or number, mz_diff included (it is number 1, as in the output)."""
    node = item.this
    column = None
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
        number = int(node.this)
        if 1 <= number <= row.arity + 1:
            column = row.arity if number == 1 else number - 2
    elif isinstance(node, exp.Column) and not node.args.get("table"):
        name = fold(node.this)
        if row.names.count(name) == 1:
            column = row.names.index(name)
        elif name == "mz_diff":
            column = row.arity
    if column is None:
        raise SqlError(
            "invalid ORDER BY in SUBSCRIBE WITHIN TIMESTAMP ORDER BY",
            position=position_of(node),
            hint="All order bys must be output columns.",
            sqlstate="42P10",
        )
    return ColumnOrder(column, bool(item.args.get("desc")), not item.args.get("nulls_first"))


def output_desc(
    row: RelationDesc, *, progress: bool, envelope: str | None, keys: tuple[int, ...]
) -> RelationDesc:
    """The output columns of a subscription to rows with the columns ``row``."""
    names = ["mz_timestamp"]
    columns = [ColumnType(t.SqlType("numeric", scale=0), nullable=False)]
    if progress:
        names.append("mz_progressed")
        columns.append(ColumnType(t.BOOLEAN, nullable=False))

    def add(name: str, typ: t.SqlType, *, nullable: bool = True) -> None:
        names.append(name)
        columns.append(ColumnType(typ, nullable=nullable))

    values = list(zip(row.names, row.typ.columns, strict=True))
    if envelope is None:
        add("mz_diff", t.BIGINT, nullable=progress)
        for name, column in values:
            add(name, column.type, nullable=progress or column.nullable)
    else:
        add("mz_state", t.TEXT, nullable=progress)
        for key in keys:
            name, column = values[key]
            add(name, column.type, nullable=progress or column.nullable)
        for prefix in ("before_", "after_") if envelope == "debezium" else ("",):
            for i, (name, column) in enumerate(values):
                if i not in keys:
                    add(f"{prefix}{name}", column.type)
    return RelationDesc(tuple(names), RelationType(tuple(columns)))


# --- cursors and prepared statements -------------------------------------------------------------------


def plan_prepare(
    statement: st.Prepare, catalog: CatalogView, plan: PlanStatement
) -> cursor_plans.PreparePlan:
    """PREPARE: the statement is planned only for its errors and its parameters' types."""
    named = NamedTypes(catalog)
    declared = [resolve_type(typ, named) for typ in statement.types]
    with placeholders.inferring(declared) as found:
        plan(statement.statement, catalog)
        types = placeholders.all_types(found)
    return cursor_plans.PreparePlan(statement.name, statement.text, types)


def plan_execute(statement: st.Execute, catalog: CatalogView) -> cursor_plans.ExecutePlan:
    """EXECUTE: each argument is planned by itself, for its errors; its names cannot refer into the prepared statement.

    Raises:
        Unsupported: an argument has a subquery.
    """
    for argument in statement.arguments:
        if argument.expression.find(exp.Query):
            raise Unsupported(
                "cannot use subquery in EXECUTE parameter", position=argument.position
            )
        ExprContext(QueryPlanner(catalog), Scope(), "EXECUTE parameters").plan(argument.expression)
    return cursor_plans.ExecutePlan(statement.name, tuple(a.text for a in statement.arguments))


def plan_copy_to(
    statement: st.CopyTo,
    catalog: CatalogView,
    plan: PlanStatement,
) -> cursor_plans.CopyToPlan:
    """COPY … TO; without FORMAT the file's suffix decides, else the format is text.

    Raises:
        SqlSyntaxError: a SUBSCRIBE is to be copied to a file (0A000).
    """
    what = statement.what
    query = (
        copied_columns(what, statement.columns, catalog)
        if isinstance(what, st.Name)
        else plan(what, catalog)
    )
    assert isinstance(query, plans.SelectPlan | cursor_plans.SubscribePlan)
    if isinstance(query, cursor_plans.SubscribePlan) and statement.path is not None:
        raise SqlSyntaxError("COPY (SUBSCRIBE …) can only go TO STDOUT", sqlstate="0A000")
    formats = ("text", "csv") if statement.path is None else ("csv", "parquet")
    options = copy_options(statement.options, statement.path, formats)
    return cursor_plans.CopyToPlan(query, statement.path, **options)  # type: ignore[arg-type]


def _declare(
    statement: Declare, catalog: CatalogView, plan_statement: PlanStatement
) -> DeclarePlan:
    inner = plan_statement(statement.statement, catalog)
    assert isinstance(inner, plans.SelectPlan | cursor_plans.SubscribePlan)
    return DeclarePlan(statement.name, inner)


#: The planners of this family.
PLANNERS: Planners = {
    st.Subscribe: plan_subscribe,
    Fetch: lambda s, _c: FetchPlan(s.name, s.count, s.timeout),
    Close: lambda s, _c: ClosePlan(s.name),
    st.Execute: plan_execute,
    Deallocate: lambda s, _c: DeallocatePlan(s.name),
    Discard: lambda s, _c: DiscardPlan(s.everything),
}
NESTING: NestingPlanners = {
    Declare: _declare,
    st.Prepare: plan_prepare,
    st.CopyTo: plan_copy_to,
}
