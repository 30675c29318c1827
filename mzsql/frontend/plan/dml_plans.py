"""Plans of statements that write rows."""

from __future__ import annotations

from typing import ClassVar

from mzsql.frontend.catalog import CatalogItem
from mzsql.frontend.hir import Query
from mzsql.frontend.plan.sequenced import StatementPlan
from mzsql.repr.types import RelationDesc


class InsertPlan(StatementPlan, frozen=True, tag="insert"):
    """Rows to insert.

    Attributes:
        table: the table.
        source: returns the table's columns with their types (defaults filled in, casts applied). NOT NULL is yet to be
            checked.
        returning: names and types of further columns that `source` returns, for RETURNING.
    """

    command: ClassVar[str] = "INSERT 0"
    writes: ClassVar[bool] = True

    table: CatalogItem
    source: Query
    returning: RelationDesc | None = None


class DeletePlan(StatementPlan, frozen=True, tag="delete"):
    """Rows to delete: `selection` returns the table's rows to remove, then the columns of RETURNING."""

    command: ClassVar[str] = "DELETE"
    writes: ClassVar[bool] = True

    table: CatalogItem
    selection: Query
    returning: RelationDesc | None = None


class UpdatePlan(StatementPlan, frozen=True, tag="update"):
    """Rows to change: `selection` returns the old row's columns, then as many of the new row, then those of RETURNING."""

    command: ClassVar[str] = "UPDATE"
    writes: ClassVar[bool] = True

    table: CatalogItem
    selection: Query
    returning: RelationDesc | None = None


class CopyFromPlan(StatementPlan, frozen=True, tag="copy_from"):
    """Rows of a file to append.

    Attributes:
        table: the table.
        columns: positions in the table, in the file's order; None: by name (Parquet) or all (CSV, text).
        path: the file; None: STDIN.
        format: ``csv``, ``text`` or ``parquet``.
        header, delimiter, quote, escape, null: options of CSV; text only has `delimiter`, `null` and `header`.
    """

    command: ClassVar[str] = "COPY"
    writes: ClassVar[bool] = True

    table: CatalogItem
    columns: tuple[int, ...] | None
    path: str | None
    format: str
    header: bool = False
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str = ""
