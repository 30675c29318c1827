"""What a statement means once its names and types are resolved: the plans the adapter carries out.

Promise: a plan is immutable data, complete by itself: it names objects by id, carries the normalized text of what it creates, and has no
trace of sqlglot. Nothing in it was executed.
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
    """A query to answer. `as_of`: a constant expression of type mz_timestamp; `at_least`: AS OF AT LEAST; `shows`: it is a SHOW, which may
    stand in any transaction.
    """

    command: ClassVar[str] = "SELECT"

    query: Query
    as_of: Scalar | None = None
    at_least: bool = False
    shows: bool = False


class CreatingPlan(DefiningPlan, frozen=True, kw_only=True):
    """The plan of a statement that creates an object, which the catalog keeps as the object's definition.

    Attributes:
        name: its whole name.
        create_sql: its definition, names in it resolved.
        types: the types of users' own that it names.
        if_not_exists: whether one that exists already will do.
    """

    name: FullName
    create_sql: str
    types: tuple[GlobalId, ...] = ()
    if_not_exists: bool = False

    @property
    def meaning(self) -> object:
        """What the definition says, however it names things: two that are equal say the same."""
        raise NotImplementedError


class CreateTablePlan(CreatingPlan, frozen=True, kw_only=True, tag="create_table"):
    """A table; `defaults` has an expression or None for each column. NOT NULL is in `desc`."""

    command: ClassVar[str] = "CREATE TABLE"

    desc: RelationDesc
    defaults: tuple[Scalar | None, ...]
    retain_ms: int | None = None

    @property
    def meaning(self) -> object:
        """What its definition says, however it names things."""
        return self.desc, self.defaults


class CreateTypePlan(CreatingPlan, frozen=True, kw_only=True, tag="create_type"):
    """A type, and what it is a name for."""

    command: ClassVar[str] = "CREATE TYPE"

    typ: SqlType

    @property
    def meaning(self) -> object:
        """What its definition says, however it names things."""
        return self.typ


class CreateViewPlan(CreatingPlan, frozen=True, kw_only=True, tag="create_view"):
    """A view; `replaces` is the view that OR REPLACE replaces."""

    command: ClassVar[str] = "CREATE VIEW"

    query: Query
    replaces: CatalogItem | None = None

    @property
    def meaning(self) -> object:
        """What its definition says, however it names things."""
        return self.query


class RefreshOption(msgspec.Struct, frozen=True):
    """An option REFRESH that is not ON COMMIT.

    Attributes:
        at: the time of AT, or what EVERY is aligned to; a constant but for ``mz_now()``.
        text: it as it was written, names resolved but for ``mz_now()``.
        every_ms: the interval of EVERY in milliseconds; None: it is AT.
        every: that as it was written.
    """

    at: Scalar
    text: str
    every_ms: int | None = None
    every: str = ""


class RefreshOptions(msgspec.Struct, frozen=True):
    """When a materialized view is refreshed, and how its definition says so once ``mz_now()`` is known (`plan.refresh.scheduled`).

    Attributes:
        options: all there are.
        before, after: the definition around them.
    """

    options: tuple[RefreshOption, ...]
    before: str
    after: str


class CreateMaterializedViewPlan(
    CreatingPlan, frozen=True, kw_only=True, tag="create_materialized_view"
):
    """A materialized view in `cluster`; `not_null`: columns of WITH (ASSERT NOT NULL c), already NOT NULL in the query's desc; `refresh`:
    when it is refreshed, None: with every commit.
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
        """What its definition says, however it names things."""
        return self.query


class CreateIndexPlan(CreatingPlan, frozen=True, kw_only=True, tag="create_index"):
    """An index on `on` by `keys` (expressions over its columns), in `cluster`. `name` is chosen as Materialize does where none is given."""

    command: ClassVar[str] = "CREATE INDEX"

    on: CatalogItem
    keys: tuple[Scalar, ...]
    cluster: str
    retain_ms: int | None = None

    @property
    def meaning(self) -> object:
        """What its definition says, however it names things."""
        return self.on.id, self.keys


class AlterRetainPlan(DefiningPlan, frozen=True, tag="alter_retain"):
    """How long an object retains history from now on, in milliseconds (None: as long as by default), and the statement that says so.

    `item` is None where IF EXISTS lets it be missing; `kind` and `name` say what was named.
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
    """Objects to drop, in the order named; `missing`: names that IF EXISTS let pass, each for a notice."""

    kind: str
    items: tuple[CatalogItem, ...]
    missing: tuple[str, ...] = ()
    cascade: bool = False

    @property
    def tag_text(self) -> str:
        """``DROP <kind>``."""
        return f"DROP {self.kind.replace('-', ' ').upper()}"


class InsertPlan(StatementPlan, frozen=True, tag="insert"):
    """Rows to insert: `source` yields one column for each column of the table, of its type (defaults filled in, casts applied).

    NULLs in NOT NULL columns are still to be checked (`table.desc`). `returning`: names and types of further columns, which the
    statement hands back.
    """

    command: ClassVar[str] = "INSERT 0"
    writes: ClassVar[bool] = True

    table: CatalogItem
    source: Query
    returning: RelationDesc | None = None


class DeletePlan(StatementPlan, frozen=True, tag="delete"):
    """Rows to delete: `selection` yields the table's rows that go, then what is returned of them."""

    command: ClassVar[str] = "DELETE"
    writes: ClassVar[bool] = True

    table: CatalogItem
    selection: Query
    returning: RelationDesc | None = None


class UpdatePlan(StatementPlan, frozen=True, tag="update"):
    """Rows to change: `selection` yields the old row's columns, then the new row's, as many again, then what is returned of them."""

    command: ClassVar[str] = "UPDATE"
    writes: ClassVar[bool] = True

    table: CatalogItem
    selection: Query
    returning: RelationDesc | None = None


class CopyFromPlan(StatementPlan, frozen=True, tag="copy_from"):
    """Rows of a file to append. `columns`: positions in the table, in the file's order; None: by name (Parquet) or all (CSV).

    `path` None: STDIN, what the client sends.
    Options of CSV: `header`, `delimiter`, `quote`, `escape`, `null`; of text: `delimiter`, `null`.
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
    """SHOW <variable>; `name` in lower case, or ``all``."""

    command: ClassVar[str] = "SHOW"

    name: str


class SetVariablePlan(StatementPlan, frozen=True, tag="set_variable"):
    """SET <variable>; no `values`: back to the default (SET … TO DEFAULT, RESET)."""

    command: ClassVar[str] = "SET"

    name: str
    values: tuple[str, ...] | None
    local: bool = False

    @property
    def tag_text(self) -> str:
        """``SET or RESET``."""
        return "RESET" if self.values is None else "SET"


class SetTransactionPlan(StatementPlan, frozen=True, tag="set_transaction"):
    """SET TRANSACTION; `of_session`: SET SESSION CHARACTERISTICS AS TRANSACTION. What is None was not said."""

    command: ClassVar[str] = "SET"

    isolation: str | None = None
    read_only: bool | None = None
    of_session: bool = False


class AlterSystemPlan(StatementPlan, frozen=True, tag="alter_system"):
    """ALTER SYSTEM SET/RESET; no `values`: back to the default; `name` ``all``: RESET ALL."""

    command: ClassVar[str] = "ALTER SYSTEM"

    name: str
    values: tuple[str, ...] | None


class BeginPlan(StatementPlan, frozen=True, tag="begin"):
    """BEGIN; what is None was not said."""

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
        query: what is subscribed to.
        collection: the table or materialized view that it is, where it is just one.
        row: names and types of the relation's columns.
        desc: names and types of the output's columns.
        snapshot, progress: its options.
        as_of, at_least, up_to: constant expressions of type mz_timestamp.
        envelope: ``upsert``, ``debezium`` or None.
        keys: the envelope's key, positions in `row`.
        order: WITHIN TIMESTAMP ORDER BY, columns of `row`; one past the last is mz_diff.
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


class DeclarePlan(StatementPlan, frozen=True, tag="declare"):
    """DECLARE name CURSOR FOR `plan`."""

    command: ClassVar[str] = "DECLARE CURSOR"

    name: str
    plan: SelectPlan | SubscribePlan


class FetchPlan(StatementPlan, frozen=True, tag="fetch"):
    """FETCH; `count` None: ALL. `timeout`: as written, None where it is not said."""

    command: ClassVar[str] = "FETCH"

    name: str
    count: int | None
    timeout: str | None = None


class ClosePlan(StatementPlan, frozen=True, tag="close"):
    """CLOSE; `name` None: ALL."""

    name: str | None

    @property
    def tag_text(self) -> str:
        """``CLOSE CURSOR [ALL]``."""
        return "CLOSE CURSOR ALL" if self.name is None else "CLOSE CURSOR"


class PreparePlan(StatementPlan, frozen=True, tag="prepare"):
    """PREPARE: the statement's text with its ``$1``, and its parameters' types, declared or found by planning it."""

    command: ClassVar[str] = "PREPARE"

    name: str
    text: str
    types: tuple[SqlType, ...]


class ExecutePlan(StatementPlan, frozen=True, tag="execute"):
    """EXECUTE; the arguments as they stand in the text."""

    name: str
    arguments: tuple[str, ...]


class DeallocatePlan(StatementPlan, frozen=True, tag="deallocate"):
    """DEALLOCATE; `name` None: ALL."""

    name: str | None

    @property
    def tag_text(self) -> str:
        """``DEALLOCATE [ALL]``."""
        return "DEALLOCATE ALL" if self.name is None else "DEALLOCATE"


class DiscardPlan(StatementPlan, frozen=True, tag="discard"):
    """DISCARD ALL or TEMP."""

    everything: bool

    @property
    def tag_text(self) -> str:
        """``DISCARD ALL or TEMP``."""
        return "DISCARD ALL" if self.everything else "DISCARD TEMP"


class CopyToPlan(StatementPlan, frozen=True, tag="copy_to"):
    """COPY … TO; `path` None: STDOUT. Options as `CopyFromPlan`'s."""

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
