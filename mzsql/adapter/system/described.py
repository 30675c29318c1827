"""Types and index keys as the system catalog shows them."""

from __future__ import annotations

import re

from mzsql.catalog.objects import Index, RelationItem
from mzsql.catalog.state import CatalogState
from mzsql.explain.scalars import ScalarPrinter
from mzsql.repr.types import SqlType, type_name


def column_type_name(typ: SqlType) -> str:
    """A column's type name without modifiers; a list, map or record is named by its kind only."""
    if typ.kind in ("list", "map", "record"):
        return typ.kind
    if typ.kind == "array" and typ.element is not None:
        return f"{column_type_name(typ.element)}{'' if typ.element.kind == 'array' else '[]'}"
    return re.sub(r"\([^)]*\)", "", type_name(typ))


def key_texts(index: Index, state: CatalogState) -> list[str]:
    """The texts of an index's key expressions, with columns by name."""
    on = state.items.get(index.on_id)
    names = on.desc.names if isinstance(on, RelationItem) else ()
    printer = ScalarPrinter()
    texts = []
    for expr in index.key:
        text = printer.scalar(expr)
        texts.append(
            re.sub(r"#(\d+)", lambda m: names[int(m[1])] if int(m[1]) < len(names) else m[0], text)
        )
    return texts
