"""Plans of statements that have another one in them or outlive it: cursors, subscriptions, prepared statements, COPY … TO."""

from __future__ import annotations

from typing import ClassVar

from mzsql.expr.scalar import ColumnOrder, Scalar
from mzsql.frontend.catalog import CatalogItem
from mzsql.frontend.hir import Query
from mzsql.frontend.plan.plans import SelectPlan
from mzsql.frontend.plan.sequenced import StatementPlan
from mzsql.repr.types import RelationDesc, SqlType


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
