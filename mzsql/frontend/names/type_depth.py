"""Limits on types: the dimensions of an array, and how deeply types nest."""

from __future__ import annotations

from mzsql.repr.errors import InvalidParameter
from mzsql.repr.types import SqlType, levels

#: PostgreSQL's and Materialize's limit on array dimensions.
MAX_DIMENSIONS = 6
#: How many lists, maps, records and arrays may be nested. A constant is a text in which each level quotes what is
#: inside it, so its length doubles with each level.
MAX_LEVELS = 16


def check_dimensions(count: int) -> None:
    """Check the number of an array's dimensions against `MAX_DIMENSIONS`.

    Raises:
        InvalidParameter: there are more (54000).
    """
    if count > MAX_DIMENSIONS:
        raise InvalidParameter(
            f"number of array dimensions ({count}) exceeds the maximum allowed ({MAX_DIMENSIONS})",
            sqlstate="54000",
        )


def check_levels(typ: SqlType) -> SqlType:
    """The type itself, if it does not nest too deeply.

    Raises:
        InvalidParameter: an array has too many dimensions (54000), or types nest too deeply (54001).
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
