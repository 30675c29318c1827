"""CREATE TYPE, and types as definitions write them.

Promise: a created type is a name for a list, a map or a record; its parts are resolved when it is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sqlglot import expressions as exp

from mzsql.frontend.catalog import CatalogView, FullName
from mzsql.frontend.definitions.normalize import normalize_create_sql, quoted, quoted_name
from mzsql.frontend.definitions.shown_sql import written_type
from mzsql.frontend.names.items import new_name
from mzsql.frontend.names.named_types import NamedTypes
from mzsql.frontend.names.types import resolve_type
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan import ddl_plans
from mzsql.repr.errors import SqlSyntaxError, Unsupported
from mzsql.repr.types import CHAR, ColumnType, SqlType, type_name

#: The catalog's names in a text: start, end, full name.
References: TypeAlias = Sequence[tuple[int, int, FullName]]


def plan_create_type(statement: st.CreateType, catalog: CatalogView) -> ddl_plans.CreateTypePlan:
    """The plan of CREATE TYPE: the new type, and the types that it is made of.

    Raises:
        UndefinedObject: one of them does not exist.
        Unsupported: one of them cannot be part of another.
    """
    name = new_name(catalog, statement.name)
    named = NamedTypes(catalog)

    def resolved(node: exp.DataType) -> tuple[SqlType, str]:
        typ = resolve_type(node, named)
        return typ, shown_type(statement, node, typ, named.references)

    _refuse_unnamed(statement)
    if statement.kind == "record":
        typ, body = _record(statement, [resolved(node) for _, _, node in statement.fields])
    else:
        assert statement.element is not None
        element, shown = resolved(statement.element)
        if element.kind == "char":
            raise Unsupported("embedding char type in a list or map not yet supported")
        typ = SqlType(statement.kind, element=element)
        body = f"LIST (ELEMENT TYPE = {shown})"
        if statement.kind == "map":
            assert statement.key is not None
            key, _ = resolved(statement.key)
            if key.kind != "text":
                raise SqlSyntaxError(f"map key type must be text, got {key}")
            body = f"MAP (KEY TYPE = text, VALUE TYPE = {shown})"
    sql = f"CREATE TYPE {quoted_name(name)} AS {body}"
    return ddl_plans.CreateTypePlan(name=name, typ=typ, create_sql=sql, types=named.used)


def _refuse_unnamed(statement: st.CreateType) -> None:
    """Refuse a type made of an unnamed list or map, or of char, which Materialize does not have either."""
    kind = "" if statement.kind == "record" else f"{statement.kind.upper()} "
    parts = [(name, node) for name, _, node in statement.fields]
    if statement.element is not None:
        parts = [("ELEMENT TYPE" if statement.key is None else "VALUE TYPE", statement.element)]
    if statement.key is not None:
        parts.insert(0, ("KEY TYPE", statement.key))
    for option, node in parts:
        if node.this in (exp.DType.LIST, exp.DType.MAP):
            raise SqlSyntaxError(
                f"CREATE TYPE ... AS {kind}option {option} can only use named data types, "
                f"but found unnamed data type {_unnamed(node)}. "
                "Use CREATE TYPE to create a named type first"
            )


def _unnamed(node: exp.DataType) -> str:
    """A type by the names of its parts, with their schemas."""
    return written_type(node).replace('"', "").replace("MAP[", "map[")


def _record(statement: st.CreateType, types: list[tuple[SqlType, str]]) -> tuple[SqlType, str]:
    names = [name for name, _, _ in statement.fields]
    for i, (name, position, _) in enumerate(statement.fields):
        if name in names[:i]:
            raise SqlSyntaxError(
                f'column "{name}" specified more than once', position=position, sqlstate="42701"
            )
    fields = tuple((name, ColumnType(typ)) for name, (typ, _) in zip(names, types, strict=True))
    body = ", ".join(f"{quoted(n)} {shown}" for n, (_, shown) in zip(names, types, strict=True))
    return SqlType("record", fields=fields), f"({body})"


def _of_bpchar(typ: SqlType) -> bool:
    """Whether a type is ``bpchar`` of any length, or made of it: it has the name of ``char(1)``, which is another."""
    return typ == CHAR or (typ.element is not None and _of_bpchar(typ.element))


def shown_type(
    statement: st.Statement, node: exp.DataType, typ: SqlType, references: References
) -> str:
    """A type as a definition writes it: as written by the user where that names a user-created type, with its full
    name.
    """
    start, end = node.meta["span"]
    said = [str(p.this.name) for p in node.expressions if isinstance(p, exp.DataTypeParam)]
    if typ.kind == "numeric" and said:
        # The type only stores the scale, so take the precision from the text.
        return f"numeric({','.join(said)})"
    if not (any(start <= first < end for first, _, _ in references) or _of_bpchar(typ)):
        return type_name(typ)
    return normalize_create_sql(statement.source.text, (start, end), [], references)
