"""Plans of CREATE and DROP.

Promise: a plan carries the object's full name, its columns and its normalized text. Keys of tables are not enforced, as
in Materialize, so ``PRIMARY KEY`` and ``UNIQUE`` are refused unless they say ``NOT ENFORCED``, which makes them
documentation (a primary key's columns are NOT NULL all the same), or unless the optimizer is told to trust them
(``enable_table_keys``).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlglot import expressions as exp

from mzsql.expr.scalar import Column, LiteralError, Scalar
from mzsql.frontend import hir
from mzsql.frontend.catalog import CatalogItem, CatalogView, FullName, PartialName
from mzsql.frontend.definitions.normalize import (
    normalize_create_sql,
    quoted,
    quoted_list,
    quoted_name,
)
from mzsql.frontend.names.items import (
    cluster_name,
    find_item,
    item_named,
    new_name,
    target_item,
)
from mzsql.frontend.names.scope import Scope, ScopeItem, column_like
from mzsql.frontend.names.types import resolve_type
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.retention import OPTION, clause, option, retained_ms, shown
from mzsql.frontend.plan import ddl_plans
from mzsql.frontend.plan.planners import Planners
from mzsql.frontend.plan.refresh import refresh_options, shown_unscheduled
from mzsql.frontend.plan.system_dependencies import check_dependencies
from mzsql.frontend.plan.types import References, plan_create_type, shown_type
from mzsql.frontend.query.query import QueryPlanner
from mzsql.frontend.query.show import refuse_shows
from mzsql.frontend.scalar.coerce import cast, settle
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.standalone import constant_scalar, plain_scalar
from mzsql.repr.errors import (
    DatatypeMismatch,
    DependentObjects,
    SqlError,
    SqlSyntaxError,
    UndefinedColumn,
    Unsupported,
)
from mzsql.repr.types import (
    BOOLEAN,
    ColumnType,
    RelationDesc,
    RelationType,
    SqlType,
    type_name,
)

# --- tables ----------------------------------------------------------------------------------------


def plan_create_table(
    statement: st.CreateTable, catalog: CatalogView, *, table_keys: bool
) -> ddl_plans.CreateTablePlan:
    """The plan of CREATE TABLE.

    Args:
        statement: as parsed.
        catalog: where names and types are looked up.
        table_keys: whether PRIMARY KEY and UNIQUE are taken, and constraints that say nothing to the optimizer.

    Raises:
        SqlSyntaxError: a column is named twice.
        Unsupported: a constraint or default that tables cannot have.
        UndefinedObject: a type or schema does not exist.
    """
    name = new_name(catalog, statement.name, temporary=statement.temporary)
    names = [c.name for c in statement.columns]
    for i, column in enumerate(statement.columns):
        if column.name in names[:i]:
            raise SqlSyntaxError(
                f'column "{column.name}" specified more than once',
                position=column.position,
                sqlstate="42701",
            )
    not_null = {i for i, c in enumerate(statement.columns) if c.not_null}
    keys = _keys(statement, names, not_null, table_keys=table_keys)
    planner = QueryPlanner(catalog)
    types = [resolve_type(c.typ, planner.types) for c in statement.columns]
    columns = tuple(ColumnType(typ, i not in not_null) for i, typ in enumerate(types))
    defaults = tuple(
        _default(planner, c, typ.type) for c, typ in zip(statement.columns, columns, strict=True)
    )
    desc = RelationDesc(tuple(names), RelationType(columns, keys))
    return ddl_plans.CreateTablePlan(
        name=name,
        desc=desc,
        defaults=defaults,
        create_sql=_table_sql(statement, name, desc, planner.references),
        if_not_exists=statement.if_not_exists,
        retain_ms=None if statement.retain is None else retained_ms(statement.retain),
        types=planner.types.used,
    )


#: Constraints that say nothing to the optimizer, by their keywords.
_UNENFORCED = {"FOREIGN KEY": "foreign key", "CHECK": "check constraint"}


def _keys(
    statement: st.CreateTable, names: list[str], not_null: set[int], *, table_keys: bool
) -> tuple[tuple[int, ...], ...]:
    found: list[tuple[int, ...]] = []
    primary = 0
    for kind, columns, position in statement.keys:
        if kind in _UNENFORCED:
            if not table_keys:
                raise Unsupported(
                    f"CREATE TABLE with a {_UNENFORCED[kind]} is not supported",
                    position=position,
                    hint="Leave it out: it would not be enforced.",
                )
            continue
        for column in columns:
            if column not in names:
                raise UndefinedColumn(
                    f'column "{column}" named in key does not exist',
                    position=position,
                    hint=column_like(column, names),
                )
        key = tuple(names.index(c) for c in columns)
        if kind.startswith("PRIMARY"):
            primary += 1
            if primary > 1:
                raise SqlSyntaxError(
                    f"multiple primary keys for table {quoted(statement.name.partial.item)} are not allowed",
                    position=position,
                    sqlstate="42P16",
                )
            not_null.update(key)
        if kind.endswith("NOT ENFORCED"):
            continue
        if not table_keys:
            raise Unsupported(
                "CREATE TABLE with a primary key or unique constraint is not supported",
                position=position,
                hint=f"Keys are not enforced. Leave it out, or say {kind} NOT ENFORCED to keep it as documentation.",
            )
        found.append(tuple(sorted(key)))
    return tuple(found)


def _default(planner: QueryPlanner, column: st.ColumnSpec, target: SqlType) -> Scalar | None:
    if column.default is None:
        return None
    value = ExprContext(planner, Scope(), "DEFAULT expressions").plan(column.default)
    done = cast(value, target, "assignment")
    if done is None:
        raise DatatypeMismatch(
            f'column "{column.name}" is of type {type_name(target)} but default expression is of type '
            f"{type_name(value.typ)}",
            position=position_of(column.default),
        )
    return constant_scalar(done, "DEFAULT")


def _table_sql(
    statement: st.CreateTable, name: FullName, desc: RelationDesc, references: References
) -> str:
    parts: list[str] = []
    for spec, column in zip(statement.columns, desc.typ.columns, strict=True):
        text = f"{quoted(spec.name)} {shown_type(statement, spec.typ, column.type, references)}"
        if not column.nullable:
            text += " NOT NULL"
        if spec.default is not None:
            span = _span(spec.default, statement.source.text)
            text += " DEFAULT " + normalize_create_sql(
                statement.source.text, span, [spec.default], references
            )
        parts.append(text)
    for kind, columns, _ in statement.keys:
        if kind in _UNENFORCED:
            continue
        bare = kind.removesuffix(" NOT ENFORCED")
        parts.append(f"{bare} ({quoted_list(columns)}) NOT ENFORCED")
    table = "TEMPORARY TABLE" if statement.temporary else "TABLE"
    return f"CREATE {table} {quoted_name(name)} ({', '.join(parts)}){clause(statement.retain)}"


def _span(node: exp.Expr, text: str) -> tuple[int, int]:
    """The start and end of an expression in the text."""
    found = node.meta.get("span")
    if found is None:
        raise SqlError(f"cannot locate expression in {text[:40]!r}")
    return int(found[0]), int(found[1])


# --- views -----------------------------------------------------------------------------------------


def plan_create_view(
    statement: st.CreateView, catalog: CatalogView
) -> ddl_plans.CreateViewPlan | ddl_plans.CreateMaterializedViewPlan:
    """CREATE [MATERIALIZED] VIEW.

    Raises:
        SqlError: the query has AS OF (0A000), or its columns and their names do not fit.
        DependentObjects: OR REPLACE names a view that the query reads.
        Unsupported: the query has SHOW.
    """
    what = "materialized view" if statement.materialized else "view"
    name = new_name(catalog, statement.name, temporary=statement.temporary)
    if statement.query.as_of is not None:
        raise SqlError(f"{what}s cannot have AS OF", sqlstate="0A000")
    refuse_shows(statement.query.query)
    _refuse_parameters(statement.query.query, what)
    planner = QueryPlanner(catalog)
    query = _renamed(planner.view(statement.query.query), statement, what, name)
    _refuse_duplicate_columns(query, statement)
    if not statement.temporary:
        named = [found for _, _, found in planner.references]
        query_text = statement.query.query
        check_dependencies(what, query_text, named, catalog, planner.whole_rows)
    replaces = _replaced(statement, catalog, what) if statement.or_replace else None
    if replaces is not None and any(found == name for _, _, found in planner.references):
        raise DependentObjects(
            f"cannot replace {what} {name}: depended upon by new {name} definition",
            position=statement.name.position,
        )
    body = normalize_create_sql(
        statement.source.text,
        statement.query.span,
        [statement.query.query],
        planner.references,
    )
    columns = f" ({quoted_list(statement.columns)})" if statement.columns else ""
    if not statement.materialized:
        view = "TEMPORARY VIEW" if statement.temporary else "VIEW"
        sql = f"CREATE {view} {quoted_name(name)}{columns} AS {body}"
        types = planner.types.used
        return ddl_plans.CreateViewPlan(
            name=name,
            query=query,
            create_sql=sql,
            if_not_exists=statement.if_not_exists,
            replaces=replaces,
            types=types,
        )
    cluster = cluster_name(catalog, statement.cluster)
    not_null = _asserted(statement, query)
    query = _asserting(query, not_null)
    refresh = refresh_options(statement, catalog)
    retain = option(statement.options)
    wanted = [f"ASSERT NOT NULL {quoted(query.desc.names[c])}" for c in not_null]
    kept = "" if retain is None else f", {shown(retain)}"
    before = (
        f"CREATE MATERIALIZED VIEW {quoted_name(name)}{columns} IN CLUSTER {quoted(cluster)}"
        f" WITH ({''.join(f'{one}, ' for one in wanted)}"
    )
    after = f"{kept}) AS {body}"
    sql = f"{before}{shown_unscheduled(refresh)}{after}"
    return ddl_plans.CreateMaterializedViewPlan(
        name=name,
        query=query,
        cluster=cluster,
        create_sql=sql,
        if_not_exists=statement.if_not_exists,
        replaces=replaces,
        not_null=not_null,
        retain_ms=None if retain is None else retained_ms(retain),
        refresh=ddl_plans.RefreshOptions(refresh, before, after) if refresh else None,
        types=planner.types.used,
    )


def _refuse_parameters(query: exp.Expr, what: str) -> None:
    found = query.find(exp.Parameter, exp.Placeholder)
    if found is not None:
        raise SqlError(
            f"{what}s cannot have parameters", position=position_of(found), sqlstate="42P02"
        )


def _counted(columns: Sequence[str]) -> str:
    return f"{len(columns)} column{'' if len(columns) == 1 else 's'}"


def _renamed(query: hir.Query, statement: st.CreateView, what: str, name: FullName) -> hir.Query:
    given = statement.columns
    if not given:
        return query
    names = query.desc.names
    if len(given) > len(names):
        whole = f"{what} {name}"
        raise SqlSyntaxError(
            f"{whole} definition names {_counted(given)}, but {whole} has {_counted(names)}",
            position=statement.name.position,
        )
    desc = RelationDesc((*given, *names[len(given) :]), query.desc.typ)
    return msgspec.structs.replace(query, desc=desc)


def _refuse_duplicate_columns(query: hir.Query, statement: st.CreateView) -> None:
    seen: set[str] = set()
    for name in query.desc.names:
        if name in seen:
            raise SqlError(
                f"column {quoted(name)} specified more than once",
                position=statement.name.position,
                hint="Give each column of the query a name of its own.",
                sqlstate="42701",
            )
        seen.add(name)


def _replaced(statement: st.CreateView, catalog: CatalogView, what: str) -> CatalogItem | None:
    found = find_item(catalog, statement.name)
    if found is None:
        return None
    if found.kind != what.replace(" ", "-"):
        raise SqlError(
            f"{found.name} is not a {what}", position=statement.name.position, sqlstate="42809"
        )
    return found


def _asserted(statement: st.CreateView, query: hir.Query) -> tuple[int, ...]:
    found: list[int] = []
    for kind, column in statement.options:
        if kind == OPTION:
            continue
        if column not in query.desc.names:
            raise UndefinedColumn(
                f'column "{column}" in ASSERT NOT NULL option not found',
                position=statement.name.position,
            )
        index = query.desc.names.index(column)
        if index in found:
            raise SqlSyntaxError(
                f'duplicate column "{column}" in non-null assertions',
                position=statement.name.position,
            )
        found.append(index)
    return tuple(found)


def _asserting(query: hir.Query, not_null: tuple[int, ...]) -> hir.Query:
    """A view's query that fails for a row with NULL in a column with ASSERT NOT NULL."""
    if not not_null:
        return query
    columns = list(query.desc.typ.columns)
    checked: list[hir.Scalar] = []
    for index in not_null:
        column, typ = hir.Column(index), columns[index].type
        failure = LiteralError(f'column "{query.desc.names[index]}" must not be null', typ)
        checked.append(hir.If(hir.Call("is_null", (column,), BOOLEAN), failure, column))
        columns[index] = ColumnType(typ, False)
    place = {index: len(columns) + n for n, index in enumerate(not_null)}
    outputs = tuple(place.get(index, index) for index in range(len(columns)))
    relation = hir.Project(hir.Map(query.relation, tuple(checked)), outputs)
    desc = RelationDesc(query.desc.names, RelationType(tuple(columns)))
    return msgspec.structs.replace(query, relation=relation, desc=desc, input_types=tuple(columns))


# --- indexes ---------------------------------------------------------------------------------------


def plan_create_index(statement: st.CreateIndex, catalog: CatalogView) -> ddl_plans.CreateIndexPlan:
    """CREATE INDEX; without a name it gets Materialize's, such as ``t_a_idx`` or ``t_primary_idx``.

    Raises:
        SqlError: the object has no columns (42809).
    """
    on = item_named(catalog, statement.on)
    if on.desc is None:
        raise SqlError(
            f"index cannot be created on {on.name} because it is {on.described}",
            position=statement.on.position,
            sqlstate="42809",
        )
    cluster = cluster_name(catalog, statement.cluster)
    items = tuple(
        ScopeItem(n, (on.name.item,), c)
        for n, c in zip(on.desc.names, on.desc.typ.columns, strict=True)
    )
    planner = QueryPlanner(catalog)
    if statement.keys is None:
        keys: tuple[Scalar, ...] = tuple(Column(c) for c in default_key(on.desc.typ))
    else:
        ctx = ExprContext(planner, Scope(items), "CREATE INDEX")
        keys = tuple(_index_key(ctx, node, on) for node in statement.keys)
    name = _index_name(statement, catalog, on, keys)
    names = planner.references
    columns = ", ".join(_shown_key(statement, i, on, key, names) for i, key in enumerate(keys))
    sql = f"CREATE INDEX {quoted(name.item)} IN CLUSTER {quoted(cluster)} ON {quoted_name(on.name)} ({columns})"
    return ddl_plans.CreateIndexPlan(
        name=name,
        on=on,
        keys=keys,
        cluster=cluster,
        create_sql=sql + clause(statement.retain),
        if_not_exists=statement.if_not_exists,
        retain_ms=None if statement.retain is None else retained_ms(statement.retain),
        types=planner.types.used,
    )


def _index_key(ctx: ExprContext, node: exp.Expr, on: CatalogItem) -> Scalar:
    assert on.desc is not None
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
        # A number is an ordinal, as in GROUP BY.
        ordinal = int(str(node.this))
        if not 1 <= ordinal <= on.desc.arity:
            raise SqlSyntaxError(
                f"column reference {ordinal} in CREATE INDEX is out of range (1 - {on.desc.arity})",
                position=position_of(node),
            )
        return Column(ordinal - 1)
    return plain_scalar(settle(ctx.plan(node)).expr, "CREATE INDEX")


def default_key(typ: RelationType) -> tuple[int, ...]:
    """The columns of a default index: the shortest unique key, else all columns (also where there is at most one row)."""
    shortest = min(typ.keys, key=lambda key: (len(key), key), default=())
    return shortest or tuple(range(typ.arity))


def _index_name(
    statement: st.CreateIndex, catalog: CatalogView, on: CatalogItem, keys: tuple[Scalar, ...]
) -> FullName:
    """The index's full name, in the schema of the relation that it is on."""
    schema, database = on.name.schema, on.name.database
    if statement.name is not None:
        if statement.name.partial.schema is not None:
            return new_name(catalog, statement.name)
        return FullName(database, schema, statement.name.partial.item)
    assert on.desc is not None
    middle = (
        "primary"
        if statement.keys is None
        else "_".join(on.desc.names[k.index] if isinstance(k, Column) else "expr" for k in keys)
    )
    base = f"{on.name.item}_{middle}_idx"
    candidate, number = base, 0
    while catalog.resolve_item(PartialName(candidate, schema, database)) is not None:
        number += 1
        candidate = f"{base}{number}"
    return FullName(database, schema, candidate)


def _shown_key(
    statement: st.CreateIndex, i: int, on: CatalogItem, key: Scalar, references: References
) -> str:
    assert on.desc is not None
    if isinstance(key, Column):
        return quoted(on.desc.names[key.index])
    assert statement.keys is not None
    node = statement.keys[i]
    return normalize_create_sql(
        statement.source.text, _span(node, statement.source.text), [node], references
    )


# --- drop ------------------------------------------------------------------------------------------


def plan_drop(statement: st.Drop, catalog: CatalogView) -> ddl_plans.DropPlan:
    """DROP."""
    items: list[CatalogItem] = []
    missing: list[str] = []
    for name in statement.names:
        found = target_item(catalog, statement.kind, name, "remove", if_exists=statement.if_exists)
        if found is None:
            missing.append(str(name))
        elif found not in items:
            items.append(found)
    return ddl_plans.DropPlan(statement.kind, tuple(items), tuple(missing), statement.cascade)


#: The planners of this family. CREATE TABLE's is asked for by name: it takes a setting.
PLANNERS: Planners = {
    st.CreateView: plan_create_view,
    st.CreateIndex: plan_create_index,
    st.CreateType: plan_create_type,
    st.Drop: plan_drop,
}
