"""Plans of statements that create, drop and keep relations and types."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from mzsql.expr.scalar import Scalar
from mzsql.frontend.catalog import CatalogItem, FullName
from mzsql.frontend.hir import Query
from mzsql.frontend.plan.sequenced import DefiningPlan
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc, SqlType


class CreatingPlan(DefiningPlan, frozen=True, kw_only=True):
    """The plan of a statement that creates an object; the catalog keeps the statement as the object's definition.

    Attributes:
        name: its full name.
        create_sql: its definition, with names resolved.
        types: the user-created types that it uses.
        if_not_exists: whether an existing object will do.
    """

    name: FullName
    create_sql: str
    types: tuple[GlobalId, ...] = ()
    if_not_exists: bool = False

    @property
    def meaning(self) -> object:
        """The definition's meaning, independent of names: two definitions with equal meanings are the same.

        Raises:
            NotImplementedError: a kind of plan has not said what its definition means.
        """
        raise NotImplementedError


class CreateTablePlan(CreatingPlan, frozen=True, kw_only=True, tag="create_table"):
    """A table; `defaults` has an expression or None for each column. NOT NULL is in `desc`."""

    command: ClassVar[str] = "CREATE TABLE"

    desc: RelationDesc
    defaults: tuple[Scalar | None, ...]
    retain_ms: int | None = None

    @property
    def meaning(self) -> object:
        """See `CreatingPlan.meaning`."""
        return self.desc, self.defaults


class CreateTypePlan(CreatingPlan, frozen=True, kw_only=True, tag="create_type"):
    """A type, and the type that it names."""

    command: ClassVar[str] = "CREATE TYPE"

    typ: SqlType

    @property
    def meaning(self) -> object:
        """See `CreatingPlan.meaning`."""
        return self.typ


class CreateViewPlan(CreatingPlan, frozen=True, kw_only=True, tag="create_view"):
    """A view; `replaces` is the existing view that OR REPLACE replaces."""

    command: ClassVar[str] = "CREATE VIEW"

    query: Query
    replaces: CatalogItem | None = None

    @property
    def meaning(self) -> object:
        """See `CreatingPlan.meaning`."""
        return self.query


class RefreshOption(msgspec.Struct, frozen=True):
    """A REFRESH option other than ON COMMIT.

    Attributes:
        at: the time of AT, or what EVERY is aligned to; constant but for ``mz_now()``.
        text: `at` as written, with names resolved but for ``mz_now()``.
        every_ms: the interval of EVERY in milliseconds; None for AT.
        every: the interval as written.
    """

    at: Scalar
    text: str
    every_ms: int | None = None
    every: str = ""


class RefreshOptions(msgspec.Struct, frozen=True):
    """A materialized view's REFRESH options, and the pieces of its definition to write once ``mz_now()`` is known
    (`plan.refresh.scheduled`).

    Attributes:
        options: the options.
        before, after: the definition's text around them.
    """

    options: tuple[RefreshOption, ...]
    before: str
    after: str


class CreateMaterializedViewPlan(
    CreatingPlan, frozen=True, kw_only=True, tag="create_materialized_view"
):
    """A materialized view.

    Attributes:
        query: its query.
        cluster: the cluster that maintains it.
        replaces: the existing view that OR REPLACE replaces.
        not_null: the columns of WITH (ASSERT NOT NULL c), already NOT NULL in the query's desc.
        retain_ms: how many milliseconds of history are retained; None: the default.
        refresh: its REFRESH options; None: ON COMMIT.
    """

    command: ClassVar[str] = "CREATE MATERIALIZED VIEW"

    query: Query
    cluster: str
    replaces: CatalogItem | None = None
    not_null: tuple[int, ...] = ()
    retain_ms: int | None = None
    refresh: RefreshOptions | None = None

    @property
    def meaning(self) -> object:
        """See `CreatingPlan.meaning`."""
        return self.query


class CreateIndexPlan(CreatingPlan, frozen=True, kw_only=True, tag="create_index"):
    """An index on `on` by the expressions `keys` over its columns, in `cluster`; an omitted `name` is chosen as
    Materialize does.
    """

    command: ClassVar[str] = "CREATE INDEX"

    on: CatalogItem
    keys: tuple[Scalar, ...]
    cluster: str
    retain_ms: int | None = None

    @property
    def meaning(self) -> object:
        """See `CreatingPlan.meaning`."""
        return self.on.id, self.keys


class AlterRetainPlan(DefiningPlan, frozen=True, tag="alter_retain"):
    """ALTER … SET or RESET (RETAIN HISTORY).

    Attributes:
        kind, name: the object as the statement names it.
        item: the object; None where IF EXISTS lets it be missing.
        retain_ms: how many milliseconds of history are retained from now on; None: the default.
        create_sql: the definition with the new option.
    """

    kind: str
    name: str
    item: CatalogItem | None
    retain_ms: int | None
    create_sql: str

    @property
    def tag_text(self) -> str:
        """``ALTER <kind>``."""
        return f"ALTER {self.kind.upper()}"


class DropPlan(DefiningPlan, frozen=True, tag="drop"):
    """Objects to drop, in the order named; `missing` has the names that IF EXISTS lets be missing, each for a notice."""

    kind: str
    items: tuple[CatalogItem, ...]
    missing: tuple[str, ...] = ()
    cascade: bool = False

    @property
    def tag_text(self) -> str:
        """``DROP <kind>``."""
        return f"DROP {self.kind.replace('-', ' ').upper()}"
