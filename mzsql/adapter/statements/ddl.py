"""CREATE and DROP: one compare-and-append on the catalog, then its consequences.

Promise: a statement is refused before anything durable changes; its preconditions are checked again inside the
catalog's compare-and-append. Shards of dropped objects are finalized only after the catalog no longer names them, so a
crash in between leaks at most a shard.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import msgspec

from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.environment.dropped import end_dropped, forget_temporary
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import this_process
from mzsql.adapter.peek.queries import Queries
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.planning.walk import global_gets, unmaterializables
from mzsql.adapter.session.session import Session
from mzsql.adapter.statements.index_holds import indexes_held
from mzsql.adapter.statements.tables import Definers
from mzsql.catalog.builtin import builtins
from mzsql.catalog.change import Change
from mzsql.catalog.commands.items import (
    allocate,
    create_item,
    drop_items,
    name_taken,
    refuse_temporary,
    without_orphans,
)
from mzsql.catalog.commands.retention import alter_retention
from mzsql.catalog.commands.schemas import create_temporary_schema
from mzsql.catalog.objects import (
    Index,
    Item,
    Maintained,
    MaterializedView,
    Table,
    Type,
    View,
)
from mzsql.catalog.settings import REFRESH_EVERY, system_value
from mzsql.catalog.state import CatalogState, ItemT, applied, removed
from mzsql.expr.functions import Engine
from mzsql.expr.relation import Get, Relation
from mzsql.expr.typing import relation_type
from mzsql.frontend import lower_query
from mzsql.frontend.catalog import SYSTEM_SCHEMAS, FullName
from mzsql.frontend.plan import ddl_plans
from mzsql.frontend.plan.refresh import scheduled
from mzsql.repr.errors import InvalidParameter, Unsupported
from mzsql.repr.frontier import MIN_TIMESTAMP, Timestamp, join
from mzsql.repr.ids import GlobalId, global_id
from mzsql.repr.types import RelationDesc

_Creates = (
    ddl_plans.CreateTablePlan
    | ddl_plans.CreateTypePlan
    | ddl_plans.CreateViewPlan
    | ddl_plans.CreateMaterializedViewPlan
    | ddl_plans.CreateIndexPlan
)


class Definitions:
    """Carries out the statements that create, alter and drop objects in schemas."""

    def __init__(
        self, env: Environment, planner: Planner, queries: Queries, dataflows: Dataflows
    ) -> None:
        self._env = env
        self._planner = planner
        self._queries = queries
        self._dataflows = dataflows

    def runs(self) -> Definers:
        """The functions that carry out these statements, by class of plan."""
        return {
            ddl_plans.CreateTablePlan: self.create_table,
            ddl_plans.CreateTypePlan: self.create_type,
            ddl_plans.CreateViewPlan: self.create_view,
            ddl_plans.CreateMaterializedViewPlan: self.create_materialized_view,
            ddl_plans.CreateIndexPlan: self.create_index,
            ddl_plans.AlterRetainPlan: self.alter_retain,
            ddl_plans.DropPlan: self.drop,
        }

    # --- shared -------------------------------------------------------------------------------

    def _new_id(self) -> GlobalId:
        def command(state: CatalogState) -> tuple[Change, int]:
            number, change = allocate(state, "user")
            return change, number

        return global_id("u", self._env.catalog.transact(command))

    def _taken(self, session: Session, name: FullName, *, if_not_exists: bool) -> bool:
        """Whether the name is taken and IF NOT EXISTS lets the statement pass; raises where the name is taken
        otherwise.
        """
        self._env.require_writable()
        if name.schema in SYSTEM_SCHEMAS:
            raise InvalidParameter(
                f"system schema '{name.schema}' cannot be modified", sqlstate="42501"
            )
        taken = self._env.catalog.state.by_name(name.schema, name.item, str(name.database))
        if taken is None:
            return False
        error = name_taken(taken)
        if not if_not_exists:
            raise error
        session.notice(f"{error.message}, skipping")
        return True

    def _new(
        self, kind: type[ItemT], plan: _Creates, depends_on: tuple[GlobalId, ...], **own: Any
    ) -> ItemT:
        """A new object: the fields that every kind has, and those of its own kind in ``own``.

        Raises:
            InvalidParameter: it is to stay, and depends on a temporary object.
        """
        made = kind(
            id=self._new_id(),
            name=plan.name.item,
            schema=plan.name.schema,
            database=str(plan.name.database),
            create_sql=plan.create_sql,
            depends_on=depends_on,
            created_at=self._env.catalog_oracle.ddl_timestamp(),
            **own,
        )
        refuse_temporary(self._env.catalog.state, made)
        return made

    def _create(self, item: Item, replaced: Iterable[Item] = ()) -> None:
        gone = [i.id for i in replaced]

        session = this_process(), self._env.catalog.reader_id

        def command(state: CatalogState) -> tuple[Change, None]:
            change = drop_items(state, gone, cascade=False)
            if item.temporary:
                place = item.database, item.schema
                change |= create_temporary_schema(applied(state, change), place, session)
            return change | create_item(applied(state, change), item), None

        self._env.define(command)
        self._env.sync()

    def _depends_on(self, relation: Relation, types: tuple[GlobalId, ...]) -> tuple[GlobalId, ...]:
        return tuple(sorted({*global_gets(relation), *types}))

    # --- tables and views ---------------------------------------------------------------------

    def create_table(self, session: Session, plan: ddl_plans.CreateTablePlan) -> None:
        """CREATE TABLE.

        Raises:
            DuplicateObject: its name is taken.
            Unsupported: the environment is not written by this process.
        """
        if self._taken(session, plan.name, if_not_exists=plan.if_not_exists):
            return
        self._create(
            self._new(
                Table,
                plan,
                plan.types,
                desc=plan.desc,
                shard=self._env.persist.new_shard_id(),
                defaults=plan.defaults,
                retain_ms=plan.retain_ms,
                as_of=self._env.fresh_timestamp(),
            )
        )

    def create_type(self, session: Session, plan: ddl_plans.CreateTypePlan) -> None:
        """CREATE TYPE.

        Raises:
            DuplicateObject: its name is taken.
            Unsupported: the environment is not written by this process.
        """
        self._taken(session, plan.name, if_not_exists=False)
        self._create(self._new(Type, plan, plan.types, typ=plan.typ))

    def create_view(self, session: Session, plan: ddl_plans.CreateViewPlan) -> None:
        """CREATE VIEW.

        Raises:
            DuplicateObject: its name is taken.
            Unsupported: the environment is not written by this process.
        """
        replaced = self._replaced(plan.replaces)
        if not replaced and self._taken(session, plan.name, if_not_exists=plan.if_not_exists):
            return
        raw = lower_query(plan.query)
        view = self._planner.local(plan.query)
        item = self._new(
            View,
            plan,
            self._depends_on(raw.relation, plan.types),
            desc=_with_keys(view.mir, plan.query.desc),
        )
        self._create(item, replaced)
        if replaced:
            # Remove the cached plans of the replaced view.
            self._planner.forget({one.id for one in replaced})
        self._planner.remember(item, None, view.mir)

    def _replaced(self, item: object) -> list[Item]:
        self._env.require_writable()
        if item is None:
            return []
        found = self._env.catalog.state.items.get(item.id)  # type: ignore[attr-defined]
        return [] if found is None else [found]

    # --- materialized views and indexes ---------------------------------------------------------

    def create_materialized_view(
        self, session: Session, plan: ddl_plans.CreateMaterializedViewPlan
    ) -> None:
        """CREATE MATERIALIZED VIEW: plan it, check that it can be maintained, add it to the catalog, have it installed.

        Raises:
            EnvironmentRefused: Spark would have to maintain it, and there is no Java.
            DuplicateObject: its name is taken.
            Unsupported: it cannot be maintained, or the environment is not written by this process.
            InvalidParameter: none of its refreshes would happen.
        """
        self._dataflows.require_spark()
        if plan.refresh is not None and not self._refreshes_at_times():
            raise Unsupported("REFRESH EVERY and REFRESH AT materialized views is not available")
        replaced = self._replaced(plan.replaces)
        if not replaced and self._taken(session, plan.name, if_not_exists=plan.if_not_exists):
            return
        raw = lower_query(plan.query)
        self._check_maintainable(raw.relation)
        view = self._planner.local(plan.query)
        item = self._new(
            MaterializedView,
            plan,
            self._depends_on(raw.relation, plan.types),
            desc=_with_keys(view.mir, plan.query.desc),
            shard=self._env.persist.new_shard_id(),
            cluster=plan.cluster,
            retain_ms=plan.retain_ms,
        )
        self._deploy(item, view.mir, replaced, plan.refresh)
        if replaced:
            self.clean_up(replaced)

    def create_index(self, session: Session, plan: ddl_plans.CreateIndexPlan) -> None:
        """CREATE INDEX.

        Raises:
            EnvironmentRefused: Spark would have to maintain it, and there is no Java.
            DuplicateObject: its name is taken.
            Unsupported: it is on a system object, or the environment is not written by this process.
        """
        self._dataflows.require_spark()
        if self._taken(session, plan.name, if_not_exists=plan.if_not_exists):
            return
        if plan.on.id in builtins():
            raise Unsupported(f"indexes on system objects are not supported: {plan.on.name}")
        if plan.on.desc is not None:
            self._refuse_system(Get(plan.on.id, plan.on.desc.typ), "an index")
        item = self._new(
            Index,
            plan,
            (plan.on.id, *plan.types),
            cluster=plan.cluster,
            on_id=plan.on.id,
            key=plan.keys,
            retain_ms=plan.retain_ms,
        )
        self._deploy(item, None, [])

    def _refuse_system(self, relation: Relation, what: str) -> None:
        """Refuse to maintain what reads relations of the system, which have no history."""
        for gid in self._queries.inputs(relation):
            builtin = builtins().get(gid)
            if builtin is not None:
                raise Unsupported(
                    f"{what} that reads the system relation {builtin.full_name} is not supported",
                    hint="Create a view instead: it is computed when it is read.",
                )

    def _check_maintainable(self, relation: Relation) -> None:
        self._refuse_system(relation, "a materialized view")
        found = unmaterializables(relation) - {"mz_now"}
        if found:
            names = ", ".join(sorted(found))
            raise Unsupported(f"cannot materialize call to {names}")

    def _refreshes_at_times(self) -> bool:
        return system_value(self._env.catalog.state.settings, REFRESH_EVERY) == "on"

    def _deploy(
        self,
        item: Maintained,
        relation: Relation | None,
        replaced: list[Item],
        refresh: ddl_plans.RefreshOptions | None = None,
    ) -> None:
        made = self._planner.deploy(item, relation, fresh=True)
        # Render it now, so that a view that cannot be maintained is refused instead of failing in the background.
        rendered = self._planner.renderings.checked(made.sealed)
        rendered.template(Engine.SPARK)
        made = made.with_outline(rendered.outline)
        with contextlib.ExitStack() as held:
            indexes = indexes_held(self._env, self._planner, made.sealed.indexes)
            as_of = self._as_of(made, held.enter_context(indexes))
            if refresh is not None:
                # A view without inputs starts now all the same.
                begins = as_of or self._env.fresh_timestamp()
                item, as_of = _scheduled(item, refresh, begins)
            item = msgspec.structs.replace(item, as_of=as_of)
            for gid in made.sealed.sources:
                held.enter_context(self._env.collections.hold(gid, as_of))
            self._create(item, replaced)
            self._planner.remember(item, made)
            self._dataflows.catch_up([item.id])

    def _as_of(self, made: GlobalExpressions, held_from: Timestamp) -> Timestamp:
        """When a new dataflow begins: now, or as soon as all its inputs are readable; the minimal time where it has no
        inputs.

        Args:
            made: its plan.
            held_from: the time from which the indexes that it reads are held.
        """
        reads = made.sealed
        if not (reads.sources or reads.indexes):
            return MIN_TIMESTAMP
        items = self._env.catalog.state.items
        now = self._env.fresh_timestamp()
        since = join(now, *(self._env.collections.since(gid) for gid in reads.sources))
        indexes = [items.get(gid) for gid in reads.indexes]
        began = [index.as_of for index in indexes if isinstance(index, Index)]
        return max([now if since is None else since, held_from, *began])

    # --- ALTER --------------------------------------------------------------------------------

    def alter_retain(self, session: Session, plan: ddl_plans.AlterRetainPlan) -> None:
        """ALTER … SET (RETAIN HISTORY FOR …), RESET (RETAIN HISTORY).

        Raises:
            UndefinedTable: the object was dropped meanwhile.
            Unsupported: the environment is not written by this process.
        """
        self._env.require_writable()
        item = plan.item
        if item is None:
            session.notice(f'{plan.kind} "{plan.name}" does not exist, skipping')
            return

        def command(state: CatalogState) -> tuple[Change, None]:
            return alter_retention(state, item.id, plan.retain_ms, plan.create_sql), None

        self._env.define(command)
        self._env.sync()

    # --- DROP ---------------------------------------------------------------------------------

    def drop(self, session: Session, plan: ddl_plans.DropPlan) -> None:
        """DROP: the named objects, with CASCADE also their dependents; shards are finalized once nothing names them.

        Raises:
            InvalidParameter: an object is the system's.
            DependentObjects: others depend on one, and CASCADE was not said.
            Unsupported: the environment is not written by this process.
        """
        self._env.require_writable()
        for name in plan.missing:
            session.notice(f'{plan.kind.replace("-", " ")} "{name}" does not exist, skipping')
        ids = [item.id for item in plan.items]
        for item in plan.items:
            if item.id in builtins():
                raise InvalidParameter(
                    f"system item '{item.name}' cannot be modified", sqlstate="42501"
                )

        def command(state: CatalogState) -> tuple[Change, list[Item]]:
            change = drop_items(state, ids, cascade=plan.cascade)
            return without_orphans(state, change), removed(state, change)

        self.clean_up(self._env.define(command))

    def clean_up(self, gone: list[Item]) -> None:
        """Remove the dataflows, plans and shards of objects that were removed from the catalog."""
        self._env.sync()
        self._dataflows.catch_up()
        self._planner.forget({item.id for item in gone})
        end_dropped(self._env, gone)

    def forget_session(self, session: Session) -> None:
        """Drop the session's temporary objects."""
        if session.temporary in self._env.catalog.state.temporary:
            self.clean_up(forget_temporary(self._env, [session.temporary]))


def _scheduled(
    item: Maintained, options: ddl_plans.RefreshOptions, begins: Timestamp
) -> tuple[Maintained, Timestamp]:
    """A view with its REFRESH schedule, and the time of its first refresh, given the time from which it can be
    computed.

    Raises:
        InvalidParameter: a REFRESH AT is before that time, or no refresh is after it.
    """
    schedule, sql = scheduled(options, begins)
    for at in schedule.ats:
        if at < begins:
            raise InvalidParameter(
                "REFRESH AT requested for a time where not all the inputs are readable",
                detail=f"The requested REFRESH AT time is {at}, but not all input collections are readable earlier than {begins}.",
            )
    first = schedule.round_up(begins)
    if first is None:
        raise InvalidParameter(
            "all the specified refreshes of the materialized view would be too far in the past, and thus they would never happen",
            detail=f"The earliest possible time to compute the materialized view is {begins}.",
        )
    return msgspec.structs.replace(item, refresh=schedule, create_sql=sql), first


def _with_keys(optimized: Relation, query: RelationDesc) -> RelationDesc:
    """A view's columns: names and nullability as in the query, unique keys as derived from its optimized plan."""
    typ = msgspec.structs.replace(query.typ, keys=relation_type(optimized).keys)
    return RelationDesc(query.names, typ)
