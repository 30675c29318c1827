"""DDL about databases, schemas, clusters, roles, names, privileges and comments: each statement is one compare-and-append on the catalog.

Promise: as in `mzsql.adapter.statements.ddl`, a statement is refused before anything durable changes, and names are resolved inside the
compare-and-append. Objects dropped with a schema, database or cluster are cleaned up as by a DROP of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.session.catalog import SessionCatalog
from mzsql.adapter.session.session import Session
from mzsql.adapter.session.staging import Staged
from mzsql.catalog.change import NOTHING, Change, Holder, Owned, entry
from mzsql.catalog.commands import (
    clusters,
    default_privileges,
    privileges,
    renames,
    roles,
    schemas,
)
from mzsql.catalog.commands.comments import comment, item_comment_key
from mzsql.catalog.commands.items import live, without_orphans
from mzsql.catalog.commands.settings import alter_role
from mzsql.catalog.objects import DefaultPrivilege, Item, Object, Schema, Table
from mzsql.catalog.state import CatalogState, applied, removed
from mzsql.frontend import parse_statements, plan_statement
from mzsql.frontend.catalog import SYSTEM_SCHEMAS, FullName
from mzsql.frontend.parse.privileges import PRIVILEGES
from mzsql.frontend.plan import catalog_plans as cp
from mzsql.frontend.plan import plans as p
from mzsql.repr.errors import (
    DependentObjects,
    DuplicateObject,
    InvalidParameter,
    SqlError,
    UndefinedObject,
    UndefinedTable,
)

Command = Callable[[CatalogState], Change]


class CatalogStatements:
    """Carries out these statements.

    Args:
        env, planner, dataflows: the coordinator's.
        clean_up: removes the dataflows, plans and shards of objects that were dropped.
    """

    def __init__(
        self,
        env: Environment,
        planner: Planner,
        dataflows: Dataflows,
        clean_up: Callable[[list[Item]], None],
    ) -> None:
        self._env = env
        self._planner = planner
        self._dataflows = dataflows
        self._clean_up = clean_up

    def run(self, session: Session, plan: cp.CatalogPlan) -> None:
        """Carry out a statement.

        Raises:
            SqlError: it cannot be carried out; nothing was done.
        """
        self._env.require_writable()
        match plan:
            case cp.CreateSchemaPlan() | cp.CreateDatabasePlan() | cp.CreateRolePlan():
                self._create(session, plan)
            case cp.CreateClusterPlan() | cp.CreateReplicaPlan():
                self._create_cluster(session, plan)
            case cp.DropNamedPlan():
                self._drop(session, plan)
            case cp.MembershipPlan():
                self._transact(lambda state: self._membership(state, plan))
            case cp.PrivilegesPlan():
                self._transact(lambda state: self._granted(state, plan))
            case cp.DefaultPrivilegesPlan():
                self._transact(lambda state: _granted_ahead(state, plan))
            case cp.OwnedPlan(to=str() as to):
                self._transact(lambda state: privileges.reassign(state, plan.roles, to))
            case cp.OwnedPlan():
                self._drop_owned(plan)
            case _:
                self._alter(session, plan)

    def _transact(self, command: Command) -> None:
        self._env.define(lambda state: (command(state), None))
        self._env.sync()

    # --- CREATE -------------------------------------------------------------------------------

    def _create(
        self,
        session: Session,
        plan: cp.CreateSchemaPlan | cp.CreateDatabasePlan | cp.CreateRolePlan,
    ) -> None:
        match plan:
            case cp.CreateSchemaPlan():
                if plan.name in SYSTEM_SCHEMAS or plan.name.startswith(("mz_", "pg_")):
                    raise _reserved("schema", plan.name)
                self._made(
                    session,
                    lambda state: schemas.create_schema(state, plan.database, plan.name),
                    skip=plan.if_not_exists,
                )
            case cp.CreateDatabasePlan():
                self._made(
                    session,
                    lambda state: schemas.create_database(state, plan.name),
                    skip=plan.if_not_exists,
                )
            case cp.CreateRolePlan():
                if plan.name == "public" or plan.name.startswith(("mz_", "pg_")):
                    raise _reserved("role", plan.name)
                self._transact(lambda state: roles.create_role(state, plan.name))

    def _made(self, session: Session, command: Command, *, skip: bool) -> None:
        try:
            self._transact(command)
        except DuplicateObject as taken:
            if not skip:
                raise
            session.notice(f"{taken.message}, skipping")

    def _create_cluster(
        self, session: Session, plan: cp.CreateClusterPlan | cp.CreateReplicaPlan
    ) -> None:
        if isinstance(plan, cp.CreateClusterPlan):
            if plan.name.startswith(("mz_", "pg_")):
                raise _reserved("cluster", plan.name)
            _note_ignored(session, plan.options.ignored)
            self._made(
                session,
                lambda state: clusters.create_cluster(state, plan.name, plan.options),
                skip=plan.if_not_exists,
            )
            return
        _note_ignored(session, plan.ignored)
        self._made(
            session,
            lambda state: clusters.create_replica(state, plan.cluster, plan.replica),
            skip=plan.if_not_exists,
        )
        self._dataflows.catch_up()

    # --- DROP ---------------------------------------------------------------------------------

    def _drop(self, session: Session, plan: cp.DropNamedPlan) -> None:
        missing: list[str] = []

        def command(state: CatalogState) -> tuple[Change, list[Item]]:
            missing.clear()
            change = NOTHING
            for target in dict.fromkeys(plan.targets):
                try:
                    change |= self._dropped(session, state, plan, target)
                except (UndefinedObject, UndefinedTable):
                    if not target.if_exists:
                        raise
                    missing.append(str(target))
            return without_orphans(state, change), removed(state, change)

        self._clean_up(self._env.define(command))
        for name in missing:
            session.notice(f'{plan.kind} "{name}" does not exist, skipping')

    def _drop_owned(self, plan: cp.OwnedPlan) -> None:
        def command(state: CatalogState) -> tuple[Change, list[Item]]:
            change = privileges.drop_owned(state, plan.roles, cascade=plan.cascade)
            then = applied(state, change)
            ids = {roles.role_named(then, role).id for role in plan.roles}
            change |= default_privileges.without_roles(then, ids)
            return without_orphans(state, change), removed(state, change)

        self._clean_up(self._env.define(command))

    @staticmethod
    def _dropped(
        session: Session, state: CatalogState, plan: cp.DropNamedPlan, target: cp.Target
    ) -> Change:
        name = target.name[-1]
        match plan.kind:
            case "schema":
                database = target.name[0]
                if name in SYSTEM_SCHEMAS:
                    raise InvalidParameter(
                        f"system schema '{name}' cannot be modified", sqlstate="42501"
                    )
                return schemas.drop_schemas(state, [(database, name)], cascade=plan.cascade)
            case "database":
                return schemas.drop_database(state, name, cascade=plan.cascade)
            case "cluster":
                return clusters.drop_clusters(state, [name], cascade=plan.cascade)
            case "cluster replica":
                return clusters.drop_replicas(state, [(target.name[0], name)])
            case _:
                role = state.role(name)
                granted = (
                    ()
                    if role is None
                    else (
                        *privileges.granted_to(state, role),
                        *default_privileges.granted_ahead_to(state, role),
                    )
                )
                return roles.drop_role(state, name, session.user, granted)

    # --- ALTER, COMMENT -----------------------------------------------------------------------

    def _alter(self, session: Session, plan: cp.AlterClusterPlan | cp.AlteringPlan) -> None:
        if isinstance(plan, cp.AlterClusterPlan):
            _note_ignored(session, plan.options.ignored)
            target = cp.Target("cluster", (plan.name,), None, plan.if_exists)
        else:
            target = plan.target
        missing = target.is_item and target.item is None
        if not missing:
            try:
                self._transact(lambda state: self._altered(state, plan, target))
            except (UndefinedObject, UndefinedTable):
                if not target.if_exists or self._exists(target):
                    raise
                missing = True
        if missing:
            session.notice(f'{target.kind} "{target}" does not exist, skipping')
        else:
            self._dataflows.catch_up()

    def stage(self, session: Session, plan: cp.AlteringPlan, state: CatalogState) -> Change:
        """The change that an ALTER or COMMENT would make to the catalog ``state``; nothing is written."""
        self._env.require_writable()
        target = plan.target
        missing = target.is_item and target.item is None
        if not missing:
            try:
                return self._altered(state, plan, target)
            except (UndefinedObject, UndefinedTable):
                if not target.if_exists:
                    raise
        session.notice(f'{target.kind} "{target}" does not exist, skipping')
        return NOTHING

    def commit(self, staged: Staged) -> None:
        """Write a transaction's staged changes as one."""

        def command(state: CatalogState) -> Change:
            staged.check(state)
            return staged.change

        self._transact(command)
        self._dataflows.catch_up()

    def _exists(self, target: cp.Target) -> bool:
        try:
            self._holder(self._env.catalog.state, target)
        except (UndefinedObject, UndefinedTable):
            return False
        return True

    def _altered(
        self,
        state: CatalogState,
        plan: cp.AlterClusterPlan | cp.AlteringPlan,
        target: cp.Target,
    ) -> Change:
        match plan:
            case cp.AlterClusterPlan():
                return clusters.alter_cluster(state, plan.name, plan.options)
            case cp.RenamePlan():
                return self._renamed(state, target, plan.to)
            case cp.SwapPlan():
                one, other = target.name[-1], plan.other.name[-1]
                if target.kind == "cluster":
                    return renames.rename_clusters(state, {one: other, other: one})
                swapped = {one: other, other: one}
                return renames.rename_schemas(
                    state, target.name[0], swapped, partial(self._check, state)
                )
            case cp.SetSchemaPlan():
                assert target.item is not None
                assert plan.to is not None
                return renames.set_schema(
                    state, target.item.id, plan.to, partial(self._check, state)
                )
            case cp.SetClusterPlan():
                assert target.item is not None
                return renames.set_cluster(state, target.item.id, plan.cluster)
            case cp.SetOwnerPlan():
                role = roles.role_named(state, plan.role)
                key, holder = self._holder(state, target)
                assert isinstance(holder, Owned)  # a replica's owner is its cluster's
                return entry(key, privileges.owned_by(holder, role.id))
            case cp.AlterRolePlan():
                roles.role_named(state, target.name[-1])
                return NOTHING
            case cp.AlterRoleVariablePlan():
                return alter_role(state, target.name[-1], plan.variable, plan.values)
            case cp.CommentPlan():
                return comment(state, self._comment_key(state, target, plan.column), plan.text)
        raise AssertionError(plan)

    def _renamed(self, state: CatalogState, target: cp.Target, to: str) -> Change:
        name = target.name[-1]
        if target.item is not None:
            old = renames.name_of(live(state, target.item.id))
            new = FullName(old.database, old.schema, to)
            return renames.rename_items(state, {target.item.id: new}, partial(self._check, state))
        match target.kind:
            case "schema":
                if to.startswith(("mz_", "pg_")) or to in SYSTEM_SCHEMAS:
                    raise _reserved("schema", to)
                return renames.rename_schemas(
                    state, target.name[0], {name: to}, partial(self._check, state)
                )
            case "cluster":
                if to.startswith(("mz_", "pg_")):
                    raise _reserved("cluster", to)
                return renames.rename_clusters(state, {name: to})
            case _:
                return clusters.rename_replica(state, target.name[0], name, to)

    @staticmethod
    def _holder(state: CatalogState, target: cp.Target) -> tuple[str, Holder]:
        """The catalog entry that a statement is about: its key and its value."""
        name = target.name[-1]
        if target.item is not None:
            return target.item.id, live(state, target.item.id)
        match target.kind:
            case "schema":
                key, schema = schemas.schema_named(state, target.name[0], name)
                return key, schema
            case "database":
                database = schemas.database_named(state, name)
                return database.id, database
            case "cluster":
                cluster = clusters.cluster_named(state, name)
                return cluster.id, cluster
            case "cluster replica":
                replica = clusters.replica_named(state, target.name[0], name)
                return replica.id, replica
            case _:
                role = roles.role_named(state, name)
                return role.id, role

    def _comment_key(self, state: CatalogState, target: cp.Target, column: int | None) -> str:
        _, holder = self._holder(state, target)
        if isinstance(holder, Object):
            return item_comment_key(holder, column)
        return f"{type(holder).__name__.lower()}/{holder.id}"

    @staticmethod
    def _membership(state: CatalogState, plan: cp.MembershipPlan) -> Change:
        change = NOTHING
        for role in plan.roles:
            for member in plan.members:
                then = applied(state, change)
                change |= roles.grant(then, role, member, revoke=plan.revoke)
        return change

    def _granted(self, state: CatalogState, plan: cp.PrivilegesPlan) -> Change:
        said = plan.privileges
        modes = None if said is None else "".join(PRIVILEGES[word] for word in said)
        change = NOTHING
        grantees = [privileges.grantee_id(state, role) for role in plan.roles]
        if plan.kind == "system":
            for grantee in grantees:
                then = applied(state, change)
                change |= privileges.grant_on_system(then, grantee, modes, revoke=plan.revoke)
            return change
        for key, holder in self._held(state, plan):
            after = holder
            for grantee in grantees:
                after = privileges.changed(after, grantee, modes, revoke=plan.revoke)
            change |= entry(key, after)
        return change

    def _held(self, state: CatalogState, plan: cp.PrivilegesPlan) -> Iterator[tuple[str, Owned]]:
        """The catalog entries that a GRANT or REVOKE is about."""
        if plan.places is None:
            for target in dict.fromkeys(plan.targets):
                key, holder = self._holder(state, target)
                assert isinstance(holder, Owned)
                yield key, holder
            return
        databases = {one.id: one.name for one in state.databases.values()}
        for key, holder in privileges.holders(state):
            place: tuple[str, ...] = ()
            if isinstance(holder, Object):
                place = (holder.database, holder.schema)
            elif isinstance(holder, Schema):
                place = (databases[holder.database],)
            within = not plan.places or any(place[: len(p)] == p for p in plan.places)
            kind = privileges.kind_of(holder)
            alike = "table" if isinstance(holder, Object) and kind != "type" else None
            if within and plan.kind in (kind, alike):
                yield key, holder

    def _check(self, base: CatalogState, before: Item, after: Item, then: CatalogState) -> None:
        """Refuse a rename that would change the meaning of a definition that uses the name."""
        if before.create_sql == after.create_sql:
            return
        if isinstance(before, Table) and not before.depends_on:
            return  # nothing in it names anything
        old = self._meaning(base, before)
        try:
            same = self._meaning(then, after) == old
        except SqlError:
            same = False
        if not same:
            raise DependentObjects(
                f'cannot rename: the definition of {before.noun} "{before.full_name}" would change its meaning',
                detail=f"It would be: {after.create_sql}",
                hint="Drop it, rename, and create it again.",
            )

    def _meaning(self, state: CatalogState, item: Item) -> object:
        catalog = SessionCatalog(state, self._planner.builtin_desc)
        (statement,) = parse_statements(item.create_sql)
        plan = plan_statement(statement, catalog)
        assert isinstance(plan, p.CreatingPlan), (
            "what the catalog keeps of an object is what creates it"
        )
        return plan.meaning


def _granted_ahead(state: CatalogState, plan: cp.DefaultPrivilegesPlan) -> Change:
    said = plan.privileges
    modes = (
        privileges.letters(plan.kind)
        if said is None
        else "".join(PRIVILEGES[word] for word in said)
    )
    makers = [privileges.PUBLIC]
    if plan.makers is not None:
        makers = [roles.role_named(state, name).id for name in plan.makers]
    grantees = [privileges.grantee_id(state, name) for name in plan.roles]
    altered = [
        DefaultPrivilege(maker, plan.kind, grantee, modes, *place)
        for maker in makers
        for place in [_ids_of(state, place) for place in plan.places] or [(None, None)]
        for grantee in grantees
    ]
    return default_privileges.alter_default(state, altered, revoke=plan.revoke)


def _ids_of(state: CatalogState, place: tuple[str, ...]) -> tuple[str | None, str | None]:
    """The ids of a database and, where ``place`` names one, of a schema in it."""
    database = schemas.database_named(state, place[0])
    if len(place) == 1:
        return database.id, None
    found = state.schema(*place)
    if found is None:
        raise UndefinedObject(f"unknown schema '{place[1]}'", sqlstate="3F000")
    return database.id, found[1].id


def _reserved(kind: str, name: str) -> SqlError:
    message = f'{kind} name "{name}" is reserved'
    if kind == "schema":
        message = f"unacceptable schema name '{name}'"
    own = 'The role "public" and the prefixes' if kind == "role" else "The prefixes"
    return InvalidParameter(
        message, detail=f'{own} "mz_" and "pg_" are reserved for system {kind}s.', sqlstate="42939"
    )


def _note_ignored(session: Session, options: tuple[str, ...]) -> None:
    for option in options:
        session.notice(f"{option} has no effect")
