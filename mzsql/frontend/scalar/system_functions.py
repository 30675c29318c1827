"""Functions that read the catalog: ``pg_get_viewdef(oid)``, ``format_type(oid, integer)``, ``has_table_privilege(…)``.

Promise: each is an SQL expression over system relations that replaces its call, so it reads at the statement's
timestamp, and joins, folds and explains as any subquery does. Arguments are computed in the scope of the call, whatever
names the definition uses. The trade-off: a call over many rows is a join with the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.frontend.scalar.absent_functions import ABSENT_FUNCTIONS
from mzsql.frontend.scalar.acl_functions import ACL_FUNCTIONS
from mzsql.frontend.scalar.coerce import NO_OVERLOAD, NOT_UNIQUE, Typed, plain_name, resolve
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.defined import Defined, filled, written_type
from mzsql.frontend.scalar.defined import asking as _asking
from mzsql.frontend.scalar.defined import overloads as _overloads
from mzsql.frontend.scalar.held_privileges import held, held_on_columns
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.frontend.scalar.sql_functions import SQL_FUNCTIONS
from mzsql.repr import types as t
from mzsql.repr.errors import UndefinedFunction
from mzsql.repr.types import SqlType

_ARGUMENTS = "mz_arguments"


_TEXT, _OID, _INT, _BOOL = t.TEXT, t.OID, t.INTEGER, t.BOOLEAN

#: The text of a type's modifier: scale, length, or fractional seconds.
_MODIFIER = """
    CASE
        WHEN $2 IS NULL OR $2 < 0 THEN ''
        WHEN $1 IN (1042, 1043, 1014, 1015) AND $2 >= 4 THEN '(' || ($2 - 4)::text || ')'
        WHEN $1 IN (1700, 1231) AND $2 >= 4
            THEN '(' || (($2 - 4) / 65536)::text || ',' || (($2 - 4) % 65536)::text || ')'
        WHEN $1 IN (1042, 1043, 1014, 1015, 1700, 1231, 1186, 1187) THEN ''
        -- Types whose names are words of SQL's own grammar have none.
        WHEN $1 IN (16, 20, 21, 23, 700, 701, 1000, 1016, 1005, 1007, 1021, 1022) THEN ''
        ELSE '(' || $2::text || ')'
    END"""
_NAME = "mz_internal.mz_type_name($1)"
_FORMAT_TYPE = f"""
    CASE
        WHEN $1 = 0 THEN '-'
        WHEN $1 IS NULL THEN NULL
        WHEN {_NAME} IS NULL THEN '???'
        WHEN {_NAME} LIKE 'timestamp%' AND $2 >= 0 THEN replace({_NAME}, 'timestamp', 'timestamp(' || $2::text || ')')
        WHEN {_NAME} LIKE '%[]' THEN left({_NAME}, -2) || {_MODIFIER} || '[]'
        ELSE {_NAME} || {_MODIFIER}
    END"""
#: Whether an object is found without its schema's name, given its schema and database.
FOUND = "{schema} = ANY (pg_catalog.current_schemas(true)) AND coalesce({database} = current_database(), true)"
_VISIBLE = f"""(
    SELECT {FOUND.format(schema="o.schema_name", database="o.database_name")}
    FROM mz_internal.{{relation}} AS o
    WHERE o.oid = $1 LIMIT 1)"""
_FUNCTION_VISIBLE = """(
    SELECT s.name = ANY (pg_catalog.current_schemas(true))
    FROM mz_catalog.mz_functions AS o
    JOIN mz_catalog.mz_schemas AS s ON s.id = o.schema_id
    WHERE o.oid = $1 LIMIT 1)"""
_INDEX_TEXT = (
    "'CREATE INDEX ' || quote_ident(index_name) || ' ON ' || quote_ident(relation_name)"
    " || ' USING arrangement (' || array_to_string(keys, ', ') || ')'"
)
_INDEX = f"(SELECT {_INDEX_TEXT} FROM mz_internal.mz_pg_index WHERE indexrelid = $1)"
_FUNCTION_ARGUMENTS = """CASE WHEN EXISTS (SELECT FROM mz_catalog.mz_functions WHERE oid = $1) THEN (
    SELECT coalesce(string_agg(pg_catalog.format_type(t.oid, NULL), ', ' ORDER BY a.place), '')
    FROM (
        SELECT unnest(f.argument_type_ids) AS id, generate_subscripts(f.argument_type_ids, 1) AS place
        FROM mz_catalog.mz_functions AS f WHERE f.oid = $1
    ) AS a JOIN mz_catalog.mz_types AS t ON t.id = a.id) END"""


#: The relation for a name: without a schema, the first one in the session's path.
_NAMED_RELATION = """(
    SELECT o.oid::regclass
    FROM mz_internal.mz_pg_class AS o
    WHERE o.relname = (parse_ident($1))[cardinality(parse_ident($1))]
        AND CASE cardinality(parse_ident($1))
            WHEN 1 THEN array_position(pg_catalog.current_schemas(true), o.schema_name) IS NOT NULL
                AND coalesce(o.database_name, current_database()) = current_database()
            WHEN 2 THEN o.schema_name = (parse_ident($1))[1] AND coalesce(o.database_name, current_database()) = current_database()
            WHEN 3 THEN o.schema_name = (parse_ident($1))[2] AND o.database_name = (parse_ident($1))[1]
            ELSE false END
    ORDER BY array_position(pg_catalog.current_schemas(true), o.schema_name) LIMIT 1)"""
_COMMENT = """(
    SELECT description FROM pg_catalog.pg_description
    WHERE objoid = $1 AND objsubid = {part} {which} LIMIT 1)"""
_CLASS = """AND classoid = (
        SELECT oid FROM mz_catalog.mz_objects
        WHERE name = $2 AND schema_id = (SELECT id FROM mz_catalog.mz_schemas WHERE name = 'pg_catalog'))"""

#: The bytes of what a database's tables and materialized views store; NULL for a database that there is not.
_DATABASE_SIZE = """(SELECT coalesce(sum(u.size_bytes), 0)::bigint
    FROM mz_catalog.mz_databases AS d
    LEFT JOIN mz_catalog.mz_schemas AS s ON s.database_id = d.id
    LEFT JOIN mz_catalog.mz_objects AS o ON o.schema_id = s.id
    LEFT JOIN mz_catalog.mz_recent_storage_usage AS u ON u.object_id = o.id
    WHERE d.{column} = $1 GROUP BY d.id)"""

#: The whole name of what has an id; an error of one that nothing has.
_NAME_OF_ID = """CASE WHEN $1 IS NOT NULL THEN coalesce(
    (SELECT CASE WHEN o.database_name IS NULL THEN '' ELSE quote_ident(o.database_name) || '.' END
        || quote_ident(o.schema_name) || '.' || quote_ident(o.name)
     FROM mz_internal.mz_object_fully_qualified_names AS o WHERE o.id = $1 LIMIT 1),
    CASE WHEN mz_internal.mz_raise_if(true, 'global ID ' || $1 || ' does not exist') THEN NULL END) END"""


def _number_of(noun: str, relation: str, column: str = "oid", kind: str = "oid") -> str:
    """The number of what has a name; an error of a name that nothing has."""
    message = f"""'{noun} "' || $1 || '" does not exist'"""
    return f"""CASE WHEN $1 IS NOT NULL THEN coalesce(
        (SELECT o.{column} FROM mz_catalog.{relation} AS o WHERE o.name = $1 LIMIT 1),
        CASE WHEN mz_internal.mz_raise_if(true, {message}) THEN NULL::{kind} END) END"""


DEFINITIONS: Mapping[str, tuple[Defined, ...]] = {
    **SQL_FUNCTIONS,
    **ACL_FUNCTIONS,
    **ABSENT_FUNCTIONS,
    "format_type": _overloads(_FORMAT_TYPE, (_OID, _INT)),
    "pg_get_userbyid": _overloads(
        "CASE WHEN $1 IS NOT NULL THEN coalesce((SELECT name FROM mz_catalog.mz_roles WHERE oid = $1),"
        " 'unknown (OID=' || $1::text || ')') END",
        (_OID,),
    ),
    "pg_get_viewdef": (
        *_overloads(
            "(SELECT definition FROM pg_catalog.pg_views WHERE viewname = $1 LIMIT 1)",
            (_TEXT,),
            (_TEXT, _BOOL),
        ),
        *_overloads(
            "(SELECT definition FROM mz_catalog.mz_views WHERE oid = $1"
            " UNION ALL SELECT definition FROM mz_catalog.mz_materialized_views WHERE oid = $1)",
            (_OID,),
            (_OID, _BOOL),
            (_OID, _INT),
        ),
    ),
    "pg_get_constraintdef": _overloads("NULL::text", (_OID,), (_OID, _BOOL)),
    # Defaults are stored in readable form already.
    "pg_get_expr": _overloads("$1", (_TEXT, _OID), (_TEXT, _OID, _BOOL)),
    "pg_get_indexdef": (
        *_overloads(_INDEX, (_OID,)),
        *_overloads(
            f"(SELECT CASE WHEN $2 = 0 THEN {_INDEX_TEXT} ELSE keys[$2] END"
            " FROM mz_internal.mz_pg_index WHERE indexrelid = $1)",
            (_OID, _INT, _BOOL),
        ),
    ),
    "pg_table_is_visible": _asking(_VISIBLE.format(relation="mz_pg_class"), (_OID,)),
    "pg_type_is_visible": _asking(_VISIBLE.format(relation="mz_pg_type"), (_OID,)),
    "pg_function_is_visible": _asking(_FUNCTION_VISIBLE, (_OID,)),
    "pg_get_function_result": _overloads(
        "(SELECT CASE WHEN f.returns_set THEN 'SETOF ' ELSE '' END || pg_catalog.format_type(t.oid, NULL)"
        " FROM mz_catalog.mz_functions AS f JOIN mz_catalog.mz_types AS t ON t.id = f.return_type_id"
        " WHERE f.oid = $1 LIMIT 1)",
        (_OID,),
    ),
    "pg_get_function_arguments": _overloads(_FUNCTION_ARGUMENTS, (_OID,)),
    "pg_get_function_identity_arguments": _overloads(_FUNCTION_ARGUMENTS, (_OID,)),
    "pg_my_temp_schema": _overloads(
        "coalesce((SELECT oid FROM mz_catalog.mz_schemas WHERE name = 'mz_temp'), 0::oid)",
        (),
        result=t.OID,
    ),
    # Nobody sees other sessions' temporary schemas, and there are no publications and no sequences.
    "pg_is_other_temp_schema": _asking("CASE WHEN $1 IS NOT NULL THEN false END", (_OID,)),
    "pg_relation_is_publishable": _asking("CASE WHEN $1 IS NOT NULL THEN false END", (_OID,)),
    "pg_database_size": tuple(
        one
        for arg, column in ((_OID, "oid"), (_TEXT, "name"))
        for one in _overloads(_DATABASE_SIZE.format(column=column), (arg,), result=t.BIGINT)
    ),
    "pg_get_statisticsobjdef_columns": _overloads("NULL::text", (_OID,)),
    "pg_get_serial_sequence": _overloads("NULL::text", (_TEXT, _TEXT)),
    "to_regtype": _overloads(
        "(SELECT t.oid::regtype FROM mz_catalog.mz_types AS t"
        " WHERE t.name = lower(btrim($1)) OR pg_catalog.format_type(t.oid, NULL) = lower(btrim($1)) LIMIT 1)",
        (_TEXT,),
        result=t.REGTYPE,
    ),
    "to_regclass": _overloads(_NAMED_RELATION, (_TEXT,), result=t.REGCLASS),
    "to_regproc": _overloads(
        "(SELECT min(f.oid)::regproc FROM mz_catalog.mz_functions AS f"
        " JOIN mz_catalog.mz_schemas AS s ON s.id = f.schema_id"
        " WHERE f.name = (parse_ident($1))[cardinality(parse_ident($1))]"
        " AND (cardinality(parse_ident($1)) = 1 OR s.name = (parse_ident($1))[1])"
        " HAVING count(*) = 1)",
        (_TEXT,),
        result=t.REGPROC,
    ),
    "obj_description": (
        *_overloads(_COMMENT.format(part=0, which=""), (_OID,)),
        *_overloads(_COMMENT.format(part=0, which=_CLASS), (_OID, _TEXT)),
    ),
    "col_description": _overloads(_COMMENT.format(part="$2", which=""), (_OID, _INT)),
    "shobj_description": _overloads(
        "(SELECT description FROM pg_catalog.pg_shdescription WHERE objoid = $1 LIMIT 1)",
        (_OID, _TEXT),
    ),
    "has_schema_privilege": held("schema"),
    "has_database_privilege": held("database"),
    "has_cluster_privilege": held("cluster"),
    "has_system_privilege": held("system"),
    "has_type_privilege": held("type"),
    "has_role": held("role"),
    "pg_has_role": held("role"),
    "has_any_column_privilege": held("column"),
    "has_column_privilege": held_on_columns(),
    "has_connection_privilege": held("connection"),
    "has_secret_privilege": held("secret"),
    "has_function_privilege": held("function"),
    "has_table_privilege": held("table"),
    "current_setting": (
        *_overloads("mz_internal.mz_setting(mz_internal.mz_viewable_variables(), $1)", (_TEXT,)),
        *_overloads(
            "CASE WHEN $2 THEN mz_internal.mz_viewable_variables() -> lower($1)"
            " ELSE mz_internal.mz_setting(mz_internal.mz_viewable_variables(), $1) END",
            (_TEXT, _BOOL),
        ),
    ),
    "current_schemas": _overloads(
        "CASE WHEN $1 THEN mz_internal.mz_schemas_of_session() || mz_internal.mz_schemas_of_path()"
        " WHEN NOT $1 THEN mz_internal.mz_schemas_of_path() END",
        (_BOOL,),
        result=SqlType("array", element=t.TEXT),
    ),
    "constant_time_eq": (
        *_asking("$1 = $2", (_TEXT, _TEXT)),
        *_asking("$1 = $2", (t.BYTEA, t.BYTEA)),
    ),
    "mz_session_id": _overloads(
        "(SELECT id FROM mz_internal.mz_sessions WHERE connection_id = pg_backend_pid() LIMIT 1)",
        (),
        result=t.UUID,
    ),
    "mz_cluster_id": _overloads(_number_of("cluster", "mz_clusters", "id", "text"), (_TEXT,)),
    **{
        f"mz_{noun}_oid": _overloads(_number_of(noun, f"mz_{noun}s"), (_TEXT,), result=_OID)
        for noun in ("connection", "database", "role", "schema", "secret")
    },
    "mz_global_id_to_name": _overloads(_NAME_OF_ID, (_TEXT,)),
    "pg_char_to_encoding": _overloads(
        "CASE WHEN $1 IS NULL THEN NULL WHEN translate(upper($1), '-_', '') IN ('UTF8', 'UNICODE') THEN 6 ELSE -1 END",
        (_TEXT,),
        result=_INT,
    ),
    "getdatabaseencoding": _overloads("'UTF8'::text", ()),
    "pg_stat_get_numscans": _overloads(
        "CASE WHEN $1 IS NOT NULL THEN -1::bigint END", (_OID,), result=t.BIGINT
    ),
}


def is_system_function(name: str) -> bool:
    """Whether a function is defined over the catalog."""
    return name in DEFINITIONS


def defines(name: str, arguments: int) -> bool:
    """Whether a call is resolved here: no other function has the name, or only a definition here takes so many
    arguments.
    """
    several = DEFINITIONS.get(name)
    if several is None:
        return False
    return (not functions.scalars_named(name) and name not in _ALSO_SPECIAL) or any(
        len(one.args) == arguments for one in several
    )


#: Functions with a syntax of their own that are also defined here, for other arguments.
_ALSO_SPECIAL = frozenset({"date_trunc"})


def plan_call(ctx: ExprContext, node: exp.Expr) -> Typed:
    """A call of one of these functions.

    Raises:
        UndefinedFunction: no overload takes these arguments.
    """
    name, given = function_name(node), list(node.expressions)
    types = [ctx.plan(argument).typ for argument in given]
    called = f"function {name}({', '.join(map(plain_name, types))})"
    try:
        chosen = resolve(DEFINITIONS[name], types)
    except UndefinedFunction:
        raise UndefinedFunction(
            f"{called} is not unique",
            position=position_of(node),
            hint=NOT_UNIQUE,
            sqlstate="42725",
        ) from None
    if chosen is None:
        raise UndefinedFunction(
            f"{called} does not exist", position=position_of(node), hint=NO_OVERLOAD
        )
    return planned(ctx, chosen.sql, given, chosen.args)


def planned(
    ctx: ExprContext, sql: str, given: Sequence[exp.Expr], types: Sequence[SqlType]
) -> Typed:
    """An SQL expression over arguments with given types, planned in the place of a call."""
    arguments = [
        exp.Cast(this=argument.copy(), to=written_type(typ))
        for argument, typ in zip(given, types, strict=True)
    ]
    inside = "SELECT" in sql
    if not inside or all(map(_is_constant, given)):
        return ctx.plan(filled(sql, arguments))
    names = [exp.to_identifier(f"argument{i}") for i in range(1, len(given) + 1)]
    table = exp.to_identifier(_ARGUMENTS)
    columns = [exp.column(name.copy(), table=table.copy()) for name in names]
    body = filled(
        sql,
        [
            argument if _is_constant(argument) else column
            for argument, column in zip(arguments, columns, strict=True)
        ],
    )
    # The arguments are columns of a subquery around the definition, so that no name in them can mean a column of its
    # relations.
    row = exp.Select(expressions=[exp.alias_(a, n) for a, n in zip(arguments, names, strict=True)])
    source = exp.Subquery(this=row, alias=exp.TableAlias(this=table))
    return ctx.plan(exp.Subquery(this=exp.Select(expressions=[body], from_=exp.From(this=source))))


def _is_constant(node: exp.Expr) -> bool:
    while isinstance(node, exp.Cast | exp.Paren | exp.Neg):
        node = node.this
    return isinstance(node, exp.Literal | exp.Null | exp.Boolean)
