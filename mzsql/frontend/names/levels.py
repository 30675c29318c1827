"""How deep a type may be: the dimensions of an array, and how many types may stand inside each other."""

from __future__ import annotations

from mzsql.repr.errors import InvalidParameter
from mzsql.repr.types import SqlType, levels

#: As many dimensions as PostgreSQL's and Materialize's arrays have.
MAX_DIMENSIONS = 6
#: How many lists, maps, records and arrays may be inside each other. A constant is a text in which each level quotes what is inside it,
#: so that it doubles with each.
MAX_LEVELS = 16


def check_dimensions(count: int) -> None:
    """Raises InvalidParameter (54000) where an array would have more dimensions than there may be."""
    if count > MAX_DIMENSIONS:
        raise InvalidParameter(
            f"number of array dimensions ({count}) exceeds the maximum allowed ({MAX_DIMENSIONS})",
            sqlstate="54000",
        )


def check_levels(typ: SqlType) -> SqlType:
    """The type, if no value of it nests too deeply.

    Raises:
        InvalidParameter: an array has more dimensions than there may be, or too many types are inside each other (54000, 54001).
    """
    dimensions, inner = 0, typ
    while inner.kind == "array" and inner.element is not None:
        dimensions, inner = dimensions + 1, inner.element
    check_dimensions(dimensions)
    if levels(typ) > MAX_LEVELS:
        raise InvalidParameter(
            f"type is nested too deeply: more than {MAX_LEVELS} levels",
            hint="Keep what is deep as jsonb, or in rows of a table.",
            sqlstate="54001",
        )
    return typ
