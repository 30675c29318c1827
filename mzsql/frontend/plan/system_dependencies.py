"""What definitions may not have of the system catalog: relations, and columns, that another release may have otherwise.

Promise: a view that stays names no relation of a schema that changes from release to release (`UNSTABLE_SCHEMAS`), and each column of the
system's relations by its name, since these get more columns: ``*``, NATURAL JOIN and a table's name for its row would mean something
else after an upgrade. All are refused when a view is created; a view that the catalog has, by whichever release, is planned as it is.
Temporary views may have them: they end with their sessions.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.frontend.catalog import UNSTABLE_SCHEMAS, CatalogView, FullName
from mzsql.frontend.scalar.nodes import position_of
from mzsql.repr.errors import SqlError

_STABLE = "mz_catalog, pg_catalog and information_schema"
_BY_NAME = "Name each column in place of *, and join with USING or ON in place of NATURAL JOIN."


def check_dependencies(
    what: str,
    query: exp.Expr,
    named: Sequence[FullName],
    catalog: CatalogView,
    rows: Sequence[int | None],
) -> None:
    """Refuse a view that is to stay over what does not.

    Args:
        what: the kind of view.
        query: its query.
        named: the objects that the query names.
        catalog: says whether such views are allowed.
        rows: where it has a table's name for its row.

    Raises:
        SqlError: ``cannot create view with unstable dependencies``, ``cannot use wildcard expansions or NATURAL JOINs …``.
    """
    system = [name for name in named if name.database is None]
    if not system or catalog.unstable_dependencies:
        return
    unstable = sorted({str(name) for name in system if name.schema in UNSTABLE_SCHEMAS})
    if unstable:
        listed = "".join(f"\n    {name}" for name in unstable)
        raise SqlError(
            f"cannot create {what} with unstable dependencies",
            detail=f"The object depends on the following unstable objects:{listed}",
            hint=f"Another release may have them otherwise. A temporary view may read them, and relations of {_STABLE}"
            " stay as they are.",
            sqlstate="0A000",
        )
    found = [position_of(node) for node in query.walk() if _grows(node)] or list(rows)
    if found:
        raise SqlError(
            f"cannot use wildcard expansions or NATURAL JOINs in a {what} that depends on system objects",
            position=found[0],
            detail="These get more columns from release to release.",
            hint=_BY_NAME,
            sqlstate="0A000",
        )


def _grows(node: exp.Expr) -> bool:
    """Whether a node stands for columns that it does not name."""
    if isinstance(node, exp.Join):
        return str(node.args.get("method") or "").upper() == "NATURAL"
    # `count(*)` has a star that stands for no columns.
    return isinstance(node, exp.Star) and isinstance(node.parent, exp.Select | exp.Column | exp.Dot)
