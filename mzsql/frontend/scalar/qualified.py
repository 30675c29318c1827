"""Functions called with a schema: ``pg_catalog.abs(x)``, ``materialize.mz_catalog.list_length(l)``.

Promise: a function is in the schema that Materialize has it in, PostgreSQL's own in ``pg_catalog``. An unknown
database, an unknown schema and a function that is not in the schema have errors of their own.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.expr.functions import nearest_function
from mzsql.frontend.catalog import CatalogView
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.repr.errors import SqlSyntaxError, UndefinedFunction, UndefinedObject, Unsupported, alike

#: Materialize's own functions whose names do not begin with ``mz_``.
_MZ_CATALOG = frozenset(
    {
        "concat_agg",
        "constant_time_eq",
        "csv_extract",
        "kafka_murmur2",
        "pretty_sql",
        "regexp_extract",
        "repeat_row",
        "seahash",
        "timezone_offset",
        "try_parse_monotonic_iso8601_timestamp",
    }
)
_OWN_PREFIXES = ("mz_", "list_", "map_")
_MZ_INTERNAL = frozenset(
    {
        *(
            "is_rbac_enabled",
            "make_mz_aclitem",
            "mz_mode",
            "mz_raise_if",
            "mz_setting",
            "mz_type_name",
        ),
        *("mz_schemas_of_session", "mz_schemas_of_path", "mz_introspected_replica"),
        "mz_viewable_variables",
    }
)
_INFORMATION_SCHEMA = frozenset({"_pg_expandarray"})
#: Functions that only plans use: their calls are written as operators, subscripts, tests, or not at all.
PLANS_ONLY = frozenset(
    {
        *("and", "array_accumulated", "array_get", "array_item", "array_slice", "is_false", "is_null", "is_true"),
        *("list_get", "list_item", "list_slice", "not", "or", "record_get"),
    }
)  # fmt: skip
#: Functions in both schemas.
_BOTH = frozenset(
    {"crc32", "date_bin_hopping", "datediff", "starts_with", "unnest", "uuid_generate_v5"}
)


def schemas_of(name: str) -> tuple[str, ...]:
    """The schemas that a function is in."""
    if name in _MZ_INTERNAL:
        return ("mz_internal",)
    if name in _INFORMATION_SCHEMA:
        return ("information_schema",)
    if name in _BOTH:
        return ("pg_catalog", "mz_catalog")
    if name in _MZ_CATALOG or name.startswith(_OWN_PREFIXES):
        return ("mz_catalog", "mz_internal") if name.startswith("mz_") else ("mz_catalog",)
    return ("pg_catalog",)


def names(node: exp.Expr) -> list[str]:
    """The parts of a dotted name, from left to right."""
    if isinstance(node, exp.Dot):
        return [*names(node.this), *names(node.expression)]
    if isinstance(node, exp.Column):
        return [fold(part) for part in node.parts]
    return [fold(node)]


def bare(node: exp.Expr) -> exp.Expr:
    """The call itself, without FILTER, OVER and the like."""
    while isinstance(node, exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    return node


def unqualified(catalog: CatalogView, node: exp.Dot) -> exp.Expr:
    """The call without its schema; FILTER, OVER and the like stay.

    Raises:
        UndefinedObject: ``unknown database 'x'``, ``unknown schema 'x'``.
        UndefinedFunction: ``function "mz_catalog.abs" does not exist``.
    """
    position = position_of(node)
    *databases, schema = names(node.this)
    if len(databases) > 1:
        raise SqlSyntaxError(
            f"qualified name did not have between 1 and 3 components: {'.'.join([*databases, schema])}",
            position=position,
        )
    for database in databases:
        if not catalog.has_database(database):
            raise UndefinedObject(
                f"unknown database '{database}'",
                position=position,
                hint=alike(database, catalog.database_names()),
                sqlstate="3D000",
            )
    if not (
        catalog.has_schema(None, schema)
        or catalog.has_schema(databases[0] if databases else catalog.database, schema)
    ):
        known = catalog.schema_names(databases[0] if databases else catalog.database)
        raise UndefinedObject(
            f"unknown schema '{schema}'",
            position=position,
            hint=alike(schema, known),
            sqlstate="3F000",
        )
    if schema == "mz_unsafe":
        raise Unsupported("executing potentially dangerous functions is not supported")
    call: exp.Expr = node.expression
    if schema not in schemas_of(function_name(bare(call))):
        raise missing(node)
    return call


def missing(node: exp.Dot) -> UndefinedFunction:
    """The error for a function that its schema does not have."""
    schema, name = names(node.this)[-1], function_name(bare(node.expression))
    near = nearest_function(name)
    return UndefinedFunction(
        f'function "{schema}.{name}" does not exist',
        position=position_of(node),
        hint=None if near is None else f'Perhaps you meant "{schemas_of(near)[0]}"."{near}".',
    )
