"""Plans of INSERT, UPDATE, DELETE and COPY FROM.

Promise: an INSERT's source returns all columns of the table, in order and with the table's types: defaults filled in,
assignment casts applied. UPDATE and DELETE are queries too: they return the rows to remove, for UPDATE with the new row
beside each.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.expr import scalar as ms
from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.scalar import Literal, Scalar
from mzsql.frontend import hir
from mzsql.frontend.catalog import CatalogItem, CatalogView
from mzsql.frontend.names.items import item_named
from mzsql.frontend.names.scope import Scope, ScopeItem, column_like
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan import dml_plans, plans
from mzsql.frontend.plan.planners import Planners
from mzsql.frontend.plan.update_from import joined, once
from mzsql.frontend.query.from_clause import plan_from
from mzsql.frontend.query.query import QueryPlanner
from mzsql.frontend.query.returning import written
from mzsql.frontend.scalar.coerce import Typed, cast, to_boolean
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.planned_queries import Planned, project
from mzsql.repr.errors import (
    DatatypeMismatch,
    InvalidParameter,
    SqlError,
    SqlSyntaxError,
    UndefinedColumn,
    Unsupported,
)
from mzsql.repr.types import ColumnType, RelationDesc, RelationType, SqlType, type_name

_COPY_FORMATS = ("csv", "parquet")


def table_named(catalog: CatalogView, name: st.Name, verb: str) -> CatalogItem:
    """The table that a statement writes.

    Raises:
        SqlError: ``cannot insert into view 'x'``, ``cannot mutate view 'x'``.
    """
    item = item_named(catalog, name)
    if item.kind != "table":
        # Builtin sources are called system tables, as in Materialize's message.
        kind = "system table" if item.kind == "source" else item.kind.replace("-", " ")
        raise SqlError(
            f"cannot {verb} {kind} '{item.name}'",
            position=name.position,
            hint="Only tables can be written.",
            sqlstate="42809",
        )
    return item


def _columns(
    table: CatalogItem, given: tuple[tuple[str, int], ...], *, assigned: bool = False
) -> list[int]:
    """The positions of the named columns (``assigned``: of SET's); all where none is named."""
    assert table.desc is not None
    if not given:
        return list(range(table.desc.arity))
    found: list[int] = []
    for name, position in given:
        if name not in table.desc.names:
            said = f'column "{name}" of relation "{table.name}" does not exist'
            raise UndefinedColumn(
                f"unknown column {name}" if assigned else said,
                position=position,
                hint=column_like(name, table.desc.names),
            )
        index = table.desc.names.index(name)
        if index in found:
            again = f"column {name} set twice"
            raise SqlSyntaxError(
                again if assigned else f'column "{name}" specified more than once',
                position=position,
                sqlstate="42701",
            )
        found.append(index)
    return found


# --- insert ----------------------------------------------------------------------------------------


def plan_insert(statement: st.Insert, catalog: CatalogView) -> dml_plans.InsertPlan:
    """The plan of INSERT: the query of its rows, cast to the table's columns, and RETURNING.

    Raises:
        UndefinedTable, UndefinedColumn: the table or a column does not exist.
        SqlError: the query is wrong, or gives more or other columns than the table takes.
    """
    table = table_named(catalog, statement.table, "insert into")
    assert table.desc is not None
    _refuse_bare(table)
    planner = QueryPlanner(catalog)
    columns = _columns(table, statement.columns)
    types = [c.type for c in table.desc.typ.columns]
    wanted = [types[c] for c in columns]
    if statement.query is None:
        source = Planned(hir.Constant(((),), RelationType(())), (), ())
        columns, wanted = [], []
    else:
        source = _source(planner, statement.query, table, columns, wanted)
    if len(source.types) > len(columns):
        raise SqlSyntaxError(
            "INSERT has more expressions than target columns",
            position=_query_position(statement.query),
        )
    if len(source.types) < len(columns):
        if statement.columns:
            raise SqlSyntaxError(
                "INSERT has more target columns than expressions",
                position=_query_position(statement.query),
            )
        columns = columns[: len(source.types)]
    relation = _complete(source, table, columns)
    scope = _table_scope(table, statement.alias)
    done = written(planner, relation, table.desc, scope, statement.returning)
    return dml_plans.InsertPlan(table, _query(done.relation, done.desc), done.returning)


def _refuse_bare(table: CatalogItem) -> None:
    """Refuse to write a table without columns: its rows could not be stored."""
    if table.desc is not None and table.desc.arity == 0:
        raise Unsupported(f"writing rows to {table.name}, which has no columns, is not supported")


def _query_position(query: exp.Expr | None) -> int | None:
    return None if query is None else position_of(query)


def _source(
    planner: QueryPlanner,
    query: exp.Expr,
    table: CatalogItem,
    columns: list[int],
    wanted: list[SqlType],
) -> Planned:
    inner = query
    while isinstance(inner, exp.Subquery) and not any(
        inner.args.get(k) for k in ("order", "limit", "offset", "with_")
    ):
        inner = inner.this
    if isinstance(inner, exp.Values) and not any(
        inner.args.get(k) for k in ("order", "limit", "offset", "with_")
    ):
        defaults = [_default(table, c) for c in columns]
        return planner.values(inner, None, wanted=wanted, defaults=defaults)
    return planner.query(query, None, keep_unknown=True).finish()


def _default(table: CatalogItem, column: int) -> Typed:
    """A column's default, NULL where it has none."""
    assert table.desc is not None
    typ = table.desc.typ.columns[column].type
    scalar = table.defaults[column] if column < len(table.defaults) else None
    if scalar is None:
        return Typed(Literal(None, typ), typ, True)
    return Typed(_as_hir(scalar), typ, True)


def _as_hir(scalar: Scalar) -> hir.Scalar:
    """A default, a constant MIR scalar, as HIR."""
    match scalar:
        case ms.Call(func=func, args=args, typ=typ):
            return hir.Call(func, tuple(_as_hir(a) for a in args), typ)
        case ms.If(condition=c, then=then, otherwise=o):
            return hir.If(_as_hir(c), _as_hir(then), _as_hir(o))
        case ms.Column():
            raise AssertionError("a default reads no column")
        case _:
            return scalar


def _complete(source: Planned, table: CatalogItem, columns: list[int]) -> hir.Relation:
    """The source's columns cast and put in the table's order, the others filled with their defaults."""
    assert table.desc is not None
    scalars: list[hir.Scalar] = []
    outputs: list[int] = []
    for index, (name, column) in enumerate(
        zip(table.desc.names, table.desc.typ.columns, strict=True)
    ):
        if index not in columns:
            outputs.append(len(source.types) + len(scalars))
            scalars.append(_default(table, index).expr)
            continue
        at = columns.index(index)
        have = source.types[at]
        value = Typed(hir.Column(at), have.type, have.nullable)
        done = _assigned(value, column.type, name, None)
        if done.expr == value.expr:
            outputs.append(at)
        else:
            outputs.append(len(source.types) + len(scalars))
            scalars.append(done.expr)
    relation = source.relation
    if scalars:
        relation = hir.Map(relation, tuple(scalars))
    return project(relation, outputs, len(source.types) + len(scalars))


def _assigned(value: Typed, target: SqlType, column: str, position: int | None) -> Typed:
    done = cast(value, target, "assignment")
    if done is None and type_name(value.typ) == type_name(target):
        raise Unsupported(
            f'column "{column}" of type {type_name(target)} has arrays of other dimensions than its expression',
            position=position,
            hint="A column has arrays of as many dimensions as its type was declared with.",
        )
    if done is None:
        raise DatatypeMismatch(
            f'column "{column}" is of type {type_name(target)} but expression is of type {type_name(value.typ)}',
            position=position,
            hint="You will need to rewrite or cast the expression.",
        )
    return done


def _query(relation: hir.Relation, desc: RelationDesc) -> hir.Query:
    columns = tuple(ColumnType(c.type, True) for c in desc.typ.columns)
    finishing = RowSetFinishing((), None, 0, tuple(range(desc.arity)))
    plain = RelationDesc(desc.names, RelationType(columns))
    return hir.Query(relation, plain, finishing, columns)


# --- update, delete --------------------------------------------------------------------------------


def _table_scope(table: CatalogItem, alias: str | None) -> Scope:
    assert table.desc is not None
    name = (alias,) if alias else table.name.parts
    items = tuple(
        ScopeItem(n, name, c) for n, c in zip(table.desc.names, table.desc.typ.columns, strict=True)
    )
    return Scope(items, None, True, (name,))


def plan_delete(statement: st.Delete, catalog: CatalogView) -> dml_plans.DeletePlan:
    """DELETE; USING becomes a semijoin, so a row is deleted once however many rows it matches."""
    table = table_named(catalog, statement.table, "mutate")
    assert table.desc is not None
    planner = QueryPlanner(catalog)
    scope = _table_scope(table, statement.alias)
    relation: hir.Relation = hir.Get(table.id, table.desc.typ)
    if statement.using is not None:
        using = _using(planner, statement.using, statement.where, scope)
        relation = hir.Filter(relation, (using,))
    elif statement.where is not None:
        relation = _filtered(planner, relation, scope, statement.where)
    done = written(planner, relation, table.desc, scope, statement.returning)
    return dml_plans.DeletePlan(table, _query(done.relation, done.desc), done.returning)


def _using(
    planner: QueryPlanner, using: exp.Select, where: exp.Expr | None, scope: Scope
) -> hir.Scalar:
    relation, inner = plan_from(planner, using, scope)
    if where is not None:
        relation = _filtered(planner, relation, inner, where)
    return hir.Exists(relation)


def _filtered(
    planner: QueryPlanner, relation: hir.Relation, scope: Scope, where: exp.Expr
) -> hir.Relation:
    ctx = ExprContext(planner, scope, "WHERE")
    condition = to_boolean(ctx.plan(where), "argument of WHERE", position_of(where))
    return hir.Filter(relation, (condition.expr,))


def _check_width(planner: QueryPlanner, scope: Scope, node: exp.Expr, position: int) -> None:
    """Check that a subquery assigned to several columns returns as many."""
    query, width = node.meta.get("row", (None, 0))
    if query is not None and len(planner.query(query, scope).finish().types) != width:
        raise SqlSyntaxError("number of columns does not match number of values", position=position)


def plan_update(statement: st.Update, catalog: CatalogView) -> dml_plans.UpdatePlan:
    """UPDATE."""
    table = table_named(catalog, statement.table, "mutate")
    assert table.desc is not None
    desc = table.desc
    planner = QueryPlanner(catalog)
    scope = _table_scope(table, statement.alias)
    relation: hir.Relation = hir.Get(table.id, desc.typ)
    if statement.sources is not None:
        relation, scope = joined(planner, relation, scope, statement.sources)
    if statement.where is not None:
        relation = _filtered(planner, relation, scope, statement.where)
    targets = _columns(table, tuple((n, p) for n, p, _ in statement.assignments), assigned=True)
    ctx = ExprContext(planner, scope, "UPDATE")
    scalars: list[hir.Scalar] = []
    width = len(scope.items)
    outputs = [*range(desc.arity), *range(width)]
    for index, (name, position, node) in zip(targets, statement.assignments, strict=True):
        _check_width(planner, scope, node, position)
        value = (
            _default(table, index)
            if isinstance(node, exp.Var) and node.name.upper() == "DEFAULT"
            else ctx.plan(node)
        )
        done = _assigned(value, desc.typ.columns[index].type, name, position_of(node) or position)
        outputs[desc.arity + index] = width + len(scalars)
        scalars.append(done.expr)
    mapped = hir.Map(relation, tuple(scalars))
    doubled = project(mapped, outputs, width + len(scalars))
    both = RelationDesc(
        (*desc.names, *(item.name for item in scope.items)),
        RelationType((*desc.typ.columns, *scope.types())),
    )
    rows = written(planner, doubled, both, scope, statement.returning, row_at=desc.arity)
    if statement.sources is not None:
        rows = once(rows, table, width - desc.arity)
    return dml_plans.UpdatePlan(table, _query(rows.relation, rows.desc), rows.returning)


# --- copy ------------------------------------------------------------------------------------------


def plan_copy_from(statement: st.CopyFrom, catalog: CatalogView) -> dml_plans.CopyFromPlan:
    """COPY t FROM '<file>' or STDIN; without FORMAT a file's suffix decides, and STDIN is text."""
    table = table_named(catalog, statement.table, "copy into")
    _refuse_bare(table)
    columns = tuple(_columns(table, statement.columns)) if statement.columns else None
    formats = ("text", "csv") if statement.path is None else _COPY_FORMATS
    options = copy_options(statement.options, statement.path, formats)
    return dml_plans.CopyFromPlan(table, columns, statement.path, **options)  # type: ignore[arg-type]


def copied_columns(
    name: st.Name, columns: tuple[tuple[str, int], ...], catalog: CatalogView
) -> plans.SelectPlan:
    """The query for COPY t (a, b) TO.

    Raises:
        SqlError: the object has no columns (42809).
    """
    item = item_named(catalog, name)
    if item.desc is None:
        raise SqlError(
            f"cannot copy from {item.kind} '{item.name}'", position=name.position, sqlstate="42809"
        )
    picked = tuple(_columns(item, columns))
    desc = RelationDesc(
        tuple(item.desc.names[i] for i in picked),
        RelationType(tuple(item.desc.typ.columns[i] for i in picked)),
    )
    finishing = RowSetFinishing((), None, 0, picked)
    get = hir.Get(item.id, item.desc.typ)
    return plans.SelectPlan(hir.Query(get, desc, finishing, item.desc.typ.columns))


def copy_options(
    given: tuple[st.CopyOption, ...], path: str | None, formats: tuple[str, ...]
) -> dict[str, str | bool]:
    """COPY's format and options, checked, with PostgreSQL's defaults.

    Args:
        given: name, value and position of each option.
        path: the file; None: STDIN or STDOUT, whose default format is text.
        formats: the formats allowed.

    Raises:
        SqlSyntaxError: an option is given twice.
        InvalidParameter: an option, its value or the format is not known.
    """
    options: dict[str, str] = {}
    positions: dict[str, int] = {}
    header = False
    for name, value, position in given:
        if name in positions:
            raise SqlSyntaxError("conflicting or redundant options", position=position)
        positions[name] = position
        if isinstance(value, bool):
            header = value
        else:
            options[name] = value
    form = options.pop("format", None)
    if form is None:
        parquet = path is not None and path.lower().endswith(".parquet")
        form = "text" if path is None else "parquet" if parquet else "csv"
    if form not in formats:
        known = f"{', '.join(f.upper() for f in formats[:-1])} and {formats[-1].upper()}"
        raise InvalidParameter(
            f'COPY format "{form}" not recognized',
            position=positions.get("format"),
            hint=f"The formats are {known}.",
        )
    _check_copy_options(form, options, positions)
    quote = options.get("quote", '"')
    return {
        "format": form,
        "header": header,
        "delimiter": options.get("delimiter", "\t" if form == "text" else ","),
        "quote": quote,
        "escape": options.get("escape", quote),
        "null": options.get("null", "\\N" if form == "text" else ""),
    }


def _check_copy_options(form: str, options: dict[str, str], positions: dict[str, int]) -> None:
    first = next((name for name in positions if name != "format"), None)
    if form in ("parquet", "binary") and first is not None:
        if form == "binary" and first in ("delimiter", "null"):
            raise SqlSyntaxError(
                f"cannot specify {first.upper()} in BINARY mode", position=positions[first]
            )
        raise InvalidParameter(
            f"COPY {first.upper()} requires CSV format", position=positions[first]
        )
    for name in ("quote", "escape"):
        if form == "text" and name in options:
            raise InvalidParameter(
                f"COPY {name.upper()} requires CSV mode",
                position=positions[name],
                sqlstate="0A000",
            )
    for name in ("delimiter", "quote", "escape"):
        if name in options and len(options[name].encode()) != 1:
            raise InvalidParameter(
                f"COPY {name} must be a single one-byte character", position=positions[name]
            )
    delimiter = options.get("delimiter")
    if (
        form == "text"
        and delimiter is not None
        and delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789"
    ):
        raise InvalidParameter(
            f'COPY delimiter cannot be "{delimiter}"', position=positions["delimiter"]
        )
    for name in ("delimiter", "null"):
        if any(c in options.get(name, "") for c in "\r\n"):
            what = "COPY delimiter" if name == "delimiter" else "COPY null representation"
            raise InvalidParameter(
                f"{what} cannot use newline or carriage return", position=positions[name]
            )
    if form in ("text", "csv"):
        _check_copy_marks(form, options, positions)


def _check_copy_marks(form: str, options: dict[str, str], positions: dict[str, int]) -> None:
    """Check that delimiter, quote and NULL can be told apart."""
    delimiter = options.get("delimiter", "\t" if form == "text" else ",")
    quote = options.get("quote", '"')
    if form == "csv" and delimiter == quote:
        name = "delimiter" if "delimiter" in positions else "quote"
        raise InvalidParameter(
            "COPY delimiter and quote must be different", position=positions[name]
        )
    null = options.get("null", "")
    for mark, what in ((delimiter, "COPY delimiter"), (quote, "CSV quote character")):
        if mark in null and (form == "csv" or mark == delimiter):
            raise InvalidParameter(
                f"{what} must not appear in the NULL specification",
                position=positions["null"],
                sqlstate="0A000",
            )


#: The planners of this family.
PLANNERS: Planners = {
    st.Insert: plan_insert,
    st.Update: plan_update,
    st.Delete: plan_delete,
    st.CopyFrom: plan_copy_from,
}
