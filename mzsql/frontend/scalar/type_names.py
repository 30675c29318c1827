"""The names of types where the catalog is at hand: `pg_typeof`.

Promise: a type that a user created is shown by its present name, without the schema where the session finds it without.
"""

from __future__ import annotations

from mzsql.frontend.catalog import CatalogView, PartialName
from mzsql.frontend.scalar.typed import plain_name
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import SqlType


def shown(catalog: CatalogView, typ: SqlType) -> str:
    """A type's name as a statement would write it."""
    if typ.custom_id is not None:
        name = catalog.item(GlobalId(typ.custom_id)).name
        seen = catalog.resolve_item(PartialName(name.item))
        if seen is not None and seen.name == name:
            return name.item
        return f"{name.schema}.{name.item}"
    match typ.kind, typ.element:
        case "list", SqlType() as element:
            return f"{shown(catalog, element)} list"
        case "map", SqlType() as element:
            return f"map[text=>{shown(catalog, element)}]"
        case "record", _:
            fields = (
                f"{name}: {shown(catalog, column.type)}{'?' if column.nullable else ''}"
                for name, column in typ.fields
            )
            return f"record({','.join(fields)})"
        case "array", SqlType() as element:
            inside = shown(catalog, element)
            return inside if element.kind == "array" else f"{inside}[]"
        case _:
            return plain_name(typ)
