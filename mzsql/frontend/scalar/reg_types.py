"""``regclass``, ``regtype`` and ``regproc``: OIDs of catalog objects, written and shown as names.

Promise: a constant name is looked up while the statement is planned, as a name in FROM would be; a relation's name that
comes from rows is looked up at run time. An unknown one fails with ``relation "x" does not exist``; a function with
several overloads has no OID by its name. ``-`` is no object. As a text, an OID becomes the shortest name by which the
session finds the object.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal
from mzsql.frontend.catalog import PartialName
from mzsql.frontend.names.types import resolve_type
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.parse import parse_statements
from mzsql.frontend.parse.pieces import fold, without_places
from mzsql.frontend.scalar.coerce import Typed
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.function_catalog import function_names, function_numbers
from mzsql.frontend.scalar.nodes import position_of
from mzsql.frontend.scalar.qualified import schemas_of
from mzsql.frontend.scalar.system_functions import FOUND, planned
from mzsql.repr import types as t
from mzsql.repr.errors import (
    SqlError,
    UndefinedFunction,
    UndefinedObject,
    UndefinedTable,
    Unsupported,
    alike,
)
from mzsql.repr.ids import oid
from mzsql.repr.type_oids import type_oid
from mzsql.repr.types import REGISTERED, SqlType

_STRINGS = frozenset({"unknown", "text", "varchar", "char"})
_FOUND = FOUND.format(schema="o.schema_name", database="o.database_name")
_TO_TEXT = {
    "regclass": f"""
        CASE WHEN $1 IS NOT NULL THEN coalesce(
            (SELECT CASE WHEN {_FOUND} THEN '' ELSE quote_ident(o.schema_name) || '.' END
                 || quote_ident(o.relname)
             FROM mz_internal.mz_pg_class AS o
             WHERE o.oid = $1 LIMIT 1),
            CASE WHEN $1 = 0 THEN '-' ELSE $1::text END) END""",
    "regtype": f"""
        coalesce(
            mz_internal.mz_type_name($1),
            (SELECT CASE WHEN {_FOUND} THEN '' ELSE quote_ident(o.schema_name) || '.' END
                 || quote_ident(o.typname)
             FROM mz_internal.mz_pg_type AS o
             WHERE o.oid = $1 LIMIT 1),
            CASE WHEN $1 = 0 THEN '-' ELSE $1::text END)""",
    "regproc": """
        CASE WHEN $1 IS NOT NULL THEN coalesce(
            (SELECT CASE WHEN (SELECT count(*) FROM mz_catalog.mz_functions AS other WHERE other.name = f.name) = 1
                    THEN '' ELSE quote_ident(s.name) || '.' END || quote_ident(f.name)
             FROM mz_catalog.mz_functions AS f JOIN mz_catalog.mz_schemas AS s ON s.id = f.schema_id
             WHERE f.oid = $1 LIMIT 1),
            CASE WHEN $1 = 0 THEN '-' ELSE $1::text END) END""",
}


#: The relation or index for a name that comes from rows, as the session finds it.
_CLASS_NAMED = f"""
    CASE WHEN $1 IS NULL THEN NULL WHEN $1 = '-' THEN 0::oid WHEN $1 ~ '^[0-9]+$' THEN $1::oid ELSE coalesce(
        (SELECT o.oid
         FROM mz_internal.mz_pg_class AS o
         WHERE o.relname = (parse_ident($1))[array_length(parse_ident($1), 1)]
             AND CASE WHEN array_length(parse_ident($1), 1) > 1
                 THEN o.schema_name = (parse_ident($1))[array_length(parse_ident($1), 1) - 1]
                 ELSE {_FOUND} END
         LIMIT 1),
        CASE WHEN mz_internal.mz_raise_if(
            $1 IS NOT NULL, 'relation "' || array_to_string(parse_ident($1), '.') || '" does not exist') THEN NULL::oid END
    ) END::regclass"""


def registered_cast(
    ctx: ExprContext, node: exp.Expr, value: Typed, target: SqlType
) -> Typed | None:
    """An explicit cast between a name and such an OID; None where the cast is another one.

    Raises:
        UndefinedTable, UndefinedObject: nothing has the name.
        Unsupported: the name is not a constant.
    """
    position = position_of(node)
    if value.typ.kind in REGISTERED and target.kind == "text":
        return planned(ctx, _TO_TEXT[value.typ.kind], [node.this], [t.OID])
    if target.kind not in REGISTERED or value.typ.kind not in _STRINGS:
        return None
    if not isinstance(value.expr, Literal) and target.kind == "regclass":
        return planned(ctx, _CLASS_NAMED, [node.this], [t.TEXT])
    if not isinstance(value.expr, Literal):
        raise Unsupported(
            f"casting a text that is not a constant to {target.kind} is not supported",
            position=position,
        )
    if value.expr.value is None:
        return Typed(Literal(None, target), target, True)
    text = str(value.expr.value)
    if text == "-":
        text = "0"
    number = int(text) if text.isdigit() else _number(ctx, text, target, position)
    return Typed(Literal(number, target), target, False)


def _number(ctx: ExprContext, text: str, target: SqlType, position: int | None) -> int:
    if target.kind == "regtype":
        return _type_number(ctx, text, position)
    parts = _name_parts(text)
    if target.kind == "regproc":
        return _function_number(parts, text, position)
    item = None
    if parts is not None:
        item = ctx.planner.catalog.resolve_item(PartialName(*reversed(parts)))
    if item is None:
        shown = text if parts is None else ".".join(parts)
        like = (
            None if parts is None else ctx.planner.catalog.item_like(PartialName(*reversed(parts)))
        )
        raise UndefinedTable(
            f'relation "{shown}" does not exist',
            position=position,
            hint=None if like is None else f"Perhaps you meant {like}.",
        )
    return oid(item.id)


def _function_number(parts: list[str] | None, text: str, position: int | None) -> int:
    schema, name = ([None, *parts] if parts else [None, text])[-2:]
    named = [
        number
        for number, one in function_numbers()
        if one.name == name and (schema is None or schema in schemas_of(one.name))
    ]
    if not named:
        shown = text if parts is None else ".".join(parts)
        raise UndefinedFunction(
            f'function "{shown}" does not exist',
            position=position,
            hint=alike(name or "", function_names()),
        )
    if len(named) > 1:
        raise SqlError(
            f'more than one function named "{name}"', position=position, sqlstate="42725"
        )
    return named[0]


def _name_parts(text: str) -> list[str] | None:
    """The parts of a dotted name in a text; None where the text is no name."""
    found = _selected(text)
    if not isinstance(found, exp.Column) or len(found.parts) > 3:
        return None
    return [fold(part) for part in found.parts]


def _type_number(ctx: ExprContext, text: str, position: int | None) -> int:
    cast = _selected(f"CAST(NULL AS {text})")
    try:
        if isinstance(cast, exp.Cast):
            typ = resolve_type(cast.args["to"], ctx.planner.types)
            return type_oid(typ) if typ.custom_id is None else oid(typ.custom_id)
    except SqlError as failure:
        # Whatever is wrong with it: there is no type of this name.
        hint = failure.hint
    else:
        hint = None
    raise UndefinedObject(f'type "{text}" does not exist', position=position, hint=hint)


def _selected(text: str) -> exp.Expr | None:
    """The only expression in a text; None where it is not one expression."""
    try:
        statements = parse_statements(f"SELECT {text}")
    except SqlError:
        return None
    if len(statements) != 1 or not isinstance(statements[0], st.Select):
        return None
    query = statements[0].query
    return without_places(query.expressions[0]) if len(query.expressions) == 1 else None
