"""Plan structs: statements with names and types resolved, as the adapter carries them out.

Promise: a plan is immutable and self-contained: it names objects by id, carries the normalized text of what it creates,
and contains nothing of sqlglot. Making it executed nothing.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from mzsql.expr.scalar import ColumnOrder, Scalar
from mzsql.frontend.catalog import CatalogItem, FullName
from mzsql.frontend.hir import Query
from mzsql.frontend.plan.sequenced import DefiningPlan, StatementPlan
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc, SqlType


class SelectPlan(StatementPlan, frozen=True, tag="select"):
    """A query to answer.

    Attributes:
        query: the query.
        as_of: the constant expression of AS OF, of type mz_timestamp.
        at_least: whether it was AS OF AT LEAST.
        shows: whether it is a SHOW, which any transaction may contain.
    """

    command: ClassVar[str] = "SELECT"

    query: Query
    as_of: Scalar | None = None
    at_least: bool = False
    shows: bool = False


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


class ExplainPlan(StatementPlan, frozen=True, tag="explain"):
    """EXPLAIN.

    Attributes:
        stage: ``raw``, ``decorrelated``, ``locally optimized``, ``optimized``, ``physical``.
        format: ``text``, ``json``, ``sql``, ``dot``.
        options: name (lower case, spaces) to value: True for one given without a value.
        explainee: the plan of the statement, or for VIEW, MATERIALIZED VIEW, INDEX the object (its deployed plan).
        replan: whether the object is to be planned anew (REPLAN …).
    """

    command: ClassVar[str] = "EXPLAIN"

    stage: str
    format: str
    options: tuple[tuple[str, bool | int | str], ...]
    explainee: (
        SelectPlan | CreateViewPlan | CreateMaterializedViewPlan | CreateIndexPlan | CatalogItem
    )
    replan: bool = False


class ShowVariablePlan(StatementPlan, frozen=True, tag="show_variable"):
    """SHOW <variable>; `name` in lower case."""

    command: ClassVar[str] = "SHOW"

    name: str


class SetVariablePlan(StatementPlan, frozen=True, tag="set_variable"):
    """SET a variable; `values` None: to its default (SET … TO DEFAULT, RESET)."""

    command: ClassVar[str] = "SET"

    name: str
    values: tuple[str, ...] | None
    local: bool = False

    @property
    def tag_text(self) -> str:
        """``SET or RESET``."""
        return "RESET" if self.values is None else "SET"


class SetTransactionPlan(StatementPlan, frozen=True, tag="set_transaction"):
    """SET TRANSACTION, or with `of_session` SET SESSION CHARACTERISTICS AS TRANSACTION; None where a mode was not
    given.
    """

    command: ClassVar[str] = "SET"

    isolation: str | None = None
    read_only: bool | None = None
    of_session: bool = False


class AlterSystemPlan(StatementPlan, frozen=True, tag="alter_system"):
    """ALTER SYSTEM SET; `values` None: RESET to the default; `name` ``all``: RESET ALL."""

    command: ClassVar[str] = "ALTER SYSTEM"

    name: str
    values: tuple[str, ...] | None


class BeginPlan(StatementPlan, frozen=True, tag="begin"):
    """BEGIN; None where a mode was not given."""

    command: ClassVar[str] = "BEGIN"

    isolation: str | None = None
    read_only: bool | None = None


class CommitPlan(StatementPlan, frozen=True, tag="commit"):
    """COMMIT, END."""

    command: ClassVar[str] = "COMMIT"


class RollbackPlan(StatementPlan, frozen=True, tag="rollback"):
    """ROLLBACK, ABORT."""

    command: ClassVar[str] = "ROLLBACK"


class SubscribePlan(StatementPlan, frozen=True, tag="subscribe"):
    """SUBSCRIBE.

    Attributes:
        query: the query subscribed to.
        collection: the table or materialized view, where the query is just one.
        row: names and types of the relation's columns.
        desc: names and types of the output columns.
        snapshot, progress: its options.
        as_of, at_least, up_to: constant expressions of type mz_timestamp, and whether AS OF AT LEAST.
        envelope: ``upsert``, ``debezium`` or None.
        keys: the envelope's key, as positions in `row`.
        order: WITHIN TIMESTAMP ORDER BY: columns of `row`; one past the last is mz_diff.
    """

    command: ClassVar[str] = "SUBSCRIBE"

    query: Query
    collection: CatalogItem | None
    row: RelationDesc
    desc: RelationDesc
    snapshot: bool = True
    progress: bool = False
    as_of: Scalar | None = None
    at_least: bool = False
    up_to: Scalar | None = None
    envelope: str | None = None
    keys: tuple[int, ...] = ()
    order: tuple[ColumnOrder, ...] = ()


class PreparePlan(StatementPlan, frozen=True, tag="prepare"):
    """PREPARE: the statement's text with ``$1``, …, and its parameters' types, declared or inferred."""

    command: ClassVar[str] = "PREPARE"

    name: str
    text: str
    types: tuple[SqlType, ...]


class ExecutePlan(StatementPlan, frozen=True, tag="execute"):
    """EXECUTE; the arguments as written. Its command tag is that of the statement that it runs."""

    name: str
    arguments: tuple[str, ...]


class CopyToPlan(StatementPlan, frozen=True, tag="copy_to"):
    """COPY … TO; `path` None: STDOUT. Options as in `CopyFromPlan`."""

    command: ClassVar[str] = "COPY"

    plan: SelectPlan | SubscribePlan
    path: str | None
    format: str
    header: bool = False
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str = ""


#: Any statement's plan. The classes are those of this module and of `mzsql.frontend.plan.catalog_plans`.
Plan = StatementPlan
